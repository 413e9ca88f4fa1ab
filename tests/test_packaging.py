"""What the package says of itself: extras, version, and the tools before a commit."""

import ast
import re
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

from tests import audit
from tests.processes import finish

PROJECT = Path(__file__).parents[1]
ABOUT = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
EXTRAS = ABOUT["optional-dependencies"]
PINS = audit.pins()
IMPORT_NAMES = {"pyyaml": "yaml"}


def packages(requirements):
    """Returns the names of required packages as one imports them, extras of gpo resolved."""
    found = set()
    for requirement in requirements:
        name, inner = re.match(r"([\w-]+)(?:\[([\w,]+)\])?", requirement).groups()
        if name == "gpo":
            found.update(*(packages(EXTRAS[extra]) for extra in inner.split(",")))
        else:
            found.add(IMPORT_NAMES.get(name, name))
    return found


def required():
    """Yields every call of `require(module, extra, ...)`: where it is, the module, the extra."""
    for path in sorted((PROJECT / "src").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and getattr(node.func, "id", None) == "require":
                given = dict(zip(("module", "extra", "purpose"), node.args, strict=False))
                given |= {keyword.arg: keyword.value for keyword in node.keywords}
                module, extra = (getattr(given[k], "value", None) for k in ("module", "extra"))
                yield f"{path.name}:{node.lineno}", module, extra


def test_a_missing_optional_package_names_the_extra_that_installs_it():
    for place, module, extra in required():
        assert extra in EXTRAS, place
        if isinstance(module, str) and not module.startswith("gpo"):
            assert module.split(".")[0] in packages(EXTRAS[extra]), place


@pytest.mark.parametrize("folder", ["src", "docs", "examples", "."])
def test_every_extra_that_is_named_exists(folder):
    paths = (PROJECT / folder).rglob("*") if folder != "." else PROJECT.glob("*.md")
    for path in paths:
        if path.suffix in (".py", ".md", ".js", ".html"):
            for names in re.findall(r"gpo\[([a-z,]+)\]", path.read_text()):
                assert set(names.split(",")) <= set(EXTRAS), path


def test_the_core_and_the_extras_share_no_package_and_all_is_all_of_them():
    groups = [set(ABOUT["dependencies"])]
    groups += [set(EXTRAS[name]) for name in EXTRAS if name not in ("all", "dev")]
    assert sum(map(len, groups)) == len(set.union(*groups))
    assert packages(EXTRAS["all"]) == set.union(*map(packages, groups[1:]))
    assert packages(EXTRAS["all"]) <= packages(EXTRAS["dev"])


@pytest.mark.parametrize(
    "statement", ["gpo.GaussianParticleOperator", "import gpo.cli; gpo.cli.main(['--help'])"]
)
def test_the_core_opens_without_any_extra(statement):
    script = f"""
import sys
sys.modules.update(dict.fromkeys({sorted(packages(EXTRAS["all"]))}))
import gpo
{statement}
"""
    finish([sys.executable, "-c", script])


def test_the_citation_has_the_version_of_the_package():
    citation = yaml.safe_load((PROJECT / "CITATION.cff").read_text())
    assert citation["version"] == ABOUT["version"]
    assert citation["license"] == ABOUT["license"]


def test_the_tools_before_a_commit_are_those_of_make_check():
    makefile = (PROJECT / "Makefile").read_text()
    rule = re.search(r"^check:.*\n((?:\t.*\n)+)", makefile, re.MULTILINE)[1]
    commands = [line.strip().replace("$(BIN)", ".venv/bin") for line in rule.splitlines()]
    repositories = yaml.safe_load((PROJECT / ".pre-commit-config.yaml").read_text())["repos"]
    assert [hook["entry"] for hook in repositories[0]["hooks"]] == commands


def test_no_package_is_pinned_or_installed_outside_its_range():
    assert list(audit.problems()) == []


def test_the_audit_names_a_package_outside_its_range(monkeypatch):
    monkeypatch.setattr(audit, "pins", lambda: {**PINS, "torch": "2.9.1", "lightning": "2.6.2"})
    assert [line.split(",")[0] for line in audit.problems()] == [
        "requirements.txt pins torch 2.9.1",
        "requirements.txt pins lightning 2.6.2",
    ]


def test_the_audit_names_indirect_packages_that_are_not_pinned_or_that_others_cannot_use(
    monkeypatch,
):
    changed = {name: pin for name, pin in PINS.items() if name != "mdurl"}
    monkeypatch.setattr(audit, "pins", lambda: {**changed, "aiohttp": "3.13.2", "fsspec": "2020.1"})
    found = list(audit.problems())
    assert "requirements.txt pins aiohttp 3.13.2, must be >=3.13.3." in found
    assert any(
        line.startswith("requirements.txt pins mdurl None, but markdown-it-py") for line in found
    )
    assert any(line.startswith("requirements.txt pins fsspec 2020.1, but ") for line in found)


@pytest.mark.parametrize(
    ("name", "hole"),
    [
        ("torch", "2.9.1"),
        ("onnx", "1.20.1"),
        ("starlette", "1.0.0"),
        ("numcodecs", "0.16.5"),
        ("lightning", "2.6.2"),
        ("lightning", "2.6.3"),
        ("filelock", "3.20.2"),
        ("h11", "0.14.0"),
        ("anyio", "4.3.0"),
        ("werkzeug", "3.1.4"),
    ],
)
def test_versions_with_known_holes_are_out_of_range(name, hole):
    assert all(hole not in one.specifier for one in audit.ranges() if one.name == name)
    assert any(one.name == name for one in audit.ranges())
