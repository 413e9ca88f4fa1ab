"""What all HDF5 layouts need: a data set or group by name, or an error that names it."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from gpo.data.dataset import DataError


@contextmanager
def open_hdf5(path: Path) -> Iterator[h5py.File]:
    """Opens a file to read; what its library says of a broken one becomes a `DataError`."""
    try:
        with h5py.File(path) as file:
            yield file
    except (OSError, RuntimeError) as error:
        raise DataError(path, "file", f"cannot be read as HDF5: {error}") from error


def group(path: Path, parent: h5py.Group, name: str) -> h5py.Group:
    """Returns a group; refuses where there is none of that name."""
    item = parent.get(name)
    if not isinstance(item, h5py.Group):
        raise DataError(path, name, f"must be a group; {_content(parent)}.")
    return item


def dataset(path: Path, parent: h5py.Group, name: str) -> h5py.Dataset:
    """Returns a data set of a group; refuses where there is none of that name."""
    item = parent.get(name)
    if not isinstance(item, h5py.Dataset):
        problem = "is missing" if item is None else "must be a data set, not a group"
        raise DataError(path, name, f"{problem}; {_content(parent)}.")
    return item


def array(path: Path, parent: h5py.Group, name: str, key: Any = ()) -> np.ndarray:
    """Returns the values of a data set, or the part of them that `key` selects."""
    return np.asarray(dataset(path, parent, name)[key])


def _content(parent: h5py.Group) -> str:
    return f"{parent.name} has {', '.join(parent) or 'nothing'}"
