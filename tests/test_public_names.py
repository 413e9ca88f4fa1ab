"""The public surface: every name of `gpo` can be had, and documents use no other."""

import re
from pathlib import Path

import pytest

import gpo

ROOT = Path(__file__).parent.parent
DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/*.py"), *ROOT.glob("examples/**/*.ipynb")])  # fmt: skip


def test_every_public_name_can_be_had_and_is_listed():
    assert gpo.__all__ == sorted(gpo.__all__)
    for name in gpo.__all__:
        assert getattr(gpo, name).__name__ == name
        assert name in dir(gpo)
    assert re.fullmatch(r"\d+\.\d+\.\d+.*", gpo.__version__)
    with pytest.raises(AttributeError, match="no attribute 'colour'"):
        _ = gpo.colour


@pytest.mark.parametrize("path", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_documents_import_from_the_package_alone(path):
    found = re.findall(r"^[ \t\">]*((?:from|import) gpo\.[\w.]+)", path.read_text(), re.MULTILINE)
    assert found == []
    for names in re.findall(r"from gpo import ([\w, ]+)", path.read_text()):
        unknown = {name.strip() for name in names.split(",")} - set(gpo.__all__)
        assert not unknown
