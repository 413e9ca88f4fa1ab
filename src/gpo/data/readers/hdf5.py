"""What all HDF5 layouts need: a data set by name, or an error that names it."""

from pathlib import Path
from typing import Any

import h5py
import numpy as np

from gpo.data.errors import DataError


def dataset(path: Path, group: h5py.Group, name: str) -> h5py.Dataset:
    """Returns a data set of a group; refuses where there is none of that name."""
    item = group.get(name)
    if not isinstance(item, h5py.Dataset):
        there = ", ".join(group) or "nothing"
        raise DataError(path, name, f"is missing; {group.name} has {there}.")
    return item


def array(path: Path, group: h5py.Group, name: str, key: Any = ()) -> np.ndarray:
    """Returns the values of a data set, or the part of them that `key` selects."""
    return np.asarray(dataset(path, group, name)[key])
