"""The interface of solvers: trajectories in portions, written as one file of a published layout."""

import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar

import numpy as np

Portion = dict[str, np.ndarray]
"""Arrays of some trajectories by name, trajectories first."""


class BlownUpError(RuntimeError):
    """A trajectory became infinite or NaN even with the smallest steps."""


class AbstractSolver(ABC):
    """One equation with all its numbers set; `benchmarks.py` says how a new one is added."""

    suffix: ClassVar[str]
    """Ending of the files it writes; empty where it writes a folder."""
    num_trajectories: int
    """Number of trajectories to make."""
    portion_size: int
    """Trajectories solved side by side; the last bits of a result may depend on it."""

    @abstractmethod
    def solve(self, trajectories: range) -> Portion:
        """Returns some of the trajectories; each depends on the seed and its own number."""

    @abstractmethod
    def write(self, path: Path, portions: Iterable[Portion]) -> None:
        """Writes all portions, in order, as one file of the published layout."""


@contextmanager
def stacked(path: Path, count: int, portions: Iterable[Portion]) -> Iterator[Portion]:
    """Yields arrays of all trajectories, kept on disk beside `path`, for writers of whole arrays.

    Args:
        path: Where the file will be, which needs as much room again.
        count: Trajectories in all.
        portions: Arrays of single precision, in order.
    """
    with tempfile.TemporaryDirectory(dir=path.parent, prefix=f"{path.name}.") as folder:
        whole: Portion = {}
        done = 0
        for portion in portions:
            for name, part in portion.items():
                if name not in whole:
                    file = Path(folder) / f"{name}.raw"
                    shape = (count, *part.shape[1:])
                    whole[name] = np.memmap(file, dtype=part.dtype, mode="w+", shape=shape)
                whole[name][done : done + len(part)] = part
            done += len(next(iter(portion.values())))
        yield whole
