"""How much of a run's budget is used up, and the learning rate that goes with it."""

import math
import time
from dataclasses import dataclass

from gpo.train.config import RunConfig


@dataclass
class Budget:
    """Counts CPU seconds of training, over all the sittings of a run."""

    config: RunConfig
    num_steps: int
    """Steps that all epochs would take."""
    spent_before: float = 0.0
    """CPU seconds of earlier sittings."""
    _started: float | None = None

    def start(self) -> None:
        """Begins this sitting."""
        self._started = time.process_time()

    @property
    def spent(self) -> float:
        """CPU seconds so far."""
        now = 0.0 if self._started is None else time.process_time() - self._started
        return self.spent_before + now

    def progress(self, step: int) -> float:
        """Returns the used part of the budget, from 0 to 1: of steps or of CPU seconds."""
        used = step / self.num_steps
        if self.config.budget_cpu is not None:
            used = max(used, self.spent / self.config.budget_cpu)
        return min(used, 1.0)

    def learning_rate(self, step: int) -> float:
        """Returns the learning rate for a step: a short warm-up, then the schedule."""
        progress = self.progress(step)
        warm = min(1.0, (step + 1) / 50)
        factor = {
            "cosine": 0.5 * (1 + math.cos(math.pi * progress)),
            "step": 0.5 ** int(5 * progress),
            "constant": 1.0,
        }[self.config.schedule]
        return self.config.learning_rate * warm * factor
