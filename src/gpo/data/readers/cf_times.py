"""Times of CF files, and dates stored as text (`Times` of WRF, `xtime` of MPAS) or as digits (ICON).

Times are undecoded numbers with units such as "hours since 1900-01-01". 2000-01-24_12:00:00, or
20000124.5 with the units "day as %Y%m%d.%f", are converted to hours since the earliest date, with CF
units and calendar. An offset from UTC, such as +02:00, is subtracted.
"""

import re
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from gpo.data.dataset import DataError
from gpo.data.dates import TimeOrigin
from gpo.data.readers.base import check_axis
from gpo.data.readers.lazy import TIME_UNITS
from gpo.data.readers.names import TIME_NAMES, is_extra, is_time, standard_name
from gpo.optional import require

DAY = r"(\d{4})-(\d{2})-(\d{2})"
CLOCK = r"[ _T](\d{2}):(\d{2})(?::(\d{2})(\.\d+)?)?"
TEXT = re.compile(rf"{DAY}(?:{CLOCK}\s*(Z|UTC|[+-]\d{{2}}:?\d{{2}})?)?")
DIGITS = "day as %Y%m%d.%f"
CALENDARS = {"gregorian_noleap": "noleap", "gregorian": "standard", "360day": "360_day"}
"""CF calendars by their names in MPAS."""


DURATIONS = {
    **dict.fromkeys(("s", "sec", "second", "seconds"), "s"),
    **dict.fromkeys(("min", "minute", "minutes"), "min"),
    **dict.fromkeys(("h", "hr", "hour", "hours"), "h"),
    **dict.fromkeys(("d", "day", "days"), "d"),
}


def with_numeric_dates(path: Path, dataset: xr.Dataset) -> xr.Dataset:
    """Returns a data set in which 1D variables of dates are hours with CF units."""
    parsed = {
        str(name): _as_hours(path, dataset, dataset[name])
        for name, variable in dataset.variables.items()
        if variable.ndim == 1 and variable.size > 0 and _has_dates(variable)
    }
    if not parsed:
        return dataset
    dims = {array.dims for array in parsed.values()}
    # Other times along the same axis may be relative to an unknown start.
    others = [
        name
        for name, variable in dataset.variables.items()
        if name not in parsed and variable.dims in dims and is_time(dataset[name])
    ]
    result = dataset.drop_vars(others).assign(parsed)
    result.set_close(dataset.close)
    return result


def _has_dates(variable: xr.Variable) -> bool:
    if variable.dtype.kind in "SU":
        # A clock is required: variables of days may accompany finer times.
        return re.match(DAY + CLOCK, _text(variable[0].values.item())) is not None
    return variable.attrs.get("units") == DIGITS


def count_hours(
    path: Path, name: str, values: Sequence[str | bytes | float], calendar: str
) -> tuple[np.ndarray, str]:
    """Returns hours since the earliest date, and that date.

    Args:
        path: The file, for error messages.
        name: Name of the variable.
        values: Dates as text or digits.
        calendar: CF calendar.
    """
    cftime = require("cftime", "data", "Reading dates")
    try:
        dates = [_date(cftime, value, calendar) for value in values]
    except ValueError as error:
        raise DataError(path, name, f"must hold dates of calendar {calendar}: {error}.") from error
    first = min(dates).strftime("%Y-%m-%d %H:%M:%S")
    hours = cftime.date2num(dates, f"hours since {first}", calendar)
    return np.round(np.asarray(hours, dtype=np.float64), 9), first


def _as_hours(path: Path, dataset: xr.Dataset, array: xr.DataArray) -> xr.DataArray:
    stated = array.attrs.get("calendar", dataset.attrs.get("config_calendar_type", "standard"))
    calendar = CALENDARS.get(str(stated).lower(), str(stated))
    hours, first = count_hours(path, str(array.name), array.values.tolist(), calendar)
    attributes = {"units": f"hours since {first}", "calendar": calendar, "standard_name": "time"}
    return xr.DataArray(hours, dims=array.dims, attrs=attributes)


def _date(cftime: Any, value: str | bytes | float, calendar: str) -> Any:
    if isinstance(value, int | float):
        day, fraction = divmod(value, 1)
        year, rest = divmod(int(day), 10_000)
        midnight = cftime.datetime(year, rest // 100, rest % 100, calendar=calendar)
        return midnight + timedelta(seconds=round(86400 * fraction))
    match = TEXT.fullmatch(_text(value))
    if match is None:
        raise ValueError(f"{_text(value)!r} is not written as 2000-01-24 12:00:00, or 2000-01-24")
    *parts, fraction, zone = match.groups()
    date = cftime.datetime(*(int(part or 0) for part in parts), calendar=calendar)
    return date + timedelta(seconds=float(fraction or 0)) - _offset(zone)


def _offset(zone: str | None) -> timedelta:
    """Returns the offset of a time zone from UTC; zero if there is none."""
    if zone is None or zone in ("Z", "UTC"):
        return timedelta()
    ahead = timedelta(hours=int(zone[1:3]), minutes=int(zone[-2:]))
    return -ahead if zone[0] == "-" else ahead


def _text(value: str | bytes) -> str:
    """Returns a date without padding by blanks and null characters."""
    text = value.decode(errors="replace") if isinstance(value, bytes) else str(value)
    return text.strip(" \t\0")


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


def read_times(
    path: Path, dataset: xr.Dataset, dim: str
) -> tuple[np.ndarray, str, float | None, TimeOrigin | None]:
    """Returns the times of all frames, their units and, for dates, the first: its hour, and itself.

    Dates of any calendar are converted to hours since the first frame; other times are unchanged.
    """
    if dataset.sizes[dim] == 0:
        raise DataError(path, dim, "has length zero: there are no frames.")
    coordinate = _time_coordinate(dataset, dim)
    if coordinate is None:
        return np.arange(dataset.sizes[dim], dtype=np.float64), "", None, None
    name = str(coordinate.name)
    if coordinate.dtype.kind not in "iuf":
        raise DataError(path, name, f"must be numbers with units, got {coordinate.dtype}.")
    # Subtract before converting to float, which cannot represent nanoseconds since 1970.
    values = coordinate.values if coordinate.dtype.kind == "f" else coordinate.values.astype(int)
    elapsed = check_axis(path, name, values - values[0])
    if len(elapsed) > 1 and elapsed[1] < 0:
        raise DataError(path, name, "must increase, got times running backwards.")
    if TIME_UNITS in coordinate.attrs:
        return values.astype(np.float64), str(coordinate.attrs[TIME_UNITS]), None, None
    units = str(coordinate.attrs.get("units", "")).strip()
    if "since" in units:
        calendar = str(coordinate.attrs.get("calendar", "standard"))
        per_unit, hour, origin = _first_date(path, name, values[0].item(), units, calendar)
        return np.round(elapsed * per_unit, 9), "h", hour, origin
    if units in ("", "1"):
        return values.astype(np.float64), "", None, None
    if units.lower() not in DURATIONS:
        raise DataError(path, name, f"must have units of time, got {units!r}.")
    return values.astype(np.float64), DURATIONS[units.lower()], None, None


def _time_coordinate(dataset: xr.Dataset, dim: str) -> xr.DataArray | None:
    """Returns the coordinate variable of a dimension, or another variable with its times."""
    if dim in dataset.variables and dataset[dim].dims == (dim,):
        return dataset[dim]
    along = [dataset[name] for name, part in dataset.variables.items() if part.dims == (dim,)]
    return next((array for array in along if is_time(array)), None)


def _first_date(
    path: Path, name: str, first: int | float, units: str, calendar: str
) -> tuple[float, float, TimeOrigin]:
    """Returns the hours of a unit of time, the hour of day of the first date, and that date."""
    cftime = require("cftime", "data", "Reading dates")
    try:
        start, stop, date = cftime.num2date([0, 1, first], units, calendar)
    except ValueError as error:
        problem = f"has units {units!r} in calendar {calendar!r}, which cannot be decoded: {error}."
        raise DataError(path, name, problem) from error
    midnight = date.replace(hour=0, minute=0, second=0, microsecond=0)
    # Round to the nearest second: fractions of a day are not exact.
    second = (date + timedelta(milliseconds=499)).strftime("%Y-%m-%d %H:%M:%S")
    hours = ((stop - start).total_seconds() / 3600, (date - midnight).total_seconds() / 3600)
    return *hours, TimeOrigin(second, calendar)
