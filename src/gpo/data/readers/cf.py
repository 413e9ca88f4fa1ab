"""The CF conventions: times, positions and axes of a gridded file.

Attributes decide first (`standard_name`, `units`, `axis`), then the names in common use.
Times come in undecoded, as numbers with units such as "hours since 1900-01-01".
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
import xarray as xr

from gpo.data.dataset import DataError
from gpo.data.geometry import Geometry, sphere_domain
from gpo.data.readers.base import check_axis
from gpo.files import require
from gpo.numerics.domain import unit_vectors

TIME_NAMES = ("valid_time", "time", "t", "date")
LATITUDE_NAMES = ("lat", "latitude", "nav_lat", "xlat", "tlat")
LONGITUDE_NAMES = ("lon", "long", "longitude", "nav_lon", "xlong", "tlon", "tlong")
NORTH = ("degrees_north", "degree_north", "degrees_n", "degree_n", "degreesn", "degreen")
EAST = ("degrees_east", "degree_east", "degrees_e", "degree_e", "degreese", "degreee")
FLAT_STANDARD_NAMES = (
    *("projection_x_coordinate", "projection_y_coordinate", "grid_latitude", "grid_longitude"),
    *("projection_x_angular_coordinate", "projection_y_angular_coordinate"),
)
FLAT_NAMES = ("x", "y", "rlat", "rlon", *LATITUDE_NAMES, *LONGITUDE_NAMES)
EXTRA_NAMES = (
    *("level", "lev", "plev", "pressure_level", "model_level", "isobaricinhpa", "hybrid"),
    *("height", "altitude", "depth", "number", "member", "ensemble", "realization"),
    *("step", "forecast_period", "forecast_reference_time", "expver"),
)
EXTRA_STANDARD_NAMES = (
    *("air_pressure", "height", "altitude", "depth", "model_level_number", "realization"),
    *("forecast_period", "forecast_reference_time"),
)
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
        if coordinate is not None and _is_time(coordinate):
            return 2 if _standard_name(coordinate) == "time" else 3
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


def site_dims(dataset: xr.Dataset, dims: Sequence[str], time: str) -> tuple[str, ...]:
    """Returns those dimensions along which a variable's sites lie, in the order of its points.

    Args:
        dataset: The file.
        dims: Dimensions of the variable, without the time.
        time: Name of the time dimension.
    """
    positions = _positions(dataset, dims, time)
    if positions is not None:
        latitude, longitude = positions
        every = dict.fromkeys([*latitude.dims, *longitude.dims])
        return tuple(str(dim) for dim in every if dim != time)
    flat = tuple(dim for dim in dims if _is_flat(dataset, dim))
    long = (dim for dim in dims if not _is_extra(dataset, dim) and dataset.sizes[dim] != 1)
    return flat or tuple(long)


def build_geometry(path: Path, dataset: xr.Dataset, dims: Sequence[str], time: str) -> Geometry:
    """Returns the sites along some dimensions: on the sphere where they have latitudes and longitudes."""
    positions = _positions(dataset, dims, time)
    if positions is not None:
        latitude, longitude = positions
        horizontal = {*latitude.dims, *longitude.dims} - {time}
        above = [dim for dim in dims if dim not in horizontal]
        if above:
            raise DataError(path, above[0], "cannot be an axis on the sphere: select one value.")
        up, along = (_fixed(path, array, time) for array in positions)
        _check_degrees(path, {str(latitude.name): up, str(longitude.name): along})
        if up.ndim == 2:
            return Geometry.curvilinear_sphere(up, along)
        if len(horizontal) == 1:
            coords = unit_vectors(torch.from_numpy(along), torch.from_numpy(up)).numpy()
            return Geometry.scattered(coords, domain=sphere_domain(coords))
        up = check_axis(path, str(latitude.name), up)
        return Geometry.latitude_longitude(up, _unwrap(path, str(longitude.name), along))
    rotated = _rotated_axes(dataset, dims)
    if rotated is not None:
        up, along = (check_axis(path, str(axis.name), axis.values) for axis in rotated)
        up, along = rotated_to_true(up, along, _rotated_pole(path, dataset, str(rotated[0].name)))
        _check_degrees(path, {dims[0]: up, dims[1]: along})
        is_turned = rotated[0].dims[0] == dims[1]
        return Geometry.curvilinear_sphere(*((up.T, along.T) if is_turned else (up, along)))
    return _flat_grid(path, dataset, dims)


def rotated_to_true(
    latitude: np.ndarray, longitude: np.ndarray, pole: tuple[float, float, float]
) -> tuple[np.ndarray, np.ndarray]:
    r"""Returns true latitudes and longitudes of a grid with a rotated pole, in degrees.

    With the rotated pole at $(\lambda_p, \varphi_p)$ and $\theta = \lambda_r - \lambda_N$,

    $$\sin\varphi = \sin\varphi_r \sin\varphi_p + \cos\varphi_r \cos\varphi_p \cos\theta,$$
    $$\cos\varphi\, e^{i(\lambda-\lambda_p)} = \sin\varphi_r \cos\varphi_p
      - \cos\varphi_r \sin\varphi_p \cos\theta - i \cos\varphi_r \sin\theta.$$

    Args:
        latitude: $\varphi_r$ along the first axis.
        longitude: $\lambda_r$ along the second axis.
        pole: $\varphi_p$, $\lambda_p$ and $\lambda_N$, the rotated longitude of the north pole.
    """
    up, along = np.meshgrid(np.deg2rad(latitude), np.deg2rad(longitude - pole[2]), indexing="ij")
    tilt = np.deg2rad(pole[0])
    north = np.sin(up) * np.sin(tilt) + np.cos(up) * np.cos(tilt) * np.cos(along)
    real = np.sin(up) * np.cos(tilt) - np.cos(up) * np.sin(tilt) * np.cos(along)
    turn = np.arctan2(-np.cos(up) * np.sin(along), real)
    true_longitude = (np.rad2deg(turn) + pole[1] + 180) % 360 - 180
    return np.rad2deg(np.arcsin(north.clip(-1, 1))), true_longitude


def is_auxiliary(dataset: xr.Dataset, name: str) -> bool:
    """Returns whether a variable describes the grid instead of being a field on it."""
    array = dataset[name]
    bounds = {variable.attrs.get("bounds") for variable in dataset.variables.values()}
    is_bounds = name in bounds or name.endswith(("_bnds", "_bounds"))
    is_position = _is_latitude(array) or _is_longitude(array)
    return is_bounds or is_position or _is_time(array) or "grid_mapping_name" in array.attrs


def _flat_grid(path: Path, dataset: xr.Dataset, dims: Sequence[str]) -> Geometry:
    """Builds an open grid in the file's own coordinates, in numbers of sites where it has none."""
    if not 1 <= len(dims) <= 3:
        names = ", ".join(dims) or "none"
        raise DataError(path, "dimensions", f"of a site must be 1, 2 or 3, got {names}.")
    axes: list[np.ndarray] = []
    units: list[str] = []
    for dim in dims:
        coordinate = _coordinate(dataset, dim)
        axis = np.arange(dataset.sizes[dim]) if coordinate is None else coordinate.values
        axes.append(check_axis(path, dim, axis))
        units.append("" if coordinate is None else str(coordinate.attrs.get("units", "")))
    ends = [(float(axis.min()), float(axis.max())) for axis in axes]
    bounds = [(low, high if high > low else low + 1) for low, high in ends]
    return Geometry.rectilinear(axes, names=dims, units=units, bounds=bounds)


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
    """Returns positions as numbers; refuses those that change from frame to frame."""
    if time in array.dims:
        values = array.transpose(time, ...).values
        if not np.array_equal(values, np.broadcast_to(values[:1], values.shape)):
            raise DataError(path, str(array.name), "moves with time; only fixed sites are read.")
        return np.asarray(values[0], dtype=np.float64)
    return np.asarray(array.values, dtype=np.float64)


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
    latitudes = [array for array in there if _is_latitude(array)]
    longitudes = [array for array in there if _is_longitude(array)]
    for latitude in latitudes:
        for longitude in longitudes:
            if latitude.ndim == longitude.ndim == 1:
                return latitude, longitude
            if set(latitude.dims) == set(longitude.dims):
                return latitude, longitude.transpose(*latitude.dims)
    return None


def _rotated_axes(
    dataset: xr.Dataset, dims: Sequence[str]
) -> tuple[xr.DataArray, xr.DataArray] | None:
    """Returns latitude and longitude of a rotated grid, or nothing."""
    found: dict[str, xr.DataArray] = {}
    for dim in dims:
        coordinate = _coordinate(dataset, dim)
        if coordinate is not None:
            found[_standard_name(coordinate) or dim.lower()] = coordinate
    latitude = found.get("grid_latitude", found.get("rlat"))
    longitude = found.get("grid_longitude", found.get("rlon"))
    if latitude is None or longitude is None or len(dims) != 2:
        return None
    return latitude, longitude


def _rotated_pole(path: Path, dataset: xr.Dataset, axis: str) -> tuple[float, float, float]:
    for variable in dataset.variables.values():
        given = variable.attrs
        if given.get("grid_mapping_name") == "rotated_latitude_longitude":
            names = ("grid_north_pole_latitude", "grid_north_pole_longitude")
            if all(name in given for name in names):
                turn = float(given.get("north_pole_grid_longitude", 0))
                return float(given[names[0]]), float(given[names[1]]), turn
    raise DataError(
        path,
        axis,
        "belongs to a rotated grid, for which the file must have true latitudes and longitudes "
        "or a grid mapping with grid_north_pole_latitude and grid_north_pole_longitude.",
    )


def _coordinate(dataset: xr.Dataset, dim: str) -> xr.DataArray | None:
    """Returns the numbers along a dimension; nothing where the file has none."""
    if dim not in dataset.variables or dataset[dim].dims != (dim,):
        return None
    return dataset[dim] if dataset[dim].dtype.kind in "iuf" else None


def _time_coordinate(dataset: xr.Dataset, dim: str) -> xr.DataArray | None:
    """Returns the variable of the dimension's name, or any other that dates its frames."""
    if dim in dataset.variables and dataset[dim].dims == (dim,):
        return dataset[dim]
    along = [dataset[name] for name, part in dataset.variables.items() if part.dims == (dim,)]
    return next((array for array in along if _is_time(array)), None)


def _standard_name(array: xr.DataArray) -> str:
    return str(array.attrs.get("standard_name", "")).lower()


def _units(array: xr.DataArray) -> str:
    return str(array.attrs.get("units", "")).strip().lower()


def _is_time(array: xr.DataArray) -> bool:
    return _standard_name(array) == "time" or " since " in _units(array)


def _is_latitude(array: xr.DataArray) -> bool:
    return _is_angle(array, "latitude", NORTH, "y", LATITUDE_NAMES)


def _is_longitude(array: xr.DataArray) -> bool:
    return _is_angle(array, "longitude", EAST, "x", LONGITUDE_NAMES)


def _is_angle(
    array: xr.DataArray, standard: str, units: tuple[str, ...], axis: str, names: tuple[str, ...]
) -> bool:
    """Returns whether an array holds true latitudes, or longitudes, not those of a rotated grid."""
    if array.dtype.kind not in "iuf":
        return False
    if _standard_name(array) in (standard, f"grid_{standard}"):
        return _standard_name(array) == standard
    is_axis = str(array.attrs.get("axis", "")).lower() == axis
    has_units = _units(array) in units or (is_axis and _units(array) in ("degree", "degrees"))
    name = str(array.name).lower()
    return name in names or (has_units and name not in ("rlat", "rlon"))


def _is_flat(dataset: xr.Dataset, dim: str) -> bool:
    """Returns whether a dimension is horizontal, or an axis of a plane."""
    coordinate = _coordinate(dataset, dim)
    if coordinate is not None:
        axis = str(coordinate.attrs.get("axis", "")).upper()
        if axis in ("X", "Y") or _standard_name(coordinate) in FLAT_STANDARD_NAMES:
            return True
        if _is_latitude(coordinate) or _is_longitude(coordinate):
            return True
    return dim.lower() in FLAT_NAMES


def _is_extra(dataset: xr.Dataset, dim: str) -> bool:
    """Returns whether a dimension counts levels, members or forecast steps."""
    if dim.lower() in EXTRA_NAMES:
        return True
    coordinate = _coordinate(dataset, dim)
    if coordinate is None:
        return False
    is_vertical = "positive" in coordinate.attrs or coordinate.attrs.get("axis") == "Z"
    return is_vertical or _standard_name(coordinate) in EXTRA_STANDARD_NAMES


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
