"""Checkpoints of a run: `last.ckpt` has the latest state, `best.ckpt` the best.

They contain no paths, so a copied or renamed run folder can be resumed.
"""

import logging
import math
import os
import shutil
import time
import zipfile
from pathlib import Path
from typing import Any

import lightning
import torch
from lightning.pytorch.callbacks import Checkpoint

from gpo.atomic_files import atomic_file, file_problem
from gpo.forecast.examples import Batches
from gpo.training.run_folder import SCORE, Run

LAST, BEST = "last.ckpt", "best.ckpt"
PARTS = (
    "state_dict",
    "optimizer_states",
    "callbacks",
    "epoch",
    "global_step",
    "run",
    "cpu_seconds",
)
"""Required entries of a checkpoint."""
KEY = "run_checkpoints"
"""Key of our callback's state in a checkpoint."""
INTERVAL = 60.0
"""Seconds between checkpoints within an epoch."""


class RunCheckpoints(Checkpoint):
    """Writes a checkpoint after every epoch and within long ones, and keeps the best.

    Args:
        folder: Folder of the checkpoints.
        batches: Batches of training, which resume at the next one.
    """

    def __init__(self, folder: Path, batches: Batches) -> None:
        self.folder, self._batches = folder, batches
        self.best_score: float | None = None
        self.best_epoch: int | None = None
        self.is_lost = False
        """Whether training has discarded the weights behind this epoch's score."""
        self._batches_done = 0
        self._written = time.monotonic()

    @property
    def state_key(self) -> str:
        """Key of this state in a checkpoint."""
        return KEY

    def state_dict(self) -> dict[str, Any]:
        """Returns the best score, its epoch and the number of batches done in this epoch."""
        return {
            "score": SCORE,
            "best_score": self.best_score,
            "best_epoch": self.best_epoch,
            "batches_done": self._batches_done,
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Resumes at the next batch; drops the best score if its checkpoint is unreadable.

        It is dropped too if it is the relative L2 of gpo 0.7 and before, which has other values.
        """
        self._batches.first = state_dict["batches_done"]
        if state_dict.get("score") == SCORE and is_readable(self.folder / BEST):
            self.best_score, self.best_epoch = state_dict["best_score"], state_dict["best_epoch"]

    def on_train_start(
        self, trainer: lightning.Trainer, pl_module: lightning.LightningModule
    ) -> None:
        """Starts the clock."""
        self._written = time.monotonic()

    def write_within_epoch(self, trainer: lightning.Trainer) -> None:
        """Writes a checkpoint if the last one is older than `INTERVAL`.

        Checkpoints hold no accumulated gradients, so an optimizer step must just have ended.
        """
        loop = trainer.fit_loop
        if loop._should_accumulate() or loop.epoch_loop.batch_progress.is_last_batch:
            return
        is_due = time.monotonic() - self._written > INTERVAL
        if trainer.strategy.reduce_boolean_decision(is_due, all=False):
            self._batches_done = loop.epoch_loop.batch_progress.current.ready
            self._write(trainer, LAST)

    def is_better(self, score: float) -> bool:
        """Returns whether a score is better than all before."""
        if self.is_lost or not math.isfinite(score):
            return False
        return self.best_score is None or score < self.best_score

    def on_train_epoch_end(
        self, trainer: lightning.Trainer, pl_module: lightning.LightningModule
    ) -> None:
        """Writes the checkpoints, the best first: a kill in between repeats the epoch."""
        score, self._batches_done = float(trainer.callback_metrics[SCORE]), 0
        if not self.is_better(score):
            self._write(trainer, LAST)
            return
        self.best_score, self.best_epoch = score, trainer.current_epoch
        self._write(trainer, BEST)
        if trainer.is_global_zero:
            with atomic_file(self.folder / LAST) as partial:
                shutil.copyfile(self.folder / BEST, partial)
        trainer.strategy.barrier()

    def _write(self, trainer: lightning.Trainer, name: str) -> None:
        """Writes a checkpoint atomically; all processes must call it."""
        partial = self.folder / f".partial-{name}"
        try:
            trainer.save_checkpoint(partial)
            if trainer.is_global_zero:
                os.replace(partial, self.folder / name)
        finally:
            if trainer.is_global_zero:
                partial.unlink(missing_ok=True)
        self._written = time.monotonic()


def is_readable(path: Path) -> bool:
    """Returns whether a checkpoint exists and is complete; logs a warning if it is damaged."""
    if not path.exists():
        return False
    try:
        problem = file_problem(path)
        if problem is not None:
            raise ValueError(f"it {problem}")
        with zipfile.ZipFile(path) as archive:
            # Guards against zip bombs: torch never compresses.
            if any(member.compress_type != zipfile.ZIP_STORED for member in archive.infolist()):
                raise ValueError("its entries must not be compressed")
            damaged = archive.testzip()
        if damaged is not None:
            raise ValueError(f"the checksum of {damaged} is wrong")
        _check_parts(torch.load(path, weights_only=True, map_location="cpu"))
    except Exception as error:
        logging.getLogger(__name__).warning("%s is damaged and ignored: %s", path, error)
        return False
    return True


def _check_parts(stored: object) -> None:
    """Raises an error unless a torch file has the entries of a checkpoint of a run."""
    missing = [name for name in PARTS if not isinstance(stored, dict) or name not in stored]
    if not missing and isinstance(stored, dict) and KEY not in stored["callbacks"]:
        missing = [KEY]
    if missing:
        raise ValueError(f"it is not a checkpoint of a run: `{missing[0]}` is missing")


def newest_checkpoint(run: Run) -> Path | None:
    """Returns the newest readable checkpoint, None if there is none."""
    return _first_readable(run, LAST, BEST)


def best_checkpoint(run: Run) -> Path | None:
    """Returns the checkpoint with the best score if readable, else the newest."""
    return _first_readable(run, BEST, LAST)


def _first_readable(run: Run, *names: str) -> Path | None:
    paths = (run.checkpoints / name for name in names)
    return next((path for path in paths if is_readable(path)), None)
