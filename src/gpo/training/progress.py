"""Progress bar of training: fraction done, remaining time and losses."""

from typing import Any

import lightning
from lightning.pytorch.callbacks import Callback
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from gpo.forecast.examples import Example
from gpo.training.module import TrainingModule
from gpo.training.run_folder import SCORE


class ProgressLine(Callback):
    """A bar over the whole budget, in any of its units."""

    def __init__(self) -> None:
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=12),
            TextColumn("{task.percentage:>3.0f}%"),
            TimeRemainingColumn(),
            TextColumn("{task.fields[losses]}"),
        )

    def on_train_start(
        self, trainer: lightning.Trainer, pl_module: lightning.LightningModule
    ) -> None:
        """Shows the bar, on the first process only."""
        if trainer.is_global_zero:
            self._task = self._bar.add_task("training", total=1.0, losses="")
            self._bar.start()

    def on_train_batch_end(
        self,
        trainer: lightning.Trainer,
        pl_module: lightning.LightningModule,
        outputs: Any,
        batch: Example,
        batch_idx: int,
    ) -> None:
        """Updates the bar."""
        if trainer.is_global_zero:
            assert isinstance(pl_module, TrainingModule)
            text = f"epoch {trainer.current_epoch + 1}"
            self._bar.update(self._task, completed=pl_module.progress, description=text)

    def on_validation_end(
        self, trainer: lightning.Trainer, pl_module: lightning.LightningModule
    ) -> None:
        """Shows the losses of the epoch and the score."""
        if trainer.is_global_zero:
            named = {"validation": float(trainer.callback_metrics[SCORE])} | {
                name.removeprefix("train/"): float(value)
                for name, value in trainer.callback_metrics.items()
                if name.startswith("train/") and name != "train/total"
            }
            self._bar.update(
                self._task, losses=", ".join(f"{name} {value:.3g}" for name, value in named.items())
            )

    def on_train_end(
        self, trainer: lightning.Trainer, pl_module: lightning.LightningModule
    ) -> None:
        """Leaves the last line on the screen."""
        self._bar.stop()

    def on_exception(
        self,
        trainer: lightning.Trainer,
        pl_module: lightning.LightningModule,
        exception: BaseException,
    ) -> None:
        """Stops the bar before the error is printed."""
        self._bar.stop()
