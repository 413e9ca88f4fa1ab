"""The folder of a run: training, evaluation and reports meet through the files in it."""

import csv
from dataclasses import dataclass
from pathlib import Path

from gpo.training.config import RunConfig

SCORE = "validation/relative_l2"
"""Column of the log: the score that chooses the best checkpoint."""
SPENT = "cpu_seconds"
"""Column of the log: CPU seconds of all processes."""


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

    def config(self) -> RunConfig:
        """Returns the configuration; raises an error where the folder is no run."""
        if not self.config_file.exists():
            raise ValueError(
                f"{self.folder} is no run: it has no {self.config_file.name}. gpo run makes one."
            )
        return RunConfig.load(self.config_file)

    def claim(self, config: RunConfig) -> None:
        """Takes a new folder, or one of the same configuration; refuses any other."""
        if self.config_file.exists():
            if RunConfig.load(self.config_file) != config:
                raise ValueError(
                    f"{self.folder} holds a run of another configuration. "
                    "Choose another --out, or delete it."
                )
        elif self.folder.exists() and any(self.folder.iterdir()):
            raise ValueError(f"{self.folder} is not empty and no run. Choose another --out.")
        self.folder.mkdir(parents=True, exist_ok=True)
        config.save(self.config_file)


def read_log(run: Run) -> list[dict[str, float]]:
    """Returns the losses and scores of every epoch, by name."""
    rows: dict[int, dict[str, float]] = {}
    for path in sorted((run.folder / "log").glob("version_*/metrics.csv")):
        with path.open(encoding="utf-8") as file:
            for row in csv.DictReader(file):
                numbers = {key: float(value) for key, value in row.items() if value}
                rows.setdefault(int(numbers["epoch"]), {}).update(numbers)
    return [rows[epoch] for epoch in sorted(rows)]
