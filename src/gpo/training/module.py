"""The task as Lightning sees it; Lightning does the loop."""

import logging
from typing import Any

import lightning
import torch
from lightning.pytorch.strategies import Strategy
from torch import Tensor

from gpo.forecast.examples import Example
from gpo.forecast.forecaster import Forecaster
from gpo.numerics.norms import relative_l2
from gpo.parallel.partition import SitePartition
from gpo.parallel.shard import join_neighbours
from gpo.training.budget import Budget
from gpo.training.config import RunConfig
from gpo.training.models import loss_weights
from gpo.training.objective import draw_noise, training_losses
from gpo.training.run_folder import SCORE, SPENT


class TrainingModule(lightning.LightningModule):
    """Minimises the losses on normalised data; scores in the units of the data."""

    def __init__(
        self,
        forecaster: Forecaster,
        config: RunConfig,
        budget: Budget,
        partition: SitePartition = SitePartition(),
    ) -> None:
        super().__init__()
        self.forecaster, self.config = forecaster, config
        self.budget, self.partition = budget, partition
        self.loss_weights, self.progress = loss_weights(config), 0.0

    def on_fit_start(self) -> None:
        """Joins the processes that share sites with this one."""
        if self.partition.count == 1:
            return
        shard = join_neighbours(self.device.type, self.trainer.world_size, self.partition.count)
        self.forecaster.share_sites(shard, self.partition)

    def training_step(self, batch: Example, index: int) -> Tensor:
        """Returns the total loss; every term is logged by name."""
        self._seed(index)
        losses = training_losses(
            self.forecaster,
            batch,
            num_steps=self.budget.rollout(self.progress),
            pushforward=self.config.optimizer.pushforward,
            noise=self._noise(batch, index),
            weights=self.loss_weights,
            relative_to=self.config.optimizer.relative_to,
        )
        if not bool(losses["total"].isfinite()):
            raise ValueError(
                f"The loss is not finite at step {self.global_step} ({self._spell(losses)}). The last "
                "good checkpoint is kept; a new run with a lower --learning-rate may do better."
            )
        self._losses.add(losses, len(batch.target))
        return losses["total"]

    def on_train_epoch_start(self) -> None:
        """Begins to add up losses."""
        self._losses = ExampleMeans()

    def on_train_epoch_end(self) -> None:
        """Logs the mean of every loss over the examples of all processes."""
        means = self._losses.of_all(self.trainer.strategy)
        self.log_dict({f"train/{name}": mean for name, mean in means.items()})

    def _seed(self, index: int) -> None:
        """Sets a seed for every step: a run that was killed draws the same numbers when it goes on."""
        seed = hash((self.config.optimizer.seed, self.global_step, index, self.global_rank))
        # Not `torch.manual_seed`: it writes down where it is called from, which takes 2 ms.
        torch.default_generator.manual_seed(seed)
        if self.device.type == "cuda":
            torch.cuda.manual_seed(seed)

    def _noise(self, batch: Example, index: int) -> Tensor | None:
        """Returns the noise of a step, the same however many processes share the batch."""
        size = self.config.optimizer.noise_on(is_forecast=self.forecaster.task.lead > 0)
        if size == 0:
            return None
        first, stride = (
            n // self.partition.count for n in (self.global_rank, self.trainer.world_size)
        )
        key = (self.config.optimizer.seed, self.global_step, index)
        seeds = [hash((*key, first + stride * row)) for row in range(len(batch.frames))]
        fraction = self.config.optimizer.noise_fraction
        return draw_noise(
            batch, size=size, fraction=fraction, seeds=seeds, partition=self.partition
        )

    @staticmethod
    def _spell(losses: dict[str, Tensor]) -> str:
        return ", ".join(f"{name} {value.item():.3g}" for name, value in losses.items())

    def validation_step(self, batch: Example, index: int) -> None:
        """Takes the relative L2 error after inverse normalisation."""
        prediction = self.forecaster(batch.frames, batch.coords, weights=batch.site_weights)
        score = relative_l2(prediction, batch.target, batch.weights, self.forecaster.shard)
        self._scores.add({SCORE: score}, len(batch.target))

    def on_validation_epoch_start(self) -> None:
        """Begins to add up scores."""
        self._scores = ExampleMeans()

    def on_validation_epoch_end(self) -> None:
        """Logs the score over the examples of all processes, and what it cost to get there."""
        self.log_dict(self._scores.of_all(self.trainer.strategy))
        self.log(SPENT, self._spent())

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Returns AdamW; the learning rate follows the budget."""
        # In one pass over all weights, where none is complex and gradients come unscaled.
        is_plain = not any(weights.is_complex() for weights in self.parameters())
        return torch.optim.AdamW(
            self.parameters(),
            lr=self.config.learning_rate,
            weight_decay=self.config.optimizer.weight_decay,
            fused=is_plain and self.config.optimizer.precision == "32-true",
        )

    def on_train_start(self) -> None:
        """Starts to count CPU seconds."""
        self.budget.start()
        self._measure_progress()

    def on_train_batch_start(self, batch: Example, batch_idx: int) -> None:
        """Sets the learning rate."""
        rate = self.budget.learning_rate(self.global_step, self.progress)
        for group in self.trainer.optimizers[0].param_groups:
            group["lr"] = rate

    def on_train_batch_end(self, outputs: Any, batch: Example, batch_idx: int) -> None:
        """Ends the run, after one more validation, where the budget is used up."""
        self._measure_progress()
        if self.progress >= 1:
            self.trainer.should_stop = True

    def on_train_end(self) -> None:
        """Says so where the budget was not kept."""
        sentence = self.budget.overshoot(self.global_step, self._spent())
        if sentence is not None and self.trainer.is_global_zero:
            logging.getLogger(__name__).warning(sentence)

    def _measure_progress(self) -> None:
        self.progress = self.budget.progress(self.global_step, self._spent())

    def _spent(self) -> float:
        """Returns the CPU seconds of all processes, so that they agree about the end."""
        spent = self.budget.spent
        if self.trainer.world_size == 1:
            return spent
        together = torch.tensor(spent, device=self.device)
        return float(self.trainer.strategy.reduce(together, reduce_op="sum"))

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Keeps the CPU seconds spent."""
        checkpoint["cpu_seconds"] = self.budget.spent

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Goes on counting where the last sitting ended."""
        self.budget.spent_before = float(checkpoint.get("cpu_seconds", 0.0))


class ExampleMeans:
    """Adds up numbers by name, over batches and processes of unequal size.

    Lightning's own means cost a step of a small model a tenth of its time.
    """

    def __init__(self) -> None:
        self._names: tuple[str, ...] = ()
        self._sums: Tensor | float = 0.0

    def add(self, values: dict[str, Tensor], num_examples: int) -> None:
        """Counts the means of a batch, the same names every time."""
        self._names = tuple(values)
        row = torch.stack([*values.values(), next(iter(values.values())).new_ones(())])
        self._sums = self._sums + num_examples * row.detach()

    def of_all(self, strategy: Strategy) -> dict[str, Tensor]:
        """Returns the means over the examples of all processes."""
        sums = strategy.reduce(self._sums, reduce_op="sum")
        assert isinstance(sums, Tensor)
        return dict(zip(self._names, sums[:-1] / sums[-1], strict=True))
