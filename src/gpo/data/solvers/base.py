"""The interface of solvers, which write trajectories in a published layout."""

import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar

import numpy as np

Portion = dict[str, np.ndarray]
"""Arrays of consecutive trajectories by name, with trajectories along the first axis."""


class BlowUpError(RuntimeError):
    """A trajectory became infinite or NaN even with the smallest time step."""


class AbstractSolver(ABC):
    """A solver of one equation with all its parameters; `benchmarks.py` explains how to add one."""

    suffix: ClassVar[str]
    """Suffix of the files it writes; empty for a folder."""
    num_trajectories: int
    """Number of trajectories to generate."""
    portion_size: int
    """Trajectories solved in one batch; the last bits of the result may depend on it."""

    @abstractmethod
    def solve(self, trajectories: range) -> Portion:
        """Returns a range of trajectories; each depends on the seed and its index only."""

    @abstractmethod
    def write(self, path: Path, portions: Iterable[Portion]) -> None:
        """Writes all portions, in order, as one file in the published layout."""


@contextmanager
def stacked(path: Path, count: int, portions: Iterable[Portion]) -> Iterator[Portion]:
    """Yields arrays of all trajectories, memory-mapped in a temporary folder next to `path`.

    Args:
        path: The file to write; the disk must have room for it twice.
        count: Number of all trajectories.
        portions: Arrays in single precision, in order.
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
