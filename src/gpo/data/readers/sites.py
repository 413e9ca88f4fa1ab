"""Sites for all readers: points, cells, components, closed axes and masks of missing values."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from gpo.data.dataset import DataError
from gpo.data.geometry import Geometry
from gpo.data.readers.base import check_not_missing, choose_variables
from gpo.numerics.domain import Domain

FRAMES_AT_ONCE = 64
NUMBERS_AT_ONCE = 2**24


@dataclass(frozen=True)
class Column:
    """One variable as a column of an array that may hold several components."""

    variable: str
    array: str
    component: int


def component_names(name: str, count: int, dim: int) -> list[str]:
    """Names the components of an array: x, y, z where it is a vector in space, else numbers."""
    if count == 1:
        return [name]
    letters = "xyz" if count == dim else range(count)
    return [f"{name}_{letter}" for letter in letters][:count]


def choose_columns(
    path: Path, wanted: Sequence[str], components: Mapping[str, Sequence[str]]
) -> list[Column]:
    """Returns the wanted variables, all when none is named.

    Args:
        path: The file, for messages.
        wanted: Names of variables, or of arrays, which stand for all their components.
        components: Names of the variables that each array holds.
    """
    columns = {
        variable: Column(variable, name, component)
        for name, variables in components.items()
        for component, variable in enumerate(variables)
    }
    expanded = [part for name in wanted for part in components.get(name, (name,))]
    return [columns[name] for name in choose_variables(path, expanded, list(columns))]


def check_points(path: Path, name: str, coords: np.ndarray) -> np.ndarray:
    """Returns coordinates of scattered points; a constant third coordinate is dropped."""
    if coords.ndim != 2 or len(coords) == 0 or not 1 <= coords.shape[1] <= 3:
        problem = f"must be points by 1, 2 or 3 coordinates, got shape {coords.shape}."
        raise DataError(path, name, problem)
    coords = coords.astype(np.float64)
    if not np.isfinite(coords).all():
        raise DataError(path, name, "must be finite, got NaN or infinity.")
    is_flat = coords.shape[1] == 3 and np.ptp(coords[:, 2]) == 0
    return coords[:, :2] if is_flat else coords


def check_cells(path: Path, name: str, cells: np.ndarray, coords: np.ndarray) -> np.ndarray:
    """Returns triangles, or tetrahedra in space; quadrilaterals of the plane are cut in two."""
    num_points, dim = coords.shape
    if cells.ndim != 2 or cells.shape[1] not in (3, 4) or dim == 1:
        problem = (
            f"must be cells by 3 or 4 corners in the plane or in space, got shape {cells.shape}"
        )
        raise DataError(path, name, f"{problem} for {dim} coordinates.")
    if len(cells) == 0:
        raise DataError(path, name, "must not be empty: leave it out for a point cloud.")
    if not np.array_equal(cells, np.rint(cells)):
        raise DataError(path, name, "must hold whole numbers, which count sites from zero.")
    corners = cells.astype(np.int64)
    if corners.min() < 0 or corners.max() >= num_points:
        problem = f"points outside the sites: there are {num_points}, counted from zero, but it"
        raise DataError(path, name, f"{problem} names {corners.min()} to {corners.max()}.")
    if cells.shape[1] == 4 and dim == 2:
        return np.concatenate([corners[:, [0, 1, 2]], corners[:, [0, 2, 3]]])
    return corners


def scattered(
    path: Path, coords: np.ndarray, cells: np.ndarray | None, domain: Domain | None = None
) -> Geometry:
    """Builds a point cloud or mesh; refuses cells that cover no area."""
    with np.errstate(invalid="ignore"):
        geometry = Geometry.scattered(coords, cells, domain=domain)
    if not np.isfinite(geometry.weights).all():
        raise DataError(path, "cells", "cover no area: all corners of each lie on a line.")
    return geometry


def portions(
    fetch: Callable[[int, slice], np.ndarray], trajectories: Iterable[int], num_times: int
) -> Iterator[np.ndarray]:
    """Yields all frames in turn, the first of every trajectory alone: most often it suffices."""
    for trajectory in trajectories:
        first = fetch(trajectory, slice(0, 1))
        yield first
        count = min(FRAMES_AT_ONCE, max(1, NUMBERS_AT_ONCE // max(1, first.size)))
        for start in range(1, num_times, count):
            yield fetch(trajectory, slice(start, start + count))


def close_axes(geometry: Geometry, frames: Iterable[np.ndarray]) -> Geometry:
    """Makes those axes of an even grid periodic whose last site is the first one again.

    That is so where both hold the same value in every frame, and the field goes through them
    without a kink: something that fixed values at two walls do not give.

    Args:
        geometry: The sites; only those of a rectilinear grid can close.
        frames: Portions of times by points by variables; read on only while an axis may close.
    """
    is_even = [np.ptp(np.diff(axis)) < 1e-6 * np.ptp(axis) for axis in geometry.axes]
    may_close = [
        bool(even) and len(axis) > 8 for even, axis in zip(is_even, geometry.axes, strict=True)
    ]
    kink, steepest = np.zeros(len(may_close)), np.zeros(len(may_close))
    for values in frames:
        grid = values.reshape(len(values), *geometry.grid_shape, -1)
        tolerance = 1e-9 * float(np.ptp(values))
        for number, may in enumerate(may_close):
            if not may:
                continue
            lines = np.moveaxis(grid, number + 1, 0)
            may_close[number] = bool(np.all(np.abs(lines[-1] - lines[0]) <= tolerance))
            # Five sites around the seam, and how they bend there and on either side.
            bends = np.diff(lines[[-3, -2, 0, 1, 2]], n=2, axis=0)
            kink[number] = max(kink[number], np.abs(bends[1] - (bends[0] + bends[2]) / 2).max())
            steepest[number] = max(steepest[number], np.abs(lines[1] - lines[0]).max())
        if not any(may_close):
            return geometry
    closes = [
        may and bool(k < 0.25 * s) for may, k, s in zip(may_close, kink, steepest, strict=True)
    ]
    if not any(closes):
        return geometry
    return Geometry.rectilinear(
        geometry.axes,
        periodic=closes,
        names=geometry.axis_names,
        units=geometry.axis_units,
        bounds=[(float(axis.min()), float(axis.max())) for axis in geometry.axes],
    )


def mask_missing(
    path: Path, names: Sequence[str], geometry: Geometry, frames: Iterable[np.ndarray]
) -> Geometry:
    """Masks sites at which some variable is always missing; refuses a variable without values.

    Args:
        path: The file, for messages.
        names: Names of the variables.
        geometry: The sites.
        frames: Portions of times by points by variables; read only while a site is without value.
    """
    has_value = np.zeros((geometry.num_points, len(names)), dtype=bool)
    for values in frames:
        has_value |= np.isfinite(values).any(0)
        if has_value.all():
            return geometry
    for name, present in zip(names, has_value.T, strict=True):
        check_not_missing(path, name, [np.where(present, 0.0, np.nan)])
    try:
        return geometry.masked(np.asarray(~has_value.all(1)))
    except ValueError as error:
        problem = "and the other variables are nowhere known together: choose fewer."
        raise DataError(path, names[0], problem) from error
