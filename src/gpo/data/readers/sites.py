"""Sites of all layouts: points, cells, components, periodic axes and masks."""

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import xarray as xr

from gpo.data.dataset import DataError
from gpo.data.geometry import Geometry
from gpo.data.readers.base import check_latitudes, choose_variables
from gpo.data.readers.names import (
    area_along,
    column_groups,
    in_degrees,
    is_along_line,
    is_in_degrees,
    is_latitude,
    is_longitude,
    is_upwards,
    units_of,
)
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
        if not present.any():
            raise DataError(path, name, "holds no number at all: every value is NaN or infinite.")
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


def find_columns(path: Path, dataset: xr.Dataset, dims: Sequence[str]) -> tuple[str, ...]:
    """Returns names of the coordinates of sites along a dimension without a coordinate variable.

    Coordinates are recognised by name. If there are several unrecognised 1D variables, a
    `DataError` asks for the coordinates, since points in the plane would be read as a line.
    """
    if len(dims) != 1 or dims[0] in dataset.variables:
        return ()
    columns = _lists(dataset, dims[0])
    stated = {dataset[name].attrs.get("axis"): name for name in columns}
    if "X" in stated:
        return tuple(stated[axis] for axis in "XYZ" if axis in stated)
    # Longitude and latitude are preferred to Cartesian or projected coordinates.
    groups = sorted(column_groups(columns), key=lambda group: not is_in_degrees(group))
    if groups:
        return groups[0]
    if len(columns) > 1:
        example = " ".join(columns[:2])
        problem = (
            f"and other variables have one value per `{dims[0]}` and may be coordinates. Name the "
            f"coordinates: `--coords {example}`; or remove these variables if the sites are a line."
        )
        raise DataError(path, columns[0], problem)
    # A single coordinate places sites on a line.
    return tuple(name for name in columns if is_along_line(name))


def has_columns(dataset: xr.Dataset, dim: str) -> bool:
    """Returns whether 1D variables along a dimension are named as a group of coordinates."""
    return dim not in dataset.variables and bool(column_groups(_lists(dataset, dim)))


def _lists(dataset: xr.Dataset, dim: str) -> list[str]:
    """Returns names of all numeric 1D variables along a dimension, except areas."""
    areas = area_along(dataset, dim)
    area_name = None if areas is None else areas.name
    return [
        str(name)
        for name, variable in dataset.variables.items()
        if variable.dims == (dim,) and variable.dtype.kind in "iuf" and name != area_name
    ]


def listed_points(
    path: Path, dataset: xr.Dataset, dims: Sequence[str], names: Sequence[str]
) -> Geometry:
    """Returns unstructured points with the coordinates in these variables."""
    for name in choose_variables(path, names, [str(name) for name in dataset.variables]):
        if len(dims) != 1 or dataset[name].dims != tuple(dims):
            expected = ", ".join(dims)
            actual = ", ".join(str(dim) for dim in dataset[name].dims)
            problem = f"must have one value per site ({expected}), got dimensions ({actual})."
            raise DataError(path, name, problem)
    arrays = [dataset[name] for name in names]
    if len(arrays) == 2 and is_latitude(arrays[0]) and is_longitude(arrays[1]):
        arrays = arrays[::-1]
    is_stated = len(arrays) == 2 and is_longitude(arrays[0]) and is_latitude(arrays[1])
    coords = check_points(path, names[0], np.stack([array.values for array in arrays], -1))
    if not is_stated and not (len(names) == 2 and is_in_degrees(names)):
        return unstructured(path, coords, None)
    columns = list(coords.T)
    if not is_stated and is_upwards(names[0]):
        columns = columns[::-1]
    longitude, latitude = in_degrees(columns[0], columns[1], units_of(arrays[0]), names[0])
    check_latitudes(path, names[1], latitude)
    return Geometry.on_sphere(longitude, latitude)
