"""A table of numbers with its best entries marked, as Markdown, LaTeX and HTML."""

import html
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

Marks = dict[int | None, tuple[str, str]]
"""What stands before and after the best entry, the second, and any other."""


@dataclass(frozen=True)
class Entry:
    """One number, or the reason why there is none."""

    value: int | float | None = None
    spread: float | None = None
    """Standard deviation over seeds."""
    note: str = ""
    """What stands beside the number, such as the steps made; or the reason for its absence."""
    digits: int = 3

    @property
    def text(self) -> str:
        """The entry without any mark."""
        if self.value is None:
            return f"- ({self.note})" if self.note else "-"
        number = (
            f"{self.value:,}" if isinstance(self.value, int) else f"{self.value:.{self.digits}g}"
        )
        spread = "" if self.spread is None else f" ± {self.spread:.1g}"
        note = f" ({self.note})" if self.note else ""
        return f"{number}{spread}{note}"


@dataclass
class Table:
    """Rows of entries under named columns."""

    title: str
    corner: str
    columns: Sequence[str]
    rows: dict[str, list[Entry]] = field(default_factory=dict)
    unranked: frozenset[str] = frozenset()
    """Rows and columns that take no part in best and second: references, the paper's numbers."""
    best: Literal["smallest", "none"] = "smallest"
    notes: list[str] = field(default_factory=list)
    """Lines below the table."""

    def add(self, name: str, entries: Sequence[Entry]) -> None:
        """Appends a row, one entry per column."""
        if len(entries) != len(self.columns):
            raise ValueError(
                f"`entries` must be one for each of {len(self.columns)} columns, got {len(entries)}."
            )
        self.rows[name] = list(entries)

    def ranks(self, column: int) -> dict[str, int]:
        """Returns the rows that are best (1) and second (2) in a column."""
        if self.best == "none" or self.columns[column] in self.unranked:
            return {}
        values = {
            name: entry.value
            for name, entries in self.rows.items()
            if name not in self.unranked and (entry := entries[column]).value is not None
        }
        ordered = sorted(values, key=lambda name: float(values[name] or 0.0))
        return {name: rank for rank, name in enumerate(ordered[:2], start=1)}

    def markdown(self) -> str:
        """Returns the table with the best entry bold and the second in italics."""
        marks: Marks = {1: ("**", "**"), 2: ("*", "*"), None: ("", "")}
        lines = [f"### {self.title}", "", f"| {' | '.join((self.corner, *self.columns))} |"]
        lines.append("|" + "---|" * (len(self.columns) + 1))
        for name, cells in self._marked(marks):
            lines.append(f"| {name} | {' | '.join(cell.replace('|', '/') for cell in cells)} |")
        return "\n".join([*lines, "", *(f"{note}\n" for note in self.notes)])

    def latex(self) -> str:
        """Returns a tabular with the best entry bold and the second underlined."""
        marks: Marks = {1: (r"\textbf{", "}"), 2: (r"\underline{", "}"), None: ("", "")}
        lines = [rf"% {self.title}", rf"\begin{{tabular}}{{l{'r' * len(self.columns)}}}", r"\hline"]
        head = (self.corner, *self.columns)
        lines.append(" & ".join(_escape(name) for name in head) + r" \\ \hline")
        for name, cells in self._marked(marks, _escape):
            lines.append(" & ".join((_escape(name), *cells)) + r" \\")
        lines += [r"\hline", r"\end{tabular}"]
        return "\n".join([*lines, *(f"% {note}" for note in self.notes)]) + "\n"

    def html(self) -> str:
        """Returns the table with the best entry strong and the second emphasised."""
        marks: Marks = {1: ("<strong>", "</strong>"), 2: ("<em>", "</em>"), None: ("", "")}
        head = "".join(f"<th>{html.escape(name)}</th>" for name in (self.corner, *self.columns))
        body = "".join(
            f"<tr><td>{html.escape(name)}</td>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>\n"
            for name, cells in self._marked(marks, html.escape)
        )
        notes = "".join(f"<p>{html.escape(note)}</p>\n" for note in self.notes)
        return (
            f"<h2>{html.escape(self.title)}</h2>\n<table><tr>{head}</tr>\n{body}</table>\n{notes}"
        )

    def _marked(
        self, marks: Marks, spell: Callable[[str], str] = str
    ) -> list[tuple[str, list[str]]]:
        ranks = [self.ranks(column) for column in range(len(self.columns))]
        lines = []
        for name, entries in self.rows.items():
            cells = []
            for column, entry in enumerate(entries):
                before, after = marks[ranks[column].get(name)]
                cells.append(f"{before}{spell(entry.text)}{after}")
            lines.append((name, cells))
        return lines


def _escape(text: str) -> str:
    for character in "&%_#":
        text = text.replace(character, f"\\{character}")
    return text.replace("±", r"$\pm$")
