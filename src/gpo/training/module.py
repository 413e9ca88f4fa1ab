"""The task as Lightning sees it; Lightning does the loop."""

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
from gpo.numerics.norms import relative_l2
from gpo.parallel.partition import SitePartition
from gpo.parallel.processes import global_rank
from gpo.parallel.shard import join_neighbours
from gpo.training.budget import Budget
from gpo.training.checkpoints import BEST, RunCheckpoints
from gpo.training.config import RunConfig
from gpo.training.divergence import MOST, DivergenceWatch
from gpo.training.objective import draw_noise, training_losses
from gpo.training.run_folder import SCORE, SPENT
from gpo.visible_text import visible


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
        self.loss_weights, self.progress = LossWeights.of(config.model.config), 0.0
        self.watch, self.events = DivergenceWatch(), list[str]()
        self.reason = ""
        """Why training ended; empty while it goes on."""
        self._patience_from = -1
        self._gradient_norm = 0.0
        self.remember_start()

    def remember_start(self) -> None:
        """Keeps the parameters of now: where training goes back to while there are none better."""
        self._start = {name: value.clone() for name, value in self.state_dict().items()}

    def loss_of(self, forecaster: Forecaster, batch: Example) -> Tensor:
        """Returns the loss of one step of a model like this one, without noise."""
        relative_to = self.config.optimizer.relative_to
        return training_losses(
            forecaster, batch, weights=self.loss_weights, relative_to=relative_to
        )["total"]

    @property
    def checkpoints(self) -> RunCheckpoints:
        """What keeps the best weights."""
        found = self.trainer.checkpoint_callback
        assert isinstance(found, RunCheckpoints)
        return found

    def tell(self, event: str) -> None:
        """Says in one line what happened, and keeps it for the report."""
        self.events.append(event)
        if global_rank() == 0:
            Console(soft_wrap=True, highlight=False).print(visible(event), markup=False)

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
        # What is not finite reaches all processes through the gradients, which are left out then.
        self._latest = {name: loss.detach() for name, loss in losses.items()}
        if bool(losses["total"].isfinite()):
            self._losses.add(losses, len(batch.target))
        return losses["total"]

    def on_train_epoch_start(self) -> None:
        """Begins to add up losses."""
        self._losses = ExampleMeans()

    def on_train_epoch_end(self) -> None:
        """Logs the mean of every loss, goes back where training went wrong, or ends it."""
        means = self._losses.of_all(self.trainer.strategy)
        self.log_dict({f"train/{name}": mean for name, mean in means.items()})
        score, best = float(self.trainer.callback_metrics[SCORE]), self.checkpoints.best_score
        wrong = self.watch.after_epoch(score, best, float(means.get("total", torch.inf)))
        if wrong:
            self._go_back(wrong)
        self.checkpoints.is_lost = bool(wrong)
        if self.checkpoints.is_better(score):
            self._patience_from = self.current_epoch
        self._end_where_due()

    def _end_where_due(self) -> None:
        """Ends training after the last epoch, or where a low learning rate improves nothing."""
        patience, num_epochs = self.config.budget.patience, self.config.budget.epochs
        self.reason = self.budget.reason(self.global_step, self._spent())
        if not self.reason and self.current_epoch + 1 >= num_epochs:
            self.reason = f"{num_epochs} epochs are done"
        if not self.reason and self.current_epoch - self._patience_from >= patience:
            told = f"no better validation score for {patience} epochs"
            if self.budget.has_come_down(self.progress):
                self.reason = told
                self.tell(f"stopped after epoch {self.current_epoch + 1}: {told} (--patience)")
            else:
                self._return_to_best(f"epoch {self.current_epoch + 1}: {told} (--patience)")
        self.trainer.should_stop = bool(self.reason)

    def go_on(self) -> None:
        """Takes up a run that had ended, with more budget."""
        self.reason, self._patience_from = "", self.current_epoch
        self.budget.warm_from = (self.global_step, self.progress)
        rate = self.budget.learning_rate(self.global_step + 10**9, self.progress)
        self.tell(
            f"goes on after epoch {self.current_epoch} from the last weights; the learning rate "
            f"rises to {rate:.3g}, where the larger budget has it by now, and falls from there"
        )

    def _go_back(self, wrong: str) -> None:
        """Counts a divergence, and returns from it; too many in a row are an error."""
        self.watch.returned()
        if self.watch.num_returns > MOST:
            raise ValueError(
                f"Training diverged {MOST} times in a row; at last {wrong} at step "
                f"{self.global_step} ({self._spell(self._latest)}). The last good checkpoint is "
                "kept; a new run with a lower --learning-rate may do better."
            )
        self._return_to_best(f"epoch {self.current_epoch + 1}, step {self.global_step}: {wrong}")

    def _return_to_best(self, told: str) -> None:
        """Returns to the best weights, or those of the start, at a smaller learning rate."""
        best_epoch, rate = self.checkpoints.best_epoch, self.budget.rate
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
        # Moments of a path that was left would lead there again.
        optimizer.state.clear()
        self.budget.shrink()
        self._gradient_norm = 0.0
        # Losses from before would count against the weights that are back.
        self._losses = ExampleMeans()
        self.budget.warm_from = (self.global_step, self.progress)
        self._patience_from = max(self._patience_from, self.current_epoch)
        weights = "the start" if best_epoch is None else f"epoch {best_epoch + 1}"
        self.tell(
            f"{told}; back to the weights of {weights}, learning rate {rate:.3g} -> "
            f"{self.budget.rate:.3g}"
        )

    def configure_gradient_clipping(
        self,
        optimizer: torch.optim.Optimizer,
        gradient_clip_val: float | None = None,
        gradient_clip_algorithm: str | None = None,
    ) -> None:
        """Clips gradients by their norm; leaves out a step where they are not finite."""
        assert gradient_clip_val is not None
        norm = torch.nn.utils.clip_grad_norm_(self.parameters(), gradient_clip_val)
        # Half precision has a scale of its own, which finds its size by steps that are left out.
        is_finite = bool(norm.isfinite())
        if is_finite or self.config.optimizer.precision != "16-mixed":
            self._gradient_norm = float(norm)
            if not is_finite:
                optimizer.zero_grad()

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
        fraction, sizes = self.config.optimizer.noise_fraction, size
        if self.forecaster.task.predict == "increment":
            # Noise that hides what is predicted teaches nothing.
            sizes = self.forecaster.increment_scale.clamp(max=size).float().cpu()
        return draw_noise(
            batch, size=sizes, fraction=fraction, seeds=seeds, partition=self.partition
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
        """Starts to count CPU seconds; takes up a run that had ended."""
        self.budget.start()
        self._measure_progress()
        if self.reason:
            self.go_on()

    def on_train_batch_start(self, batch: Example, batch_idx: int) -> None:
        """Sets the learning rate."""
        rate = self.budget.learning_rate(self.global_step, self.progress)
        for group in self.trainer.optimizers[0].param_groups:
            group["lr"] = rate

    def on_train_batch_end(self, outputs: Any, batch: Example, batch_idx: int) -> None:
        """Goes back where training went wrong; ends the run where the budget is used up."""
        loss, clip = float(self._latest["total"]), self.config.optimizer.clip
        wrong = self.watch.after_step(loss, self._gradient_norm, clip)
        spent, num_wrong = self._over_all(self.budget.spent, float(bool(wrong)))
        self.progress = self.budget.progress(self.global_step, spent)
        if num_wrong:
            self._go_back(wrong or "another process met a loss that is not finite")
        if self.progress >= 1:
            # One more validation follows.
            self.trainer.should_stop = True
        else:
            self.checkpoints.write_within_epoch(self.trainer)

    def on_train_end(self) -> None:
        """Says so where the budget was not kept."""
        sentence = self.budget.overshoot(self.global_step, self._spent())
        if sentence is not None:
            self.tell(sentence)

    def _measure_progress(self) -> None:
        self.progress = self.budget.progress(self.global_step, self._spent())

    def _spent(self) -> float:
        """Returns the CPU seconds of all processes, so that they agree about the end."""
        return self._over_all(self.budget.spent)[0]

    def _over_all(self, *numbers: float) -> tuple[float, ...]:
        """Returns the sums of numbers over all processes."""
        if self.trainer.world_size == 1:
            return numbers
        together = torch.tensor(numbers, device=self.device)
        return tuple(self.trainer.strategy.reduce(together, reduce_op="sum").tolist())

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Keeps the CPU seconds spent, and what else it takes to go on as if never interrupted."""
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
        """Goes on where the last sitting ended."""
        stored = checkpoint["run"]
        self.budget.spent_before = float(checkpoint["cpu_seconds"])
        self.budget.rate, self.budget.warm_from = stored["rate"], tuple(stored["warm_from"])
        self.budget.shrunk = stored.get("shrunk", 1.0)
        self.watch, self.events = DivergenceWatch(**stored["watch"]), list(stored["events"])
        self.reason, self._patience_from = stored["reason"], stored["patience_from"]
        self._losses = ExampleMeans(*stored["losses"])


class ExampleMeans:
    """Adds up numbers by name, over batches and processes of unequal size.

    Lightning's own means cost a step of a small model a tenth of its time.
    """

    def __init__(self, names: Sequence[str] = (), sums: Tensor | None = None) -> None:
        self._names, self._sums = tuple(names), sums

    def state(self) -> tuple[tuple[str, ...], Tensor | None]:
        """Returns what the constructor takes."""
        return self._names, self._sums

    def add(self, values: dict[str, Tensor], num_examples: int) -> None:
        """Counts the means of a batch, the same names every time."""
        self._names = tuple(values)
        row = torch.stack([*values.values(), next(iter(values.values())).new_ones(())])
        more = num_examples * row.detach()
        self._sums = more if self._sums is None else self._sums.to(more) + more

    def of_all(self, strategy: Strategy) -> dict[str, Tensor]:
        """Returns the means over the examples of all processes; nothing where there were none."""
        if self._sums is None:
            return {}
        sums = strategy.reduce(self._sums, reduce_op="sum")
        assert isinstance(sums, Tensor)
        return dict(zip(self._names, sums[:-1] / sums[-1], strict=True))
