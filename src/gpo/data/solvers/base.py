"""What a solver is: it makes trajectories in portions and writes a published layout."""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from pathlib import Path
from typing import ClassVar

import numpy as np

Portion = dict[str, np.ndarray]
"""Arrays of some trajectories by name, trajectories first."""


class BlownUpError(RuntimeError):
    """A trajectory left the finite numbers, however small the steps were made."""


class AbstractSolver(ABC):
    """One equation with all its numbers set. A new one is one file and one line of `benchmarks`."""

    suffix: ClassVar[str]
    """Ending of the files it writes; empty where it writes a folder."""
    num_trajectories: int
    """How many trajectories there shall be."""
    portion_size: int
    """How many are solved side by side; a part of what fixes the result to the last bit."""

    @abstractmethod
    def solve(self, trajectories: range) -> Portion:
        """Returns some of the trajectories; each depends on the seed and its own number."""

    @abstractmethod
    def write(self, path: Path, portions: Iterable[Portion]) -> None:
        """Writes all portions, in order, as one file of the published layout."""
