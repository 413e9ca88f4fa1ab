"""Notices that training goes wrong: a loss far above its start, or numbers that are not finite.

What follows is decided elsewhere: training goes back to its best weights at a smaller rate.
"""

import math
from dataclasses import dataclass

FAR = 10.0
"""A loss of so many times that of the first step is far above the start."""
IN_A_ROW = 10
"""Steps in a row whose loss is far above the start: one alone may be an odd batch."""
WORSE = 5.0
"""A score of so many times the best, where training has become worse too, is lost."""
SHRINK = 1 / 3
"""What the learning rate is multiplied by."""
MOST = 6
"""Returns without a better score in between, after which the run ends with an error."""


@dataclass
class DivergenceWatch:
    """What it takes to tell; kept in checkpoints."""

    start_loss: float = 0.0
    """Loss of the first step, before any has changed the weights."""
    far_in_a_row: int = 0
    best_loss: float = math.inf
    """Mean training loss of the epoch with the best score."""
    num_returns: int = 0
    """Since the last better score."""

    def after_step(self, loss: float, has_finite_gradients: bool) -> str:
        """Returns what is wrong after a step, in words; nothing where all is well."""
        if not math.isfinite(loss):
            return "the loss is not finite"
        if not has_finite_gradients:
            return "gradients are not finite"
        self.start_loss = self.start_loss or loss
        is_far = loss > FAR * self.start_loss
        self.far_in_a_row = self.far_in_a_row + 1 if is_far else 0
        if self.far_in_a_row < IN_A_ROW:
            return ""
        return f"the loss rose to {loss:.3g}, from {self.start_loss:.3g} at the start"

    def after_epoch(self, score: float, best_score: float | None, loss: float) -> str:
        """Returns what is wrong after an epoch, in words; nothing where all is well.

        Args:
            score: Of this epoch, on validation data.
            best_score: The best so far.
            loss: The mean training loss of this epoch.
        """
        if not math.isfinite(score):
            return "the validation score is not finite"
        if 0 < FAR * self.start_loss < loss:
            return f"the loss rose to {loss:.3g}, from {self.start_loss:.3g} at the start"
        if best_score is None or score <= best_score:
            self.best_loss, self.num_returns = loss, 0
        elif score > WORSE * best_score and loss > 2 * self.best_loss:
            return f"the validation score rose to {score:.3g}, from {best_score:.3g} at best"
        return ""

    def returned(self) -> None:
        """Counts a return to the best weights."""
        self.far_in_a_row = 0
        self.num_returns += 1
