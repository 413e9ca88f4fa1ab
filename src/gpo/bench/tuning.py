"""The learning rate of a model on a column: chosen once, on validation data, for all its seeds."""

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock

from gpo.bench import invoke
from gpo.bench.protocol import Protocol
from gpo.files import write_text
from gpo.train.module import SCORE
from gpo.train.run_folder import Run, read_log


@dataclass(frozen=True)
class Tuning:
    """Short runs, one per learning rate of the protocol; rates that are added later are tried then."""

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
        invoke.run_gpo("train", settings, run.folder, threads)
        score = min(row[SCORE] for row in read_log(run) if SCORE in row)
        shutil.rmtree(run.checkpoints, ignore_errors=True)
        scores = {str(tried): value for tried, value in {**self.scores, rate: score}.items()}
        write_text(self._file, json.dumps(scores, indent=2) + "\n")

    @property
    def _file(self) -> Path:
        return self.folder / "scores.json"
