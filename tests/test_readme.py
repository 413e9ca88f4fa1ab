import re
from pathlib import Path

ROOT = Path(__file__).parent.parent


def python_blocks(path):
    return re.findall(r"```python\n(.*?)```", path.read_text(encoding="utf-8"), re.DOTALL)


def test_the_readme_example_runs_as_printed_and_learns(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (block,) = python_blocks(ROOT / "README.md")
    names: dict = {}
    exec(compile(block, "README.md", "exec"), names)
    assert names["anywhere"].shape == (8, 1000, 1)
    assert names["anywhere"].isfinite().all()
    assert names["losses"]["prediction"].item() < 0.2
    assert (tmp_path / "runs/quickstart/model.safetensors").is_file()
    assert names["particles"].centers.shape == (8, 576, 4, 2)


def test_the_readme_example_is_fifteen_lines():
    (block,) = python_blocks(ROOT / "README.md")
    assert len([line for line in block.splitlines() if line.strip()]) <= 15


def test_pictures_and_pages_the_readme_names_exist():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    links = [link for link in re.findall(r"\]\(([^)]+)\)", text) if "://" not in link]
    assert links
    assert all((ROOT / link).is_file() for link in links)
