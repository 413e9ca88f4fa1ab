"""The task as Lightning sees it; Lightning does the loop."""

from typing import Any

import lightning
import torch
from torch import Tensor

from gpo.model.losses import LossWeights, operator_losses
from gpo.model.operator import GaussianParticleOperator
from gpo.numerics.norms import relative_l2
from gpo.train.budget import Budget
from gpo.train.config import RunConfig
from gpo.train.examples import Example
from gpo.train.forecaster import Forecaster


class TrainingModule(lightning.LightningModule):
    """Minimises the operator's losses on normalised data; scores in the units of the data."""

    def __init__(self, forecaster: Forecaster, config: RunConfig, budget: Budget) -> None:
        super().__init__()
        self.forecaster, self.config, self.budget = forecaster, config, budget
        self.loss_weights = LossWeights()

    def training_step(self, batch: Example, index: int) -> Tensor:
        """Returns the total loss; every term is logged by name."""
        model, forecaster = self.forecaster.model, self.forecaster
        assert isinstance(model, GaussianParticleOperator)
        values = forecaster.normalised_input(batch.frames)
        losses = operator_losses(
            model,
            values,
            batch.coords,
            forecaster.normalised(batch.target),
            weights=batch.weights,
            complete=lambda output: forecaster.complete(output, values),
            loss_weights=self.loss_weights,
        )
        if not bool(losses["total"].isfinite()):
            raise ValueError(
                f"The loss is not finite at step {self.global_step} ({self._spell(losses)}). The last "
                "good checkpoint is kept; a new run with a lower --learning-rate may do better."
            )
        self.log_dict(
            {f"train/{name}": value for name, value in losses.items()},
            on_step=False, on_epoch=True, batch_size=len(batch.target),
        )  # fmt: skip
        return losses["total"]

    @staticmethod
    def _spell(losses: dict[str, Tensor]) -> str:
        return ", ".join(f"{name} {value.item():.3g}" for name, value in losses.items())

    def validation_step(self, batch: Example, index: int) -> None:
        """Logs the relative L2 error after inverse normalisation."""
        prediction = self.forecaster(batch.frames, batch.coords, weights=batch.weights)
        score = relative_l2(prediction, batch.target, batch.weights)
        self.log("validation/relative_l2", score, batch_size=len(batch.target), prog_bar=True)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Returns AdamW; the learning rate follows the budget."""
        return torch.optim.AdamW(
            self.parameters(),
            lr=self.config.learning_rate,
            weight_decay=self.config.weight_decay,
        )

    def on_train_start(self) -> None:
        """Starts to count CPU seconds."""
        self.budget.start()

    def on_train_batch_start(self, batch: Example, batch_idx: int) -> None:
        """Sets the learning rate."""
        rate = self.budget.learning_rate(self.global_step)
        for group in self.trainer.optimizers[0].param_groups:
            group["lr"] = rate

    def on_train_batch_end(self, outputs: Any, batch: Example, batch_idx: int) -> None:
        """Ends the run, after one more validation, where the budget is used up."""
        if self.budget.progress(self.global_step) >= 1:
            self.trainer.should_stop = True

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Keeps the CPU seconds spent."""
        checkpoint["cpu_seconds"] = self.budget.spent

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Goes on counting where the last sitting ended."""
        self.budget.spent_before = float(checkpoint.get("cpu_seconds", 0.0))
