"""Whether other data are like those of training: converted where units differ, else refused by name.

A model knows its step, its region and its level by heart. Frames of another step or another region
give numbers that look like a forecast and are none.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gpo.data.dataset import DataError, RowReader, StaticMaps, Trajectories, Variable
from gpo.data.steps import MONTH, is_month, spell_step
from gpo.data.units import conversion

SAME_CALENDARS = {
    **dict.fromkeys(("gregorian", "proleptic_gregorian"), "standard"),
    "365_day": "noleap",
    "366_day": "all_leap",
}
TOLERANCE = 0.05
"""By how much the ends of a region may differ, as a fraction of its extent."""


@dataclass(frozen=True)
class TrainedOn:
    """What the training data were, beside their numbers; empty where the file did not say."""

    step: float | None = None
    """Time from frame to frame, in `time_units`; none for static maps."""
    time_units: str = ""
    calendar: str = ""
    """Calendar of the dates; empty where frames have none."""
    units: tuple[str, ...] = ()
    """Units of the variables that are given."""
    output_units: tuple[str, ...] = ()
    """Units of those that are predicted."""
    levels: tuple[str, ...] = ()
    """Such as level=500."""
    axes: tuple[str, ...] = ()
    """Names of the axes of the region; none where sites differ from sample to sample."""
    axis_units: tuple[str, ...] = ()
    lower: tuple[float, ...] = ()
    """Least coordinate of a site along every axis, in the file's coordinates."""
    upper: tuple[float, ...] = ()
    """Largest one."""
    spacing: tuple[float, ...] = ()
    """Mean distance of neighbours along every axis."""

    @classmethod
    def of(cls, data: Trajectories | StaticMaps) -> "TrainedOn":
        """Returns what data are."""
        place = _place(data)
        if isinstance(data, StaticMaps):
            given, wanted = (tuple(v.units for v in side) for side in (data.inputs, data.outputs))
            return cls(units=given, output_units=wanted, **place)
        units = tuple(variable.units for variable in data.variables)
        return cls(
            step=data.time_step if len(data.time) > 1 else None,
            time_units=data.time_units,
            calendar="" if data.origin is None else data.origin.calendar,
            units=units,
            output_units=units,
            levels=tuple(f"{name}={value}" for name, value in data.levels.items()),
            **place,
        )


def as_trained(
    data: Trajectories | StaticMaps, trained: TrainedOn
) -> tuple[Trajectories | StaticMaps, list[str]]:
    """Returns data in the units of training, and a sentence for every variable that was converted.

    Args:
        data: Other data, with the variables of training in their order.
        trained: What the model was trained on.

    Raises:
        DataError: Where step, calendar, region, level or units are others, with both values.
    """
    _check_place(data, trained)
    if isinstance(data, StaticMaps):
        inputs = _conversions(data, data.inputs, trained.units)
        outputs = _conversions(data, data.outputs, trained.output_units)
        notes = [*inputs.notes, *(note for note in outputs.notes if note not in inputs.notes)]
        if not notes:
            return data, []
        fetch = _ScaledMaps(data.fetch, inputs, outputs)
        return replace(data, inputs=inputs.variables, outputs=outputs.variables, fetch=fetch), notes
    check_time(data, trained)
    _check_levels(data, trained)
    found = _conversions(data, data.variables, trained.units)
    if not found.notes:
        return data, []
    if isinstance(data.fetch, RowReader):
        fetch: Callable[..., Any] = replace(data.fetch, read=_Scaled(data.fetch.read, found))
    else:
        fetch = _Scaled(data.fetch, found)
    return replace(data, variables=found.variables, fetch=fetch), found.notes


def frame_at(data: Trajectories, text: str) -> int:
    """Returns the number of the frame of a date, or of a time where frames have no dates.

    Args:
        data: The time series.
        text: Such as 2019-03-01T06:00, or 12.5.
    """
    try:
        time = data.time_of(text)
    except ValueError as error:
        raise DataError(data.source, "start", str(error)) from error
    nearest = int(np.abs(data.time - time).argmin())
    if abs(data.time[nearest] - time) > 1e-3 * data.time_step:
        first, last, there = data.time_labels([0, len(data.time) - 1, nearest])
        problem = f"must be the time of a frame, from {first} to {last}, got {text}."
        raise DataError(data.source, "start", f"{problem} The nearest is {there}.")
    return nearest


@dataclass(frozen=True)
class _Conversions:
    """Factors and offsets by variable, and what to say of them."""

    variables: tuple[Variable, ...]
    factors: np.ndarray
    offsets: np.ndarray
    notes: list[str]

    def __call__(self, values: np.ndarray) -> np.ndarray:
        return (values * self.factors + self.offsets).astype(values.dtype)


@dataclass(frozen=True)
class _Scaled:
    """Reads frames and converts them; an object, so that worker processes get a copy."""

    read: Callable[..., np.ndarray]
    conversions: _Conversions

    def __call__(self, *where: Any) -> np.ndarray:
        return self.conversions(np.asarray(self.read(*where)))


@dataclass(frozen=True)
class _ScaledMaps:
    """Reads samples and converts them."""

    read: Callable[[int], tuple[np.ndarray, np.ndarray]]
    inputs: _Conversions
    outputs: _Conversions

    def __call__(self, number: int) -> tuple[np.ndarray, np.ndarray]:
        given, wanted = (np.asarray(part) for part in self.read(number))
        return self.inputs(given), self.outputs(wanted)


def _conversions(
    data: Trajectories | StaticMaps, variables: Sequence[Variable], wanted: Sequence[str]
) -> _Conversions:
    """Returns how to get to the units of training; what lacks units is taken as being in them."""
    factors, offsets = np.ones(len(variables)), np.zeros(len(variables))
    changed, notes = list(variables), list[str]()
    # Other variables than those of training are refused by name elsewhere.
    pairs = zip(variables, wanted, strict=True) if len(wanted) == len(variables) else ()
    for number, (variable, units) in enumerate(pairs):
        if not units or variable.units == units:
            continue
        if not variable.units:
            notes.append(f"{variable.name} has no units: taken as {units}, as in training")
            continue
        found = conversion(variable.units, units)
        if found is None:
            problem = f"must be in {units}, as in training, got {variable.units}, which we cannot convert. Convert the file"
            raise DataError(data.source, variable.name, f"{problem}, or correct its units.")
        changed[number] = replace(variable, units=units)
        if found == (1.0, 0.0):
            continue
        factors[number], offsets[number] = found
        notes.append(f"{variable.name} converted from {variable.units} to {units}, as in training")
    return _Conversions(tuple(changed), factors, offsets, notes)


def check_time(data: Trajectories, trained: TrainedOn) -> None:
    """Refuses frames of another calendar, or that advance by another step."""
    calendar = "" if data.origin is None else data.origin.calendar
    ours, theirs = (SAME_CALENDARS.get(name, name) for name in (trained.calendar, calendar))
    if ours and theirs and ours != theirs:
        problem = f"must be in the {trained.calendar} calendar, as in training, got {calendar}."
        raise DataError(data.source, "time", f"{problem} Train a run on this file.")
    if len(data.time) < 2 or trained.step is None:
        return
    factor = conversion(data.time_units, trained.time_units)
    step = math.nan if factor is None else data.time_step * factor[0]
    if abs(step - trained.step) <= 1e-3 * trained.step:
        return
    if trained.step == MONTH and is_month(np.array([step])).all():
        # Few frames may be 31 days apart, all of them, and yet months.
        return
    wanted = spell_step(trained.step, trained.time_units)
    got = spell_step(data.time_step, data.time_units)
    problem = f"must advance by {wanted} a frame, as in training, got {got}."
    every = trained.step / step if step > 0 else 0.0
    if every > 1.5 and abs(every - round(every)) < 1e-3:
        help_ = f"Write every {round(every)}th frame to a file of its own, or train on this one"
    else:
        help_ = "Train a run on this file"
    raise DataError(data.source, "time", f"{problem} {help_}: gpo run --data {data.source}")


def _check_levels(data: Trajectories, trained: TrainedOn) -> None:
    known: Mapping[str, str] = dict(level.split("=", 1) for level in trained.levels)
    for name, value in data.levels.items():
        if name in known and not math.isclose(float(known[name]), float(value), rel_tol=1e-6):
            problem = f"must be {known[name]}, the level of training, got {value}."
            raise DataError(data.source, name, f"{problem} Train a run on that level.")


def _place(data: Trajectories | StaticMaps) -> dict[str, Any]:
    """Returns names, units, ends and spacing of the axes; nothing where sites differ."""
    if len(data.geometries) > 1:
        return {}
    geometry = data.geometry()
    if geometry.axes:
        columns = [np.asarray(axis) for axis in geometry.axes]
        counts = [len(axis) for axis in columns]
        names, units = geometry.axis_names, geometry.axis_units
    else:
        columns = list(geometry.coords.T)
        dim = geometry.domain.dim
        along = max(2, round(geometry.num_points ** (1 / (dim - geometry.domain.is_sphere))))
        counts, names, units = [along] * dim, ("x", "y", "z")[:dim], ("",) * dim
    lower = tuple(float(np.min(column)) for column in columns)
    upper = tuple(float(np.max(column)) for column in columns)
    spacing = tuple(
        (high - low) / max(count - 1, 1)
        for low, high, count in zip(lower, upper, counts, strict=True)
    )
    return {
        "axes": tuple(names), "axis_units": tuple(units),
        "lower": lower, "upper": upper, "spacing": spacing,
    }  # fmt: skip


def _check_place(data: Trajectories | StaticMaps, trained: TrainedOn) -> None:
    """Refuses sites of another region; another resolution of the same is welcome."""
    here = TrainedOn(**_place(data))
    if not trained.axes or not here.axes:
        return
    if len(here.axes) != len(trained.axes):
        problem = f"must have the axes {', '.join(trained.axes)} of training, got"
        raise DataError(data.source, "coords", f"{problem} {', '.join(here.axes)}.")
    for axis, name in enumerate(here.axes):
        wanted, got = (_Ends.of(side, axis) for side in (trained, here))
        if not got.is_like(wanted, is_longitude=name == "longitude"):
            problem = f"must go from {wanted}, the region of training, got {got}."
            help_ = f"Train a run on this region: gpo run --data {data.source}"
            raise DataError(data.source, name, f"{problem} {help_}")


@dataclass(frozen=True)
class _Ends:
    """The sites along one axis: from where to where, and how far apart."""

    lower: float
    upper: float
    spacing: float
    units: str

    @classmethod
    def of(cls, place: TrainedOn, axis: int) -> "_Ends":
        ends = place.lower[axis], place.upper[axis]
        return cls(*ends, place.spacing[axis], place.axis_units[axis])

    def is_like(self, other: "_Ends", *, is_longitude: bool) -> bool:
        """Returns whether both are one region; longitudes may be of another turn."""
        extent, turns = other.upper - other.lower, 0
        if is_longitude:
            if all(one.upper - one.lower + one.spacing > 359.5 for one in (self, other)):
                return True
            middle = (other.lower + other.upper - self.lower - self.upper) / 2
            turns = round(middle / 360)
        near = max(2 * self.spacing, 2 * other.spacing, TOLERANCE * extent)
        shifts = self.lower - other.lower + 360 * turns, self.upper - other.upper + 360 * turns
        return max(abs(shift) for shift in shifts) <= near

    def __str__(self) -> str:
        return f"{self.lower:g} to {self.upper:g} {self.units}".strip()
