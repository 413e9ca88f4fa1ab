"""Shared helpers of readers: points, cells, components, periodic axes and masks."""

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np

from gpo.data.dataset import DataError
from gpo.data.geometry import Geometry
from gpo.data.readers.base import check_not_missing
from gpo.numerics.domain import Domain


def component_names(name: str, count: int, dim: int) -> list[str]:
    """Returns names of components: suffixes x, y, z for vectors in space, else numbers."""
    if count == 1:
        return [name]
    letters = "xyz" if count == dim else range(count)
    return [f"{name}_{letter}" for letter in letters][:count]


def check_points(path: Path, name: str, coords: np.ndarray) -> np.ndarray:
    """Returns coordinates of unstructured points; a constant third coordinate is dropped."""
    if coords.ndim != 2 or len(coords) == 0 or not 1 <= coords.shape[1] <= 3:
        problem = f"must have shape (points, 1, 2 or 3), got {coords.shape}."
        raise DataError(path, name, problem)
    coords = coords.astype(np.float64)
    if not np.isfinite(coords).all():
        raise DataError(path, name, "must be finite, got NaN or infinity.")
    is_flat = coords.shape[1] == 3 and np.ptp(coords[:, 2]) == 0
    return coords[:, :2] if is_flat else coords


def check_cells(path: Path, name: str, cells: np.ndarray, coords: np.ndarray) -> np.ndarray:
    """Returns triangles, or tetrahedra in space; quadrilaterals in the plane are split in two."""
    num_points, dim = coords.shape
    if cells.ndim != 2 or cells.shape[1] not in (3, 4) or dim == 1:
        problem = f"must have shape (cells, 3 or 4) in the plane or in space, got {cells.shape}"
        raise DataError(path, name, f"{problem} for {dim} coordinates.")
    if len(cells) == 0:
        raise DataError(path, name, "must not be empty. Remove it for points without a mesh.")
    if not np.array_equal(cells, np.rint(cells)):
        raise DataError(path, name, "must be integers, the indices of sites from zero.")
    corners = cells.astype(np.int64)
    if corners.min() < 0 or corners.max() >= num_points:
        problem = f"must be indices from 0 to {num_points - 1} of {num_points} sites, got"
        raise DataError(path, name, f"{problem} {corners.min()} to {corners.max()}.")
    if cells.shape[1] == 4 and dim == 2:
        return np.concatenate([corners[:, [0, 1, 2]], corners[:, [0, 2, 3]]])
    return corners


def unstructured(
    path: Path, coords: np.ndarray, cells: np.ndarray | None, domain: Domain | None = None
) -> Geometry:
    """Returns unstructured points or a mesh, whose cells must have an area."""
    with np.errstate(invalid="ignore"):
        geometry = Geometry.unstructured(coords, cells, domain=domain)
    if not np.isfinite(geometry.weights).all():
        raise DataError(path, "cells", "must have an area, but the corners of each lie on a line.")
    return geometry


def detect_periodic_axes(geometry: Geometry, frames: Iterable[np.ndarray]) -> Geometry:
    """Makes evenly spaced axes periodic whose last site repeats the first one.

    Both sites must have the same value in every frame, and the field must be smooth across them,
    which excludes equal boundary values at two walls.

    Args:
        geometry: The sites; only axes of a rectilinear grid can be periodic.
        frames: Chunks of shape (times, points, variables), read while an axis may be periodic.
    """
    if geometry.domain.is_sphere:
        return geometry
    is_even = [np.ptp(np.diff(axis)) < 1e-6 * np.ptp(axis) for axis in geometry.axes]
    may_repeat = [
        bool(even) and len(axis) > 8 for even, axis in zip(is_even, geometry.axes, strict=True)
    ]
    kink, steepest = np.zeros(len(may_repeat)), np.zeros(len(may_repeat))
    for values in frames:
        grid = values.reshape(len(values), *geometry.grid_shape, -1)
        tolerance = 1e-9 * float(np.ptp(values))
        for number, may in enumerate(may_repeat):
            if not may:
                continue
            lines = np.moveaxis(grid, number + 1, 0)
            may_repeat[number] = bool(np.all(np.abs(lines[-1] - lines[0]) <= tolerance))
            # Second differences at the joined ends, and at the sites on either side.
            bends = np.diff(lines[[-3, -2, 0, 1, 2]], n=2, axis=0)
            kink[number] = max(kink[number], np.abs(bends[1] - (bends[0] + bends[2]) / 2).max())
            steepest[number] = max(steepest[number], np.abs(lines[1] - lines[0]).max())
        if not any(may_repeat):
            return geometry
    is_periodic = [
        may and bool(k < 0.25 * s) for may, k, s in zip(may_repeat, kink, steepest, strict=True)
    ]
    if not any(is_periodic):
        return geometry
    return Geometry.rectilinear(
        geometry.axes,
        periodic=is_periodic,
        names=geometry.axis_names,
        units=geometry.axis_units,
        bounds=[(float(axis.min()), float(axis.max())) for axis in geometry.axes],
    )


def mask_missing(
    path: Path, names: Sequence[str], geometry: Geometry, frames: Iterable[np.ndarray]
) -> Geometry:
    """Masks sites at which a variable is always missing; a variable without values is an error.

    Args:
        path: The file, for error messages.
        names: Names of the variables.
        geometry: The sites.
        frames: Chunks of shape (times, points, variables), read while a site has no value.
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
        problem = "and the other variables have no site in common: choose fewer with --var."
        raise DataError(path, names[0], problem) from error


def weigh_by_areas(path: Path, name: str, geometry: Geometry, areas: np.ndarray) -> Geometry:
    """Returns the sites with cell areas as quadrature weights; NaN counts as zero."""
    areas = np.nan_to_num(areas.astype(np.float64), nan=0.0)
    if not (np.isfinite(areas).all() and areas.min() >= 0 and areas.any()):
        span = f"{areas.min():g} to {areas.max():g}"
        raise DataError(path, name, f"must be areas, zero or more, got {span}.")
    return geometry.with_weights(areas)
