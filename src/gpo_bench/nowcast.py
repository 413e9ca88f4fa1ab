"""Scores of nowcasts of rain at every lead, and differences between forecasts with intervals.

Each score is a ratio of sums over starts, so starts without rain do not count in the critical success
index, as radar nowcasts are scored. Fields are rain rates in mm/h at the cells that the radar sees.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from jaxtyping import Float

from gpo.evaluation.verdict import Resamples

Fields = Float[np.ndarray, "starts steps cells"]
Parts = Float[np.ndarray, "starts steps 2"]
"""Numerator and denominator of a score."""


def csi_parts(forecast: Fields, truth: Fields, threshold: float) -> Parts:
    """Returns hits, and hits, misses and false alarms together: the critical success index.

    Args:
        forecast: Rain rates.
        truth: Observed rain rates.
        threshold: Rain rate from which a cell counts as rain.
    """
    is_forecast, is_observed = forecast >= threshold, truth >= threshold
    parts = (is_forecast & is_observed).sum(-1), (is_forecast | is_observed).sum(-1)
    return np.stack(parts, -1).astype(float)


def mae_parts(forecast: Fields, truth: Fields) -> Parts:
    """Returns the mean absolute error of each start, and one."""
    return _means(np.abs(forecast - truth).mean(-1))


def relative_l2_parts(forecast: Fields, truth: Fields) -> Parts:
    """Returns the relative L2 error of each start, and one."""
    return _means(np.linalg.norm(forecast - truth, axis=-1) / np.linalg.norm(truth, axis=-1))


@dataclass(frozen=True)
class Score:
    """A score of a set of forecasts, at every lead."""

    parts: Callable[[Fields, Fields], Parts]
    """Numerators and denominators, from forecasts and observations."""
    is_higher_better: bool = False

    def best(self, values: dict[str, Float[np.ndarray, " steps"]]) -> list[str]:
        """Returns the name with the best value at each lead."""
        sign = -1 if self.is_higher_better else 1
        names = list(values)
        order = np.argmin([sign * values[name] for name in names], axis=0)
        return [names[number] for number in order]


SCORES: dict[str, Score] = {
    "CSI at 0.5 mm/h": Score(partial(csi_parts, threshold=0.5), is_higher_better=True),
    "CSI at 2 mm/h": Score(partial(csi_parts, threshold=2.0), is_higher_better=True),
    "MAE in mm/h": Score(mae_parts),
    "relative L2": Score(relative_l2_parts),
}
"""All scores by name."""


def score(parts: Parts) -> Float[np.ndarray, " steps"]:
    """Returns the score at every lead."""
    return _ratio(parts.sum(0))


@dataclass(frozen=True)
class Difference:
    """The difference of a score between a model and a reference."""

    value: float
    low: float
    """Lower end of the 95 % interval of a circular block bootstrap over starts."""
    high: float

    @property
    def is_significant(self) -> bool:
        """Whether the interval excludes zero."""
        return self.low > 0 or self.high < 0


def difference(
    model: Float[np.ndarray, "starts 2"], reference: Float[np.ndarray, "starts 2"]
) -> Difference:
    """Returns the difference of a score at one lead, of forecasts from consecutive starts.

    Args:
        model: Numerators and denominators of the model.
        reference: Those of the reference.
    """
    value = float(_ratio(model.sum(0)) - _ratio(reference.sum(0)))
    series = [np.arange(len(model))]
    resamples = Resamples.of(np.hstack([model, reference]), _ratio(model) - _ratio(reference), series)  # fmt: skip
    low, high = resamples.interval(_ratio(resamples.sums[:, :2]) - _ratio(resamples.sums[:, 2:]))
    factor = resamples.widening
    return Difference(value, value + factor * (low - value), value + factor * (high - value))


def mean_parts(parts: Sequence[Parts]) -> Parts:
    """Returns the parts of several seeds, averaged."""
    return np.mean(parts, axis=0)


def _means(errors: Float[np.ndarray, "starts steps"]) -> Parts:
    return np.stack([errors, np.ones_like(errors)], -1)


def _ratio(parts: Float[np.ndarray, "*shape 2"]) -> Float[np.ndarray, "*shape"]:
    """Returns numerator over denominator; one where both are zero, as for rain that nobody saw."""
    numerator, denominator = parts[..., 0], parts[..., 1]
    return np.where(denominator > 0, numerator / np.where(denominator > 0, denominator, 1), 1.0)
