"""The data model: every reader returns `Trajectories` or `StaticMaps`, or raises a `DataError`."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Literal

import numpy as np

from gpo.data.dates import TimeOrigin
from gpo.data.forcings import (
    AbstractForcing,
    DayCycle,
    Frames,
    SolarZenith,
    TimeFeature,
    Variable,
    YearCycle,
    stack_forcings,
)
from gpo.data.geometry import Geometry
from gpo.data.steps import later_times, usual_step


class DataError(ValueError):
    """Data that cannot be used; the message names the file, the field and what is wrong."""

    def __init__(self, path: str | Path, field: str, problem: str) -> None:
        super().__init__(f"{path}: `{field}` {problem}")
        self.path = Path(path)
        self.field = field
        self.problem = problem


@dataclass(frozen=True)
class InputCandidate:
    """A variable of a file that is no time series of fields, but may be an input beside them."""

    variable: Variable
    kind: Literal["static", "series"]
    """A field without a time axis, or one number per time."""
    read: Callable[[], np.ndarray]
    """Reads it: points, or times."""


@dataclass(frozen=True)
class JoinedFiles:
    """How the frames or trajectories of several files follow each other."""

    kind: Literal["series", "trajectories"]
    """One long series, or every file some trajectories of its own."""
    starts: tuple[int, ...]
    """Number of the first frame, or of the first trajectory, of every file."""


@dataclass(frozen=True)
class Trajectories:
    """Time series of fields on sites; values are read on request."""

    layout: str
    """Name of the reader that understood the file."""
    source: Path
    variables: tuple[Variable, ...]
    geometries: tuple[Geometry, ...]
    """One for all trajectories, or one each."""
    time: np.ndarray
    """Times of the frames, increasing, in `time_units`."""
    time_units: str
    """s, h, d and so on; empty where frames are only numbered."""
    num_trajectories: int
    fetch: Callable[[int, slice], np.ndarray]
    """Reads frames of one trajectory: times by points by variables, NaN where missing. A
    `RowReader` reads a part of the sites without the others."""
    parameters: Mapping[str, np.ndarray] = field(default_factory=dict)
    """Constants of every trajectory, such as a viscosity; one number each."""
    first_hour: float | None = None
    """Time of day of the first frame, where frames have dates; times are hours then."""
    origin: TimeOrigin | None = None
    """The date of time zero, where frames have dates; times are hours then."""
    levels: Mapping[str, str] = field(default_factory=dict)
    """The one value that was read of a vertical axis, by name: 500 of level, say."""
    candidates: tuple[InputCandidate, ...] = ()
    """What the file holds beside time series of fields and parameters, and may be an input."""
    known: tuple[AbstractForcing, ...] = ()
    """Forcings, which `input_frames` puts before the variables."""
    files: "JoinedFiles | None" = None
    """How several files make up the data; none where it is one."""

    def __post_init__(self) -> None:
        """Refuses empty or unsorted times, and missing samples, variables or geometries."""
        if len(self.time) == 0:
            raise DataError(self.source, "time", "has length zero: there are no frames.")
        if np.any(np.diff(self.time) <= 0):
            raise DataError(self.source, "time", "must increase, got unsorted or repeated times.")
        _check_common(self.source, self.num_trajectories, self.geometries, self.variables)

    def geometry(self, trajectory: int = 0) -> Geometry:
        """Returns the sites of one trajectory."""
        return self.geometries[trajectory if len(self.geometries) > 1 else 0]

    def frames(
        self, trajectory: int, times: slice = slice(None), sites: slice = slice(None)
    ) -> np.ndarray:
        """Returns frames of one trajectory, times by points by variables; NaN where missing.

        Args:
            trajectory: Its number.
            times: Range of frames.
            sites: Range of site numbers, without steps.
        """
        start, stop, step = sites.indices(self.geometry(trajectory).num_points)
        if step != 1:
            raise ValueError(f"`sites` must be a range without steps, got {sites}.")
        stop = max(start, stop)
        try:
            values = np.asarray(self._read(trajectory, times, slice(start, stop)))
        except DataError:
            raise
        except Exception as error:
            raise DataError(self.source, "values", f"cannot be read: {error}") from error
        num_times = len(range(*times.indices(len(self.time))))
        shape = (num_times, stop - start, len(self.variables))
        if values.shape != shape:
            raise DataError(self.source, "values", f"must have shape {shape}, got {values.shape}.")
        return values

    def time_labels(self, numbers: Sequence[int]) -> list[str]:
        """Returns the times of some frames as they are shown: dates where the file has them."""
        times = self.time[list(numbers)]
        if self.origin is not None:
            return self.origin.labels(times)
        units = f" {self.time_units}" if self.time_units else ""
        return [f"{time:g}{units}" for time in times]

    def time_of(self, text: str) -> float:
        """Returns the time that a text names: a date, or a number where frames have no dates."""
        if self.origin is not None:
            return self.origin.hours(text)
        try:
            return float(text)
        except ValueError:
            raise ValueError(
                f"must be a number, as times here are, since frames have no dates, got {text!r}."
            ) from None

    @cached_property
    def number_type(self) -> np.dtype:
        """The precision of the values: single or double."""
        return np.result_type(self.frames(0, slice(0, 1), slice(0, 1)).dtype, np.float32)

    @property
    def time_step(self) -> float:
        """The usual time from frame to frame, `MONTH` for months; one where there is a single frame."""
        return usual_step(self.time, self.origin)

    def with_time_features(self, features: Sequence[TimeFeature]) -> "Trajectories":
        """Returns a copy with these forcings, too; refuses where frames have no dates.

        Args:
            features: day and year, the time of each as cosine and sine; solar, the cosine of the
                solar zenith angle at every site, which must be on a sphere.
        """
        if features and self.first_hour is None:
            problem = "has no dates, such as hours since 2019-03-01, which time features need."
            raise DataError(self.source, "time", f"{problem} Train without --time-features.")
        found: list[AbstractForcing] = []
        for feature in features:
            if feature == "day":
                found.append(DayCycle(float(self.first_hour or 0.0) - float(self.time[0])))
                continue
            if self.origin is None:
                problem = f"has no year, which the time feature {feature} needs."
                raise DataError(self.source, "time", f"{problem} Train with --time-features day.")
            if feature == "solar" and self.geometry().true_degrees() is None:
                problem = "are not on a sphere: the time feature solar needs latitudes and"
                raise DataError(self.source, "coords", f"{problem} longitudes. Leave it out.")
            made = YearCycle if feature == "year" else SolarZenith
            found.append(made(self.origin))
        return replace(self, known=(*self.known, *found))

    @property
    def forcings(self) -> tuple[Variable, ...]:
        """Inputs that are known in advance, listed before the variables."""
        return tuple(variable for forcing in self.known for variable in forcing.variables)

    def input_frames(self, trajectory: int, times: slice, lead: int) -> np.ndarray:
        """Returns frames as a model reads them: times by points by forcings and variables.

        Args:
            trajectory: Its number.
            times: Range of frames.
            lead: Steps from a frame to the one that it predicts, whose forcings it begins with.
        """
        frames = self.frames(trajectory, times)
        numbers = np.arange(*times.indices(len(self.time))) + lead
        return np.concatenate([self.forcing_frames(trajectory, numbers), frames], -1)

    def forcing_frames(
        self, trajectory: int, numbers: np.ndarray, sites: slice = slice(None)
    ) -> np.ndarray:
        """Returns the forcings of some frames: times by points by forcings.

        Args:
            trajectory: Its number.
            numbers: Numbers of the frames; beyond the end of the file time goes on evenly.
            sites: Range of site numbers.
        """
        geometry, last = self.geometry(trajectory), len(self.time) - 1
        if not self.known:
            return np.zeros((len(numbers), len(range(geometry.num_points)[sites]), 0))
        for forcing in self.known:
            self._check_known(forcing, int(np.max(numbers, initial=0)))
        times = self.time[np.minimum(numbers, last)].astype(np.float64)
        beyond = np.asarray(numbers) > last
        ahead = np.asarray(numbers)[beyond] - last
        times[beyond] = later_times(self.time[-1], ahead, self.time_step, self.origin)
        asked = Frames(trajectory, np.asarray(numbers), times, geometry)
        return stack_forcings(self.known, asked)[:, sites].astype(np.float64)

    def _check_known(self, forcing: AbstractForcing, number: int) -> None:
        count = forcing.num_frames()
        if count is None or number < count:
            return
        ahead = np.array([number, count - 1]) - len(self.time) + 1
        until, end = later_times(self.time[-1], ahead, self.time_step, self.origin)
        units = f" {self.time_units}" if self.time_units else ""
        problem = (
            f"must be known until {until:g}{units}, {number + 1} frames in all; the file ends at "
            f"{end:g}{units}. Add the frames that are missing: forcings with their values, all "
            "other variables as NaN."
        )
        raise DataError(self.source, forcing.variables[0].name, problem)

    def _read(self, trajectory: int, times: slice, sites: slice) -> np.ndarray:
        if sites == slice(0, self.geometry(trajectory).num_points):
            return self.fetch(trajectory, times)
        if isinstance(self.fetch, RowReader):
            return self.fetch(trajectory, times, sites)
        return np.asarray(self.fetch(trajectory, times))[:, sites]


@dataclass(frozen=True)
class StaticMaps:
    """Static maps, such as from a shape to the flow around it; values are read on request."""

    layout: str
    """Name of the reader that understood the file."""
    source: Path
    inputs: tuple[Variable, ...]
    outputs: tuple[Variable, ...]
    geometries: tuple[Geometry, ...]
    """One for all samples, or one each."""
    num_samples: int
    fetch: Callable[[int], tuple[np.ndarray, np.ndarray]]
    """Reads one sample: points by inputs, and points by outputs."""
    parameters: Mapping[str, np.ndarray] = field(default_factory=dict)
    """Constants of every sample; one number each."""

    def __post_init__(self) -> None:
        """Refuses missing samples, variables or geometries."""
        _check_common(self.source, self.num_samples, self.geometries, self.inputs)
        _check_common(self.source, self.num_samples, self.geometries, self.outputs)

    def geometry(self, sample: int = 0) -> Geometry:
        """Returns the sites of one sample."""
        return self.geometries[sample if len(self.geometries) > 1 else 0]

    @cached_property
    def number_type(self) -> np.dtype:
        """The precision of the values that are given: single or double."""
        return np.result_type(self.sample(0)[0].dtype, np.float32)

    def sample(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns input and output of one sample, points by variables; NaN where missing."""
        try:
            given, wanted = (np.asarray(part) for part in self.fetch(index))
        except DataError:
            raise
        except Exception as error:
            raise DataError(self.source, "values", f"cannot be read: {error}") from error
        points = self.geometry(index).num_points
        for values, variables in ((given, self.inputs), (wanted, self.outputs)):
            shape = (points, len(variables))
            if values.shape != shape:
                problem = f"must have shape {shape}, got {values.shape}."
                raise DataError(self.source, variables[0].name, problem)
        return given, wanted


def with_numbers(
    fetch: Callable[[int], tuple[np.ndarray, np.ndarray]], values: np.ndarray, number: int
) -> tuple[np.ndarray, np.ndarray]:
    """Returns input and output of a static map with numbers of the sample before the input.

    Args:
        fetch: Reads a sample.
        values: Samples by numbers.
        number: Which sample.
    """
    given, wanted = fetch(number)
    more = np.broadcast_to(values[number], (len(wanted), values.shape[1]))
    return np.concatenate([more, given], -1), wanted


@dataclass(frozen=True)
class RowReader:
    """Reads frames at a range of sites in grid order.

    Worker processes get a copy: `read` must be an object that can be pickled, and open its file
    anew every time.
    """

    read: Callable[[int, slice, slice], np.ndarray]
    """Reads frames of one trajectory at some rows: times by points of these rows by variables."""
    row_size: int = 1
    """Sites in one entry along the first axis of a grid; 1 for scattered points."""

    def __call__(self, trajectory: int, times: slice, sites: slice = slice(None)) -> np.ndarray:
        """Returns times by points by variables.

        Args:
            trajectory: Its number.
            times: Range of frames.
            sites: All sites, or a range of their numbers.
        """
        if sites == slice(None):
            return self.read(trajectory, times, sites)
        first = sites.start // self.row_size
        rows = slice(first, -(-sites.stop // self.row_size))
        before = first * self.row_size
        part = self.read(trajectory, times, rows)
        return part[:, sites.start - before : sites.stop - before]


def _check_common(
    source: Path, count: int, geometries: tuple[Geometry, ...], variables: tuple[Variable, ...]
) -> None:
    if count < 1:
        raise DataError(source, "values", "hold no sample.")
    if not variables:
        raise DataError(source, "variables", "are none: there is nothing to learn from.")
    if len(geometries) not in (1, count):
        raise DataError(
            source, "coords", f"must be one set or {count}, one per sample, got {len(geometries)}."
        )


MAX_NUMBERS = 2**23
"""Largest number of values that are read at a time; a single frame may have more."""


@dataclass(frozen=True)
class FrameChunk:
    """Consecutive frames of one trajectory."""

    trajectory: int
    frames: range

    def read(self, data: Trajectories, sites: slice = slice(None)) -> np.ndarray:
        """Returns the values of these frames: times by points by variables."""
        return data.frames(self.trajectory, slice(self.frames.start, self.frames.stop), sites)


def frame_chunks(
    data: Trajectories, frames: Mapping[int, Sequence[int]], most: int = MAX_NUMBERS
) -> list[FrameChunk]:
    """Groups frames into chunks of consecutive frames that are small enough to read at once.

    Args:
        data: The time series.
        frames: Increasing numbers of frames, by trajectory.
        most: Largest number of values in a chunk; a single frame may have more.
    """
    found: list[FrameChunk] = []
    for trajectory, numbers in frames.items():
        size = data.geometry(trajectory).num_points * len(data.variables)
        length = max(1, most // size)
        run = range(0)
        for number in numbers:
            if run and number == run.stop and len(run) < length:
                run = range(run.start, number + 1)
                continue
            if run:
                found.append(FrameChunk(trajectory, run))
            run = range(number, number + 1)
        if run:
            found.append(FrameChunk(trajectory, run))
    return found
