"""Where one of the four packages or an extra is missing, the others work, and errors say what to install."""

import subprocess
import sys

import pytest

from gpo.cli import main
from gpo.optional import extra_of
from tests.core.test_cli import failure

HIDE = """
import sys
for name in {names!r}:
    sys.modules[name] = None
{code}
"""
REINSTALL = "Install it: pip install --force-reinstall gpo."


def run_without(names, code):
    """Runs code in a process in which packages are missing."""
    command = [sys.executable, "-c", HIDE.format(names=names, code=code)]
    result = subprocess.run(command, capture_output=True, text=True)
    return result.returncode, result.stdout, result.stderr


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("package", "arguments", "problem"),
    [
        ("gpo_bench", ["bench", "table1"], "The command must be one of run, train,"),
        ("gpo_bench", ["run", "ns3d"], "`name` must be one of ns2d, ns2d-1e-5, got 'ns3d'."),
        ("gpo_bench", ["run", "ns2d", "--model", "fno"], "`model` must be one of gpo, gpo-paper,"),
        ("gpo_explore", ["explore", "run"], "The command must be one of run, train,"),
        ("gpo_mixture", ["represent", "a.nc"], "The command must be one of run, train,"),
    ],
)
def test_what_a_missing_package_registers_is_refused_with_what_to_install(
    package, arguments, problem
):
    code, _, errors = run_without([package], f"from gpo.cli import main; main({arguments!r})")
    assert code == 1
    assert problem in errors
    plugin = package.removeprefix("gpo_")
    assert f"The plug-in {plugin} is left out, because the package {package}" in errors
    assert REINSTALL in errors


@pytest.mark.thorough
def test_the_core_works_without_its_neighbours():
    code = """
import torch, gpo
from gpo.model.model import build_model
domain = gpo.Domain.unit_box(2)
model = build_model("gpo", gpo.Problem(1, 1, domain, (6, 6)))
print(*model(torch.rand(1, 36, 1), domain.grid(6, 6)[0]).shape)
try:
    build_model("fno", model.problem)
except ValueError as error:
    print(error)
"""
    names = ["gpo_bench", "gpo_explore", "gpo_mixture"]
    returncode, printed, errors = run_without(names, code)
    assert returncode == 0, errors
    assert printed.startswith("1 36 1\n`model` must be one of gpo, gpo-paper, got 'fno'.")
    assert printed.count(REINSTALL) == 3


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("module", "package", "arguments"),
    [
        ("gpo.training.fit", "lightning", ["train", "ns2d"]),
        ("gpo.report.contact_sheet", "matplotlib", ["data", "plot", "a.nc"]),
    ],
)
def test_a_command_names_the_extra_of_a_missing_package(
    module, package, arguments, monkeypatch, capsys
):
    monkeypatch.delitem(sys.modules, module, raising=False)
    monkeypatch.setitem(sys.modules, package, None)
    code, message = failure(capsys, *arguments)
    assert code == 1
    assert f"gpo {arguments[0]} needs the package {package}, which is not installed." in message
    assert f"pip install 'gpo[{extra_of(package)}]'" in message


def test_our_own_mistakes_are_no_missing_packages(monkeypatch):
    monkeypatch.setitem(sys.modules, "gpo.training.fit", None)
    with pytest.raises(ModuleNotFoundError, match=r"gpo\.training\.fit"):
        main(["train", "ns2d"])
    assert extra_of("gpo") is None
