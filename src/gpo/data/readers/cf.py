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
from gpo.data.readers.cf_attributes import (
    TIME_NAMES,
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
from gpo.data.readers.cf_points import find_columns, has_columns, listed_points
from gpo.data.readers.grid_mapping import projected_axes, rotated_axes, rotated_grid
from gpo.data.readers.map_projection import with_projection
from gpo.data.readers.sites import weigh_by_areas
from gpo.data.readers.ugrid import find_mesh, topologies
from gpo.optional import require

DURATIONS = {
    **dict.fromkeys(("s", "sec", "second", "seconds"), "s"),
    **dict.fromkeys(("min", "minute", "minutes"), "min"),
    **dict.fromkeys(("h", "hr", "hour", "hours"), "h"),
    **dict.fromkeys(("d", "day", "days"), "d"),
}


def find_time(dataset: xr.Dataset, dims: Sequence[str]) -> str | None:
    """Returns the time dimension among these dimensions; None if there is none."""

    def rank(dim: str) -> int:
        coordinate = _time_coordinate(dataset, dim)
        if dim.lower() in TIME_NAMES[:2]:
            return TIME_NAMES.index(dim.lower())
        if coordinate is not None and is_time(coordinate):
            return 2 if standard_name(coordinate) == "time" else 3
        return 4 if dim.lower() in TIME_NAMES else 5

    ranked = sorted((dim for dim in dims if rank(dim) < 5), key=rank)
    return ranked[0] if ranked else None


def scalar_time(dataset: xr.Dataset) -> str | None:
    """Returns the name of the time of a file with one frame and no time axis; None without one."""
    scalars = [dataset[name] for name, part in dataset.variables.items() if part.ndim == 0]
    times = [
        array for array in scalars
        if array.dtype.kind in "iuf" and is_time(array) and not is_extra(dataset, str(array.name))
        and standard_name(array) != "forecast_reference_time"
    ]  # fmt: skip
    ranks = {name: rank for rank, name in enumerate(TIME_NAMES)}
    times.sort(key=lambda array: ranks.get(str(array.name).lower(), len(ranks)))
    return str(times[0].name) if times else None


def read_times(path: Path, dataset: xr.Dataset, dim: str) -> tuple[np.ndarray, str, float | None]:
    """Returns the times of all frames, their units and, for dates, the hour of day of the first.

    Dates of any calendar are converted to hours since the first frame; other times are unchanged.
    """
    if dataset.sizes[dim] == 0:
        raise DataError(path, dim, "has length zero: there are no frames.")
    coordinate = _time_coordinate(dataset, dim)
    if coordinate is None:
        return np.arange(dataset.sizes[dim], dtype=np.float64), "", None
    name = str(coordinate.name)
    if coordinate.dtype.kind not in "iuf":
        raise DataError(path, name, f"must be numbers with units, got {coordinate.dtype}.")
    # Subtract before converting to float, which cannot represent nanoseconds since 1970.
    values = coordinate.values if coordinate.dtype.kind == "f" else coordinate.values.astype(int)
    elapsed = check_axis(path, name, values - values[0])
    if len(elapsed) > 1 and elapsed[1] < 0:
        raise DataError(path, name, "must increase, got times running backwards.")
    units = str(coordinate.attrs.get("units", "")).strip()
    if "since" in units:
        calendar = str(coordinate.attrs.get("calendar", "standard"))
        per_unit, first = _hours(path, name, values[0].item(), units, calendar)
        return np.round(elapsed * per_unit, 9), "h", first
    if units in ("", "1"):
        return values.astype(np.float64), "", None
    if units.lower() not in DURATIONS:
        raise DataError(path, name, f"must have units of time, got {units!r}.")
    return values.astype(np.float64), DURATIONS[units.lower()], None


def site_dims(path: Path, dataset: xr.Dataset, dims: Sequence[str], time: str) -> tuple[str, ...]:
    """Returns the dimensions of the sites of a variable, in the order of its points.

    Args:
        path: The file, for error messages.
        dataset: The open file.
        dims: Dimensions of the variable except time.
        time: Name of the time dimension.
    """
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
    has_degrees = any(
        dim in array.dims and array.ndim <= 2 and is_latitude(array)
        for array in (dataset[name] for name in dataset.variables)
    )
    is_named = is_flat(dataset, dim) or dim.lower() == "z"
    has_coords = has_degrees or has_columns(dataset, dim)
    return is_named or has_coords or find_mesh(path, dataset, [dim]) is not None


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
    axes: list[np.ndarray] = []
    units: list[str] = []
    if all(coordinate_along(dataset, dim) is None for dim in dims):
        return index_grid([dataset.sizes[dim] for dim in dims], dims)
    for dim in dims:
        coordinate = coordinate_along(dataset, dim)
        axis = np.arange(dataset.sizes[dim]) if coordinate is None else coordinate.values
        axes.append(check_axis(path, dim, axis))
        units.append("" if coordinate is None else str(coordinate.attrs.get("units", "")))
    ends = [(float(axis.min()), float(axis.max())) for axis in axes]
    bounds = [(low, high if high > low else low + 1) for low, high in ends]
    return Geometry.rectilinear(axes, names=dims, units=units, bounds=bounds)


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


def _time_coordinate(dataset: xr.Dataset, dim: str) -> xr.DataArray | None:
    """Returns the coordinate variable of a dimension, or another variable with its times."""
    if dim in dataset.variables and dataset[dim].dims == (dim,):
        return dataset[dim]
    along = [dataset[name] for name, part in dataset.variables.items() if part.dims == (dim,)]
    return next((array for array in along if is_time(array)), None)


def _hours(
    path: Path, name: str, first: int | float, units: str, calendar: str
) -> tuple[float, float]:
    """Returns the hours of a unit of time, and the hour of day of the first date."""
    cftime = require("cftime", "data", "Reading dates")
    try:
        start, stop, date = cftime.num2date([0, 1, first], units, calendar)
    except ValueError as error:
        problem = f"has units {units!r} in calendar {calendar!r}, which cannot be decoded: {error}."
        raise DataError(path, name, problem) from error
    midnight = date.replace(hour=0, minute=0, second=0, microsecond=0)
    return (stop - start).total_seconds() / 3600, (date - midnight).total_seconds() / 3600
