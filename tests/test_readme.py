"""The README is one page, and what it shows runs as printed."""

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
MAX_WORDS = 700


def python_block():
    (block,) = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    return block


def test_the_readme_is_one_page():
    assert len(README.read_text(encoding="utf-8").split()) <= MAX_WORDS


def test_the_readme_example_runs_as_printed_and_learns(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names: dict = {}
    exec(compile(python_block(), "README.md", "exec"), names)
    assert names["anywhere"].shape == (8, 1000, 1)
    assert names["anywhere"].isfinite().all()
    assert names["losses"]["prediction"].item() < 0.2
    assert (tmp_path / "runs/quickstart/model.safetensors").is_file()
    assert names["particles"].centers.shape == (8, 576, 4, 2)


def test_the_readme_example_is_fifteen_lines():
    assert len([line for line in python_block().splitlines() if line.strip()]) <= 15


def test_numbers_of_the_readme_are_those_of_table_1():
    """Every entry of the small table stands in the row of its model in docs/results.md."""
    table, results = _rows(README), _rows(ROOT / "docs" / "results.md")
    columns = [cell.split()[0] for cell in table[""]]
    for model, cells in table.items():
        if model not in ("gpo", "gpo-paper", "FNO", "best other", "persistence"):
            continue
        for column, cell in zip(columns, cells, strict=True):
            number, name = re.fullmatch(r"(.*?)(?: \((.+)\))?", cell.replace("*", "")).groups()
            row = results[(name or model).lower()]
            shown = row[results["model"].index(column)].replace("*", "")
            assert re.sub(r" \([\d,]+\)$", "", shown) == number


def _rows(path):
    """The first cell and the others of every table row of a page; the first row of a name counts."""
    rows: dict = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        if line.startswith("|") and not line.startswith("|---"):
            first, *rest = (cell.strip() for cell in line.strip("|").split("|"))
            rows.setdefault(first, rest)
    return rows
