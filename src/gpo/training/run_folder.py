"""The folder of a run: training, evaluation and reports meet through the files in it."""

import csv
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

from filelock import FileLock, Timeout

from gpo.atomic_files import PARTIAL, file_problem, write_text
from gpo.settings_files import check_fields, read_json
from gpo.training.config import RunConfig

SCORE = "validation/relative_l2"
"""Column of the log: the score that chooses the best checkpoint."""
SPENT = "cpu_seconds"
"""Column of the log: CPU seconds of all processes."""
LIMITS = ("epochs", "steps", "budget_cpu", "patience")
"""Settings that a run which goes on may have more of."""
CHOICE_FOLDER = "choice"
"""Short runs that settings are chosen by, while that goes on."""
LOCK_WAIT = 7.0
"""Seconds until a busy folder is refused: what a killed run left reading data ends in five."""


@dataclass(frozen=True, kw_only=True)
class TrainingRecord:
    """How training went: `training.json`, which reports show."""

    is_finished: bool
    reason: str
    """Why it ended; empty while it goes on."""
    limits: dict
    """The budget that it was for."""
    learning_rate: float
    """The highest one of the schedule, as given, usual or found."""
    best_score: float | None
    best_epoch: int | None
    """Epoch of the model that is kept, from 1."""
    epochs: int
    steps: int
    cpu_seconds: float
    events: tuple[str, ...] = ()
    """What happened on the way, in sentences."""

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
            raise ValueError(f"{path}: must be what gpo train wrote, got {error}.") from error


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
        """Returns the folder of the model; raises an error where training has not ended."""
        if not self.model_folder.exists():
            raise ValueError(f"{self.folder} holds no trained model: gpo train makes one.")
        return self.model_folder

    @property
    def checkpoints(self) -> Path:
        """Where training resumes from."""
        return self.folder / "checkpoints"

    @property
    def results_file(self) -> Path:
        """The scores of an evaluation."""
        return self.folder / "results.json"

    @property
    def report_file(self) -> Path:
        """The page of a report."""
        return self.folder / "report.html"

    @property
    def training_file(self) -> Path:
        """How training went."""
        return self.folder / "training.json"

    def record(self) -> TrainingRecord | None:
        """Returns how training went, None where no epoch has ended yet."""
        return TrainingRecord.load(self.training_file) if self.training_file.exists() else None

    def is_finished(self, config: RunConfig) -> bool:
        """Tells whether there is a model and the whole budget of a configuration is used."""
        record = self.record() if self.model_folder.exists() else None
        return record is not None and record.is_finished and record.limits == vars(config.budget)

    def has_progress(self) -> bool:
        """Tells whether there is anything that another run in this folder would lose."""
        return self.model_folder.exists() or any(self.checkpoints.glob("*.ckpt"))

    def config(self) -> RunConfig:
        """Returns the configuration; raises an error where the folder is no run."""
        if not self.config_file.exists():
            raise ValueError(
                f"{self.folder} is no run: it has no {self.config_file.name}. gpo run makes one."
            )
        return RunConfig.load(self.config_file)

    def check(self, config: RunConfig) -> None:
        """Refuses a folder that a run of this configuration can neither begin nor go on in."""
        if not self.config_file.exists():
            names = {path.name for path in self.folder.iterdir()} if self.folder.exists() else set()
            names -= {self._lock_file.name, CHOICE_FOLDER}
            # A run that was killed while it wrote its configuration leaves a part of that.
            if any(not name.startswith(PARTIAL) for name in names):
                raise ValueError(f"{self.folder} is not empty and no run. Choose another --out.")
        elif self.has_progress():
            differing = _not_more(self.config(), config)
            if differing:
                raise ValueError(
                    f"{self.folder} holds a run of another configuration: {'; '.join(differing)}. "
                    "Choose another --out, or delete it. A run goes on with more of "
                    "--budget-cpu, --epochs, --steps or --patience."
                )

    def claim(self, config: RunConfig) -> None:
        """Takes a new folder, or one of the same configuration or a smaller budget."""
        self.check(config)
        self.folder.mkdir(parents=True, exist_ok=True)
        config.save(self.config_file)

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Keeps other processes from training in this folder; refuses where one does already."""
        self.folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(self._lock_file, timeout=LOCK_WAIT)
        try:
            # It ends with the process, however that ends.
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


def _not_more(old: RunConfig, new: RunConfig) -> list[str]:
    """Returns in what two configurations differ, but for limits that have grown."""
    differing = []
    for name, (before, now) in old.differences(new).items():
        if name in LIMITS and (now is None or (before is not None and now >= before)):
            continue
        differing.append(f"`{name}` is {before} there and {now} here")
    return differing


def read_log(run: Run) -> list[dict[str, float]]:
    """Returns the losses and scores of every epoch, by name."""
    rows: dict[int, dict[str, float]] = {}
    paths = (run.folder / "log").glob("version_*/metrics.csv")
    # What a later sitting says of an epoch goes before what an earlier one said.
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
            problem = f"must be the log that gpo train wrote, got {type(error).__name__}: {error}"
            raise ValueError(f"{path}: {problem}. Delete it to go without.") from error
    return [rows[epoch] for epoch in sorted(rows)]
