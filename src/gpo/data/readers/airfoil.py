"""Geo-FNO's airfoils: the Mach number around a shape, on a mesh that follows the shape.

A folder holds three arrays: `NACA_Cylinder_X.npy` and `NACA_Cylinder_Y.npy` (N, 221, 51), the
mesh of every sample, and `NACA_Cylinder_Q.npy` (N, channels, 221, 51), whose channel 4 is the
Mach number. The mesh is the input. Other mesh sizes are read too.

Every node counts alike, as it does in this benchmark's published scores. The mesh reaches tens
of chords: by area, the undisturbed stream far away would be nearly all that is scored and learned.
"""

from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from gpo.data.dataset import DataError, StaticMaps, Variable
from gpo.data.geometry import Geometry
from gpo.data.readers.base import AbstractReader, ReadOptions
from gpo.data.readers.npy import map_npy
from gpo.data.readers.sites import mask_missing
from gpo.data.readers.size_checks import check_regular
from gpo.numerics.domain import Domain

X, Y, Q = NAMES = tuple(f"NACA_Cylinder_{part}.npy" for part in "XYQ")
MACH = 4
"""The channel of Q that is predicted."""


class AirfoilReader(AbstractReader):
    """Steady flow around airfoils; every sample has a mesh of its own, all share one domain."""

    name = "airfoil"
    layout = "Geo-FNO's folder with NACA_Cylinder_X.npy, _Y.npy and _Q.npy"

    def recognises(self, path: Path) -> bool:
        """Looks for all three files in a folder, or beside one of them."""
        if path.is_file() and path.name not in NAMES:
            return False
        return all((_folder(path) / name).is_file() for name in NAMES)

    def read(self, path: Path, options: ReadOptions) -> StaticMaps:
        """Returns the mesh as input and the Mach number as output; values stay on disk."""
        for name in options.variables:
            if name != "mach":
                raise DataError(path, name, "is not in the file, which has mach.")
        x, y, q = (_open(_folder(path) / name) for name in NAMES)
        _check_shapes(_folder(path), x, y, q)
        for name, coordinate in ((X, x), (Y, y)):
            if not np.isfinite(coordinate).all():
                raise DataError(_folder(path) / name, name, "must be finite, got NaN or infinity.")
        lower, upper = ([float(end(x)), float(end(y))] for end in (np.min, np.max))
        domain = Domain.box(lower, upper)

        return StaticMaps(
            layout=self.name,
            source=path,
            inputs=(Variable("x"), Variable("y")),
            outputs=(Variable("mach"),),
            geometries=tuple(
                _geometry(_folder(path), domain, x[sample], y[sample], q[sample], sample)
                for sample in range(len(x))
            ),
            num_samples=len(x),
            fetch=partial(_fetch, _folder(path)),
        )


def _fetch(folder: Path, sample: int) -> tuple[np.ndarray, np.ndarray]:
    x, y, q = (_open(folder / name) for name in NAMES)
    mesh = np.stack([x[sample], y[sample]], -1)
    return mesh.reshape(-1, 2), np.array(q[sample, MACH]).reshape(-1, 1)


def write_airfoil(folder: Path, x: np.ndarray, y: np.ndarray, q: np.ndarray) -> None:
    """Writes the three files.

    Args:
        folder: Where they go; made where there is none.
        x: Horizontal coordinates, samples by rows by columns.
        y: Vertical coordinates, likewise.
        q: Flow, samples by channels by rows by columns; channel 4 is the Mach number.
    """
    _check_shapes(folder, x, y, q)
    folder.mkdir(parents=True, exist_ok=True)
    for name, values in zip(NAMES, (x, y, q), strict=True):
        np.save(folder / name, values, allow_pickle=False)


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


def _check_shapes(folder: Path, x: np.ndarray, y: np.ndarray, q: np.ndarray) -> None:
    if x.ndim != 3 or x.shape[0] < 1 or min(x.shape[1:]) < 2:
        problem = f"must be samples by rows by columns, not empty, got shape {x.shape}."
        raise DataError(folder / X, X, problem)
    if y.shape != x.shape:
        raise DataError(folder / Y, Y, f"must have shape {x.shape} as {X} has, got {y.shape}.")
    if q.ndim != 4 or (len(q), *q.shape[2:]) != x.shape or q.shape[1] <= MACH:
        samples, *grid = x.shape
        expected = f"({samples}, at least {MACH + 1} channels, {grid[0]}, {grid[1]})"
        raise DataError(folder / Q, Q, f"must have shape {expected} to suit {X}, got {q.shape}.")


def _geometry(
    folder: Path, domain: Domain, x: np.ndarray, y: np.ndarray, q: np.ndarray, sample: int
) -> Geometry:
    with np.errstate(invalid="ignore"):
        geometry = replace(Geometry.curvilinear(x, y), domain=domain)
    if not np.isfinite(geometry.weights).all():
        problem = f"has no area in sample {sample}: all points of its mesh lie on a line."
        raise DataError(folder / X, X, problem)
    geometry = replace(geometry, weights=np.full(x.size, 1 / x.size))
    mach = np.reshape(q[MACH], (1, -1, 1))
    return mask_missing(folder / Q, [f"mach of sample {sample}"], geometry, [mach])
