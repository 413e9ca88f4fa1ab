"""Geo-FNO's airfoils: the Mach number around an airfoil on a body-fitted mesh.

A folder contains three arrays: `NACA_Cylinder_X.npy` and `NACA_Cylinder_Y.npy` (N, 221, 51), the
mesh of each sample, and `NACA_Cylinder_Q.npy` (N, channels, 221, 51), whose channel 4 is the Mach
number. The mesh is the input. Other mesh sizes are read too.

All nodes have equal weights, as in the published scores of this benchmark. The mesh extends over
tens of chords: with cell areas as weights, the undisturbed far field would dominate the loss.
"""

from functools import partial
from pathlib import Path

import numpy as np
import xarray as xr

from gpo.data.dataset import DataError
from gpo.data.readers.array_files import map_npy
from gpo.data.readers.base import ReadOptions
from gpo.data.readers.build import Reader
from gpo.data.readers.lazy import INPUTS, SITE_DIMS, Key, lazy_variable
from gpo.data.readers.size_checks import check_regular

X, Y, Q = NAMES = tuple(f"NACA_Cylinder_{part}.npy" for part in "XYQ")
DIMS = ("sample", "row", "column")
MACH = 4
"""The channel of Q that is predicted."""


def _recognises(path: Path) -> bool:
    """Returns whether all three files are in the folder, or next to the file."""
    if path.is_file() and path.name not in NAMES:
        return False
    return all((_folder(path) / name).is_file() for name in NAMES)


def open_airfoil(path: Path, options: ReadOptions) -> xr.Dataset:
    """Returns the mesh as input and the Mach number as output; arrays are memory-mapped."""
    folder = _folder(path)
    x, y, q = (_open(folder / name) for name in NAMES)
    check_shapes(folder, x, y, q)
    for name, coordinate in ((X, x), (Y, y)):
        if not np.isfinite(coordinate).all():
            raise DataError(folder / name, name, "must be finite, got NaN or infinity.")
    coords = {
        "x": (DIMS, np.asarray(x), {"axis": "X"}),
        "y": (DIMS, np.asarray(y), {"axis": "Y"}),
        "cell_area": (DIMS[1:], np.ones(x.shape[1:]), {"standard_name": "cell_area"}),
    }
    mach = lazy_variable(DIMS, x.shape, q.dtype, partial(_read, folder / Q))
    return xr.Dataset({"mach": mach}, coords, {SITE_DIMS: DIMS[1:], INPUTS: ("x", "y")})


def _read(path: Path, key: Key) -> np.ndarray:
    sample, *others = key
    return np.asarray(_open(path)[(sample, MACH, *others)])


def _folder(path: Path) -> Path:
    return path if path.is_dir() else path.parent


def _open(path: Path) -> np.ndarray:
    check_regular(path)
    try:
        values = map_npy(path)
    except Exception as error:
        raise DataError(path, path.name, f"cannot be read as an array: {error}") from error
    if not isinstance(values, np.ndarray) or values.dtype.kind not in "fiu":
        raise DataError(path, path.name, "must be one array of real numbers.")
    return values


def check_shapes(folder: Path, x: np.ndarray, y: np.ndarray, q: np.ndarray) -> None:
    """Raises a `DataError` unless the three arrays have shapes that match."""
    if x.ndim != 3 or x.shape[0] < 1 or min(x.shape[1:]) < 2:
        problem = f"must have shape (samples, rows, columns), not empty, got {x.shape}."
        raise DataError(folder / X, X, problem)
    if y.shape != x.shape:
        raise DataError(folder / Y, Y, f"must have shape {x.shape} as {X} has, got {y.shape}.")
    if q.ndim != 4 or (len(q), *q.shape[2:]) != x.shape or q.shape[1] <= MACH:
        samples, *grid = x.shape
        expected = f"({samples}, at least {MACH + 1} channels, {grid[0]}, {grid[1]})"
        raise DataError(folder / Q, Q, f"must have shape {expected} to match {X}, got {q.shape}.")


READER = Reader(
    name="airfoil",
    layout="Geo-FNO's folder with NACA_Cylinder_X.npy, _Y.npy and _Q.npy",
    recognises=_recognises,
    open=open_airfoil,
)
