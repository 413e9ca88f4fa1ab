"""Files of sample parameters only: inputs for trained maps from parameters to fields."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from gpo.data.dataset import DataError, FieldData, MapReader
from gpo.data.readers.array_files import SUFFIXES, open_arrays
from gpo.data.readers.base import ReadOptions
from gpo.data.readers.registry import check_data_file
from gpo.data.untrusted import read_in_child
from gpo.optional import require


def read_parameters(path: Path, names: Sequence[str]) -> np.ndarray | None:
    """Returns parameters of shape (samples, columns); None if an array is missing or not 1D or 2D.

    Args:
        path: A file of named arrays, or NetCDF.
        names: Arrays with one entry, or one row, per sample.
    """
    check_data_file(path)
    if path.suffix in SUFFIXES or path.is_dir():
        stored = open_arrays(path)
        arrays = {name: array.values() for name, array in stored.items() if name in names}
    else:
        files = require("gpo.data.readers.gridded", "data", "Reading NetCDF")
        files.check_chunks(path, ReadOptions(variables=tuple(names)))
        with files.open_dataset(path, names) as dataset:
            arrays = {name: dataset[name].values for name in names if name in dataset.variables}
    if len(arrays) < len(names):
        return None
    columns = [np.atleast_1d(np.squeeze(arrays[name])).astype(np.float64) for name in names]
    if any(column.ndim > 2 or len(column) != len(columns[0]) for column in columns):
        return None
    return np.concatenate([column.reshape(len(column), -1) for column in columns], 1)


def maps_from_parameters(
    path: Path, names: Sequence[str], like: FieldData, *, untrusted: bool = False
) -> FieldData | None:
    """Returns static maps with parameters from a file and unknown outputs (NaN).

    Args:
        path: The file of parameters.
        names: Names of the inputs.
        like: Maps with these inputs, which define sites and outputs.
        untrusted: Whether to read the file in a child process with limits.
    """
    if untrusted:
        values = read_in_child(path, read_parameters, path, names)
    else:
        values = read_parameters(path, names)
    if values is None or values.shape[1] != len(like.inputs) or len(like.geometries) > 1:
        return None
    if not np.isfinite(values).all():
        raise DataError(path, ", ".join(names), "must be known for every sample, got NaN.")
    shape = like.geometry().num_points, len(like.outputs)
    fetch = MapReader(partial(_fetch, values, shape))
    return replace(like, source=path, num_samples=len(values), fetch=fetch, parameters={})


def _fetch(
    values: np.ndarray, shape: tuple[int, int], sample: int
) -> tuple[np.ndarray, np.ndarray]:
    inputs = np.broadcast_to(values[sample], (shape[0], values.shape[1]))
    return inputs, np.full(shape, np.nan)
