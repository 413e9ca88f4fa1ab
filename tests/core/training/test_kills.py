"""Real kills of `gpo run`; `benchmarks/results/kills` has a hundred."""

import json
import os
import subprocess
import sys

import pytest

from gpo.atomic_files import write_text
from tests.contracts.samples import ns2d
from tests.processes import PROJECT, Forked, finish, finish_forked


@pytest.mark.thorough
@pytest.mark.parametrize("setting", ["plateau", "folder moved"])
def test_a_run_that_was_killed_again_and_again_equals_an_undisturbed_one(tmp_path, setting):
    command = [sys.executable, "benchmarks/kills.py", "--kills", "3", "--settings", setting]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    finish([*command, "--results", str(tmp_path)], cwd=PROJECT, env=environment)
    runs = json.loads((tmp_path / "kills.json").read_text())
    assert sum(len(run["kills"]) for run in runs) == 3
    assert {run["differs"] for run in runs} == {""}
    assert all(kill["lost"] <= 1 for run in runs for kill in run["kills"])


@pytest.mark.thorough
def test_a_run_that_was_killed_while_it_wrote_its_configuration_starts_again(tmp_path):
    folder = tmp_path / "run"
    command = ["train", "--data", str(ns2d(tmp_path)), "--epochs", "1", "--hidden-dim", "16",
               "--num-layers", "1", "--quiet", "--out", str(folder)]  # fmt: skip
    held = ["config.yaml", "1", str(tmp_path / "never"), "gpo"]
    with Forked("tests.held", [*held, *command]) as running:
        running.wait_until(lambda: list(folder.glob(".partial-*-config.yaml")))
        running.kill()
    assert not (folder / "config.yaml").exists()
    finish_forked("gpo", *command)
    assert (folder / "model" / "model.safetensors").is_file()
    assert not list(folder.rglob(".partial-*"))


@pytest.mark.skipif(sys.platform == "win32", reason="processes are not looked up on Windows")
def test_a_new_file_replaces_what_a_killed_process_left_of_it(tmp_path):
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    left = tmp_path / f".partial-{dead.pid}-config.yaml"
    kept = [
        tmp_path / f".partial-{os.getppid()}-config.yaml",
        tmp_path / f".partial-{dead.pid}-results.json",
        tmp_path / ".partial-mine-config.yaml",
    ]
    for path in (left, *kept):
        path.write_text("half")
    write_text(tmp_path / "config.yaml", "new")
    assert {path.name for path in tmp_path.iterdir()} == {
        "config.yaml",
        *(path.name for path in kept),
    }
