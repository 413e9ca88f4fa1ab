"""Per-variable normalisation with statistics of training data only."""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np


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
        mass = total = squares = np.zeros(0)
        shift = None
        for values, weights in portions:
            values = np.asarray(values, dtype=np.float64)
            known = np.isfinite(values) * np.asarray(weights)[None, :, None]
            if shift is None:
                # Sums around a typical value do not cancel, as they would around zero.
                count = np.maximum((known > 0).sum((0, 1)), 1)
                shift = np.where(known > 0, values, 0.0).sum((0, 1)) / count
                mass = total = squares = np.zeros(len(shift))
            centered = np.where(known > 0, values - shift, 0.0)
            mass = mass + known.sum((0, 1))
            total = total + (known * centered).sum((0, 1))
            squares = squares + (known * centered**2).sum((0, 1))
        if shift is None or not np.all(mass > 0):
            raise ValueError("`portions` must hold at least one number of every variable.")
        mean = total / mass
        std = np.sqrt(np.maximum(squares / mass - mean**2, 0))
        # A variable that never varies is only shifted.
        return cls(mean + shift, np.where(std > 0, std, 1.0))

    def apply(self, values: np.ndarray) -> np.ndarray:
        """Returns normalised values, variables last."""
        return (values - self.mean) / self.std

    def invert(self, values: np.ndarray) -> np.ndarray:
        """Returns values in their own units."""
        return values * self.std + self.mean
