"""One experiment of a table: a run folder that `gpo run` writes once.

Each run is a separate `gpo` process with a file of settings, so that an experiment reproduces what
a user gets. Optimizer and learning rate of a model on a column are selected once on validation
data, for all seeds.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from filelock import FileLock, Timeout

from gpo.atomic_files import write_text
from gpo.evaluation.results import Results
from gpo.model.registry import OptimizerName
from gpo.training.config import RunConfig
from gpo.training.run_folder import SCORE, Run, read_log
from gpo_bench.protocol import LONG, SHORT, Candidate, Protocol

FILES = {SHORT: "scores.json", LONG: "finals.json"}
"""Validation scores of runs with a fraction of the budget."""


class ExperimentError(RuntimeError):
    """An experiment failed; the message is the last line that the run printed."""


@dataclass(frozen=True)
class Experiment:
    """A model on the data of a column, with all settings that determine the outcome."""

    row: str
    """Name of the table row."""
    column: str
    """Name of the table column."""
    settings: dict[str, Any]
    """Settings of the run besides those of the protocol: data, model and seed."""
    protocol: Protocol
    """Training budget, optimizers and learning rates."""

    def folder(self, root: Path) -> Path:
        """Returns the folder of the experiment, whose name contains a hash of all settings."""
        return root / self.column / f"{self.row}-{_digest(self.settings, self.protocol)}"

    def tuning(self, root: Path) -> "Tuning":
        """Returns the selection of optimizer and learning rate, which all seeds share."""
        settings = {name: value for name, value in self.settings.items() if name != "seed"}
        folder = root / self.column / f"{self.row}-rates-{_digest(settings, self.protocol)}"
        return Tuning(folder, settings, self.protocol)

    def outcome(self, root: Path) -> "Outcome | None":
        """Returns the outcome, or None if the experiment is not finished."""
        path = self.folder(root) / "outcome.json"
        if not path.exists():
            return None
        outcome = Outcome(**json.loads(path.read_text(encoding="utf-8")))
        return outcome if outcome.candidate == self.tuning(root).best else None

    def run_folder(self, root: Path) -> Run:
        """Returns the run folder."""
        return Run(self.folder(root) / "run")

    def results(self, root: Path) -> Results:
        """Returns all scores of a finished experiment, and computes them if they are missing."""
        run = self.run_folder(root)
        results = Results.load(run.results_file)
        if results.scope == "all":
            return results
        evaluate(run.folder, self.protocol.threads(os.cpu_count() or 1))
        return Results.load(run.results_file)

    def execute(self, root: Path, threads: int) -> "Outcome":
        """Returns the outcome of the finished experiment, which resumes where it was interrupted.

        Args:
            root: Folder of all experiments.
            threads: Number of threads available to the run.
        """
        outcome = self.outcome(root)
        if outcome is not None:
            return outcome
        threads = self.protocol.threads(threads)
        candidate = self.tuning(root).select(threads)
        folder = self.folder(root)
        folder.mkdir(parents=True, exist_ok=True)
        try:
            # The system releases the lock when the process ends, even if it is killed.
            with FileLock(folder / "experiment.lock", blocking=False):
                return self.outcome(root) or self._train_and_score(folder, candidate, threads)
        except Timeout:
            raise ExperimentError(
                "another gpo bench is running this experiment; run the command again afterwards"
            ) from None

    def _train_and_score(self, folder: Path, candidate: Candidate, threads: int) -> "Outcome":
        settings = {**self.protocol.settings(), **self.settings, **asdict(candidate)}
        run = Run(folder / "run")
        if run.config_file.exists():
            config = run.config()
            if Candidate(config.optimizer_name, config.learning_rate) != candidate:
                # A candidate that was added to the protocol is better.
                shutil.rmtree(run.folder)
        run_gpo("run", settings, run.folder, threads)
        results, log = Results.load(run.results_file), read_log(run)
        outcome = Outcome(
            relative_l2=results.one_step["model"]["relative_l2"],
            references={name: scores["relative_l2"] for name, scores in results.one_step.items() if name != "model"},
            steps=int(max(row["step"] for row in log)) + 1,
            epochs=len(log),
            **asdict(candidate),
            parameters=results.model["parameters"],
            num_examples=results.num_examples,
        )  # fmt: skip
        write_text(folder / "outcome.json", json.dumps(asdict(outcome), indent=2) + "\n")
        shutil.rmtree(run.checkpoints, ignore_errors=True)
        return outcome


@dataclass(frozen=True)
class Outcome:
    """The numbers of a finished experiment."""

    relative_l2: float
    """Relative L2 error of one step on test data."""
    references: dict[str, float]
    """Relative L2 error of reference forecasts, such as persistence, by name."""
    steps: int
    """Number of optimizer steps."""
    epochs: int
    """Number of epochs."""
    learning_rate: float
    """The selected learning rate."""
    parameters: int
    """Number of parameters."""
    num_examples: int
    """Number of test examples."""
    optimizer: OptimizerName = "adamw"
    """The selected optimizer; outcomes of version 0.7 and before have AdamW and do not say so."""

    @property
    def candidate(self) -> Candidate:
        """The selected pair."""
        return Candidate(self.optimizer, self.learning_rate)


@dataclass(frozen=True)
class Tuning:
    """The selection of optimizer and learning rate on validation data, by successive halving.

    Every pair of the protocol has a short run; the best rate of each optimizer has a longer one. If
    a pair is added to the protocol, only its runs are missing.
    """

    folder: Path
    """Folder of these runs."""
    settings: dict[str, Any]
    """Settings of the runs besides those of the protocol: data and model; the seed is 0."""
    protocol: Protocol
    """Training budget, optimizers and learning rates."""

    @property
    def finalists(self) -> list[Candidate]:
        """The best learning rate of each optimizer; empty while short runs are missing."""
        scores, by_optimizer = self._scores(SHORT), dict[str, list[Candidate]]()
        for candidate in self.protocol.candidates:
            by_optimizer.setdefault(candidate.optimizer, []).append(candidate)
        if not scores.keys() >= set(self.protocol.candidates):
            return []
        return [min(each, key=scores.__getitem__) for each in by_optimizer.values()]

    @property
    def best(self) -> Candidate | None:
        """The candidate with the best score; None while runs are missing."""
        if len(self.protocol.candidates) == 1:
            return self.protocol.candidates[0]
        finalists, scores = self.finalists, self._scores(LONG)
        if len(finalists) == 1:
            return finalists[0]
        if not finalists or not scores.keys() >= set(finalists):
            return None
        return min(finalists, key=scores.__getitem__)

    def select(self, threads: int) -> Candidate:
        """Returns the best candidate after the missing runs; other seeds wait meanwhile."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with FileLock(self.folder / "tuning.lock"):
            if self.best is None:
                self._run(self.protocol.candidates, SHORT, threads)
            if self.best is None:
                self._run(self.finalists, LONG, threads)
        best = self.best
        assert best is not None
        return best

    def _run(self, candidates: Sequence[Candidate], fraction: int, threads: int) -> None:
        """Makes the runs that are missing with a fraction of the budget."""
        for candidate in candidates:
            scores = self._scores(fraction)
            if candidate in scores:
                continue
            name = str(candidate).replace(" ", "-")
            run = Run(self.folder / (name if fraction == SHORT else f"{name}-of-{fraction}"))
            shared = {**self.protocol.tuning(fraction), **self.settings, "seed": 0}
            run_gpo("train", {**shared, **asdict(candidate)}, run.folder, threads)
            scores[candidate] = min(row[SCORE] for row in read_log(run) if SCORE in row)
            shutil.rmtree(run.checkpoints, ignore_errors=True)
            stored = {str(key): value for key, value in scores.items()}
            write_text(self.folder / FILES[fraction], json.dumps(stored, indent=2) + "\n")

    def _scores(self, fraction: int) -> dict[Candidate, float]:
        """Returns the validation score of each finished run with a fraction of the budget."""
        path = self.folder / FILES[fraction]
        stored = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        return {Candidate.parse(text): score for text, score in stored.items()}


def run_gpo(
    command: Literal["run", "train"], settings: dict[str, Any], out: Path, threads: int
) -> None:
    """Trains with `gpo`, and computes one-step scores if the command is `run`.

    Args:
        command: The command of `gpo`.
        settings: The configuration, which is saved next to the run folder.
        out: The run folder.
        threads: Number of threads available to the run.
    """
    config = out.with_name(f"{out.name}.yaml")
    # Tables compare models alone, and their increments are to the last frame and its trend.
    RunConfig.of(**{"blend": False, **settings}).save(config)
    arguments = [command, "--config", str(config), "--out", str(out), "--quiet"]
    _call([*arguments, "--scope", "one-step"] if command == "run" else arguments, threads)


def evaluate(run: Path, threads: int) -> None:
    """Computes all scores of a run folder."""
    _call(["evaluate", str(run)], threads)


def _call(arguments: list[str], threads: int) -> None:
    """Runs `gpo` in a new process; raises an `ExperimentError` with its last line if it fails."""
    process = subprocess.run(
        [sys.executable, "-m", "gpo", *arguments],
        capture_output=True, text=True, check=False,
        env={**os.environ, "OMP_NUM_THREADS": str(threads)},
    )  # fmt: skip
    if process.returncode != 0:
        last = process.stderr.strip().splitlines()[-1:] or ["no message"]
        raise ExperimentError(last[0].removeprefix("error: "))


def _digest(settings: dict[str, Any], protocol: Protocol) -> str:
    """Returns a short hash of all settings, which names the folder of an experiment."""
    text = json.dumps([settings, asdict(protocol)], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:10]
