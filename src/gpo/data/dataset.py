"""The data model: readers return `FieldData`, or raise a `DataError`."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

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
class FieldData:
    """Samples of fields on sites, each a time series or a static map; values are read lazily.

    A time series predicts its own later frames: all its variables are inputs and outputs. A static
    map has a single frame, whose first variables are the inputs and whose others are the outputs.
    """

    layout: str
    """Name of the reader that opened the file."""
    source: Path
    variables: tuple[Variable, ...]
    geometries: tuple[Geometry, ...]
    """One geometry shared by all samples, or one per sample."""
    time: np.ndarray
    """Times of the frames, increasing, in `time_units`; a single zero for static maps."""
    time_units: str
    """Units such as s, h or d; empty if the file has no times."""
    num_samples: int
    fetch: Callable[[int, slice], np.ndarray]
    """Reads frames of one sample as (times, points, variables), NaN where missing. A `RowReader`
    can read a range of sites only."""
    parameters: Mapping[str, np.ndarray] = field(default_factory=dict)
    """Scalar parameters such as a viscosity, one value per sample."""
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
    """Name of the dimension of samples in the file; empty if it has none."""
    time_dim: str = "time"
    """Name of the time dimension in the file."""
    num_inputs: int = 0
    """Number of variables that static maps have as inputs; 0 for time series."""
    notes: tuple[str, ...] = ()
    """What the user should know of the file, such as parts that are not in it."""

    def __post_init__(self) -> None:
        """Raises a `DataError` for empty or unsorted times and for missing content."""
        if len(self.time) == 0:
            raise DataError(self.source, "time", "has length zero: there are no frames.")
        if np.any(np.diff(self.time) <= 0):
            raise DataError(self.source, "time", "must increase, got unsorted or repeated times.")
        if self.num_samples < 1:
            raise DataError(self.source, "values", "are empty: there is no sample.")
        if not self.inputs or not self.outputs:
            problem = "are none: the file must have at least one field to predict."
            raise DataError(self.source, "variables", problem)
        if len(self.geometries) not in (1, self.num_samples):
            problem = f"must be shared or one set for each of {self.num_samples} samples, got"
            raise DataError(self.source, "coords", f"{problem} {len(self.geometries)}.")

    @classmethod
    def of_maps(
        cls,
        *,
        inputs: tuple[Variable, ...],
        outputs: tuple[Variable, ...],
        fetch: Callable[[int], tuple[np.ndarray, np.ndarray]],
        **content: Any,
    ) -> "FieldData":
        """Returns static maps, such as from a shape to the flow around it.

        Args:
            inputs: Variables of the input.
            outputs: Variables of the output.
            fetch: Reads one sample as (points, inputs) and (points, outputs).
            content: Other fields of the data, without times.
        """
        if not inputs:
            raise DataError(content["source"], "inputs", "are none: a map needs input and output.")
        return cls(
            variables=(*inputs, *outputs),
            num_inputs=len(inputs),
            fetch=MapReader(fetch),
            time=np.zeros(1),
            time_units="",
            **content,
        )

    @property
    def has_time(self) -> bool:
        """Whether samples are time series; otherwise they are static maps."""
        return self.num_inputs == 0

    @property
    def inputs(self) -> tuple[Variable, ...]:
        """The variables from which a model predicts, without forcings."""
        return self.variables[: self.num_inputs or None]

    @property
    def outputs(self) -> tuple[Variable, ...]:
        """The predicted variables."""
        return self.variables[self.num_inputs :]

    def __repr__(self) -> str:
        names = ", ".join(variable.name for variable in self.variables)
        size = f"{self.num_samples} x {len(self.time)} frames of {self.geometry().num_points} sites"
        return f"FieldData({self.source.name}: {names}; {size})"

    def geometry(self, sample: int = 0) -> Geometry:
        """Returns the sites of one sample."""
        return self.geometries[sample if len(self.geometries) > 1 else 0]

    def frames(
        self, sample: int, times: slice = slice(None), sites: slice = slice(None)
    ) -> np.ndarray:
        """Returns frames of one sample as (times, points, variables); NaN where missing.

        Args:
            sample: Index of the sample.
            times: Slice of frame indices.
            sites: Slice of site indices with step one.
        """
        start, stop, step = sites.indices(self.geometry(sample).num_points)
        if step != 1:
            raise ValueError(f"`sites` must be a slice with step 1, got {sites}.")
        stop = max(start, stop)
        try:
            values = np.asarray(self._read(sample, times, slice(start, stop)))
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
        """Returns the times of frames as text: dates if the file has them; empty for static maps."""
        if not self.has_time:
            return [""] * len(frames)
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

    def with_time_features(self, features: Sequence[TimeFeature]) -> "FieldData":
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
        """Variables of the forcings, which precede the other variables in the input."""
        return tuple(variable for forcing in self.known for variable in forcing.variables)

    def input_frames(self, sample: int, times: slice, lead: int) -> np.ndarray:
        """Returns model inputs as (times, points, forcings and inputs).

        Args:
            sample: Index of the sample.
            times: Slice of frame indices.
            lead: Steps from an input frame to its target; forcings are those of the target.
        """
        frames = self.frames(sample, times)[..., : self.num_inputs or None]
        targets = np.arange(*times.indices(len(self.time))) + lead
        return np.concatenate([self.forcing_frames(sample, targets), frames], -1)

    def forcing_frames(
        self, sample: int, numbers: np.ndarray, sites: slice = slice(None)
    ) -> np.ndarray:
        """Returns the forcings of frames as (times, points, forcings).

        Args:
            sample: Index of the sample.
            numbers: Frame indices; beyond the last frame, time continues at `time_step`.
            sites: Slice of site indices.
        """
        geometry, last = self.geometry(sample), len(self.time) - 1
        if not self.known:
            return np.zeros((len(numbers), len(range(geometry.num_points)[sites]), 0))
        for forcing in self.known:
            self._check_available(forcing, int(np.max(numbers, initial=0)))
        times = self.time[np.minimum(numbers, last)].astype(np.float64)
        beyond = np.asarray(numbers) > last
        ahead = np.asarray(numbers)[beyond] - last
        times[beyond] = later_times(self.time[-1], ahead, self.time_step, self.origin)
        frames = Frames(sample, np.asarray(numbers), times, geometry)
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

    def _read(self, sample: int, times: slice, sites: slice) -> np.ndarray:
        if sites == slice(0, self.geometry(sample).num_points):
            return self.fetch(sample, times)
        if isinstance(self.fetch, RowReader):
            return self.fetch(sample, times, sites)
        return np.asarray(self.fetch(sample, times))[:, sites]


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


def check_same_kind(first: FieldData, other: FieldData) -> None:
    """Raises a `DataError` if one has time series and the other static maps."""
    kinds = ["time series" if data.has_time else "static maps" for data in (first, other)]
    if kinds[0] != kinds[1]:
        problem = f"must hold {kinds[0]}, as {first.source.name} does, got {kinds[1]}."
        raise DataError(other.source, "file", problem)


@dataclass(frozen=True)
class MapReader:
    """Reads a static map as a single frame, whose variables are the inputs, then the outputs."""

    read: Callable[[int], tuple[np.ndarray, np.ndarray]]
    """Reads one sample as (points, inputs) and (points, outputs)."""

    def __call__(self, sample: int, times: slice) -> np.ndarray:
        """Returns the frame as (times, points, variables), or none if `times` excludes it."""
        return np.concatenate(self.read(sample), -1)[None][times]


@dataclass(frozen=True)
class RowReader:
    """Reads frames at a range of sites in grid order.

    Worker processes receive a copy, so `read` must be picklable and reopen its file on each call.
    """

    read: Callable[[int, slice, slice], np.ndarray]
    """Reads frames of a sample at a slice of rows as (times, points, variables)."""
    row_size: int = 1
    """Sites per row, an index along the first grid axis; 1 for unstructured points."""

    def __call__(self, sample: int, times: slice, sites: slice = slice(None)) -> np.ndarray:
        """Returns frames as (times, points, variables).

        Args:
            sample: Index of the sample.
            times: Slice of frame indices.
            sites: Slice of site indices.
        """
        if sites == slice(None):
            return self.read(sample, times, sites)
        first = sites.start // self.row_size
        rows = slice(first, -(-sites.stop // self.row_size))
        before = first * self.row_size
        part = self.read(sample, times, rows)
        return part[:, sites.start - before : sites.stop - before]
