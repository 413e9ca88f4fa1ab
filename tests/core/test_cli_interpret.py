"""`gpo interpret` from a run folder to the report, and what it says where it cannot."""

import json

import numpy as np
import pytest

from gpo.cli import main
from gpo.cli.interpret import known_viscosity
from gpo.data.readers.fno import write_fno
from gpo.interpretation.diffusion import Viscosity
from gpo.training.config import RunConfig
from tests.core.test_cli import failure

SIZES = ["--hidden-dim", "8", "--num-layers", "1", "--num-gaussians", "2",
         "--epochs", "1", "--quiet"]  # fmt: skip


def flows(path, size, seed):
    random = np.random.default_rng(seed)
    u = size * random.normal(size=(10, 8, 8, 3)).cumsum(1).cumsum(2)
    write_fno(path, np.arange(1.0, 4.0), [{"a": u[..., 0], "u": u}], (10, 8, 8))
    return str(path)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Two runs that differ in their seed, one that differs in more, and one of a baseline."""
    folder = tmp_path_factory.mktemp("runs")
    data = flows(folder / "usual.mat", 1.0, 0)
    flows(folder / "other.mat", 3.0, 1)
    for name, flags in {
        "run": SIZES,
        "seed": [*SIZES, "--seed", "1"],
        "wide": [*SIZES[:-5], "--num-gaussians", "3", *SIZES[-3:]],
        "fno": ["--model", "fno", *SIZES[-3:]],
    }.items():
        main(["train", "--data", data, *flags, "--out", str(folder / name)])
    return folder


@pytest.mark.thorough
def test_numbers_are_written_printed_and_drawn_in_the_report(runs, capsys):
    run, other, seed = (str(runs / name) for name in ("run", "other.mat", "seed"))
    main(["evaluate", run])
    main(["report", run])
    assert "Do particles follow structures?" not in (runs / "run" / "report.html").read_text()
    flags = ["--viscosity", "1e-3", "--scales-of", seed]
    main(["interpret", run, "--examples", "2", "--other", other, "--same-as", seed, *flags])
    printed = capsys.readouterr().out
    for text in ("2 test examples", "density – gradient", "change without any particle", "over the true 0.001", "other model's scales", "interpret.json"):  # fmt: skip
        assert text in printed
    found = json.loads((runs / "run" / "interpret.json").read_text())
    assert found["num_examples"] == 2
    assert list(found["stability"]["other_seeds"]) == [seed]
    assert found["stability"]["other_data"]["degradation"] > 0
    diffusion = found["motion"]["diffusion"]
    assert diffusion["ratio"]["best"] == pytest.approx(diffusion["best"] / 1e-3)
    assert diffusion["known_by"] == "--viscosity"
    main(["report", run])
    page = (runs / "run" / "report.html").read_text()
    for title in ("Particles on other data", "Do particles follow structures?", "Which modes are used?", "Do the strongest modes matter most?", "What depends on which region?"):  # fmt: skip
        assert title in page
    assert (runs / "run" / "figures" / "interpret-regions.png").stat().st_size > 5_000


def test_the_viscosity_of_a_benchmark_is_that_of_its_solver():
    config = RunConfig.of(benchmark="ns2d", preset="quick")
    assert known_viscosity(config) == Viscosity(1e-4, "the solver of ns2d")
    assert known_viscosity(RunConfig.of(data="other.mat")) is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("nowhere",), "nowhere is not a run folder: it has no config.yaml. Create one with gpo run."),
        (("fno",), "is a run of fno, which has no particles, windows or modes to interpret. Train gpo"),
        (("run", "--examples", "0"), "--examples must be at least 1, got 0"),
        (("run", "--viscosity", "0"), "--viscosity must be a positive number, got 0"),
        (("run", "--scales-of", "fno"), "is a run of fno, which has no particles"),
        (("run", "--scales-of", "wide"), "must have as many layers with transport, particles and axes"),
        (("run", "--other", "nowhere.mat"), "nowhere.mat: `file` does not exist"),
        (("run", "--same-as", "nowhere"), "nowhere is not a run folder: it has no config.yaml"),
        (("run", "--same-as", "wide"), "must differ in its seed only, got other settings of num_gaussians"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)  # fmt: skip
def test_what_is_wrong_is_said_in_one_line(runs, arguments, message, capsys, monkeypatch):
    monkeypatch.chdir(runs)
    code, printed = failure(capsys, "interpret", *arguments)
    assert code == 1
    assert message in printed
    assert "Traceback" not in printed
