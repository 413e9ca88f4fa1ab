import json
from dataclasses import replace

import pytest

from gpo.data.benchmarks import cache_folder, solver_for
from gpo.data.dataset import DataError
from gpo.data.generate import generate
from gpo.data.readers.registry import open_data
from gpo.data.solvers.navier_stokes_2d import NavierStokes2D
from gpo_bench.benchmarks import BENCHMARKS
from tests.processes import Forked, finish_forked

SMALL = NavierStokes2D(size=16, num_trajectories=5, num_frames=2, portion_size=2, viscosity=1e-3)


class StopError(Exception):
    pass


def test_the_same_recipe_gives_the_same_bytes(tmp_path):
    assert generate(SMALL, tmp_path / "one.mat")
    assert generate(SMALL, tmp_path / "two.mat")
    assert (tmp_path / "one.mat").read_bytes() == (tmp_path / "two.mat").read_bytes()
    data = open_data(tmp_path / "one.mat")
    assert (data.num_samples, len(data.time)) == (5, 2)


def test_an_interrupted_run_goes_on_and_ends_in_the_same_bytes(tmp_path):
    generate(SMALL, tmp_path / "whole.mat")
    path = tmp_path / "broken.mat"

    def stop_after_two(done, _):
        if done == 2:
            raise StopError

    with pytest.raises(StopError):
        generate(SMALL, path, stop_after_two)
    assert not path.exists()
    counts = []
    assert generate(SMALL, path, lambda done, total: counts.append((done, total)))
    assert counts == [(2, 5), (4, 5), (5, 5)]
    assert path.read_bytes() == (tmp_path / "whole.mat").read_bytes()
    assert sorted(p.name for p in tmp_path.iterdir()) == [
        "broken.mat", "broken.mat.made.json", "whole.mat", "whole.mat.made.json",
    ]  # fmt: skip


@pytest.mark.thorough
def test_two_processes_make_a_file_once(tmp_path):
    path = tmp_path / "ns.mat"
    command = ["data", "make", "ns2d", "--preset", "quick", "--out", str(path),
               "--set", "size=32", "num_trajectories=6", "portion_size=1", "num_frames=3"]  # fmt: skip
    with Forked("gpo", command) as first, Forked("gpo", command) as second:
        assert [running.end() for running in (first, second)] == [0, 0]
        outputs = [running.said for running in (first, second)]
    ends = sorted(text.strip().splitlines()[-1].split(":")[0] for text in outputs)
    assert ends == ["already there", "made"]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["ns.mat", "ns.mat.made.json"]


@pytest.mark.thorough
def test_a_killed_process_leaves_no_apparently_complete_file(tmp_path):
    """Kills the process by SIGKILL, then repeats the command."""
    path = tmp_path / "ns.mat"
    command = ["data", "make", "ns2d", "--preset", "quick", "--out", str(path),
               "--set", "size=32", "num_trajectories=6", "portion_size=1", "num_frames=3"]  # fmt: skip
    held = ["*.npz", "2", str(tmp_path / "never"), "gpo"]
    with Forked("tests.held", [*held, *command]) as running:
        running.wait_until(lambda: list(tmp_path.glob(".ns.mat.*.parts/*.npz")))
        running.kill()
    assert not path.exists()
    finish_forked("gpo", *command)
    assert open_data(path).num_samples == 6


def test_an_existing_file_is_kept_and_another_recipe_refused(tmp_path):
    path = tmp_path / "ns.mat"
    generate(SMALL, path)
    before = path.stat().st_mtime_ns
    assert not generate(SMALL, path)
    assert path.stat().st_mtime_ns == before
    other = NavierStokes2D(size=16, num_trajectories=5, num_frames=2, portion_size=2, seed=1)
    with pytest.raises(DataError, match="exists and was generated with other parameters"):
        generate(other, path)
    foreign = tmp_path / "foreign.mat"
    foreign.write_bytes(b"precious")
    with pytest.raises(DataError, match="exists"):
        generate(SMALL, foreign)
    assert foreign.read_bytes() == b"precious"


def test_the_recipe_is_kept_beside_the_file(tmp_path):
    generate(SMALL, tmp_path / "ns.mat")
    recipe = json.loads((tmp_path / "ns.mat.made.json").read_text())
    assert recipe["solver"] == "NavierStokes2D"
    assert recipe["viscosity"] == 1e-3


def test_single_parameters_of_a_preset_can_be_set():
    solver = solver_for("ns2d", "quick", {"viscosity": "1e-3", "num-trajectories": "8"})
    assert (solver.viscosity, solver.num_trajectories, solver.size) == (1e-3, 8, 64)
    layer = solver_for("turbulent", "quick", {"cooling_times": "0.1,1"})
    assert layer.cooling_times == (0.1, 1.0)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("ns5d", "quick", {}), "one of ns2d, .*got 'ns5d'"),
        (("carra", "quick", {}), "carra has no solver.*Data sets with a solver: ns2d"),
        (("ns2d", "tiny", {}), "`preset` must be one of quick, default, paper, got 'tiny'"),
        (
            ("ns2d", "quick", {"visosity": "1"}),
            "`visosity` must be a parameter of the solver: viscosity, size",
        ),
        (("ns2d", "quick", {"size": "big"}), "`size` must be int, got 'big'"),
        (("turbulent", "quick", {"cooling_times": "1;2"}), "must be float, or several with commas"),
    ],
)
def test_impossible_requests_for_a_solver_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        solver_for(*arguments)


def test_every_benchmark_of_the_paper_names_a_reader_we_have():
    from gpo.data.readers.registry import READERS

    assert len(BENCHMARKS) == 8
    assert all(benchmark.reader in READERS for benchmark in BENCHMARKS.values())


def test_the_paper_preset_is_the_papers():
    paper = solver_for("ns2d-1e-5", "paper", {})
    assert (paper.viscosity, paper.num_trajectories, paper.size) == (1e-5, 1200, 64)


@pytest.mark.parametrize("preset", ["quick", "default", "paper"])
def test_the_name_of_ns2d_decides_its_viscosity_and_the_preset_its_size(preset):
    usual, thin = (solver_for(name, preset, {}) for name in ("ns2d", "ns2d-1e-5"))
    assert (usual.viscosity, thin.viscosity) == (1e-4, 1e-5)
    assert replace(thin, viscosity=1e-4) == usual


def test_the_cache_folder_can_be_set(monkeypatch, tmp_path):
    monkeypatch.setenv("GPO_CACHE", str(tmp_path))
    assert cache_folder() == tmp_path
    monkeypatch.delenv("GPO_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "gpo"
