"""Compatibility of other data with the training data: units are converted, else an error is raised.

A model is specific to its time step, region and level: on other data its output would look plausible
and be wrong.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gpo.data.dataset import DataError, FieldData, RowReader, Variable
from gpo.data.index_grids import scaled_to
from gpo.data.steps import MONTH, format_step, is_month
from gpo.data.units import conversion
from gpo.forecast.task import TrainedOn

SAME_CALENDARS = {
    **dict.fromkeys(("gregorian", "proleptic_gregorian"), "standard"),
    "365_day": "noleap",
    "366_day": "all_leap",
}
TOLERANCE = 0.05
"""Tolerated difference of the bounds of a region, as a fraction of its extent."""


def convert_to_training_units(data: FieldData, trained: TrainedOn) -> tuple[FieldData, list[str]]:
    """Returns data in the units of training, and a note for every converted variable.

    Args:
        data: Other data, with the variables of training in the same order.
        trained: Metadata of the training data.

    Raises:
        DataError: If time step, calendar, region, level or units are incompatible.
    """
    data, notes = _with_indices_of(data, trained)
    _check_region(data, trained)
    data, others = _convert(data, trained)
    return data, [*notes, *others]


def _with_indices_of(data: FieldData, trained: TrainedOn) -> tuple[FieldData, list[str]]:
    """Returns data without coordinates at the indices of training, over the same region."""
    geometry = data.geometry()
    counts = [round(upper) + 1 for upper in trained.upper]
    is_bare = trained.has_indices and geometry.has_indices and len(data.geometries) == 1
    if not is_bare or len(counts) != len(geometry.axes) or tuple(counts) == geometry.grid_shape:
        return data, []
    sizes = (" x ".join(map(str, shape)) for shape in (geometry.grid_shape, counts))
    note = (
        "the {} sites are taken for the region of the {} of training: neither file has coordinates"
    )
    return replace(data, geometries=(scaled_to(geometry, counts),)), [note.format(*sizes)]


def _convert(data: FieldData, trained: TrainedOn) -> tuple[FieldData, list[str]]:
    """Returns data in the units of training, and a note for every converted variable."""
    check_time(data, trained)
    _check_levels(data, trained)
    num_outputs_only = len(data.variables) - len(data.inputs)
    units = _conversions(data, (*trained.units, *trained.output_units[:num_outputs_only]))
    if not units.notes:
        return data, []
    if isinstance(data.fetch, RowReader):
        fetch: Callable[..., Any] = replace(data.fetch, read=_Scaled(data.fetch.read, units))
    else:
        fetch = _Scaled(data.fetch, units)
    return replace(data, variables=units.variables, fetch=fetch), units.notes


def frame_at(data: FieldData, text: str) -> int:
    """Returns the index of the frame at a date, or at a time if frames have no dates.

    Args:
        data: The time series.
        text: The date or time, such as 2019-03-01T06:00 or 12.5.
    """
    try:
        time = data.time_of(text)
    except ValueError as error:
        raise DataError(data.source, "start", str(error)) from error
    nearest = int(np.abs(data.time - time).argmin())
    if abs(data.time[nearest] - time) > 1e-3 * data.time_step:
        first, last, label = data.time_labels([0, len(data.time) - 1, nearest])
        problem = f"must be the time of a frame, from {first} to {last}, got {text}."
        raise DataError(data.source, "start", f"{problem} The nearest is {label}.")
    return nearest


@dataclass(frozen=True)
class _Conversions:
    """Factors and offsets of unit conversion by variable, and notes for the user."""

    variables: tuple[Variable, ...]
    factors: np.ndarray
    offsets: np.ndarray
    notes: list[str]

    def __call__(self, values: np.ndarray) -> np.ndarray:
        return (values * self.factors + self.offsets).astype(values.dtype)


@dataclass(frozen=True)
class _Scaled:
    """Reads frames and converts their units; a class, so that worker processes can pickle it."""

    read: Callable[..., np.ndarray]
    conversions: _Conversions

    def __call__(self, *where: Any) -> np.ndarray:
        return self.conversions(np.asarray(self.read(*where)))


def _conversions(data: FieldData, targets: Sequence[str]) -> _Conversions:
    """Returns the conversions to the units of training; missing units are assumed to be these."""
    variables = data.variables
    factors, offsets = np.ones(len(variables)), np.zeros(len(variables))
    changed, notes = list(variables), list[str]()
    # Different variables raise an error elsewhere.
    pairs = zip(variables, targets, strict=True) if len(targets) == len(variables) else ()
    for number, (variable, units) in enumerate(pairs):
        if not units or variable.units == units:
            continue
        if not variable.units:
            notes.append(f"{variable.name} has no units: {units} assumed, as in training")
            continue
        scaling = conversion(variable.units, units)
        if scaling is None:
            problem = f"must be in {units}, as in training, got {variable.units}, which cannot be converted. Convert the file"
            raise DataError(data.source, variable.name, f"{problem}, or correct its units.")
        changed[number] = replace(variable, units=units)
        if scaling == (1.0, 0.0):
            continue
        factors[number], offsets[number] = scaling
        notes.append(f"{variable.name} converted from {variable.units} to {units}, as in training")
    return _Conversions(tuple(changed), factors, offsets, list(dict.fromkeys(notes)))


def check_time(data: FieldData, trained: TrainedOn) -> None:
    """Raises an error for another calendar or time step than in training."""
    calendar = "" if data.origin is None else data.origin.calendar
    expected, actual = (SAME_CALENDARS.get(name, name) for name in (trained.calendar, calendar))
    if expected and actual and expected != actual:
        problem = f"must be in the {trained.calendar} calendar, as in training, got {calendar}."
        raise DataError(data.source, "time", f"{problem} Train a run on this file.")
    if len(data.time) < 2 or trained.step is None:
        return
    factor = conversion(data.time_units, trained.time_units)
    step = math.nan if factor is None else data.time_step * factor[0]
    if abs(step - trained.step) <= 1e-3 * trained.step:
        return
    if trained.step == MONTH and is_month(np.array([step])).all():
        # A few monthly frames may all be 31 days apart.
        return
    expected = format_step(trained.step, trained.time_units)
    actual = format_step(data.time_step, data.time_units)
    problem = f"must have a step of {expected}, as in training, got {actual}."
    every = trained.step / step if step > 0 else 0.0
    if every > 1.5 and abs(every - round(every)) < 1e-3:
        advice = f"Write every {round(every)}th frame to another file, or train on this one"
    else:
        advice = "Train a run on this file"
    raise DataError(data.source, "time", f"{problem} {advice}: gpo run --data {data.source}")


def _check_levels(data: FieldData, trained: TrainedOn) -> None:
    levels: Mapping[str, str] = dict(level.split("=", 1) for level in trained.levels)
    for name, value in data.levels.items():
        if name in levels and not math.isclose(float(levels[name]), float(value), rel_tol=1e-6):
            problem = f"must be {levels[name]}, as in training, got {value}."
            raise DataError(data.source, name, f"{problem} Train a run on that level.")


def _check_region(data: FieldData, trained: TrainedOn) -> None:
    """Raises an error for another region than in training; another resolution is allowed."""
    region = TrainedOn.of(data)
    if not trained.axes or not region.axes:
        return
    if len(region.axes) != len(trained.axes):
        problem = f"must have the axes {', '.join(trained.axes)}, as in training, got"
        raise DataError(data.source, "coords", f"{problem} {', '.join(region.axes)}.")
    for axis, name in enumerate(region.axes):
        expected, actual = (_Interval.of(side, axis) for side in (trained, region))
        if not actual.is_like(expected, is_longitude=name == "longitude"):
            problem = f"must range from {expected}, as in training, got {actual}."
            advice = f"Train a run on this region: gpo run --data {data.source}"
            raise DataError(data.source, name, f"{problem} {advice}")


@dataclass(frozen=True)
class _Interval:
    """Bounds and spacing of the points along an axis."""

    lower: float
    upper: float
    spacing: float
    units: str

    @classmethod
    def of(cls, region: TrainedOn, axis: int) -> "_Interval":
        bounds = region.lower[axis], region.upper[axis]
        return cls(*bounds, region.spacing[axis], region.axis_units[axis])

    def is_like(self, other: "_Interval", *, is_longitude: bool) -> bool:
        """Returns whether both are the same region; longitudes may differ by full turns."""
        extent, turns = other.upper - other.lower, 0
        if is_longitude:
            if all(side.upper - side.lower + side.spacing > 359.5 for side in (self, other)):
                return True
            middle = (other.lower + other.upper - self.lower - self.upper) / 2
            turns = round(middle / 360)
        tolerance = max(2 * self.spacing, 2 * other.spacing, TOLERANCE * extent)
        shifts = self.lower - other.lower + 360 * turns, self.upper - other.upper + 360 * turns
        return max(abs(shift) for shift in shifts) <= tolerance

    def __str__(self) -> str:
        return f"{self.lower:g} to {self.upper:g} {self.units}".strip()
