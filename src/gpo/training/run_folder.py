"""Run folders: the files that training writes and evaluation and reports read."""

import csv
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from filelock import FileLock, Timeout

from gpo.atomic_files import PARTIAL, file_problem, write_text
from gpo.settings_files import check_fields, read_json
from gpo.training.config import RunConfig

SCORE = "validation/rmse_over_std"
"""Column of the log: the score that selects the best checkpoint, without units."""
SPENT = "cpu_seconds"
"""Column of the log: CPU seconds of all processes."""
LIMITS = ("epochs", "steps", "budget_cpu", "patience")
"""Settings that may grow when a run is continued."""
CHOICE_FOLDER = "choice"
"""Folder of the trial runs during automatic tuning."""
LOCK_WAIT = 7.0
"""Seconds to wait for a locked folder: workers of a killed run exit within five."""


@dataclass(frozen=True, kw_only=True)
class TrainingRecord:
    """Summary of training: `training.json`, shown in reports."""

    is_finished: bool
    reason: str
    """Why training ended; empty until then."""
    limits: dict
    """The budget."""
    learning_rate: float
    """Peak learning rate: as set, default, or from the range test."""
    best_score: float | None
    best_epoch: int | None
    """Epoch of the saved model, from 1."""
    epochs: int
    steps: int
    cpu_seconds: float
    events: tuple[str, ...] = ()
    """Events during training, as sentences."""

    def save(self, path: Path) -> None:
        """Writes the record as JSON."""
        write_text(path, json.dumps(asdict(self), indent=2) + "\n")

    @classmethod
    def load(cls, path: Path) -> "TrainingRecord":
        """Returns what `save` wrote."""
        stored = read_json(path)
        try:
            return cls(**check_fields(cls, stored, str(path)))
        except TypeError as error:
            raise ValueError(
                f"{path}: must be a file written by gpo train, got {error}."
            ) from error


@dataclass(frozen=True)
class Run:
    """A run folder: the configuration, checkpoints, logs and the trained model in `model/`."""

    folder: Path

    @property
    def config_file(self) -> Path:
        """The resolved configuration."""
        return self.folder / "config.yaml"

    @property
    def model_folder(self) -> Path:
        """The trained model and its task."""
        return self.folder / "model"

    def trained_model(self) -> Path:
        """Returns the folder of the model; raises an error if training has not finished."""
        if not self.model_folder.exists():
            raise ValueError(f"{self.folder} has no trained model: train one with gpo train.")
        return self.model_folder

    @property
    def checkpoints(self) -> Path:
        """Folder of the checkpoints."""
        return self.folder / "checkpoints"

    @property
    def results_file(self) -> Path:
        """The scores of an evaluation."""
        return self.folder / "results.json"

    @property
    def report_file(self) -> Path:
        """The report."""
        return self.folder / "report.html"

    @property
    def training_file(self) -> Path:
        """The summary of training."""
        return self.folder / "training.json"

    def record(self) -> TrainingRecord | None:
        """Returns the summary of training, None before it is written."""
        return TrainingRecord.load(self.training_file) if self.training_file.exists() else None

    def is_finished(self, config: RunConfig) -> bool:
        """Returns whether training has finished with the budget of a configuration."""
        record = self.record() if self.model_folder.exists() else None
        return record is not None and record.is_finished and record.limits == vars(config.budget)

    def has_progress(self) -> bool:
        """Returns whether the folder has a model or checkpoints."""
        return self.model_folder.exists() or any(self.checkpoints.glob("*.ckpt"))

    def config(self) -> RunConfig:
        """Returns the configuration; raises an error if the folder is not a run."""
        if not self.config_file.exists():
            raise ValueError(
                f"{self.folder} is not a run folder: it has no {self.config_file.name}. Create one "
                "with gpo run."
            )
        return RunConfig.load(self.config_file)

    def check_no_links(self) -> None:
        """Raises an error for symbolic links, through which gpo would write to other folders."""
        for path in sorted(self.folder.rglob("*")):
            if path.is_symlink():
                raise ValueError(
                    f"{path} must not be a symbolic link: gpo would write through it, outside of the "
                    f"run folder. Put a copy of {os.readlink(path)} in its place, or delete it."
                )

    def check(self, config: RunConfig) -> None:
        """Raises an error if this configuration can neither start nor resume in the folder."""
        self.check_no_links()
        if not self.config_file.exists():
            names = {path.name for path in self.folder.iterdir()} if self.folder.exists() else set()
            names -= {self._lock_file.name, CHOICE_FOLDER}
            # A run that was killed while it wrote its configuration leaves a part of that.
            if any(not name.startswith(PARTIAL) for name in names):
                raise ValueError(
                    f"{self.folder} is not empty and not a run folder. Choose another --out."
                )
        elif self.has_progress():
            differing = _differences(self.config(), self.with_optimizer(config))
            if differing:
                raise ValueError(
                    f"{self.folder} has a run of another configuration: {'; '.join(differing)}. "
                    "Choose another --out, or delete it. Only --budget-cpu, --epochs, --steps and "
                    "--patience may grow."
                )

    def with_optimizer(self, config: RunConfig) -> RunConfig:
        """Returns a configuration with the optimizer of this run, unless it sets one.

        Runs of gpo 0.7 and before have AdamW, which is no longer the default.
        """
        is_run = self.config_file.exists() and self.has_progress()
        if config.optimizer.optimizer is not None or not is_run:
            return config
        return config.changed(optimizer=self.config().optimizer.optimizer)

    def claim(self, config: RunConfig) -> None:
        """Checks the folder, creates it if missing and writes the configuration."""
        self.check(config)
        self.folder.mkdir(parents=True, exist_ok=True)
        config.save(self.config_file)

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Locks the folder; raises an error if another process trains in it."""
        self.folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(self._lock_file, timeout=LOCK_WAIT)
        try:
            # The system releases it when the process ends, however it ends.
            lock.acquire()
        except Timeout:
            raise ValueError(
                f"{self.folder}: another process trains in this folder. Wait for it, or choose "
                "another --out."
            ) from None
        try:
            yield
        finally:
            lock.release()

    @property
    def _lock_file(self) -> Path:
        return self.folder / "training.lock"


def _differences(old: RunConfig, new: RunConfig) -> list[str]:
    """Returns the differences of two configurations, except for limits that have grown."""
    differing = []
    for name, (before, now) in old.differences(new).items():
        if name == "untrusted":
            continue
        if name in LIMITS and (now is None or (before is not None and now >= before)):
            continue
        differing.append(f"`{name}` is {before} there and {now} here")
    return differing


def read_log(run: Run) -> list[dict[str, float]]:
    """Returns the losses and scores of every epoch, by name."""
    rows: dict[int, dict[str, float]] = {}
    paths = (run.folder / "log").glob("version_*/metrics.csv")
    # A later session overrides an earlier one.
    for path in sorted(paths, key=lambda path: int(path.parent.name.removeprefix("version_"))):
        problem = file_problem(path)
        if problem is not None:
            raise ValueError(f"{path} {problem}")
        try:
            with path.open(encoding="utf-8") as file:
                for row in csv.DictReader(file):
                    numbers = {key: float(value) for key, value in row.items() if value}
                    rows.setdefault(int(numbers["epoch"]), {}).update(numbers)
        except (KeyError, TypeError, ValueError, csv.Error) as error:
            problem = f"must be a log written by gpo train, got {type(error).__name__}: {error}"
            raise ValueError(f"{path}: {problem}. Delete it to continue without it.") from error
    return [rows[epoch] for epoch in sorted(rows)]
