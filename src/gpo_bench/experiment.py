"""One experiment of a table: a run folder that is made once, by `gpo run`, and then read.

Every run is a process of its own, `gpo` with a file of settings, so that an experiment is what
users get. The learning rate of a model on a column is chosen once, on validation data, for all
its seeds.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from filelock import FileLock, Timeout

from gpo.atomic_files import write_text
from gpo.evaluation.results import Results
from gpo.training.config import RunConfig
from gpo.training.run_folder import SCORE, Run, read_log
from gpo_bench.protocol import Protocol


class ExperimentError(RuntimeError):
    """An experiment that failed; the message is what the run said last."""


@dataclass(frozen=True)
class Experiment:
    """A model on the data of a column, with everything that decides the outcome."""

    row: str
    """What the row is called."""
    column: str
    settings: dict[str, Any]
    """Data, model and seed: what a run sets beside the protocol."""
    protocol: Protocol

    def folder(self, root: Path) -> Path:
        """Returns where the experiment is kept; other settings make another folder."""
        return root / self.column / f"{self.row}-{_digest(self.settings, self.protocol)}"

    def tuning(self, root: Path) -> "Tuning":
        """Returns the choice of the learning rate, which all seeds share."""
        settings = {name: value for name, value in self.settings.items() if name != "seed"}
        folder = root / self.column / f"{self.row}-rates-{_digest(settings, self.protocol)}"
        return Tuning(folder, settings, self.protocol)

    def outcome(self, root: Path) -> "Outcome | None":
        """Returns what came out, or None where the experiment is not finished."""
        path = self.folder(root) / "outcome.json"
        if not path.exists():
            return None
        outcome = Outcome(**json.loads(path.read_text(encoding="utf-8")))
        return outcome if outcome.learning_rate == self.tuning(root).best else None

    def run(self, root: Path) -> Run:
        """Returns the run folder."""
        return Run(self.folder(root) / "run")

    def results(self, root: Path) -> Results:
        """Returns all numbers of a finished experiment; scores now what its table had no use for."""
        run = self.run(root)
        results = Results.load(run.results_file)
        if results.scope == "all":
            return results
        evaluate(run.folder, self.protocol.threads(os.cpu_count() or 1))
        return Results.load(run.results_file)

    def make(self, root: Path, threads: int) -> "Outcome":
        """Tunes the learning rate, trains, scores; goes on where it was interrupted.

        Args:
            root: The folder of all experiments.
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
            with FileLock(folder / "experiment.lock", blocking=False):
                return self.outcome(root) or self._made(folder, rate, threads)
        except Timeout:
            raise ExperimentError(
                "another gpo bench is at work on it; run again when that is done"
            ) from None

    def _made(self, folder: Path, rate: float, threads: int) -> "Outcome":
        settings = {**self.protocol.settings(), **self.settings, "learning_rate": rate}
        run = Run(folder / "run")
        if run.config_file.exists() and run.config().learning_rate != rate:
            # Another learning rate turned out better since.
            shutil.rmtree(run.folder)
        run_gpo("run", settings, run.folder, threads)
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


@dataclass(frozen=True)
class Outcome:
    """What came out of an experiment."""

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


@dataclass(frozen=True)
class Tuning:
    """The choice of a learning rate: short runs, one per rate of the protocol.

    Rates that the protocol gets later are tried then.
    """

    folder: Path
    settings: dict[str, Any]
    """Data and model; the seed is 0."""
    protocol: Protocol

    @property
    def scores(self) -> dict[float, float]:
        """The validation score of every learning rate that was tried."""
        if not self._file.exists():
            return {}
        stored = json.loads(self._file.read_text(encoding="utf-8"))
        return {float(rate): score for rate, score in stored.items()}

    @property
    def best(self) -> float | None:
        """The learning rate with the best score, None where one was not tried yet."""
        rates, scores = self.protocol.learning_rates, self.scores
        if len(rates) == 1:
            return rates[0]
        if not scores.keys() >= set(rates):
            return None
        return min(rates, key=lambda rate: scores[rate])

    def choose(self, threads: int) -> float:
        """Tries what was not tried yet and returns the best; a second seed waits for the first."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with FileLock(self.folder / "tuning.lock"):
            for rate in self.protocol.learning_rates:
                if self.best is None and rate not in self.scores:
                    self._try(rate, threads)
        chosen = self.best
        assert chosen is not None
        return chosen

    def _try(self, rate: float, threads: int) -> None:
        run = Run(self.folder / f"{rate:g}")
        settings = {**self.protocol.tuning(), **self.settings, "seed": 0, "learning_rate": rate}
        run_gpo("train", settings, run.folder, threads)
        score = min(row[SCORE] for row in read_log(run) if SCORE in row)
        shutil.rmtree(run.checkpoints, ignore_errors=True)
        scores = {str(tried): value for tried, value in {**self.scores, rate: score}.items()}
        write_text(self._file, json.dumps(scores, indent=2) + "\n")

    @property
    def _file(self) -> Path:
        return self.folder / "scores.json"


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
        raise ExperimentError(last[0].removeprefix("error: "))


def _digest(settings: dict[str, Any], protocol: Protocol) -> str:
    """Returns a short hash of all settings."""
    text = json.dumps([settings, asdict(protocol)], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:10]
