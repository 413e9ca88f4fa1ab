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
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from filelock import FileLock, Timeout

from gpo.atomic_files import write_text
from gpo.evaluation.results import Results
from gpo.model.registry import OptimizerName
from gpo.training.config import RunConfig
from gpo.training.run_folder import SCORE, Run, read_log
from gpo_bench.protocol import Candidate, Protocol


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
    """The selection of optimizer and learning rate by short runs, one per pair of the protocol.

    If a pair is added to the protocol, only its run is missing.
    """

    folder: Path
    """Folder of the short runs."""
    settings: dict[str, Any]
    """Settings of the runs besides those of the protocol: data and model; the seed is 0."""
    protocol: Protocol
    """Training budget, optimizers and learning rates."""

    @property
    def scores(self) -> dict[Candidate, float]:
        """Validation score of each finished candidate."""
        if not self._file.exists():
            return {}
        stored = json.loads(self._file.read_text(encoding="utf-8"))
        return {Candidate.parse(text): score for text, score in stored.items()}

    @property
    def best(self) -> Candidate | None:
        """The candidate with the best score; None while runs are missing."""
        candidates, scores = self.protocol.candidates, self.scores
        if len(candidates) == 1:
            return candidates[0]
        if not scores.keys() >= set(candidates):
            return None
        return min(candidates, key=lambda candidate: scores[candidate])

    def select(self, threads: int) -> Candidate:
        """Returns the best candidate after the missing runs; other seeds wait meanwhile."""
        self.folder.mkdir(parents=True, exist_ok=True)
        with FileLock(self.folder / "tuning.lock"):
            for candidate in self.protocol.candidates:
                if self.best is None and candidate not in self.scores:
                    self._run(candidate, threads)
        best = self.best
        assert best is not None
        return best

    def _run(self, candidate: Candidate, threads: int) -> None:
        run = Run(self.folder / str(candidate).replace(" ", "-"))
        settings = {**self.protocol.tuning(), **self.settings, "seed": 0, **asdict(candidate)}
        run_gpo("train", settings, run.folder, threads)
        score = min(row[SCORE] for row in read_log(run) if SCORE in row)
        shutil.rmtree(run.checkpoints, ignore_errors=True)
        scores = {str(key): value for key, value in {**self.scores, candidate: score}.items()}
        write_text(self._file, json.dumps(scores, indent=2) + "\n")

    @property
    def _file(self) -> Path:
        return self.folder / "scores.json"


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
