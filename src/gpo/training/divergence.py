"""Notices that training goes wrong: losses or gradients far too large, or numbers not finite.

Gradients tell it before the loss does, and where the loss never rises far: on Darcy maps at a rate
of 6e-3 some 20 steps earlier, and at 3.9e-3, where nothing else does (`benchmarks/study/rates.py`).
What follows is decided elsewhere: training goes back to its best weights at a smaller rate.
"""

import math
from dataclasses import dataclass, field
from statistics import median

FAR = 10.0
"""A loss of so many times that of the first step is far above the start."""
STEEP = 10.0
"""A gradient norm of so many times the usual one, and above that at which it is clipped, is steep."""
USUAL_FROM, USUAL_OVER = 20, 100
"""The usual norm is the median of the last ones that were not steep: from so few to so many."""
IN_A_ROW = 10
"""Steps in a row whose loss is far above the start, or whose gradients are steep: one alone may be
an odd batch."""
WORSE = 5.0
"""A score of so many times the best, where training has become worse too, is lost."""
MOST = 6
"""Returns without a better score in between, after which the run ends with an error."""


@dataclass
class DivergenceWatch:
    """What it takes to tell; kept in checkpoints."""

    start_loss: float = 0.0
    """Loss of the first step, before any has changed the weights."""
    far_in_a_row: int = 0
    norms: list[float] = field(default_factory=list)
    """Gradient norms of the last steps that were not steep."""
    steep_in_a_row: int = 0
    best_loss: float = math.inf
    """Mean training loss of the epoch with the best score."""
    num_returns: int = 0
    """Since the last better score."""

    def after_step(self, loss: float, gradient_norm: float, clip: float = 1.0) -> str:
        """Returns what is wrong after a step, in words; nothing where all is well.

        Args:
            loss: Of the step.
            gradient_norm: Of all gradients of the step, before they were clipped.
            clip: The norm that they were clipped to.
        """
        if not math.isfinite(loss):
            return "the loss is not finite"
        if not math.isfinite(gradient_norm):
            return "gradients are not finite"
        self.start_loss = self.start_loss or loss
        is_far = loss > FAR * self.start_loss
        self.far_in_a_row = self.far_in_a_row + 1 if is_far else 0
        if self.far_in_a_row >= IN_A_ROW:
            return f"the loss rose to {loss:.3g}, from {self.start_loss:.3g} at the start"
        return self._after_gradients(gradient_norm, clip)

    def _after_gradients(self, norm: float, clip: float) -> str:
        usual = median(self.norms) if len(self.norms) >= USUAL_FROM else math.inf
        if norm <= max(STEEP * usual, clip):
            self.steep_in_a_row = 0
            self.norms = [*self.norms, norm][-USUAL_OVER:]
            return ""
        self.steep_in_a_row += 1
        if self.steep_in_a_row < IN_A_ROW:
            return ""
        return f"gradients grew to {norm:.3g}, from {usual:.3g} as usual"

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
        self.far_in_a_row = self.steep_in_a_row = 0
        self.norms = []
        self.num_returns += 1
