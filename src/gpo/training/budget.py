"""How much of a run's budget is used up, and the learning rate that goes with it."""

import math
from dataclasses import dataclass
from time import process_time

from gpo.training.config import RunConfig

WARM_UP = 50
"""Steps over which the learning rate rises."""
LONGEST_WARM_UP = 0.1
"""Part of the budget at which it has risen in any case: a slow model makes few steps."""
OVERSHOOT = 0.05
"""Part of the budget beyond its end that goes without saying."""
RISE = 0.3
"""Part of a one-cycle schedule in which the learning rate rises."""
SHRINK = 1 / 3
"""What a return to the best weights multiplies the learning rate by."""
LOW = 0.15
"""Part of its highest from which on a learning rate has come down: after two returns, say."""


@dataclass
class Budget:
    """Counts CPU seconds of training, over all the sittings of a run."""

    config: RunConfig
    num_steps: int
    """Optimiser steps that all epochs would take."""
    spent_before: float = 0.0
    """CPU seconds of earlier sittings."""
    rate: float = 0.0
    """The highest learning rate; that of the configuration when not given."""
    shrunk: float = 1.0
    """What returns have left of it."""
    warm_from: tuple[int, float] = (0, 0.0)
    """Step and progress at which the learning rate begins to rise: later ones are of a return to
    the best weights, or of a run that goes on with more budget."""
    _started: float | None = None

    def __post_init__(self) -> None:
        """A limit of steps may come before that of epochs."""
        self.num_steps = min(self.num_steps, self.config.budget.steps or self.num_steps)
        self.rate = self.rate or self.config.learning_rate

    def start(self) -> None:
        """Begins this sitting."""
        self._started = process_time()

    @property
    def spent(self) -> float:
        """CPU seconds of this process so far."""
        now = 0.0 if self._started is None else process_time() - self._started
        return self.spent_before + now

    def progress(self, step: int, spent: float) -> float:
        """Returns the used part of the budget, from 0 to 1.

        Args:
            step: Optimiser steps made.
            spent: CPU seconds of all processes.
        """
        used = step / self.num_steps
        if self.config.budget.budget_cpu is not None:
            used = max(used, spent / self.config.budget.budget_cpu)
        return min(used, 1.0)

    def overshoot(self, step: int, spent: float) -> str | None:
        """Returns a sentence about a budget of CPU seconds that was exceeded, None where it was kept.

        Args:
            step: Optimiser steps made.
            spent: CPU seconds of all processes, the last validation included.
        """
        given = self.config.budget.budget_cpu
        if given is None or spent <= (1 + OVERSHOOT) * given:
            return None
        return (
            f"Training took {spent:.0f} CPU seconds, {spent / given - 1:.0%} more than "
            f"--budget-cpu {given:g}: a step or a validation that has begun is finished, and the "
            f"{step} steps took {spent / max(1, step):.1f} s each, validation included."
        )

    def reason(self, step: int, spent: float) -> str:
        """Returns which limit is reached, in words; nothing where none is."""
        limits = self.config.budget
        if limits.budget_cpu is not None and spent >= limits.budget_cpu:
            return f"{limits.budget_cpu:g} CPU seconds are used up"
        if limits.steps is not None and step >= limits.steps:
            return f"{limits.steps} steps are done"
        return f"{limits.epochs} epochs are done" if step >= self.num_steps else ""

    def learning_rate(self, step: int, progress: float) -> float:
        """Returns the learning rate for a step: a short warm-up, then the schedule."""
        first, start = self.warm_from
        rise = min(1.0, max((step - first + 1) / WARM_UP, (progress - start) / LONGEST_WARM_UP))
        if self.config.optimizer.schedule == "one-cycle" and first == 0:
            rise = 1.0
        return self.rate * rise * self._schedule(progress)

    def has_come_down(self, progress: float) -> bool:
        """Tells whether the learning rate is low by now, as schedule and returns have left it.

        While it is high, scores move up and down, and the best of them is yet to come.
        """
        is_rising = self.config.optimizer.schedule == "one-cycle" and progress < RISE
        return self.shrunk * (1.0 if is_rising else self._schedule(progress)) <= LOW

    def shrink(self) -> None:
        """Lowers the learning rate for good."""
        self.rate, self.shrunk = SHRINK * self.rate, SHRINK * self.shrunk

    def _schedule(self, progress: float) -> float:
        """Returns the part of the highest learning rate that a schedule has."""
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
        """Returns how many steps on its own forecasts an example takes: more as training goes on."""
        return min(
            self.config.optimizer.rollout, 1 + int(2 * progress * self.config.optimizer.rollout)
        )


def _one_cycle(progress: float) -> float:
    """Rises from a twenty-fifth to one, and falls to zero, both along a cosine."""
    if progress < RISE:
        return 0.04 + 0.96 * 0.5 * (1 - math.cos(math.pi * progress / RISE))
    return 0.5 * (1 + math.cos(math.pi * (progress - RISE) / (1 - RISE)))
