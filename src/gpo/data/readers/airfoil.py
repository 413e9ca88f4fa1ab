"""Geo-FNO's airfoils: the Mach number around an airfoil on a body-fitted mesh.

A folder contains three arrays: `NACA_Cylinder_X.npy` and `NACA_Cylinder_Y.npy` (N, 221, 51), the
mesh of each sample, and `NACA_Cylinder_Q.npy` (N, channels, 221, 51), whose channel 4 is the Mach
number. The mesh is the input. Other mesh sizes are read too.

All nodes have equal weights, as in the published scores of this benchmark. The mesh extends over
tens of chords: with cell areas as weights, the undisturbed far field would dominate the loss.
"""

from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from gpo.data.dataset import DataError, FieldData, Variable
from gpo.data.geometry import Geometry
from gpo.data.readers.base import AbstractReader, ReadOptions, choose_variables
from gpo.data.readers.npy import map_npy
from gpo.data.readers.sites import mask_missing
from gpo.data.readers.size_checks import check_regular
from gpo.numerics.domain import Domain

X, Y, Q = NAMES = tuple(f"NACA_Cylinder_{part}.npy" for part in "XYQ")
MACH = 4
"""The channel of Q that is predicted."""


class AirfoilReader(AbstractReader):
    """Steady flow around airfoils; each sample has its own mesh, all share one domain."""

    name = "airfoil"
    layout = "Geo-FNO's folder with NACA_Cylinder_X.npy, _Y.npy and _Q.npy"

    def recognises(self, path: Path) -> bool:
        """Returns whether all three files are in the folder, or next to the file."""
        if path.is_file() and path.name not in NAMES:
            return False
        return all((_folder(path) / name).is_file() for name in NAMES)

    def read(self, path: Path, options: ReadOptions) -> FieldData:
        """Returns the mesh as input and the Mach number as output; arrays are memory-mapped."""
        choose_variables(path, options.variables, ["mach"])
        x, y, q = (_open(_folder(path) / name) for name in NAMES)
        check_shapes(_folder(path), x, y, q)
        for name, coordinate in ((X, x), (Y, y)):
            if not np.isfinite(coordinate).all():
                raise DataError(_folder(path) / name, name, "must be finite, got NaN or infinity.")
        lower, upper = ([float(end(x)), float(end(y))] for end in (np.min, np.max))
        domain = Domain.box(lower, upper)

        return FieldData.of_maps(
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


def _geometry(
    folder: Path, domain: Domain, x: np.ndarray, y: np.ndarray, q: np.ndarray, sample: int
) -> Geometry:
    with np.errstate(invalid="ignore"):
        geometry = replace(Geometry.curvilinear(x, y), domain=domain)
    if not np.isfinite(geometry.weights).all():
        problem = f"must be a mesh with an area, but all points of sample {sample} lie on a line."
        raise DataError(folder / X, X, problem)
    geometry = replace(geometry, weights=np.full(x.size, 1 / x.size))
    mach = np.reshape(q[MACH], (1, -1, 1))
    return mask_missing(folder / Q, [f"mach of sample {sample}"], geometry, [mach])
