"""Per-variable normalisation with statistics of training data only."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

MAX_NUMBERS = 2**21
"""Numbers whose moments are taken at a time."""


@dataclass(frozen=True)
class Normalizer:
    """Maps every variable to zero mean and unit variance, and back."""

    mean: np.ndarray
    std: np.ndarray

    @classmethod
    def fit(cls, portions: Iterable[tuple[np.ndarray, np.ndarray]]) -> "Normalizer":
        """Returns the statistics of a stream of fields in one pass.

        Args:
            portions: Pairs of values (times, points, variables) and quadrature weights
                (points); NaN and points of weight zero do not count.
        """
        moments = Moments()
        for values, weights in portions:
            moments.add(values, weights)
        return moments.normalizer()

    def apply(self, values: np.ndarray) -> np.ndarray:
        """Returns normalised values, variables last."""
        return (values - self.mean) / self.std

    def invert(self, values: np.ndarray) -> np.ndarray:
        """Returns values in their own units."""
        return values * self.std + self.mean


class Moments:
    """Weighted sums over a stream of fields, from which mean and variance follow."""

    def __init__(self) -> None:
        self._shift: np.ndarray | None = None
        self._mass = self._total = self._squares = np.zeros(0)

    def add(self, values: np.ndarray, weights: np.ndarray) -> None:
        """Takes some fields, whose sites are gone through some at a time.

        Args:
            values: Times by points by variables; NaN does not count.
            weights: Quadrature weights of the points; 0 does not count.
        """
        numbers = max(1, values.shape[0] * values.shape[2])
        size = max(1, MAX_NUMBERS // numbers)
        parts = [slice(start, start + size) for start in range(0, values.shape[1], size)]
        if self._shift is None:
            # Sums around a typical value do not cancel, as they would around zero.
            self._shift = _plain_mean([(values[:, part], weights[part]) for part in parts])
            self._mass = self._total = self._squares = np.zeros(values.shape[2])
        for part in parts:
            fields, is_known = _known(values[:, part], weights[part])
            centered = np.where(is_known, fields - self._shift, 0.0)
            self._mass = self._mass + weights[part] @ is_known.sum(0)
            self._total = self._total + weights[part] @ centered.sum(0)
            self._squares = self._squares + weights[part] @ np.square(centered).sum(0)

    def normalizer(self) -> Normalizer:
        """Returns the statistics of all that was added."""
        if self._shift is None or not np.all(self._mass > 0):
            raise ValueError("`portions` must hold at least one number of every variable.")
        mean = self._total / self._mass
        std = np.sqrt(np.maximum(self._squares / self._mass - mean**2, 0))
        # A variable that never varies is only shifted.
        return Normalizer(mean + self._shift, np.where(std > 0, std, 1.0))


def _known(values: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns values in double precision, and whether each counts."""
    values = np.asarray(values, dtype=np.float64)
    return values, np.isfinite(values) & (weights > 0)[:, None]


def _plain_mean(parts: list[tuple[np.ndarray, np.ndarray]]) -> np.ndarray:
    total = count = np.zeros(1)
    for values, weights in parts:
        values, is_known = _known(values, weights)
        total = total + np.where(is_known, values, 0.0).sum((0, 1))
        count = count + is_known.sum((0, 1))
    return total / np.maximum(count, 1)
