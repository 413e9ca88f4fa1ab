"""One cell of a table: a run folder that is made once, by `gpo run`, and then read."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import yaml
from filelock import FileLock, Timeout

from gpo.bench.protocol import Protocol
from gpo.evaluate.results import Results
from gpo.files import write_text
from gpo.train.config import RunConfig
from gpo.train.run_folder import Run, read_log

SCORE = "validation/relative_l2"
TUNING_NAME = "tuning.json"


class CellError(RuntimeError):
    """A cell that failed; the message is what the run said last."""


@dataclass(frozen=True)
class Cell:
    """A model on the data of a column, with everything that decides the outcome."""

    row: str
    """What the row is called."""
    column: str
    settings: dict[str, Any]
    """Data, model and seed: what a run sets beside the protocol."""
    protocol: Protocol

    @property
    def digest(self) -> str:
        """A short hash of all settings; other settings make another folder."""
        text = json.dumps([self.settings, asdict(self.protocol)], sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()[:10]

    def folder(self, root: Path) -> Path:
        """Returns where the cell is kept."""
        return root / self.column / f"{self.row}-{self.digest}"

    def outcome(self, root: Path) -> "Outcome | None":
        """Returns what came out, or None where the cell is not finished."""
        path = self.folder(root) / "outcome.json"
        if not path.exists():
            return None
        outcome = Outcome(**json.loads(path.read_text(encoding="utf-8")))
        return outcome if outcome.learning_rate == self._best_rate(path.parent) else None

    def results(self, root: Path) -> Results:
        """Returns all numbers of a finished cell."""
        return Results.load(Run(self.folder(root) / "run").results_file)

    def make(self, root: Path, threads: int) -> "Outcome":
        """Tunes the learning rate, trains, scores; goes on where it was interrupted.

        Args:
            root: The folder of all cells.
            threads: Threads that the run may have.
        """
        done = self.outcome(root)
        if done is not None:
            return done
        folder = self.folder(root)
        folder.mkdir(parents=True, exist_ok=True)
        try:
            # The lock ends with the process, however that ends.
            with FileLock(folder / "cell.lock", blocking=False):
                threads = self.protocol.threads(threads)
                rate = self._best_rate(folder) or self._tuned(folder, threads)
                return self.outcome(root) or self._made(folder, rate, threads)
        except Timeout:
            raise CellError(
                "another gpo bench is at work on it; run again when that is done"
            ) from None

    def _made(self, folder: Path, rate: float, threads: int) -> "Outcome":
        settings = {**self.protocol.settings(), **self.settings, "learning_rate": rate}
        run = Run(folder / "run")
        if run.config_file.exists() and RunConfig.load(run.config_file).learning_rate != rate:
            # Another learning rate turned out better since.
            shutil.rmtree(run.folder)
        self._call("run", settings, run.folder, threads)
        results, log = Results.load(run.results_file), read_log(run)
        outcome = Outcome(
            relative_l2=results.one_step["model"]["relative_l2"],
            references={who: scores["relative_l2"] for who, scores in results.one_step.items() if who != "model"},
            steps=int(max(row["step"] for row in log)) + 1,
            epochs=len(log),
            learning_rate=rate,
            parameters=results.model["parameters"],
            num_examples=results.num_examples,
        )  # fmt: skip
        write_text(folder / "outcome.json", json.dumps(asdict(outcome), indent=2) + "\n")
        shutil.rmtree(run.checkpoints, ignore_errors=True)
        return outcome

    def _best_rate(self, folder: Path) -> float | None:
        """Returns the learning rate with the best validation score, None where one was not tried yet."""
        rates, scores = self.protocol.learning_rates, _tuning_scores(folder)
        if len(rates) == 1:
            return rates[0]
        if not scores.keys() >= set(rates):
            return None
        return min(rates, key=lambda rate: scores[rate])

    def _tuned(self, folder: Path, threads: int) -> float:
        """Tries the learning rates that were not tried yet in a short run each; returns the best."""
        rates, scores = self.protocol.learning_rates, _tuning_scores(folder)
        for rate in rates:
            if rate in scores:
                continue
            settings = {**self.protocol.tuning(), **self.settings, "learning_rate": rate}
            run = Run(folder / f"tuning-{rate:g}")
            self._call("train", settings, run.folder, threads)
            scores[rate] = min(row[SCORE] for row in read_log(run) if SCORE in row)
            shutil.rmtree(run.checkpoints, ignore_errors=True)
            text = json.dumps({str(tried): score for tried, score in scores.items()}, indent=2)
            write_text(folder / TUNING_NAME, text + "\n")
        return min(rates, key=lambda rate: scores[rate])

    def _call(self, command: str, settings: dict[str, Any], out: Path, threads: int) -> None:
        if command == "train" and (out / "model" / "model.safetensors").exists():
            return
        plain = {key: list(v) if isinstance(v, tuple) else v for key, v in settings.items()}
        config = out.with_name(f"{out.name}.yaml")
        write_text(config, yaml.safe_dump(plain, sort_keys=False))
        done = subprocess.run(
            [sys.executable, "-m", "gpo", command, "--config", str(config), "--out", str(out), "--quiet"],
            capture_output=True, text=True, check=False,
            env={**os.environ, "OMP_NUM_THREADS": str(threads)},
        )  # fmt: skip
        if done.returncode != 0:
            last = done.stderr.strip().splitlines()[-1:] or ["no message"]
            raise CellError(last[0].removeprefix("error: "))


def _tuning_scores(folder: Path) -> dict[float, float]:
    """Returns the validation score of every learning rate that was tried."""
    path = folder / TUNING_NAME
    if not path.exists():
        return {}
    stored = json.loads(path.read_text(encoding="utf-8"))
    return {float(rate): score for rate, score in stored.items()}


@dataclass(frozen=True)
class Outcome:
    """What came out of a cell."""

    relative_l2: float
    references: dict[str, float]
    """Relative L2 of what learns nothing, by name."""
    steps: int
    """Optimiser steps that were made."""
    epochs: int
    learning_rate: float
    """The one that was chosen."""
    parameters: int
    num_examples: int
    """Test examples."""
