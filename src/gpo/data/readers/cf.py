"""Times, coordinates and axes of gridded files by the CF conventions.

Attributes (`standard_name`, `units`, `axis`) take precedence over common names. Times are undecoded
numbers with units such as "hours since 1900-01-01".
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import xarray as xr

from gpo.data.dataset import DataError
from gpo.data.geometry import Geometry
from gpo.data.index_grids import index_grid
from gpo.data.readers.base import check_axis, check_latitudes
from gpo.data.readers.grid_mapping import (
    projected_axes,
    rotated_axes,
    rotated_grid,
    with_projection,
)
from gpo.data.readers.lazy import PERIODIC, SITE_DIMS
from gpo.data.readers.names import (
    area_along,
    coordinate_along,
    degrees_of,
    is_extra,
    is_flat,
    is_latitude,
    is_longitude,
    is_time,
    standard_name,
)
from gpo.data.readers.sites import find_columns, has_columns, listed_points, weigh_by_areas
from gpo.data.readers.ugrid import find_mesh, topologies
from gpo.numerics.domain import Domain

MIN_GAP = 1.5
"""Ratio to the distance of the outermost longitudes around the circle from which a gap is the largest."""


def cut_at_largest_gap(dataset: xr.Dataset) -> xr.Dataset:
    """Returns the data set with sorted longitudes that begin after their largest gap.

    A region across a meridian may be stored as 0 to 12 and 350 to 358 degrees; its columns then are
    neighbours in the order 350 to 358, 0 to 12.
    """
    lines = [dataset[name] for name, part in dataset.variables.items() if part.ndim == 1]
    latitudes = {array.dims for array in lines if is_latitude(array)}
    for array in lines:
        if not is_longitude(array) or array.dims in latitudes:
            continue
        steps = np.diff(degrees_of(array))
        is_sorted = len(steps) > 1 and (np.all(steps > 0) or np.all(steps < 0))
        gaps = np.abs(steps)
        if is_sorted and gaps.sum() < 360 and gaps.max() > MIN_GAP * (360 - gaps.sum()):
            order = np.roll(np.arange(array.size), -(int(gaps.argmax()) + 1))
            dataset = dataset.isel({array.dims[0]: order})
    return dataset


def site_dims(path: Path, dataset: xr.Dataset, dims: Sequence[str], time: str) -> tuple[str, ...]:
    """Returns the dimensions of the sites of a variable, in the order of its points.

    Args:
        path: The file, for error messages.
        dataset: The open file.
        dims: Dimensions of the variable except time.
        time: Name of the time dimension.
    """
    if SITE_DIMS in dataset.attrs:
        return tuple(dim for dim in dataset.attrs[SITE_DIMS] if dim in dims)
    mesh = find_mesh(path, dataset, dims)
    if mesh is not None:
        return (mesh[1],)
    rotated = rotated_axes(dataset, dims)
    if rotated is not None:
        return tuple(str(axis.dims[0]) for axis in rotated)
    projected = projected_axes(dataset, dims)
    if projected is not None:
        return projected
    positions = _positions(dataset, dims, time)
    if positions is not None:
        latitude, longitude = positions
        horizontal = dict.fromkeys([*latitude.dims, *longitude.dims])
        return tuple(str(dim) for dim in horizontal if dim != time)
    point_dims = [dim for dim in dims if has_columns(dataset, dim)]
    if len(point_dims) == 1:
        # Unstructured points; the other dimensions are levels.
        return (point_dims[0],)
    flat = tuple(dim for dim in dims if is_flat(dataset, dim))
    others = (dim for dim in dims if not is_extra(dataset, dim) and dataset.sizes[dim] != 1)
    return flat or tuple(others)


def is_site_axis(path: Path, dataset: xr.Dataset, dim: str) -> bool:
    """Returns whether a dimension is that of sites, by its name, coordinates or a mesh."""
    if SITE_DIMS in dataset.attrs:
        return dim in dataset.attrs[SITE_DIMS]
    has_degrees = any(
        dim in array.dims and array.ndim <= 2 and is_latitude(array)
        for array in (dataset[name] for name in dataset.variables)
    )
    is_named = is_flat(dataset, dim) or dim.lower() == "z"
    has_coords = has_degrees or has_columns(dataset, dim)
    return is_named or has_coords or find_mesh(path, dataset, [dim]) is not None


def build_geometries(
    path: Path,
    dataset: xr.Dataset,
    dims: Sequence[str],
    time: str,
    series: str | None,
    coords: Sequence[str] = (),
) -> tuple[Geometry, ...]:
    """Returns the sites of all trajectories, or of each if their coordinates differ.

    Args:
        path: The file, for error messages.
        dataset: The open file.
        dims: Dimensions of the sites.
        time: Name of the time dimension.
        series: Name of the dimension of trajectories or samples, if any.
        coords: Names of the coordinates of unstructured points, if the user states them.
    """
    is_own = any(
        series in array.dims and set(dims) & set(array.dims) for array in dataset.coords.values()
    )
    if not is_own or series is None:
        return (build_geometry(path, dataset, dims, time, coords),)
    # What depends on time or is no coordinate is not needed, and slow to select.
    fixed = dataset.drop_vars(
        [name for name in dataset.data_vars if series != time in dataset[name].dims]
    )
    geometries = [
        build_geometry(path, _unpadded(fixed.isel({series: number}), dims), dims, time, coords)
        for number in range(dataset.sizes[series])
    ]
    if len({len(geometry.axis_names) for geometry in geometries}) > 1:
        raise DataError(path, "coords", "must have the same dim in all trajectories.")
    if geometries[0].domain.is_sphere:
        return tuple(geometries)
    lower, upper = (
        end([end(geometry.coords, 0) for geometry in geometries], 0) for end in (np.min, np.max)
    )
    domain = Domain.box(lower.tolist(), np.where(upper > lower, upper, lower + 1).tolist())
    return tuple(replace(geometry, domain=domain) for geometry in geometries)


def _unpadded(dataset: xr.Dataset, dims: Sequence[str]) -> xr.Dataset:
    """Returns a trajectory without the points, of which others have more, that have no coordinates."""
    if len(dims) > 1:
        return dataset
    arrays = [array for array in dataset.coords.values() if array.dims == tuple(dims)]
    count = max(int(np.isfinite(array.values).sum()) for array in arrays)
    return dataset.isel({dims[0]: slice(0, count)})


def build_geometry(
    path: Path, dataset: xr.Dataset, dims: Sequence[str], time: str, coords: Sequence[str] = ()
) -> Geometry:
    """Returns the sites along these dimensions, on the sphere if they have latitudes and longitudes.

    Unstructured points are weighted by cell areas if the file has them.

    Args:
        path: The file, for error messages.
        dataset: The open file.
        dims: Dimensions of the sites.
        time: Name of the time dimension.
        coords: Names of the coordinates of unstructured points, if the user states them.
    """
    geometry = _build_sites(path, dataset, dims, time, coords)
    areas = None if geometry.grid_shape else area_along(dataset, dims[0])
    if areas is None:
        return geometry
    return weigh_by_areas(path, str(areas.name), geometry, areas.values)


def _build_sites(
    path: Path, dataset: xr.Dataset, dims: Sequence[str], time: str, coords: Sequence[str]
) -> Geometry:
    """Returns a mesh, a grid, or unstructured points without cell areas."""
    if coords:
        return listed_points(path, dataset, dims, coords)
    mesh = find_mesh(path, dataset, dims)
    if mesh is not None and len(dims) == 1:
        return mesh[0].geometry(mesh[1])
    positions = _positions(dataset, dims, time)
    if projected_axes(dataset, dims) is not None:
        return _projected_grid(path, dataset, dims, time, positions)
    rotated = rotated_axes(dataset, dims)
    if rotated is not None:
        _check_two_axes(path, dims, {str(axis.dims[0]) for axis in rotated})
        degrees = None if positions is None else _site_degrees(path, positions, dims, time)
        geometry = rotated_grid(path, dataset, rotated, degrees)
        if geometry is not None:
            return geometry
    if positions is None:
        columns = find_columns(path, dataset, dims)
        if columns:
            return listed_points(path, dataset, dims, columns)
        plane = _plane_coordinates(dataset, dims)
        if plane is not None:
            return _body_fitted(path, dataset, *plane)
        return _flat_grid(path, dataset, dims)
    latitude, longitude = positions
    horizontal = {str(dim) for dim in (*latitude.dims, *longitude.dims)} - {time}
    _check_two_axes(path, dims, horizontal)
    names = str(latitude.name), str(longitude.name)
    rows, columns = (_constant_degrees(path, array, time) for array in positions)
    _check_degrees(path, dict(zip(names, (rows, columns), strict=True)))
    if rows.ndim == 2:
        return Geometry.curvilinear_sphere(rows, columns)
    if len(horizontal) == 1:
        return Geometry.on_sphere(columns, rows)
    rows = check_axis(path, names[0], rows)
    return Geometry.latitude_longitude(rows, _unwrap(path, names[1], columns))


def is_auxiliary(path: Path, dataset: xr.Dataset, name: str) -> bool:
    """Returns whether a variable describes the grid and is not a field."""
    array = dataset[name]
    if any(name in mesh.auxiliaries for mesh in topologies(path, dataset)):
        return True
    areas = [area_along(dataset, str(dim)) for dim in array.dims]
    if any(area is not None and area.name == name for area in areas):
        return True
    bounds = {variable.attrs.get("bounds") for variable in dataset.variables.values()}
    is_bounds = name in bounds or name.endswith(("_bnds", "_bounds"))
    is_position = is_latitude(array) or is_longitude(array)
    return is_bounds or is_position or is_time(array) or "grid_mapping_name" in array.attrs


def _flat_grid(path: Path, dataset: xr.Dataset, dims: Sequence[str]) -> Geometry:
    """Returns a non-periodic grid in the coordinates of the file, or in indices without any."""
    if not 1 <= len(dims) <= 3:
        names = ", ".join(dims) or "none"
        raise DataError(path, "dimensions", f"of a site must be 1, 2 or 3, got {names}.")
    if all(coordinate_along(dataset, dim) is None for dim in dims):
        return index_grid([dataset.sizes[dim] for dim in dims], dims)
    axes: list[np.ndarray] = []
    attributes: list[dict] = []
    for dim in dims:
        coordinate = coordinate_along(dataset, dim)
        axis = np.arange(dataset.sizes[dim]) if coordinate is None else coordinate.values
        axes.append(check_axis(path, dim, axis))
        attributes.append({} if coordinate is None else coordinate.attrs)
    return Geometry.rectilinear(
        axes,
        names=dims,
        units=[str(part.get("units", "")) for part in attributes],
        periodic=[bool(part.get(PERIODIC)) for part in attributes],
    )


def _plane_coordinates(
    dataset: xr.Dataset, dims: Sequence[str]
) -> tuple[xr.DataArray, xr.DataArray] | None:
    """Returns the 2D coordinates x and y of a body-fitted mesh, by their attribute `axis`."""
    arrays = [array for array in dataset.coords.values() if array.dims == tuple(dims)]
    axes = {array.attrs.get("axis"): array for array in arrays if array.ndim == 2}
    return (axes["X"], axes["Y"]) if {"X", "Y"} <= axes.keys() else None


def _body_fitted(path: Path, dataset: xr.Dataset, x: xr.DataArray, y: xr.DataArray) -> Geometry:
    """Returns a curvilinear grid in the plane, weighted by the areas of its cells if it has them."""
    for coordinate in (x, y):
        if not np.isfinite(coordinate.values).all():
            raise DataError(path, str(coordinate.name), "must be finite, got NaN or infinity.")
    with np.errstate(invalid="ignore"):
        geometry = Geometry.curvilinear(x.values, y.values)
    if not np.isfinite(geometry.weights).all():
        problem = f"and `{y.name}` must span an area, but all points lie on a line."
        raise DataError(path, str(x.name), problem)
    stated = [array for array in dataset.coords.values() if array.dims == x.dims]
    areas = next((array for array in stated if standard_name(array) == "cell_area"), None)
    if areas is None:
        return geometry
    return weigh_by_areas(path, str(areas.name), geometry, areas.values.ravel())


def _projected_grid(
    path: Path,
    dataset: xr.Dataset,
    dims: Sequence[str],
    time: str,
    positions: tuple[xr.DataArray, xr.DataArray] | None,
) -> Geometry:
    """Returns the grid of a map projection, with geographic coordinates if the file states them."""
    geometry = _flat_grid(path, dataset, dims)
    if len(dims) != 2:
        return geometry
    if positions is None:
        return with_projection(dataset, dims, geometry)
    latitude, longitude = _site_degrees(path, positions, dims, time)
    return replace(geometry, projected_from=np.stack([longitude.ravel(), latitude.ravel()], -1))


def _site_degrees(
    path: Path, positions: tuple[xr.DataArray, xr.DataArray], dims: Sequence[str], time: str
) -> tuple[np.ndarray, np.ndarray]:
    """Returns geographic latitudes and longitudes of all sites, in the order of the dimensions."""
    arrays = (array.transpose(..., *dims) for array in positions)
    latitude, longitude = (_constant_degrees(path, array, time) for array in arrays)
    _check_degrees(path, {str(positions[0].name): latitude, str(positions[1].name): longitude})
    return latitude, longitude


def _check_two_axes(path: Path, dims: Sequence[str], horizontal: set[str]) -> None:
    others = [dim for dim in dims if dim not in horizontal]
    if others:
        raise DataError(path, others[0], "cannot be an axis on the sphere: select one value.")


def _check_degrees(path: Path, degrees: dict[str, np.ndarray]) -> None:
    """Raises a `DataError` for invalid latitudes and longitudes, which come in this order."""
    for name, values in degrees.items():
        if values.size == 0 or not np.isfinite(values).all():
            raise DataError(path, name, "must be finite, got NaN, infinity or an empty array.")
        if values.ndim == 2 and min(values.shape) < 2:
            raise DataError(path, name, f"must have two rows and columns, got {values.shape}.")
    check_latitudes(path, *next(iter(degrees.items())))


def _constant_degrees(path: Path, array: xr.DataArray, time: str) -> np.ndarray:
    """Returns latitudes or longitudes in degrees, which must not change in time."""
    if time in array.dims:
        array = array.transpose(time, ...)
        values = degrees_of(array)
        if not np.array_equal(values, np.broadcast_to(values[:1], values.shape)):
            raise DataError(path, str(array.name), "must not change in time: sites must be fixed.")
        return values[0]
    return degrees_of(array)


def _unwrap(path: Path, name: str, longitude: np.ndarray) -> np.ndarray:
    """Returns sorted longitudes, unwrapped across the meridian where they jump."""
    steps = np.diff(longitude)
    if not (np.all(steps > 0) or np.all(steps < 0)):
        longitude = np.unwrap(longitude, period=360)
    longitude = check_axis(path, name, longitude)
    if np.ptp(longitude) > 359.999:
        problem = "spans 360 degrees: the first and last meridian coincide. Remove one."
        raise DataError(path, name, problem)
    return longitude


def _positions(
    dataset: xr.Dataset, dims: Sequence[str], time: str
) -> tuple[xr.DataArray, xr.DataArray] | None:
    """Returns latitudes and longitudes of sites along these dimensions; None if there are none."""
    arrays = [
        dataset[name]
        for name, variable in dataset.variables.items()
        if set(variable.dims) - {time} and set(variable.dims) <= {*dims, time}
    ]
    arrays.sort(key=lambda array: (array.ndim, str(array.name)))
    latitudes = [array for array in arrays if is_latitude(array)]
    longitudes = [array for array in arrays if is_longitude(array)]
    for latitude in latitudes:
        for longitude in longitudes:
            if latitude.ndim == longitude.ndim == 1:
                return latitude, longitude
            if set(latitude.dims) == set(longitude.dims):
                return latitude, longitude.transpose(*latitude.dims)
    return None
