"""CSV tables with a line per point and time, such as exported by ParaView or written by gpo.

Columns are recognised by name: a time, optionally a trajectory, and coordinates, which are x, y and
z, longitude and latitude, or `Points:0` and so on. Other numeric columns are variables, or static
fields if they do not change in time; `cell_area` is the weight of unstructured points. Points that
fill a grid are read as a grid; all times must have the same points. A first line that begins with #
may state units: `# time: h; x: m; u: m s-1`.
"""

import csv
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import xarray as xr

from gpo.data.dataset import DataError
from gpo.data.readers.base import (
    ReadOptions,
    check_axis,
    check_latitudes,
    check_load,
    choose_variables,
)
from gpo.data.readers.build import Reader
from gpo.data.readers.cf_times import count_hours
from gpo.data.readers.lazy import (
    DEGREES,
    SITE_DIMS,
    TIME_UNITS,
    TRAJECTORY,
    named_dataset,
    point_coordinates,
)
from gpo.data.readers.names import (
    AREAS,
    column_groups,
    in_degrees,
    is_in_degrees,
    is_table,
    is_upwards,
    words,
)
from gpo.data.readers.sites import check_points

DATES = ("date", "datetime", "timestamp")
TIMES = ("time", "t", "timevalue", *DATES)
SERIES = ("trajectory", "sample")
NUMBERED = re.compile(r"(?:points|coords|coordinates)[:_ ]?([012])$", re.IGNORECASE)
CALENDAR = re.compile(r"dates of the (\w+) calendar")
BYTES_PER_CHARACTER = 8
"""Approximate bytes in memory per character of text."""


def open_table(path: Path, options: ReadOptions) -> xr.Dataset:
    """Returns one or several time series on a grid or on unstructured points; loads the whole file.

    The fields are the numeric columns that are neither times nor coordinates.
    """
    units, names, rows = _read_lines(path)
    time = next((name for label in TIMES for name in names if name.lower() == label), None)
    if time is None:
        raise DataError(path, "time", f"must be one of the columns, got {', '.join(names)}.")
    series = next((name for name in names if name.lower() in SERIES), None)
    places = _coordinate_columns(path, names, options.coords)
    columns = {
        name: _column(path, name, rows[:, n]) for n, name in enumerate(names) if name != time
    }
    frames, stated = _times(path, time, rows[:, names.index(time)], units.get(time, ""))
    special = (time, series, AREAS, *places)
    others = {name: column for name, column in columns.items() if name not in special}
    numeric = {name: column for name, column in others.items() if column is not None}
    coords = np.stack([_required(path, name, columns[name]) for name in places], -1)
    trajectories = (
        np.zeros(len(rows)) if series is None else _required(path, series, columns[series])
    )
    order = np.lexsort([*_grid_order(places, coords).T[::-1], frames, trajectories])
    counts = len(np.unique(trajectories)), len(np.unique(frames))
    areas = np.ones(len(rows)) if AREAS not in names else _required(path, AREAS, columns[AREAS])
    points = _same_points(path, np.column_stack([coords, areas])[order], counts)
    sites = _sites(path, places, points[:, :-1], [units.get(name, "") for name in places])
    if AREAS in names and "points" in next(iter(sites.values())).dims:
        sites[AREAS] = xr.Variable("points", points[:, -1])
    dims = tuple(dict.fromkeys(str(dim) for part in sites.values() for dim in part.dims))
    shape = tuple(sites[dim].size if dim in sites else len(points) for dim in dims)
    fields: dict[str, xr.Variable] = {}
    for name, column in numeric.items():
        values = column[order].reshape(*counts, -1)
        field = xr.Variable((TRAJECTORY, "time", *dims), values.reshape(*counts, *shape))
        is_input = counts[1] > 1 and _is_static(values) and name not in options.variables
        fields[name] = field[0, 0] if is_input else field
        fields[name].attrs["units"] = units.get(name, "")
    axis = check_axis(path, time, np.unique(frames))
    return named_dataset(
        fields, {**sites, "time": xr.Variable("time", axis, stated)}, {SITE_DIMS: dims}
    )


def _is_static(part: np.ndarray) -> bool:
    """Returns whether values, (trajectories, times, points), differ only between points."""
    first = part[:1, :1]
    is_constant = np.array_equal(part, np.broadcast_to(first, part.shape), equal_nan=True)
    return is_constant and len(np.unique(first)) > 1


def _read_lines(path: Path) -> tuple[dict[str, str], list[str], np.ndarray]:
    """Returns units by column, names of the columns, and all lines as text."""
    size = path.stat().st_size
    check_load(path, "file", BYTES_PER_CHARACTER * size, size)
    text = path.read_bytes().decode("utf-8-sig", errors="replace")
    if not text.endswith("\n"):
        raise DataError(path, "file", "must end with a complete line: it may be cut short.")
    comment = ""
    while text.startswith("#"):
        line, _, text = text.partition("\n")
        comment = comment or line.removeprefix("#")
    lines = [line for line in csv.reader(text.splitlines()) if line]
    if len(lines) < 2:
        raise DataError(path, "file", "must have a line of names and lines of numbers.")
    names = [name.strip() for name in lines[0]]
    if len(set(names)) < len(names) or not all(names):
        raise DataError(path, "file", f"must name every column once, got {', '.join(names)}.")
    bad = next((n for n, line in enumerate(lines) if len(line) != len(names)), None)
    if bad is not None:
        problem = f"must have {len(names)} entries in every line, got {len(lines[bad])}"
        raise DataError(path, "file", f"{problem} in line {bad} after the names.")
    # A text array needs the size of the longest entry for each entry.
    longest = max(len(entry) for line in lines for entry in line)
    check_load(path, "file", 4 * longest * len(names) * len(lines), size)
    pairs = (part.partition(":") for part in comment.split(";"))
    units = {name.strip(): text.strip() for name, _, text in pairs if text}
    return units, names, np.array(lines[1:])


def _coordinate_columns(path: Path, names: Sequence[str], stated: Sequence[str]) -> tuple[str, ...]:
    """Returns the columns of coordinates: stated by the user, numbered, or recognised by name."""
    if stated:
        return tuple(choose_variables(path, stated, names))
    numbered = sorted((match[1], name) for name in names if (match := NUMBERED.match(name)))
    if numbered:
        return tuple(name for _, name in numbered)
    # Plain x and y, or names of positions, but not the components of a velocity.
    groups = [
        group for group in column_groups(names) if len(words(group[0])) == 1 or is_table(group[0])
    ]
    groups.sort(key=lambda group: not is_in_degrees(group))
    alone = tuple(name for name in names if name.lower() == "x")
    if not groups and not alone:
        problem = f"must be columns such as x and y, or lon and lat, got {', '.join(names)}."
        raise DataError(path, "coordinates", f"{problem} Name them: `--coords NAME NAME`.")
    return groups[0] if groups else alone


def _column(path: Path, name: str, column: np.ndarray) -> np.ndarray | None:
    """Returns a numeric column; None for text; raises a `DataError` for single invalid entries."""
    numbers = _numbers(column)
    if numbers is not None:
        return numbers
    is_text = np.array([_numbers(column[n : n + 1]) is None for n in range(len(column))])
    if is_text.sum() > len(column) / 2:
        return None
    line = int(np.argmax(is_text))
    problem = (
        f"must hold numbers, got {str(column[line])[:40]!r} in line {line + 1} after the names."
    )
    raise DataError(path, name, f"{problem} Leave missing values empty.")


def _numbers(column: np.ndarray) -> np.ndarray | None:
    """Returns a numeric column, NaN for empty entries; None for text."""
    filled = np.where(np.char.strip(column) == "", "nan", column)
    try:
        return filled.astype(np.float64)
    except ValueError:
        return None


def _required(path: Path, name: str, column: np.ndarray | None) -> np.ndarray:
    if column is None or not np.isfinite(column).all():
        raise DataError(path, name, "must hold a finite number in every line.")
    return column


def _times(
    path: Path, name: str, column: np.ndarray, units: str
) -> tuple[np.ndarray, dict[str, str]]:
    """Returns the time of each line, and their attributes; dates become hours since the first."""
    numbers = _numbers(column)
    has_digits = all(re.fullmatch(r"[12]\d{7}", text.strip()) for text in column.tolist())
    if numbers is not None and not (has_digits and name.lower() in DATES):
        stated = {TIME_UNITS: "" if units == "frames" else units}
        return _required(path, name, numbers), stated
    match = CALENDAR.search(units)
    calendar = match[1] if match else "standard"
    # 20210301 is a date, not a number.
    distinct, inverse = np.unique(column if numbers is None else numbers, return_inverse=True)
    hours, first = count_hours(path, name, distinct.tolist(), calendar)
    return hours[inverse], {"units": f"hours since {first}", "calendar": calendar}


def _grid_order(places: Sequence[str], coords: np.ndarray) -> np.ndarray:
    """Returns coordinates in the order of grid axes: latitude first on the sphere."""
    is_reversed = len(places) == 2 and is_in_degrees(places) and not is_upwards(places[0])
    return coords[:, ::-1] if is_reversed else coords


def _same_points(path: Path, coords: np.ndarray, counts: tuple[int, int]) -> np.ndarray:
    """Returns the points of a frame, which must be the same in all frames."""
    num_frames = counts[0] * counts[1]
    if len(coords) % num_frames == 0:
        frames = coords.reshape(num_frames, -1, coords.shape[1])
        if np.array_equal(frames, np.broadcast_to(frames[:1], frames.shape)):
            return frames[0]
    problem = f"must have the same points at each of {counts[1]} times"
    raise DataError(path, "file", f"{problem}; its {len(coords)} lines do not.")


def _sites(
    path: Path, places: Sequence[str], coords: np.ndarray, units: Sequence[str]
) -> dict[str, xr.Variable]:
    """Returns the axes of a grid if the points fill one, else the coordinates of points."""
    is_sphere = len(places) == 2 and is_in_degrees(places)
    ordered = _grid_order(places, coords)
    axes = [np.unique(column) for column in ordered.T]
    is_grid = all(len(axis) > 1 for axis in axes) and np.prod([*map(len, axes)]) == len(coords)
    if is_sphere:
        if is_grid and np.abs(axes[0]).max() <= 90:
            latitude, longitude = axes
            return {
                "latitude": xr.Variable("latitude", latitude, {"units": "degrees_north"}),
                "longitude": xr.Variable("longitude", longitude, {"units": "degrees_east"}),
            }
        longitude, latitude = in_degrees(ordered[:, 1], ordered[:, 0], units[0])
        check_latitudes(path, places[-1], latitude)
        return point_coordinates(("points",), np.stack([longitude, latitude], -1), DEGREES)
    if is_grid:
        return {
            name: xr.Variable(name, axis, {"units": unit})
            for name, axis, unit in zip(places, axes, units, strict=True)
        }
    return point_coordinates(("points",), check_points(path, places[0], coords))


READER = Reader(
    name="table",
    layout="CSV with a line per point and time, columns time, x, y, ...",
    recognises=lambda path: not path.is_dir() and path.suffix.lower() == ".csv",
    open=open_table,
    handles=("coords",),
)
