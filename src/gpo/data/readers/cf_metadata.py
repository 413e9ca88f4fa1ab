"""Metadata of gridded files: the date of the first frame, levels and axis attributes."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path

import numpy as np
import xarray as xr

from gpo.data.dataset import DataError
from gpo.data.dates import TimeOrigin
from gpo.data.geometry import Geometry
from gpo.data.readers.cf_attributes import EXTRA_NAMES, EXTRA_STANDARD_NAMES, coordinate_along
from gpo.optional import require

VARIABLE_ATTRIBUTES = ("units", "long_name", "standard_name")
"""Attributes of a variable to keep, in the order of the fields of `Variable`."""
AXIS_ATTRIBUTES = ("standard_name", "long_name", "axis")
LEVEL_NAMES = EXTRA_NAMES[: EXTRA_NAMES.index("number")]
LEVEL_STANDARD_NAMES = EXTRA_STANDARD_NAMES[: EXTRA_STANDARD_NAMES.index("realization")]


def read_origin(path: Path, dataset: xr.Dataset, dim: str) -> TimeOrigin | None:
    """Returns the date of the first frame as the time origin; None if there are no dates.

    Args:
        path: The file, for error messages.
        dataset: The open file with undecoded times.
        dim: Name of the time dimension.
    """
    along = [dataset[name] for name, part in dataset.variables.items() if part.dims == (dim,)]
    # The coordinate variable comes first, then any other variable with dates.
    along.sort(key=lambda array: array.name != dim)
    dated = [array for array in along if " since " in str(array.attrs.get("units", ""))]
    if not dated or (along[0].name == dim and dated[0].name != dim):
        return None
    cftime = require("cftime", "data", "Reading dates")
    units = str(dated[0].attrs["units"]).strip()
    calendar = str(dated[0].attrs.get("calendar", "standard"))
    try:
        first = cftime.num2date(dated[0].values[0].item(), units, calendar)
    except ValueError as error:
        problem = f"has units {units!r} in calendar {calendar!r}, which cannot be decoded: {error}."
        raise DataError(path, str(dated[0].name), problem) from error
    # Round to the nearest second: fractions of a day are not exact.
    second = first + timedelta(milliseconds=500)
    return TimeOrigin(second.strftime("%Y-%m-%d %H:%M:%S"), calendar)


def read_levels(dataset: xr.Dataset, at: Mapping[str, int]) -> dict[str, str]:
    """Returns the selected value of each vertical coordinate, by name.

    Args:
        dataset: The open file.
        at: Index along each dimension of which one value is read.
    """
    levels: dict[str, str] = {}
    for key, variable in dataset.variables.items():
        name = str(key)
        is_selected = variable.dims == (name,) and name in at
        is_number = variable.dtype.kind in "iuf"
        if (is_selected or variable.ndim == 0) and is_number and _is_level(dataset[name]):
            value = variable.values[at[name]] if is_selected else variable.values
            levels[name] = f"{float(value):g}"
    return levels


def axis_attributes(dataset: xr.Dataset, dims: Sequence[str]) -> tuple[dict[str, str], ...]:
    """Returns the names and the axis letter of each axis."""
    return tuple(
        {
            key: str(dataset[dim].attrs[key])
            for key in AXIS_ATTRIBUTES
            if dim in dataset.variables and key in dataset[dim].attrs
        }
        for dim in dims
    )


def file_axes(
    dataset: xr.Dataset, dims: Sequence[str], geometry: Geometry
) -> tuple[tuple[str, np.ndarray], ...]:
    """Returns names and numbers of the dimensions of sites as in the file.

    Longitudes may differ from those of the geometry by full turns; other units are converted.
    """
    numbers: list[np.ndarray] = []
    for number, dim in enumerate(dims):
        coordinate = coordinate_along(dataset, dim)
        values = np.arange(dataset.sizes[dim]) if coordinate is None else coordinate.values
        axis = geometry.axes[number] if geometry.axes else values
        turns = np.round((axis - values) / 360) * 360 if geometry.domain.is_sphere else 0.0
        numbers.append(values if np.array_equal(axis, values + turns) else axis)
    return tuple(zip(dims, numbers, strict=True))


def _is_level(array: xr.DataArray) -> bool:
    """Returns whether a coordinate is a height, depth, pressure or level number."""
    if "positive" in array.attrs or array.attrs.get("axis") == "Z":
        return True
    standard = str(array.attrs.get("standard_name", "")).lower()
    return str(array.name).lower() in LEVEL_NAMES or standard in LEVEL_STANDARD_NAMES
