"""Tables: `.csv` with a line for every point and time, as ParaView exports OpenFOAM and as we write.

Columns are known by their names: a time, a trajectory where there are several, and coordinates,
which are x, y and z, longitude and latitude, or `Points:0` and so on. Other columns of numbers are
variables, or static fields where they never change in time; `cell_area` weighs scattered points.
Points that fill a grid are one; all times must have the same points. A first line that begins with #
may name units, as ours does: `# time: h; x: m; u: m s-1`.
"""

import csv
import re
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import numpy as np
import torch

from gpo.data.dataset import DataError, InputCandidate, StaticMaps, Trajectories, Variable
from gpo.data.dates import TimeOrigin
from gpo.data.geometry import Geometry, sphere_domain
from gpo.data.readers.base import AbstractReader, ReadOptions, check_axis, choose_variables
from gpo.data.readers.coordinate_names import (
    AREAS,
    column_groups,
    in_degrees,
    is_in_degrees,
    is_table,
    is_upwards,
    words,
)
from gpo.data.readers.date_parsing import count_hours
from gpo.data.readers.sites import check_points, mask_missing, scattered
from gpo.data.readers.size_checks import check_load
from gpo.numerics.domain import unit_vectors

DATES = ("date", "datetime", "timestamp")
TIMES = ("time", "t", "timevalue", *DATES)
SERIES = ("trajectory", "sample")
NUMBERED = re.compile(r"(?:points|coords|coordinates)[:_ ]?([012])$", re.IGNORECASE)
CALENDAR = re.compile(r"dates of the (\w+) calendar")
PER_BYTE = 8
"""Bytes in memory for a byte of text, about."""


class TableReader(AbstractReader):
    """One or several time series on a grid or on scattered points."""

    name = "table"
    layout = "CSV with a line per point and time, columns time, x, y, ..."

    def recognises(self, path: Path) -> bool:
        """Goes by the suffix."""
        return not path.is_dir() and path.suffix.lower() == ".csv"

    def read(self, path: Path, options: ReadOptions) -> Trajectories | StaticMaps:
        """Returns the columns that are neither time nor place; the file is read at once."""
        units, names, rows = _read_lines(path)
        time = next((name for known in TIMES for name in names if name.lower() == known), None)
        if time is None:
            there = ", ".join(names)
            raise DataError(path, "time", f"is not among the columns ({there}): it must be one.")
        series = next((name for name in names if name.lower() in SERIES), None)
        places = _place_columns(path, names, options.coords)
        columns = {
            name: _column(path, name, rows[:, n]) for n, name in enumerate(names) if name != time
        }
        frames, origin = _times(path, time, rows[:, names.index(time)], units.get(time, ""))
        known = (time, series, AREAS, *places)
        others = {name: column for name, column in columns.items() if name not in known}
        numeric = {name: column for name, column in others.items() if column is not None}
        coords = np.stack([_required(path, name, columns[name]) for name in places], -1)
        members = (
            np.zeros(len(rows)) if series is None else _required(path, series, columns[series])
        )
        order = np.lexsort([*_grid_order(places, coords).T[::-1], frames, members])
        counts = len(np.unique(members)), len(np.unique(frames))
        areas = np.ones(len(rows)) if AREAS not in names else _required(path, AREAS, columns[AREAS])
        sites = _same_points(path, np.column_stack([coords, areas])[order], counts)
        coords, areas = sites[:, :-1], sites[:, -1]
        fields = {name: part[order].reshape(*counts, -1) for name, part in numeric.items()}
        static = [name for name, part in fields.items() if counts[1] > 1 and _is_static(part)]
        changing = [name for name in fields if name not in static]
        chosen = choose_variables(path, options.variables or changing, list(fields))
        values = np.stack([fields[name] for name in chosen], -1)
        geometry = _geometry(path, places, coords, [units.get(name, "") for name in places])
        if AREAS in names and not geometry.grid_shape:
            if areas.min() < 0 or not areas.any():
                span = f"{areas.min():g} to {areas.max():g}"
                raise DataError(path, AREAS, f"must be areas, zero or more, got {span}.")
            geometry = geometry.with_weights(areas)
        axis = check_axis(path, time, np.unique(frames))
        plain = "" if units.get(time, "") == "frames" else units.get(time, "")
        return Trajectories(
            layout=self.name,
            source=path,
            variables=tuple(Variable(name, units.get(name, "")) for name in chosen),
            geometries=(mask_missing(path, chosen, geometry, iter(values)),),
            time=axis,
            time_units=plain if origin is None else "h",
            first_hour=None if origin is None else float(origin.day_hours(np.zeros(1))[0]),
            origin=origin,
            num_trajectories=counts[0],
            fetch=partial(_part, values),
            candidates=tuple(
                InputCandidate(
                    Variable(name, units.get(name, "")), "static", partial(_first, fields[name])
                )
                for name in static
                if name not in chosen
            ),
        )


def _part(values: np.ndarray, trajectory: int, times: slice) -> np.ndarray:
    return values[trajectory, times]


def _is_static(part: np.ndarray) -> bool:
    """Returns whether trajectories by times by points differ from point to point alone."""
    first = part[:1, :1]
    is_still = np.array_equal(part, np.broadcast_to(first, part.shape), equal_nan=True)
    return is_still and len(np.unique(first)) > 1


def _first(part: np.ndarray) -> np.ndarray:
    return part[0, 0]


def _read_lines(path: Path) -> tuple[dict[str, str], list[str], np.ndarray]:
    """Returns units by column, names of the columns, and all lines as text."""
    size = path.stat().st_size
    check_load(path, "file", PER_BYTE * size, size)
    text = path.read_bytes().decode("utf-8-sig", errors="replace")
    if not text.endswith("\n"):
        raise DataError(path, "file", "does not end with a whole line: it may be cut short.")
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
    wrong = next((n for n, line in enumerate(lines) if len(line) != len(names)), None)
    if wrong is not None:
        problem = f"must have {len(names)} entries in every line, got {len(lines[wrong])}"
        raise DataError(path, "file", f"{problem} in line {wrong} after the names.")
    # Every entry takes as much as the longest one.
    longest = max(len(entry) for line in lines for entry in line)
    check_load(path, "file", 4 * longest * len(names) * len(lines), size)
    pairs = (part.partition(":") for part in comment.split(";"))
    units = {name.strip(): told.strip() for name, _, told in pairs if told}
    return units, names, np.array(lines[1:])


def _place_columns(path: Path, names: Sequence[str], stated: Sequence[str]) -> tuple[str, ...]:
    """Returns the columns of coordinates: those of the user, numbered ones, or by their names."""
    if stated:
        return tuple(choose_variables(path, stated, names))
    numbered = sorted((found[1], name) for name in names if (found := NUMBERED.match(name)))
    if numbered:
        return tuple(name for _, name in numbered)
    # A bare x and y, or one that says it is a place: not the components of a velocity.
    groups = [
        group for group in column_groups(names) if len(words(group[0])) == 1 or is_table(group[0])
    ]
    groups.sort(key=lambda group: not is_in_degrees(group))
    alone = tuple(name for name in names if name.lower() == "x")
    if not groups and not alone:
        problem = f"must be columns such as x and y, or lon and lat; there are {', '.join(names)}."
        raise DataError(path, "coordinates", f"{problem} Name them: `--coords NAME NAME`.")
    return groups[0] if groups else alone


def _column(path: Path, name: str, column: np.ndarray) -> np.ndarray | None:
    """Returns a column as numbers, None where it holds text; refuses numbers that are damaged."""
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
    raise DataError(path, name, f"{problem} Leave out what is missing.")


def _numbers(column: np.ndarray) -> np.ndarray | None:
    """Returns a column as numbers, NaN where it is empty; None where it holds text."""
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
) -> tuple[np.ndarray, TimeOrigin | None]:
    """Returns the time of every line, in hours since the first where they are dates."""
    numbers = _numbers(column)
    has_digits = all(re.fullmatch(r"[12]\d{7}", text.strip()) for text in column.tolist())
    if numbers is not None and not (has_digits and name.lower() in DATES):
        return _required(path, name, numbers), None
    told = CALENDAR.search(units)
    calendar = told[1] if told else "standard"
    # 20210301 is a day, not a number of anything.
    distinct, inverse = np.unique(column if numbers is None else numbers, return_inverse=True)
    hours, first = count_hours(path, name, distinct.tolist(), calendar)
    return hours[inverse], TimeOrigin(first, calendar)


def _grid_order(places: Sequence[str], coords: np.ndarray) -> np.ndarray:
    """Returns coordinates in the order in which sites are sorted: by latitude first on the sphere."""
    is_turned = len(places) == 2 and is_in_degrees(places) and not is_upwards(places[0])
    return coords[:, ::-1] if is_turned else coords


def _same_points(path: Path, coords: np.ndarray, counts: tuple[int, int]) -> np.ndarray:
    """Returns the points of a frame; refuses frames that differ in them."""
    num_frames = counts[0] * counts[1]
    if len(coords) % num_frames == 0:
        every = coords.reshape(num_frames, -1, coords.shape[1])
        if np.array_equal(every, np.broadcast_to(every[:1], every.shape)):
            return every[0]
    problem = f"must have the same points at each of {counts[1]} times"
    raise DataError(path, "file", f"{problem}; its {len(coords)} lines do not.")


def _geometry(
    path: Path, places: Sequence[str], coords: np.ndarray, units: Sequence[str]
) -> Geometry:
    """Returns a grid where the points fill one, else scattered points; on the sphere by degrees."""
    is_sphere = len(places) == 2 and is_in_degrees(places)
    ordered = _grid_order(places, coords)
    axes = [np.unique(column) for column in ordered.T]
    is_grid = all(len(axis) > 1 for axis in axes) and np.prod([*map(len, axes)]) == len(coords)
    if is_sphere:
        if is_grid and max(np.abs(axes[0]).max(), 0) <= 90:
            return Geometry.latitude_longitude(*axes)
        longitude, latitude = in_degrees(ordered[:, 1], ordered[:, 0], units[0])
        if np.abs(latitude).max() > 90.001:
            problem = f"must lie within -90 and 90 degrees, got {np.abs(latitude).max():g}."
            raise DataError(path, places[-1], problem)
        vectors = unit_vectors(torch.from_numpy(longitude), torch.from_numpy(latitude)).numpy()
        return scattered(path, vectors, None, sphere_domain(vectors))
    if is_grid:
        bounds = [(float(axis.min()), float(axis.max())) for axis in axes]
        return Geometry.rectilinear(axes, names=places, units=units, bounds=bounds)
    return scattered(path, check_points(path, places[0], coords), None)
