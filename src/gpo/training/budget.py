"""Training budget: the fraction used so far, and the learning rate that follows from it."""

import math
from dataclasses import dataclass
from time import process_time

from gpo.training.config import RunConfig

WARM_UP_STEPS = 50
"""Steps over which the learning rate rises."""
MAX_WARM_UP = 0.1
"""Maximum fraction of the budget for warm-up: a slow model takes few steps."""
OVERSHOOT = 0.05
"""Tolerated overshoot, as a fraction of the budget; more is reported."""
RISE_FRACTION = 0.3
"""Fraction of a one-cycle schedule in which the learning rate rises."""
RATE_FACTOR = 1 / 3
"""Factor on the learning rate at every return to the best weights."""
LOW_RATE = 0.15
"""Fraction of the peak learning rate below which it counts as low, such as after two returns."""


@dataclass
class Budget:
    """Counts CPU seconds of training, over all sessions of a run."""

    config: RunConfig
    num_steps: int
    """Number of optimizer steps of all epochs."""
    spent_before: float = 0.0
    """CPU seconds of earlier sessions."""
    rate: float = 0.0
    """Peak learning rate (0: that of the configuration)."""
    shrunk: float = 1.0
    """Product of the factors that returns applied to it."""
    warm_from: tuple[int, float] = (0, 0.0)
    """Step and progress at which warm-up starts: non-zero after a return to the best weights, or
    when a finished run continues with a larger budget."""
    _started: float | None = None

    def __post_init__(self) -> None:
        """Applies the limit of steps and the default learning rate."""
        self.num_steps = min(self.num_steps, self.config.budget.steps or self.num_steps)
        self.rate = self.rate or self.config.learning_rate

    def start(self) -> None:
        """Starts the clock of this session."""
        self._started = process_time()

    @property
    def spent(self) -> float:
        """CPU seconds of this process, earlier sessions included."""
        now = 0.0 if self._started is None else process_time() - self._started
        return self.spent_before + now

    def progress(self, step: int, spent: float) -> float:
        """Returns the used fraction of the budget, from 0 to 1.

        Args:
            step: Number of optimizer steps so far.
            spent: CPU seconds of all processes.
        """
        used = step / self.num_steps
        if self.config.budget.budget_cpu is not None:
            used = max(used, spent / self.config.budget.budget_cpu)
        return min(used, 1.0)

    def overshoot(self, step: int, spent: float) -> str | None:
        """Returns a sentence if the limit of CPU seconds was exceeded, else None.

        Args:
            step: Number of optimizer steps so far.
            spent: CPU seconds of all processes, the last validation included.
        """
        limit = self.config.budget.budget_cpu
        if limit is None or spent <= (1 + OVERSHOOT) * limit:
            return None
        return (
            f"Training took {spent:.0f} CPU seconds, {spent / limit - 1:.0%} more than "
            f"--budget-cpu {limit:g}: steps and validations are never cut short, and the {step} "
            f"steps took {spent / max(1, step):.1f} s each, validation included."
        )

    def reason(self, step: int, spent: float) -> str:
        """Returns which limit is reached, in words; empty if none is."""
        limits = self.config.budget
        if limits.budget_cpu is not None and spent >= limits.budget_cpu:
            return f"{limits.budget_cpu:g} CPU seconds are used up"
        if limits.steps is not None and step >= limits.steps:
            return f"{limits.steps} steps are done"
        return f"{limits.epochs} epochs are done" if step >= self.num_steps else ""

    def learning_rate(self, step: int, progress: float) -> float:
        """Returns the learning rate for a step: a short warm-up, then the schedule.

        The schedules of others, one-cycle and the paper's step, begin without a warm-up.
        """
        first, start = self.warm_from
        rise = min(1.0, max((step - first + 1) / WARM_UP_STEPS, (progress - start) / MAX_WARM_UP))
        if self.config.optimizer.schedule in ("one-cycle", "step") and first == 0:
            rise = 1.0
        return self.rate * rise * self._schedule(progress)

    def has_come_down(self, progress: float) -> bool:
        """Returns whether schedule and returns have lowered the learning rate far enough.

        At a high learning rate scores fluctuate, and better ones are still to be expected. With the
        paper's step schedule training stops early at any rate.
        """
        if self.config.optimizer.schedule == "step":
            return True
        is_rising = self.config.optimizer.schedule == "one-cycle" and progress < RISE_FRACTION
        return self.shrunk * (1.0 if is_rising else self._schedule(progress)) <= LOW_RATE

    def shrink(self) -> None:
        """Lowers the learning rate permanently."""
        self.rate, self.shrunk = RATE_FACTOR * self.rate, RATE_FACTOR * self.shrunk

    def _schedule(self, progress: float) -> float:
        """Returns the factor of the schedule on the peak learning rate."""
        match self.config.optimizer.schedule:
            case "one-cycle":
                return _one_cycle(progress)
            case "step":
                return 0.5 ** int(5 * progress)
            case "constant":
                return 1.0
            case _:
                return 0.5 * (1 + math.cos(math.pi * progress))

    def rollout(self, progress: float) -> int:
        """Returns the number of autoregressive steps per example, which grows during training."""
        return min(
            self.config.optimizer.rollout, 1 + int(2 * progress * self.config.optimizer.rollout)
        )


def _one_cycle(progress: float) -> float:
    """Returns a factor that rises from 0.04 to 1 and falls to 0, both along a cosine."""
    if progress < RISE_FRACTION:
        return 0.04 + 0.96 * 0.5 * (1 - math.cos(math.pi * progress / RISE_FRACTION))
    return 0.5 * (1 + math.cos(math.pi * (progress - RISE_FRACTION) / (1 - RISE_FRACTION)))
