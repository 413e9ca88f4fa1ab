"""Detects divergence of training: non-finite numbers, or far too large losses or gradients.

Gradients reveal divergence earlier than the loss does, or even if the loss never rises far: on Darcy
maps 20 steps earlier at a learning rate of 6e-3, and exclusively at 3.9e-3
(`benchmarks/study/rates.py`). Large gradients alone are no divergence: on radar images norms grow a
hundredfold while the loss halves, when the motion is found. The training module returns to the best
weights at a lower rate.
"""

import math
from dataclasses import dataclass, field
from statistics import median

LOSS_RATIO = 10.0
"""Ratio to the loss of the first step above which a loss is too large."""
GRADIENT_RATIO = 10.0
"""Ratio to the typical gradient norm above which a norm, if also clipped, is too large."""
MIN_NORMS, MAX_NORMS = 20, 100
"""Minimum and maximum number of recent norms whose median is the typical norm."""
MIN_CONSECUTIVE = 10
"""Consecutive steps with too large a loss or gradient that count as divergence: a single one may be
an outlier."""
RISE_RATIO = 2.0
"""Ratio to an earlier loss above which the loss has risen."""
SCORE_RATIO = 5.0
"""Ratio to the best score that counts as divergence if the training loss has risen as well."""
MAX_RETURNS = 6
"""Maximum number of returns to the best weights without a better score in between."""


@dataclass
class DivergenceDetector:
    """State of the detection; saved in checkpoints."""

    start_loss: float = 0.0
    """Loss of the first step."""
    far_in_a_row: int = 0
    norms: list[float] = field(default_factory=list)
    """Recent gradient norms, without too large ones."""
    losses: list[float] = field(default_factory=list)
    """Losses of the last steps, twice as many as count as divergence."""
    steep_in_a_row: int = 0
    best_loss: float = math.inf
    """Mean training loss of the epoch with the best score."""
    num_returns: int = 0
    """Number of returns since the last better score."""

    def after_step(self, loss: float, gradient_norm: float, clip: float = 1.0) -> str:
        """Returns a description of divergence after a step, empty if there is none.

        Args:
            loss: Loss of the step.
            gradient_norm: Gradient norm of the step before clipping.
            clip: Maximum gradient norm.
        """
        if not math.isfinite(loss):
            return "the loss is not finite"
        if not math.isfinite(gradient_norm):
            return "gradients are not finite"
        self.start_loss = self.start_loss or loss
        self.losses = [*self.losses, loss][-2 * MIN_CONSECUTIVE :]
        is_far = loss > LOSS_RATIO * self.start_loss
        self.far_in_a_row = self.far_in_a_row + 1 if is_far else 0
        if self.far_in_a_row >= MIN_CONSECUTIVE:
            return f"the loss rose to {loss:.3g}, from {self.start_loss:.3g} at the start"
        return self._after_gradients(gradient_norm, clip)

    def _after_gradients(self, norm: float, clip: float) -> str:
        usual = median(self.norms) if len(self.norms) >= MIN_NORMS else math.inf
        if norm <= max(GRADIENT_RATIO * usual, clip):
            self.steep_in_a_row = 0
            self.norms = [*self.norms, norm][-MAX_NORMS:]
            return ""
        self.steep_in_a_row += 1
        if self.steep_in_a_row < MIN_CONSECUTIVE:
            return ""
        if self._is_loss_falling():
            # Such norms are typical from here on.
            self.norms, self.steep_in_a_row = [], 0
            return ""
        return f"the gradient norm rose to {norm:.3g}, from typically {usual:.3g}"

    def _is_loss_falling(self) -> bool:
        """Returns whether the last steps have a lower median loss than as many before."""
        before, after = self.losses[:-MIN_CONSECUTIVE], self.losses[-MIN_CONSECUTIVE:]
        return bool(before) and median(after) < median(before)

    def after_epoch(self, score: float, best_score: float | None, loss: float) -> str:
        """Returns a description of divergence after an epoch, empty if there is none.

        Args:
            score: Validation score of the epoch.
            best_score: Best score so far.
            loss: Mean training loss of the epoch.
        """
        if not math.isfinite(score):
            return "the validation score is not finite"
        if 0 < LOSS_RATIO * self.start_loss < loss:
            return f"the loss rose to {loss:.3g}, from {self.start_loss:.3g} at the start"
        if best_score is None or score <= best_score:
            self.best_loss, self.num_returns = loss, 0
        elif score > SCORE_RATIO * best_score and loss > RISE_RATIO * self.best_loss:
            return f"the validation score rose to {score:.3g}, from {best_score:.3g} at best"
        return ""

    @property
    def is_best_usable(self) -> bool:
        """Whether training can go on from the best weights: not where their loss had risen already."""
        return self.best_loss <= RISE_RATIO * self.start_loss

    def returned(self) -> None:
        """Registers a return to the best weights."""
        self.far_in_a_row = self.steep_in_a_row = 0
        self.norms, self.losses = [], []
        self.num_returns += 1
