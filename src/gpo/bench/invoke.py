"""A run as a process of its own: `gpo` with a file of settings, so that cells are what users get."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Literal

from gpo.training.config import RunConfig


class CellError(RuntimeError):
    """A cell that failed; the message is what the run said last."""


def run_gpo(
    command: Literal["run", "train"], settings: dict[str, Any], out: Path, threads: int
) -> None:
    """Trains with `gpo`, and scores one step where the command is `run`.

    Args:
        command: What to do.
        settings: The configuration; it stays beside the run.
        out: The run folder.
        threads: Threads that the run may have.
    """
    config = out.with_name(f"{out.name}.yaml")
    RunConfig.of(**settings).save(config)
    words = [command, "--config", str(config), "--out", str(out), "--quiet"]
    _call([*words, "--scope", "one-step"] if command == "run" else words, threads)


def evaluate(run: Path, threads: int) -> None:
    """Scores all there is to score of a run folder."""
    _call(["evaluate", str(run)], threads)


def _call(words: list[str], threads: int) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "gpo", *words],
        capture_output=True, text=True, check=False,
        env={**os.environ, "OMP_NUM_THREADS": str(threads)},
    )  # fmt: skip
    if done.returncode != 0:
        last = done.stderr.strip().splitlines()[-1:] or ["no message"]
        raise CellError(last[0].removeprefix("error: "))
