"""Names from files are shown, never obeyed: neither by the terminal nor by the markup of tables."""

import io

import numpy as np
import pytest
from rich.table import Table

from gpo.cli import main
from gpo.cli.console import PlainConsole
from gpo.visible_text import visible
from tests.core.test_cli import failure

NAMES = ("[/red]", "[bold]u", ":smile:", "\x1b[2Ju", "u\x07", "\x9b31mu", "u\u202ev", "[link=x]")


def write_series(path, name):
    values = np.random.default_rng(0).normal(size=(12, 4, 5))
    np.savez(path, **{name: values}, time=np.arange(12.0), y=np.arange(4.0), x=np.arange(5.0))


@pytest.mark.parametrize("name", NAMES)
def test_a_variable_is_described_whatever_its_name(tmp_path, capsys, name):
    write_series(tmp_path / "a.npz", name)
    main(["data", "info", str(tmp_path / "a.npz")])
    printed = capsys.readouterr().out
    assert visible(name) in printed
    assert not any(letter in printed for letter in "\x1b\x07\x9b\u202e")


def test_a_file_is_named_in_errors_without_being_obeyed(tmp_path, capsys):
    code, message = failure(capsys, "data", "info", str(tmp_path / "\x1b]0;owned\x07[/red].nc"))
    assert code == 1
    assert r"\x1b]0;owned\x07[/red].nc" in message
    assert "\x1b" not in message


def test_names_that_are_no_text_are_spelled_out():
    assert visible("caf\udce9 \x1b[0m\r é 😀\n\t") == "caf\\udce9 \\x1b[0m\\r é 😀\n\t"


def test_tables_show_names_as_they_are():
    table = Table(title="[/x] \x1b[1m")
    table.add_column(":smile: [/red]", no_wrap=True)
    table.add_row("[/red]\x1b[31m")
    console = PlainConsole(wraps=True, file=io.StringIO(), width=60)
    console.print(table)
    printed = console.file.getvalue()
    for text in (r"[/x] \x1b[1m", ":smile: [/red]", r"[/red]\x1b[31m"):
        assert text in printed
