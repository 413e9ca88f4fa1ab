"""Parses dates stored as text (`Times` of WRF, `xtime` of MPAS) or as digits (ICON).

2000-01-24_12:00:00, or 20000124.5 with the units "day as %Y%m%d.%f", are converted to hours since
the earliest date, with CF units and calendar. An offset from UTC, such as +02:00, is subtracted.
"""

import re
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from gpo.data.dataset import DataError
from gpo.data.readers.cf_attributes import is_time
from gpo.optional import require

DAY = r"(\d{4})-(\d{2})-(\d{2})"
CLOCK = r"[ _T](\d{2}):(\d{2})(?::(\d{2})(\.\d+)?)?"
TEXT = re.compile(rf"{DAY}(?:{CLOCK}\s*(Z|UTC|[+-]\d{{2}}:?\d{{2}})?)?")
DIGITS = "day as %Y%m%d.%f"
CALENDARS = {"gregorian_noleap": "noleap", "gregorian": "standard", "360day": "360_day"}
"""CF calendars by their names in MPAS."""


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
