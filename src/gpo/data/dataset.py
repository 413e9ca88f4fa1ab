"""The data model: readers return `Trajectories` or `StaticMaps`, or raise a `DataError`."""

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
    """Unusable data; the message names the file, the field and the problem."""

    def __init__(self, path: str | Path, field: str, problem: str) -> None:
        super().__init__(f"{path}: `{field}` {problem}")
        self.path = Path(path)
        self.field = field
        self.problem = problem


@dataclass(frozen=True)
class InputCandidate:
    """A variable that is not a time series of fields but can be an additional input."""

    variable: Variable
    kind: Literal["static", "series"]
    """A field without a time axis, or a time series of one value per frame."""
    read: Callable[[], np.ndarray]
    """Reads the values: one per point, or one per frame."""


@dataclass(frozen=True)
class JoinedFiles:
    """How several files are combined into one data set."""

    kind: Literal["series", "trajectories"]
    """Files concatenated in time, or each file with trajectories of its own."""
    starts: tuple[int, ...]
    """Index of the first frame, or the first trajectory, of each file."""


@dataclass(frozen=True, repr=False)
class Trajectories:
    """Time series of fields on sites; values are read lazily."""

    layout: str
    """Name of the reader that opened the file."""
    source: Path
    variables: tuple[Variable, ...]
    geometries: tuple[Geometry, ...]
    """One geometry shared by all trajectories, or one per trajectory."""
    time: np.ndarray
    """Times of the frames, increasing, in `time_units`."""
    time_units: str
    """Units such as s, h or d; empty if the file has no times."""
    num_trajectories: int
    fetch: Callable[[int, slice], np.ndarray]
    """Reads frames of one trajectory as (times, points, variables), NaN where missing. A
    `RowReader` can read a range of sites only."""
    parameters: Mapping[str, np.ndarray] = field(default_factory=dict)
    """Scalar parameters such as a viscosity, one value per trajectory."""
    first_hour: float | None = None
    """Hour of day of the first frame if frames have dates; times are then in hours."""
    origin: TimeOrigin | None = None
    """Date of time zero if frames have dates; times are then in hours."""
    levels: Mapping[str, str] = field(default_factory=dict)
    """Selected value of each vertical axis by name, such as 500 for level."""
    candidates: tuple[InputCandidate, ...] = ()
    """Other variables of the file that can be used as inputs."""
    known: tuple[AbstractForcing, ...] = ()
    """Forcings, which `input_frames` lists before the variables."""
    files: "JoinedFiles | None" = None
    """How several files are combined; None for a single file."""
    case_dim: str = ""
    """Name of the dimension of trajectories in the file; empty if it has none."""
    time_dim: str = "time"
    """Name of the time dimension in the file."""

    def __post_init__(self) -> None:
        """Raises a `DataError` for empty or unsorted times and for missing content."""
        if len(self.time) == 0:
            raise DataError(self.source, "time", "has length zero: there are no frames.")
        if np.any(np.diff(self.time) <= 0):
            raise DataError(self.source, "time", "must increase, got unsorted or repeated times.")
        _check_common(self.source, self.num_trajectories, self.geometries, self.variables)

    def __repr__(self) -> str:
        names = ", ".join(variable.name for variable in self.variables)
        size = f"{self.num_trajectories} x {len(self.time)} frames of {self.geometry().num_points} sites"
        return f"Trajectories({self.source.name}: {names}; {size})"

    def geometry(self, trajectory: int = 0) -> Geometry:
        """Returns the sites of one trajectory."""
        return self.geometries[trajectory if len(self.geometries) > 1 else 0]

    def frames(
        self, trajectory: int, times: slice = slice(None), sites: slice = slice(None)
    ) -> np.ndarray:
        """Returns frames of one trajectory as (times, points, variables); NaN where missing.

        Args:
            trajectory: Index of the trajectory.
            times: Slice of frame indices.
            sites: Slice of site indices with step one.
        """
        start, stop, step = sites.indices(self.geometry(trajectory).num_points)
        if step != 1:
            raise ValueError(f"`sites` must be a slice with step 1, got {sites}.")
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

    def time_labels(self, frames: Sequence[int]) -> list[str]:
        """Returns the times of frames as text: dates if the file has them."""
        times = self.time[list(frames)]
        if self.origin is not None:
            return self.origin.labels(times)
        units = f" {self.time_units}" if self.time_units else ""
        return [f"{time:g}{units}" for time in times]

    def time_of(self, text: str) -> float:
        """Parses a time: a date, or a number if frames have no dates."""
        if self.origin is not None:
            return self.origin.hours(text)
        try:
            return float(text)
        except ValueError:
            raise ValueError(
                f"must be a number, because the frames have no dates, got {text!r}."
            ) from None

    @cached_property
    def number_type(self) -> np.dtype:
        """The dtype of the values, at least single precision."""
        return np.result_type(self.frames(0, slice(0, 1), slice(0, 1)).dtype, np.float32)

    @property
    def time_step(self) -> float:
        """The most frequent time step; `MONTH` for calendar months, 1 for a single frame."""
        return usual_step(self.time, self.origin)

    def with_time_features(self, features: Sequence[TimeFeature]) -> "Trajectories":
        """Returns a copy with time features as additional forcings.

        Args:
            features: `day` and `year` are cosine and sine of the time of day and of year; `solar`
                is the cosine of the solar zenith angle, which needs sites on the sphere.

        Raises:
            DataError: If frames have no dates, or sites no longitudes and latitudes.
        """
        if features and self.first_hour is None:
            problem = "has no dates, such as hours since 2019-03-01, which time features need."
            raise DataError(self.source, "time", f"{problem} Train without --time-features.")
        forcings: list[AbstractForcing] = []
        for feature in features:
            if feature == "day":
                forcings.append(DayCycle(float(self.first_hour or 0.0) - float(self.time[0])))
                continue
            if self.origin is None:
                problem = (
                    f"must have years for the time feature {feature}, but has only hours of day."
                )
                raise DataError(self.source, "time", f"{problem} Train with --time-features day.")
            if feature == "solar" and self.geometry().geographic_degrees() is None:
                problem = (
                    "must be longitudes and latitudes for the time feature solar. Leave it out."
                )
                note = self.geometry().projection_note
                problem += f" But {note}." if note else ""
                raise DataError(self.source, "coords", problem)
            forcing = YearCycle if feature == "year" else SolarZenith
            forcings.append(forcing(self.origin))
        return replace(self, known=(*self.known, *forcings))

    @property
    def forcings(self) -> tuple[Variable, ...]:
        """Variables of the forcings, which precede the state variables in the inputs."""
        return tuple(variable for forcing in self.known for variable in forcing.variables)

    def input_frames(self, trajectory: int, times: slice, lead: int) -> np.ndarray:
        """Returns model inputs as (times, points, forcings and variables).

        Args:
            trajectory: Index of the trajectory.
            times: Slice of frame indices.
            lead: Steps from an input frame to its target; forcings are those of the target.
        """
        frames = self.frames(trajectory, times)
        targets = np.arange(*times.indices(len(self.time))) + lead
        return np.concatenate([self.forcing_frames(trajectory, targets), frames], -1)

    def forcing_frames(
        self, trajectory: int, numbers: np.ndarray, sites: slice = slice(None)
    ) -> np.ndarray:
        """Returns the forcings of frames as (times, points, forcings).

        Args:
            trajectory: Index of the trajectory.
            numbers: Frame indices; beyond the last frame, time continues at `time_step`.
            sites: Slice of site indices.
        """
        geometry, last = self.geometry(trajectory), len(self.time) - 1
        if not self.known:
            return np.zeros((len(numbers), len(range(geometry.num_points)[sites]), 0))
        for forcing in self.known:
            self._check_available(forcing, int(np.max(numbers, initial=0)))
        times = self.time[np.minimum(numbers, last)].astype(np.float64)
        beyond = np.asarray(numbers) > last
        ahead = np.asarray(numbers)[beyond] - last
        times[beyond] = later_times(self.time[-1], ahead, self.time_step, self.origin)
        frames = Frames(trajectory, np.asarray(numbers), times, geometry)
        return stack_forcings(self.known, frames)[:, sites].astype(np.float64)

    def _check_available(self, forcing: AbstractForcing, number: int) -> None:
        """Raises a `DataError` if a forcing ends before the frame of this index."""
        count = forcing.num_frames()
        if count is None or number < count:
            return
        ahead = np.array([number, count - 1]) - len(self.time) + 1
        until, end = later_times(self.time[-1], ahead, self.time_step, self.origin)
        units = f" {self.time_units}" if self.time_units else ""
        problem = (
            f"must be known until {until:g}{units}, {number + 1} frames in all, but the file ends "
            f"at {end:g}{units}. Add the missing frames to it: forcings with their values, all "
            "other variables as NaN."
        )
        raise DataError(self.source, forcing.variables[0].name, problem)

    def _read(self, trajectory: int, times: slice, sites: slice) -> np.ndarray:
        if sites == slice(0, self.geometry(trajectory).num_points):
            return self.fetch(trajectory, times)
        if isinstance(self.fetch, RowReader):
            return self.fetch(trajectory, times, sites)
        return np.asarray(self.fetch(trajectory, times))[:, sites]


@dataclass(frozen=True, repr=False)
class StaticMaps:
    """Static maps, such as from a shape to the flow around it; values are read lazily."""

    layout: str
    """Name of the reader that opened the file."""
    source: Path
    inputs: tuple[Variable, ...]
    outputs: tuple[Variable, ...]
    geometries: tuple[Geometry, ...]
    """One geometry shared by all samples, or one per sample."""
    num_samples: int
    fetch: Callable[[int], tuple[np.ndarray, np.ndarray]]
    """Reads one sample as (points, inputs) and (points, outputs)."""
    parameters: Mapping[str, np.ndarray] = field(default_factory=dict)
    """Scalar parameters, one value per sample."""

    def __post_init__(self) -> None:
        """Raises a `DataError` for missing samples, variables or geometries."""
        _check_common(self.source, self.num_samples, self.geometries, self.inputs)
        _check_common(self.source, self.num_samples, self.geometries, self.outputs)

    def __repr__(self) -> str:
        inputs, outputs = (", ".join(v.name for v in side) for side in (self.inputs, self.outputs))
        size = f"{self.num_samples} samples of {self.geometry().num_points} sites"
        return f"StaticMaps({self.source.name}: {inputs} to {outputs}; {size})"

    def geometry(self, sample: int = 0) -> Geometry:
        """Returns the sites of one sample."""
        return self.geometries[sample if len(self.geometries) > 1 else 0]

    @cached_property
    def number_type(self) -> np.dtype:
        """The dtype of the inputs, at least single precision."""
        return np.result_type(self.sample(0)[0].dtype, np.float32)

    def sample(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns input and output of one sample as (points, variables); NaN where missing."""
        try:
            inputs, outputs = (np.asarray(part) for part in self.fetch(index))
        except DataError:
            raise
        except Exception as error:
            raise DataError(self.source, "values", f"cannot be read: {error}") from error
        points = self.geometry(index).num_points
        for values, variables in ((inputs, self.inputs), (outputs, self.outputs)):
            shape = (points, len(variables))
            if values.shape != shape:
                problem = f"must have shape {shape}, got {values.shape}."
                raise DataError(self.source, variables[0].name, problem)
        return inputs, outputs


def fetch_with_scalars(
    fetch: Callable[[int], tuple[np.ndarray, np.ndarray]], scalars: np.ndarray, sample: int
) -> tuple[np.ndarray, np.ndarray]:
    """Returns input and output of a sample, with its scalars as the first input channels.

    Args:
        fetch: Reads a sample.
        scalars: Values of shape (samples, channels).
        sample: Index of the sample.
    """
    inputs, outputs = fetch(sample)
    constants = np.broadcast_to(scalars[sample], (len(outputs), scalars.shape[1]))
    return np.concatenate([constants, inputs], -1), outputs


@dataclass(frozen=True)
class RowReader:
    """Reads frames at a range of sites in grid order.

    Worker processes receive a copy, so `read` must be picklable and reopen its file on each call.
    """

    read: Callable[[int, slice, slice], np.ndarray]
    """Reads frames of a trajectory at a slice of rows as (times, points, variables)."""
    row_size: int = 1
    """Sites per row, an index along the first grid axis; 1 for unstructured points."""

    def __call__(self, trajectory: int, times: slice, sites: slice = slice(None)) -> np.ndarray:
        """Returns frames as (times, points, variables).

        Args:
            trajectory: Index of the trajectory.
            times: Slice of frame indices.
            sites: Slice of site indices.
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
        raise DataError(source, "values", "are empty: there is no sample.")
    if not variables:
        raise DataError(
            source, "variables", "are none: the file must have at least one field to predict."
        )
    if len(geometries) not in (1, count):
        raise DataError(
            source,
            "coords",
            f"must be shared or one set for each of {count} samples, got {len(geometries)}.",
        )


MAX_CHUNK_VALUES = 2**23
"""Maximum number of values read at once; a single frame may have more."""


@dataclass(frozen=True)
class FrameChunk:
    """Consecutive frames of one trajectory."""

    trajectory: int
    frames: range

    def read(self, data: Trajectories, sites: slice = slice(None)) -> np.ndarray:
        """Returns the values of these frames as (times, points, variables)."""
        return data.frames(self.trajectory, slice(self.frames.start, self.frames.stop), sites)


def frame_chunks(
    data: Trajectories, frames: Mapping[int, Sequence[int]], most: int = MAX_CHUNK_VALUES
) -> list[FrameChunk]:
    """Groups frames into chunks of consecutive frames that are small enough to read at once.

    Args:
        data: The time series.
        frames: Increasing frame indices by trajectory.
        most: Maximum number of values in a chunk; a single frame may have more.
    """
    chunks: list[FrameChunk] = []
    for trajectory, numbers in frames.items():
        size = data.geometry(trajectory).num_points * len(data.variables)
        length = max(1, most // size)
        run = range(0)
        for number in numbers:
            if run and number == run.stop and len(run) < length:
                run = range(run.start, number + 1)
                continue
            if run:
                chunks.append(FrameChunk(trajectory, run))
            run = range(number, number + 1)
        if run:
            chunks.append(FrameChunk(trajectory, run))
    return chunks
