"""Real kills of `gpo run`; `benchmarks/results/kills` has a hundred."""

import json
import os
import sys
from pathlib import Path

import pytest

from tests.processes import finish

PROJECT = Path(__file__).parents[3]


@pytest.mark.thorough
@pytest.mark.parametrize("setting", ["plateau", "folder moved"])
def test_a_run_that_was_killed_again_and_again_is_that_which_nobody_disturbed(tmp_path, setting):
    command = [sys.executable, "benchmarks/kills.py", "--kills", "3", "--settings", setting]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    finish([*command, "--results", str(tmp_path)], cwd=PROJECT, env=environment)
    runs = json.loads((tmp_path / "kills.json").read_text())
    assert sum(len(run["kills"]) for run in runs) == 3
    assert {run["differs"] for run in runs} == {""}
    assert all(kill["lost"] <= 1 for run in runs for kill in run["kills"])
