"""The Lightning module of training."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import lightning
import torch
from lightning.pytorch.callbacks import WeightAveraging
from lightning.pytorch.strategies import Strategy
from rich.console import Console
from torch import Tensor

from gpo.forecast.examples import Example
from gpo.forecast.forecaster import Forecaster
from gpo.model.losses import LossWeights
from gpo.numerics.norms import scaled_rmse
from gpo.parallel.partition import SitePartition
from gpo.parallel.processes import global_rank
from gpo.parallel.shard import join_neighbours
from gpo.training.budget import Budget
from gpo.training.checkpoints import BEST, RunCheckpoints
from gpo.training.config import RunConfig
from gpo.training.divergence import MAX_RETURNS, DivergenceDetector
from gpo.training.muon import make_optimizer
from gpo.training.objective import draw_noise, training_losses
from gpo.training.run_folder import SCORE, SPENT
from gpo.visible_text import visible


class TrainingModule(lightning.LightningModule):
    """Minimises losses on normalised data; validation scores are in standard deviations."""

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
        self.loss_weights, self.progress = LossWeights.of(config.model.config), 0.0
        self.watch, self.events = DivergenceDetector(), list[str]()
        self.reason = ""
        """Why training ended; empty until then."""
        self._patience_from = -1
        self._gradient_norm = 0.0
        self.remember_start()

    def remember_start(self) -> None:
        """Stores the present weights, the fallback if training diverges before the first score."""
        self._start = {name: value.clone() for name, value in self.state_dict().items()}

    def loss_of(self, forecaster: Forecaster, batch: Example) -> Tensor:
        """Returns the one-step training loss without noise, for the range test."""
        relative_to = self.config.optimizer.relative_to
        return training_losses(
            forecaster, batch, weights=self.loss_weights, relative_to=relative_to
        )["total"]

    @property
    def checkpoints(self) -> RunCheckpoints:
        """The callback that writes checkpoints."""
        callback = self.trainer.checkpoint_callback
        assert isinstance(callback, RunCheckpoints)
        return callback

    def announce(self, event: str) -> None:
        """Prints an event and stores it for the report."""
        self.events.append(event)
        if global_rank() == 0:
            Console(soft_wrap=True, highlight=False).print(visible(event), markup=False)

    def on_fit_start(self) -> None:
        """Joins the processes that share points with this one."""
        if self.partition.count == 1:
            return
        shard = join_neighbours(self.device.type, self.trainer.world_size, self.partition.count)
        self.forecaster.share_sites(shard, self.partition)

    def training_step(self, batch: Example, index: int) -> Tensor:
        """Returns the total loss and accumulates all terms for the log."""
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
        # A non-finite loss reaches all processes through the gradients, and the step is skipped.
        self._latest = {name: loss.detach() for name, loss in losses.items()}
        if bool(losses["total"].isfinite()):
            self._losses.add(losses, len(batch.target))
        return losses["total"]

    def on_train_epoch_start(self) -> None:
        """Resets the mean losses."""
        self._losses = ExampleMeans()

    def on_train_epoch_end(self) -> None:
        """Logs mean losses; returns to the best weights after divergence, or ends training."""
        means = self._losses.of_all(self.trainer.strategy)
        self.log_dict({f"train/{name}": mean for name, mean in means.items()})
        score, best = float(self.trainer.callback_metrics[SCORE]), self.checkpoints.best_score
        # Without losses, the last batch has just returned to the best weights.
        problem = self.watch.after_epoch(score, best, float(means["total"])) if means else ""
        if problem:
            self._recover(problem)
        self.checkpoints.is_lost = bool(problem)
        if self.checkpoints.is_better(score):
            self._patience_from = self.current_epoch
        self._end_if_due()

    def _end_if_due(self) -> None:
        """Ends training at a limit, or without improvement at a low learning rate."""
        patience, num_epochs = self.config.budget.patience, self.config.budget.epochs
        self.reason = self.budget.reason(self.global_step, self._spent())
        if not self.reason and self.current_epoch + 1 >= num_epochs:
            self.reason = f"{num_epochs} epochs are done"
        if not self.reason and self.current_epoch - self._patience_from >= patience:
            message = f"no better validation score for {patience} epochs"
            if self.budget.has_come_down(self.progress):
                self.reason = message
                self.announce(
                    f"stopped after epoch {self.current_epoch + 1}: {message} (--patience)"
                )
            else:
                self._return_to_best(f"epoch {self.current_epoch + 1}: {message} (--patience)")
        self.trainer.should_stop = bool(self.reason)

    def _continue(self) -> None:
        """Continues a finished run with a larger budget."""
        self.reason, self._patience_from = "", self.current_epoch
        self.budget.warm_from = (self.global_step, self.progress)
        rate = self.budget.learning_rate(self.global_step + 10**9, self.progress)
        self.announce(
            f"continues after epoch {self.current_epoch} from the last weights; the learning rate "
            f"rises to {rate:.3g}, its value on the schedule of the larger budget"
        )

    def _recover(self, problem: str) -> None:
        """Returns to the best weights after divergence; too many in a row are an error."""
        self.watch.returned()
        if self.watch.num_returns > MAX_RETURNS:
            raise ValueError(
                f"Training diverged {MAX_RETURNS} times in a row; last, {problem} at step "
                f"{self.global_step} ({self._spell(self._latest)}). The last good checkpoint is "
                "kept. Start a new run with a lower --learning-rate."
            )
        self._return_to_best(f"epoch {self.current_epoch + 1}, step {self.global_step}: {problem}")

    def _return_to_best(self, cause: str) -> None:
        """Restores the best weights, or the initial ones, and lowers the learning rate."""
        best_epoch = self.checkpoints.best_epoch if self.watch.is_best_usable else None
        rate = self.budget.rate
        stored = {"state_dict": self._start, "current_model_state": self._start}
        stored["averaging_state"] = {"n_averaged": torch.tensor(0)}
        if best_epoch is not None:
            path = self.checkpoints.folder / BEST
            stored = torch.load(path, weights_only=True, map_location=self.device)
        self.load_state_dict(stored["state_dict"])
        for callback in self.trainer.callbacks:  # pyright: ignore[reportAttributeAccessIssue]
            if isinstance(callback, WeightAveraging):
                callback.on_load_checkpoint(self.trainer, self, stored)
        optimizer = self.trainer.optimizers[0]
        optimizer.zero_grad()
        # The old moments would lead to divergence again.
        optimizer.state.clear()
        self.budget.shrink()
        self._gradient_norm = 0.0
        # Earlier losses do not belong to the restored weights.
        self._losses = ExampleMeans()
        self.budget.warm_from = (self.global_step, self.progress)
        self._patience_from = max(self._patience_from, self.current_epoch)
        weights = "the start" if best_epoch is None else f"epoch {best_epoch + 1}"
        self.announce(
            f"{cause}; back to the weights of {weights}, learning rate {rate:.3g} -> "
            f"{self.budget.rate:.3g}"
        )

    def configure_gradient_clipping(
        self,
        optimizer: torch.optim.Optimizer,
        gradient_clip_val: float | None = None,
        gradient_clip_algorithm: str | None = None,
    ) -> None:
        """Clips gradients by norm; skips the step if they are not finite."""
        assert gradient_clip_val is not None
        norm = torch.nn.utils.clip_grad_norm_(self.parameters(), gradient_clip_val)
        # With half precision the gradient scaler skips steps to find its scale.
        is_finite = bool(norm.isfinite())
        if is_finite or self.config.optimizer.precision != "16-mixed":
            self._gradient_norm = float(norm)
            if not is_finite:
                optimizer.zero_grad()

    def _seed(self, index: int) -> None:
        """Seeds every step, so that a resumed run draws the same random numbers."""
        seed = hash((self.config.optimizer.seed, self.global_step, index, self.global_rank))
        # `torch.manual_seed` would take 2 ms, because it records its caller.
        torch.default_generator.manual_seed(seed)
        if self.device.type == "cuda":
            torch.cuda.manual_seed(seed)

    def _noise(self, batch: Example, index: int) -> Tensor | None:
        """Returns the noise of a step, independent of the number of processes."""
        size = self.config.optimizer.noise_on(is_forecast=self.forecaster.task.lead > 0)
        if size == 0:
            return None
        first, stride = (
            n // self.partition.count for n in (self.global_rank, self.trainer.world_size)
        )
        key = (self.config.optimizer.seed, self.global_step, index)
        seeds = [hash((*key, first + stride * row)) for row in range(len(batch.frames))]
        fraction, sizes = self.config.optimizer.noise_fraction, size
        if self.forecaster.task.predict == "increment":
            # Noise larger than the increment would hide the signal.
            sizes = self.forecaster.increment_scale.clamp(max=size).float().cpu()
        return draw_noise(
            batch, size=sizes, fraction=fraction, seeds=seeds, partition=self.partition
        )

    @staticmethod
    def _spell(losses: dict[str, Tensor]) -> str:
        return ", ".join(f"{name} {value.item():.3g}" for name, value in losses.items())

    def validation_step(self, batch: Example, index: int) -> None:
        """Accumulates the error in standard deviations, which does not depend on units."""
        forecaster = self.forecaster
        prediction = forecaster(
            batch.frames, batch.coords, weights=batch.site_weights, seasons=batch.seasons
        )
        score = scaled_rmse(
            prediction, batch.target, forecaster.output_std, batch.weights, forecaster.shard
        )
        self._scores.add({SCORE: score}, len(batch.target))

    def on_validation_epoch_start(self) -> None:
        """Resets the mean score."""
        self._scores = ExampleMeans()

    def on_validation_epoch_end(self) -> None:
        """Logs the mean score over all processes, and the CPU time so far."""
        self.log_dict(self._scores.of_all(self.trainer.strategy))
        self.log(SPENT, self._spent())

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Returns the optimizer; `on_train_batch_start` sets the learning rate."""
        return make_optimizer(self, self.config)

    def on_train_start(self) -> None:
        """Starts the clock; continues a finished run if the budget has grown."""
        self.budget.start()
        self._measure_progress()
        if self.reason:
            self._continue()

    def on_train_batch_start(self, batch: Example, batch_idx: int) -> None:
        """Sets the learning rate."""
        rate = self.budget.learning_rate(self.global_step, self.progress)
        for group in self.trainer.optimizers[0].param_groups:
            group["lr"] = rate

    def on_train_batch_end(self, outputs: Any, batch: Example, batch_idx: int) -> None:
        """Handles divergence, the end of the budget and checkpoints within an epoch."""
        loss, clip = float(self._latest["total"]), self.config.optimizer.clip
        problem = self.watch.after_step(loss, self._gradient_norm, clip)
        spent, num_problems = self._over_all(self.budget.spent, float(bool(problem)))
        self.progress = self.budget.progress(self.global_step, spent)
        if num_problems:
            self._recover(problem or "the loss of another process is not finite")
        if self.progress >= 1:
            # Lightning validates once more.
            self.trainer.should_stop = True
        else:
            self.checkpoints.write_within_epoch(self.trainer)

    def on_train_end(self) -> None:
        """Reports a budget that was exceeded."""
        message = self.budget.overshoot(self.global_step, self._spent())
        if message is not None:
            self.announce(message)

    def _measure_progress(self) -> None:
        self.progress = self.budget.progress(self.global_step, self._spent())

    def _spent(self) -> float:
        """Returns the CPU seconds of all processes, so that all stop at the same step."""
        return self._over_all(self.budget.spent)[0]

    def _over_all(self, *numbers: float) -> tuple[float, ...]:
        """Returns sums over all processes."""
        if self.trainer.world_size == 1:
            return numbers
        local = torch.tensor(numbers, device=self.device)
        return tuple(self.trainer.strategy.reduce(local, reduce_op="sum").tolist())

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Saves everything that an exact continuation needs."""
        checkpoint["cpu_seconds"] = self.budget.spent
        checkpoint["run"] = {
            "rate": self.budget.rate,
            "shrunk": self.budget.shrunk,
            "warm_from": self.budget.warm_from,
            "watch": asdict(self.watch),
            "events": list(self.events),
            "patience_from": self._patience_from,
            "reason": self.reason,
            "limits": asdict(self.config.budget),
            "losses": self._losses.state(),
        }

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Restores the state of the last session."""
        if checkpoint["state_dict"].keys() != self.state_dict().keys():
            raise ValueError(
                "The checkpoint of this run is of gpo 0.7 or before, whose particles have no scales: "
                "the version that wrote it resumes it. To go on with this version, start a new run "
                "from it: --init RUN --out ANOTHER."
            )
        stored = checkpoint["run"]
        self.budget.spent_before = float(checkpoint["cpu_seconds"])
        self.budget.rate, self.budget.warm_from = stored["rate"], tuple(stored["warm_from"])
        self.budget.shrunk = stored.get("shrunk", 1.0)
        self.watch, self.events = DivergenceDetector(**stored["watch"]), list(stored["events"])
        self.reason, self._patience_from = stored["reason"], stored["patience_from"]
        self._losses = ExampleMeans(*stored["losses"])


class ExampleMeans:
    """Means by name over batches and processes of unequal size.

    Lightning's own means take a tenth of the time of a step of a small model.
    """

    def __init__(self, names: Sequence[str] = (), sums: Tensor | None = None) -> None:
        self._names, self._sums = tuple(names), sums

    def state(self) -> tuple[tuple[str, ...], Tensor | None]:
        """Returns the arguments of the constructor."""
        return self._names, self._sums

    def add(self, values: dict[str, Tensor], num_examples: int) -> None:
        """Adds the means of a batch, always with the same names."""
        self._names = tuple(values)
        row = torch.stack([*values.values(), next(iter(values.values())).new_ones(())])
        row = num_examples * row.detach()
        self._sums = row if self._sums is None else self._sums.to(row) + row

    def of_all(self, strategy: Strategy) -> dict[str, Tensor]:
        """Returns the means over all processes; empty if nothing was added."""
        if self._sums is None:
            return {}
        sums = strategy.reduce(self._sums, reduce_op="sum")
        assert isinstance(sums, Tensor)
        return dict(zip(self._names, sums[:-1] / sums[-1], strict=True))
