"""Writes forecasts as CSV, a line per trajectory, time and point; the file is complete or absent.

Dates are in the calendar of the input. The first line, which begins with #, states calendar and
units; missing values are empty. Points with unequal cell areas have a column of areas.
"""

import csv
import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

import numpy as np

from gpo.atomic_files import atomic_file
from gpo.data.query_points import Block
from gpo.data.readers.names import AREAS
from gpo.data.writers.layout import AbstractForecastWriter, ForecastLayout

DIGITS = {"f4": 7, "f8": 16}
"""Significant digits of forecasts in single and in double precision."""


class _TableWriter(AbstractForecastWriter):
    """Writes forecasts as lines of an open file."""

    def __init__(self, file: TextIO, layout: ForecastLayout) -> None:
        self._lines, self._layout = csv.writer(file, lineterminator="\n"), layout
        file.write(f"# {_units(layout)}\n")
        self._before = layout.dims[: -len(layout.points.dims)]
        taken = {*self._before, *layout.points.names}
        pairs = zip(layout.variables, layout.names, strict=True)
        names = [name if part.name in taken else part.name for part, name in pairs]
        areas = [] if layout.points.areas is None else [AREAS]
        self._lines.writerow([*self._before, *layout.points.names, *areas, *names])
        self._times, self._digits = _times(layout), _digits(layout)

    def write(self, index: tuple[int | slice, ...], values: np.ndarray) -> None:
        layout = self._layout
        pairs = zip(self._before, index, strict=False)
        before = [
            self._times[n] if name == layout.time_dim else n
            for name, n in pairs
            if isinstance(n, int)
        ]
        block = tuple(part for part in index if isinstance(part, slice))
        points, digits = _point_columns(layout, block), DIGITS[layout.number_type]
        for point, numbers in zip(points, values.reshape(len(points), -1), strict=True):
            columns = ("" if np.isnan(number) else f"{number:.{digits}g}" for number in numbers)
            coords = (f"{part:.{self._digits}g}" for part in point)
            self._lines.writerow([*before, *coords, *columns])


@contextmanager
def new_table(path: Path, layout: ForecastLayout) -> Iterator[AbstractForecastWriter]:
    """Opens a file for writing, which is renamed to `path` when all forecasts are written."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_file(path) as partial, open(partial, "w", encoding="utf-8", newline="") as file:
        yield _TableWriter(file, layout)


def _units(layout: ForecastLayout) -> str:
    parts = []
    if layout.origin is not None:
        parts.append(f"time: dates of the {layout.origin.calendar} calendar")
    elif layout.times is not None:
        parts.append(f"time: {layout.time_units or 'frames'}")
    columns = [*zip(layout.points.names, layout.points.units, strict=True)]
    columns += [(variable.name, variable.units) for variable in layout.variables]
    return "; ".join([*parts, *(f"{name}: {units}" for name, units in columns if units)])


def _digits(layout: ForecastLayout) -> int:
    """Returns the significant digits of coordinates: nine relative to the extent of the domain."""
    domain = layout.points.domain
    if domain.is_sphere:
        return 9
    ends = zip(domain.lower, domain.upper, strict=True)
    offset = max(max(abs(low), abs(high)) / (high - low) for low, high in ends)
    return min(17, 9 + math.ceil(max(0.0, math.log10(offset))))


def _times(layout: ForecastLayout) -> list[str]:
    if layout.times is None:
        return []
    if layout.origin is not None:
        return layout.origin.texts(layout.times)
    return [f"{time:.15g}" for time in layout.times]


def _point_columns(layout: ForecastLayout, block: Block) -> np.ndarray:
    """Returns coordinates of points, in the units of the file, and their areas if unequal."""
    points = layout.points
    if points.is_grid:
        axes = [numbers[part] for numbers, part in zip(points.numbers, block, strict=True)]
        return np.stack([part.ravel() for part in np.meshgrid(*axes, indexing="ij")], -1)
    arrays = [*points.numbers, *(() if points.areas is None else (points.areas,))]
    columns = [np.asarray(numbers).reshape(points.shape)[block] for numbers in arrays]
    return np.stack([column.ravel() for column in columns], -1)
