"""Portions put together on disk, for writers that take whole arrays of any size."""

import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from gpo.data.solvers.base import Portion


@contextmanager
def stacked(path: Path, count: int, portions: Iterable[Portion]) -> Iterator[Portion]:
    """Yields arrays of all trajectories that live in a folder beside `path` meanwhile.

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
