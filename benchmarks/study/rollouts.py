"""Rollouts of trained runs on their validation trajectories.

python benchmarks/study/rollouts.py RUN [RUN ...]
"""

from pathlib import Path

import tyro
from tyro.conf import Positional

from gpo import open_run
from gpo.evaluation.rollout import make_rollouts

STEPS = (1, 6, 10, 15, 19)


def main(runs: Positional[tuple[Path, ...]]) -> None:
    """Prints the mean relative L2 after some steps, a row of a table for every run."""
    for path in runs:
        run = open_run(path)
        rollouts = make_rollouts(run.forecaster(), run.data, run.split.validation, STEPS[-1], None)
        errors = rollouts.mean_errors()["model"]
        told = [errors[step - 1] for step in STEPS if step <= len(errors)]
        print(f"| {path.name} | " + " | ".join("-" if e is None else f"{e:.4f}" for e in told), "|")


if __name__ == "__main__":
    tyro.cli(main)
