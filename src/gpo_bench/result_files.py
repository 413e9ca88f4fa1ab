"""Files of a table: Markdown, LaTeX, HTML and pictures."""

import shlex
import sys
from pathlib import Path

from matplotlib.figure import Figure

from gpo.atomic_files import write_text
from gpo.cli.console import PlainConsole
from gpo_bench.protocol import describe_machine
from gpo_bench.table import Table


def write_results(
    folder: Path, tables: list[Table], figures: dict[str, Figure] | None = None
) -> None:
    """Writes tables as Markdown, LaTeX and HTML, and all figures; prints the Markdown."""
    folder.mkdir(parents=True, exist_ok=True)
    notes = describe_machine(shlex.join(["gpo", *sys.argv[1:]]))
    for table in tables:
        table.notes += notes
    write_text(folder / "table.md", "\n".join(table.markdown() for table in tables))
    write_text(folder / "table.tex", "\n".join(table.latex() for table in tables))
    head = '<!doctype html>\n<meta charset="utf-8">\n'
    write_text(folder / "table.html", head + "\n".join(table.html() for table in tables))
    for name, figure in (figures or {}).items():
        figure.savefig(folder / f"{name}.png", dpi=110)
    console = PlainConsole()
    for table in tables:
        console.print(table.markdown())
    console.print(f"written: {folder}")
