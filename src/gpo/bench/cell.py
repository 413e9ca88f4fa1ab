"""One cell of a table: a run folder that is made once, by `gpo run`, and then read."""

import hashlib
import json
import os
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from gpo.bench import invoke
from gpo.bench.invoke import CellError
from gpo.bench.protocol import Protocol
from gpo.bench.tuning import Tuning
from gpo.evaluate.results import Results
from gpo.files import write_text
from gpo.train.config import RunConfig
from gpo.train.run_folder import Run, read_log


@dataclass(frozen=True)
class Cell:
    """A model on the data of a column, with everything that decides the outcome."""

    row: str
    """What the row is called."""
    column: str
    settings: dict[str, Any]
    """Data, model and seed: what a run sets beside the protocol."""
    protocol: Protocol

    def folder(self, root: Path) -> Path:
        """Returns where the cell is kept; other settings make another folder."""
        return root / self.column / f"{self.row}-{_digest(self.settings, self.protocol)}"

    def tuning(self, root: Path) -> Tuning:
        """Returns the choice of the learning rate, which all seeds share."""
        settings = {name: value for name, value in self.settings.items() if name != "seed"}
        folder = root / self.column / f"{self.row}-rates-{_digest(settings, self.protocol)}"
        return Tuning(folder, settings, self.protocol)

    def outcome(self, root: Path) -> "Outcome | None":
        """Returns what came out, or None where the cell is not finished."""
        path = self.folder(root) / "outcome.json"
        if not path.exists():
            return None
        outcome = Outcome(**json.loads(path.read_text(encoding="utf-8")))
        return outcome if outcome.learning_rate == self.tuning(root).best else None

    def run(self, root: Path) -> Run:
        """Returns the run folder."""
        return Run(self.folder(root) / "run")

    def results(self, root: Path) -> Results:
        """Returns all numbers of a finished cell; scores now what its table had no use for."""
        run = self.run(root)
        results = Results.load(run.results_file)
        if results.scope == "all":
            return results
        invoke.evaluate(run.folder, self.protocol.threads(os.cpu_count() or 1))
        return Results.load(run.results_file)

    def make(self, root: Path, threads: int) -> "Outcome":
        """Tunes the learning rate, trains, scores; goes on where it was interrupted.

        Args:
            root: The folder of all cells.
            threads: Threads that the run may have.
        """
        done = self.outcome(root)
        if done is not None:
            return done
        threads = self.protocol.threads(threads)
        rate = self.tuning(root).choose(threads)
        folder = self.folder(root)
        folder.mkdir(parents=True, exist_ok=True)
        try:
            # The lock ends with the process, however that ends.
            with FileLock(folder / "cell.lock", blocking=False):
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
        invoke.run_gpo("run", settings, run.folder, threads)
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


def _digest(settings: dict[str, Any], protocol: Protocol) -> str:
    """Returns a short hash of all settings."""
    text = json.dumps([settings, asdict(protocol)], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:10]


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
