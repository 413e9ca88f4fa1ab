"""The CF conventions: times, positions and axes of a gridded file.

Attributes decide first (`standard_name`, `units`, `axis`), then the names in common use.
Times come in undecoded, as numbers with units such as "hours since 1900-01-01".
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
import xarray as xr

from gpo.data.dataset import DataError
from gpo.data.geometry import Geometry, sphere_domain
from gpo.data.readers.base import check_axis
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
from gpo.data.readers.ugrid import find_mesh, topologies
from gpo.numerics.domain import unit_vectors
from gpo.optional import require

DURATIONS = {
    **dict.fromkeys(("s", "sec", "second", "seconds"), "s"),
    **dict.fromkeys(("min", "minute", "minutes"), "min"),
    **dict.fromkeys(("h", "hr", "hour", "hours"), "h"),
    **dict.fromkeys(("d", "day", "days"), "d"),
}


def find_time(dataset: xr.Dataset, dims: Sequence[str]) -> str | None:
    """Returns which of some dimensions is the time, or nothing."""

    def rank(dim: str) -> int:
        coordinate = _time_coordinate(dataset, dim)
        if dim.lower() in TIME_NAMES[:2]:
            return TIME_NAMES.index(dim.lower())
        if coordinate is not None and is_time(coordinate):
            return 2 if standard_name(coordinate) == "time" else 3
        return 4 if dim.lower() in TIME_NAMES else 5

    ranked = sorted((dim for dim in dims if rank(dim) < 5), key=rank)
    return ranked[0] if ranked else None


def read_times(path: Path, dataset: xr.Dataset, dim: str) -> tuple[np.ndarray, str, float | None]:
    """Returns the times of all frames, their units and, of dates, the hour of the first.

    Dates of any calendar become hours since the first frame; plain numbers stay what they are.
    """
    if dataset.sizes[dim] == 0:
        raise DataError(path, dim, "has length zero: there are no frames.")
    coordinate = _time_coordinate(dataset, dim)
    if coordinate is None:
        return np.arange(dataset.sizes[dim], dtype=np.float64), "", None
    name = str(coordinate.name)
    if coordinate.dtype.kind not in "iuf":
        raise DataError(path, name, f"must be numbers with units, got {coordinate.dtype}.")
    # Differences first: nanoseconds since 1970 would not survive a conversion to float.
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
        raise DataError(path, name, f"has units {units!r}, which we cannot turn into times.")
    return values.astype(np.float64), DURATIONS[units.lower()], None


def site_dims(path: Path, dataset: xr.Dataset, dims: Sequence[str], time: str) -> tuple[str, ...]:
    """Returns those dimensions along which a variable's sites lie, in the order of its points.

    Args:
        path: The file, for messages.
        dataset: Its content.
        dims: Dimensions of the variable, without the time.
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
        every = dict.fromkeys([*latitude.dims, *longitude.dims])
        return tuple(str(dim) for dim in every if dim != time)
    clouds = [dim for dim in dims if has_columns(dataset, dim)]
    if len(clouds) == 1:
        # Sites whose coordinates are listed one by one; other dimensions count levels.
        return (clouds[0],)
    flat = tuple(dim for dim in dims if is_flat(dataset, dim))
    long = (dim for dim in dims if not is_extra(dataset, dim) and dataset.sizes[dim] != 1)
    return flat or tuple(long)


def is_site_axis(path: Path, dataset: xr.Dataset, dim: str) -> bool:
    """Returns whether a file tells that sites lie along a dimension: by name, numbers or a mesh."""
    has_degrees = any(
        dim in array.dims and array.ndim <= 2 and is_latitude(array)
        for array in (dataset[name] for name in dataset.variables)
    )
    is_named = is_flat(dataset, dim) or dim.lower() == "z"
    has_places = has_degrees or has_columns(dataset, dim)
    return is_named or has_places or find_mesh(path, dataset, [dim]) is not None


def build_geometry(
    path: Path, dataset: xr.Dataset, dims: Sequence[str], time: str, coords: Sequence[str] = ()
) -> Geometry:
    """Returns the sites along some dimensions: on the sphere where they have latitudes and longitudes.

    Scattered sites stand for the areas of their cells where the file has these.

    Args:
        path: The file, for messages.
        dataset: Its content.
        dims: Dimensions along which sites lie.
        time: Name of the time dimension.
        coords: Names of the coordinates of scattered sites, where the user says them.
    """
    geometry = _place_sites(path, dataset, dims, time, coords)
    areas = None if geometry.grid_shape else area_along(dataset, dims[0])
    if areas is None:
        return geometry
    # A site without an area stands for nothing, as a masked one.
    numbers = np.nan_to_num(areas.values.astype(np.float64), nan=0.0)
    if not (np.isfinite(numbers).all() and numbers.min() >= 0 and numbers.any()):
        span = f"{numbers.min():g} to {numbers.max():g}"
        raise DataError(path, str(areas.name), f"must be areas, zero or more, got {span}.")
    return geometry.with_weights(numbers)


def _place_sites(
    path: Path, dataset: xr.Dataset, dims: Sequence[str], time: str, coords: Sequence[str]
) -> Geometry:
    """Returns sites by the coordinates of a file: a mesh, a grid, or scattered ones."""
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
        true = None if positions is None else _true_places(path, positions, dims, time)
        geometry = rotated_grid(path, dataset, rotated, true)
        if geometry is not None:
            return geometry
    if positions is None:
        found = find_columns(path, dataset, dims)
        if found:
            return listed_points(path, dataset, dims, found)
        return _flat_grid(path, dataset, dims)
    latitude, longitude = positions
    horizontal = {str(dim) for dim in (*latitude.dims, *longitude.dims)} - {time}
    _check_two_axes(path, dims, horizontal)
    up, along = (_fixed(path, array, time) for array in positions)
    _check_degrees(path, {str(latitude.name): up, str(longitude.name): along})
    if up.ndim == 2:
        return Geometry.curvilinear_sphere(up, along)
    if len(horizontal) == 1:
        placed = unit_vectors(torch.from_numpy(along), torch.from_numpy(up)).numpy()
        return Geometry.scattered(placed, domain=sphere_domain(placed))
    up = check_axis(path, str(latitude.name), up)
    return Geometry.latitude_longitude(up, _unwrap(path, str(longitude.name), along))


def is_auxiliary(path: Path, dataset: xr.Dataset, name: str) -> bool:
    """Returns whether a variable describes the grid instead of being a field on it."""
    array = dataset[name]
    if any(name in mesh.auxiliaries for mesh in topologies(path, dataset)):
        return True
    areas = [area_along(dataset, str(dim)) for dim in array.dims]
    if any(found is not None and found.name == name for found in areas):
        return True
    bounds = {variable.attrs.get("bounds") for variable in dataset.variables.values()}
    is_bounds = name in bounds or name.endswith(("_bnds", "_bounds"))
    is_position = is_latitude(array) or is_longitude(array)
    return is_bounds or is_position or is_time(array) or "grid_mapping_name" in array.attrs


def _flat_grid(path: Path, dataset: xr.Dataset, dims: Sequence[str]) -> Geometry:
    """Builds an open grid in the file's own coordinates, in numbers of sites where it has none."""
    if not 1 <= len(dims) <= 3:
        names = ", ".join(dims) or "none"
        raise DataError(path, "dimensions", f"of a site must be 1, 2 or 3, got {names}.")
    axes: list[np.ndarray] = []
    units: list[str] = []
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
    """Builds the box of a map's plane, with the true places of its sites where the file has them."""
    geometry = _flat_grid(path, dataset, dims)
    if positions is None or len(dims) != 2:
        return geometry
    latitude, longitude = _true_places(path, positions, dims, time)
    return replace(geometry, projected_from=np.stack([longitude.ravel(), latitude.ravel()], -1))


def _true_places(
    path: Path, positions: tuple[xr.DataArray, xr.DataArray], dims: Sequence[str], time: str
) -> tuple[np.ndarray, np.ndarray]:
    """Returns true latitudes and longitudes of all sites, in the order of their dimensions."""
    up, along = (_fixed(path, array.transpose(..., *dims), time) for array in positions)
    _check_degrees(path, {str(positions[0].name): up, str(positions[1].name): along})
    return up, along


def _check_two_axes(path: Path, dims: Sequence[str], horizontal: set[str]) -> None:
    above = [dim for dim in dims if dim not in horizontal]
    if above:
        raise DataError(path, above[0], "cannot be an axis on the sphere: select one value.")


def _check_degrees(path: Path, degrees: dict[str, np.ndarray]) -> None:
    """Refuses latitudes and longitudes, in this order, from which no site can be placed."""
    for name, values in degrees.items():
        if values.size == 0 or not np.isfinite(values).all():
            raise DataError(path, name, "must be finite, got NaN, infinity or nothing at all.")
        if values.ndim == 2 and min(values.shape) < 2:
            raise DataError(path, name, f"must have two rows and columns, got {values.shape}.")
    name, latitude = next(iter(degrees.items()))
    if np.abs(latitude).max() > 90.001:
        problem = f"must lie within -90 and 90 degrees, got {np.abs(latitude).max():g}."
        raise DataError(path, name, problem)


def _fixed(path: Path, array: xr.DataArray, time: str) -> np.ndarray:
    """Returns positions in degrees; refuses those that change from frame to frame."""
    if time in array.dims:
        array = array.transpose(time, ...)
        values = degrees_of(array)
        if not np.array_equal(values, np.broadcast_to(values[:1], values.shape)):
            raise DataError(path, str(array.name), "moves with time; only fixed sites are read.")
        return values[0]
    return degrees_of(array)


def _unwrap(path: Path, name: str, longitude: np.ndarray) -> np.ndarray:
    """Returns sorted longitudes, continued across the meridian where the file starts anew."""
    steps = np.diff(longitude)
    if not (np.all(steps > 0) or np.all(steps < 0)):
        longitude = np.unwrap(longitude, period=360)
    longitude = check_axis(path, name, longitude)
    if np.ptp(longitude) > 359.999:
        problem = "spans 360 degrees: the first and last meridian are one place. Remove one."
        raise DataError(path, name, problem)
    return longitude


def _positions(
    dataset: xr.Dataset, dims: Sequence[str], time: str
) -> tuple[xr.DataArray, xr.DataArray] | None:
    """Returns latitudes and longitudes of sites along some dimensions, or nothing."""
    there = [
        dataset[name]
        for name, variable in dataset.variables.items()
        if set(variable.dims) - {time} and set(variable.dims) <= {*dims, time}
    ]
    there.sort(key=lambda array: (array.ndim, str(array.name)))
    latitudes = [array for array in there if is_latitude(array)]
    longitudes = [array for array in there if is_longitude(array)]
    for latitude in latitudes:
        for longitude in longitudes:
            if latitude.ndim == longitude.ndim == 1:
                return latitude, longitude
            if set(latitude.dims) == set(longitude.dims):
                return latitude, longitude.transpose(*latitude.dims)
    return None


def _time_coordinate(dataset: xr.Dataset, dim: str) -> xr.DataArray | None:
    """Returns the variable of the dimension's name, or any other that dates its frames."""
    if dim in dataset.variables and dataset[dim].dims == (dim,):
        return dataset[dim]
    along = [dataset[name] for name, part in dataset.variables.items() if part.dims == (dim,)]
    return next((array for array in along if is_time(array)), None)


def _hours(
    path: Path, name: str, first: int | float, units: str, calendar: str
) -> tuple[float, float]:
    """Returns how many hours a unit of time has, which is fixed, and the hour of the first date."""
    cftime = require("cftime", "data", "Reading dates")
    try:
        start, stop, date = cftime.num2date([0, 1, first], units, calendar)
    except ValueError as error:
        problem = f"has units {units!r} in calendar {calendar!r}, which we cannot decode: {error}."
        raise DataError(path, name, problem) from error
    midnight = date.replace(hour=0, minute=0, second=0, microsecond=0)
    return (stop - start).total_seconds() / 3600, (date - midnight).total_seconds() / 3600
