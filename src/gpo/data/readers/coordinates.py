"""Where the sites of users' arrays are: which arrays are coordinates, and what they span."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import permutations
from pathlib import Path

import numpy as np

from gpo.data.errors import DataError
from gpo.data.geometry import Geometry
from gpo.data.readers.base import check_axis
from gpo.data.readers.matching import BARE_SITES, Order
from gpo.data.readers.sites import check_cells, check_points, scattered
from gpo.data.readers.stores import Stored

POINTS = (
    "coords", "coordinates", "points", "pts", "pos", "mesh_pos", "nodes", "vertices", "x_star",
)  # fmt: skip
CELLS = ("cells", "triangles", "elements", "faces")


@dataclass(frozen=True)
class Sites:
    """What the coordinates say before any field is looked at."""

    orders: tuple[Order, ...]
    lengths: dict[str, int]
    used: tuple[str, ...]
    """Names of the arrays that hold coordinates and cells."""
    build: Callable[[Sequence[int]], Geometry]
    """Builds the sites from their lengths along every axis."""


def find(
    path: Path,
    arrays: Mapping[str, Stored],
    names: Sequence[str],
    suits: Callable[[Stored], bool] = lambda stored: True,
) -> str | None:
    """Returns the array that has one of the names; refuses two."""
    found = [name for name in arrays if name.lower() in names and suits(arrays[name])]
    if len(found) > 1:
        problem = f"and `{found[1]}` mean the same: keep one of them, rename the other."
        raise DataError(path, found[0], problem)
    return found[0] if found else None


def find_sites(path: Path, arrays: Mapping[str, Stored]) -> Sites:
    """Returns points, a grid or a body-fitted grid, or numbered axes where nothing is given."""
    points, cells = find(path, arrays, POINTS), find(path, arrays, CELLS)
    axes = {
        label: name
        for label in ("x", "y", "z")
        if (name := find(path, arrays, (label,), lambda one: one.is_vector and one.size > 1))
    }
    x, y = (find(path, arrays, (label,), lambda one: len(one.shape) == 2) for label in "xy")
    is_mesh = x and y and not axes and arrays[x].shape == arrays[y].shape
    if points and (axes or is_mesh):
        raise DataError(path, points, "and `x` are both coordinates: keep one of them.")
    if cells and not points:
        problem = f"needs points; name their coordinates one of {', '.join(POINTS)}."
        raise DataError(path, cells, problem)
    if points:
        return _cloud(path, arrays, points, cells)
    if axes:
        return _grid(path, arrays, axes)
    if x and y and is_mesh:
        return _body_fitted(path, arrays, x, y)
    return Sites(BARE_SITES, {}, (), lambda counts: Geometry.rectilinear([*map(np.arange, counts)]))


def _cloud(path: Path, arrays: Mapping[str, Stored], points: str, cells: str | None) -> Sites:
    values = arrays[points].values()
    coords = check_points(path, points, values[:, None] if values.ndim == 1 else values)
    corners = None
    if cells:
        corners = _from_zero(path, cells, arrays[cells].values(), len(coords))
        corners = check_cells(path, cells, corners, coords)
    geometry = scattered(path, coords, corners)
    used = (points, cells) if cells else (points,)
    return Sites((("points",),), {"points": len(coords)}, used, lambda counts: geometry)


def _from_zero(path: Path, name: str, cells: np.ndarray, num_points: int) -> np.ndarray:
    """Returns cells that count sites from zero; MATLAB's own count from one."""
    if path.suffix != ".mat" or cells.min() < 1 or cells.max() > num_points:
        return cells
    if cells.max() < num_points:
        problem = (
            f"names sites {cells.min():g} to {cells.max():g} of {num_points}, so that nothing "
            "tells whether it counts from zero or from one. Leave out sites without a cell."
        )
        raise DataError(path, name, problem)
    return cells - 1


def _grid(path: Path, arrays: Mapping[str, Stored], axes: Mapping[str, str]) -> Sites:
    values = [check_axis(path, name, np.ravel(arrays[name].values())) for name in axes.values()]
    geometry = Geometry.rectilinear(values, names=tuple(axes))
    lengths = {label: len(axis) for label, axis in zip(axes, values, strict=True)}
    orders = tuple(permutations(axes))
    return Sites(orders, lengths, tuple(axes.values()), lambda counts: geometry)


def _body_fitted(path: Path, arrays: Mapping[str, Stored], x: str, y: str) -> Sites:
    values = [arrays[name].values() for name in (x, y)]
    for name, coordinate in zip((x, y), values, strict=True):
        if not np.isfinite(coordinate).all():
            raise DataError(path, name, "must be finite, got NaN or infinity.")
    with np.errstate(invalid="ignore"):
        geometry = Geometry.curvilinear(*values)
    if not np.isfinite(geometry.weights).all():
        raise DataError(path, x, "and `y` cover no area: all points lie on a line.")
    rows, columns = arrays[x].shape
    lengths = {"row": rows, "column": columns}
    return Sites((("row", "column"),), lengths, (x, y), lambda counts: geometry)
