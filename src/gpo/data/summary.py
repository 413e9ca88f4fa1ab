"""Ranges and missing values of each variable, and frames to inspect."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from gpo.data.dataset import FieldData

NUM_SIGN_FRAMES = 8
"""Number of evenly spaced frames in which negative values are looked for."""
NEAR_ZERO = 0.1
"""Smallest value, in standard deviations, below which a forecast may become negative."""
MAX_VALUES = 20_000_000
"""Number of values above which only evenly spaced frames are read."""


@dataclass(frozen=True)
class Range:
    """Statistics of one variable over the frames that were read."""

    name: str
    units: str
    minimum: float
    mean: float
    maximum: float
    missing: float
    """Fraction of values that are missing."""


@dataclass(frozen=True)
class Summary:
    """Ranges of all variables, and the part of the data that was read."""

    ranges: tuple[Range, ...]
    coverage: str
    """Number of frames that were read, and of all; a static map is a frame."""


def summarise(data: FieldData) -> Summary:
    """Returns ranges over the whole data set, or over evenly spaced frames if it is large."""
    variables, count = data.variables, data.num_samples * len(data.time)
    stride = max(1, -(-count * data.geometry().num_points * len(variables) // MAX_VALUES))
    statistics = [_Statistics() for _ in variables]
    for values in _values(data, stride):
        for channel, part in enumerate(statistics):
            part.add(values[..., channel])
    pairs = zip(statistics, variables, strict=True)
    ranges = tuple(part.range(variable.name, variable.units) for part, variable in pairs)
    return Summary(ranges, f"{-(-count // stride)} of {count} frames")


def _values(data: FieldData, stride: int) -> Iterator[np.ndarray]:
    """Yields the values of every n-th frame of all samples."""
    for sample in range(data.num_samples):
        first = (-sample * len(data.time)) % stride
        if first < len(data.time):
            yield data.frames(sample, slice(first, None, stride))


def sign_notes(data: FieldData, bounded: Sequence[str] = ()) -> list[str]:
    """Returns a note for each output that is never negative but close to zero, where forecasts may be.

    Args:
        data: The data set.
        bounded: Names of outputs that are bounded already.
    """
    outputs, notes = data.outputs, list[str]()
    frames = [frame[:, -len(outputs) :] for frame in spaced_frames(data, NUM_SIGN_FRAMES)]
    for column, variable in enumerate(outputs):
        values = np.concatenate([frame[:, column] for frame in frames]).astype(np.float64)
        values = values[np.isfinite(values)]
        is_close = len(values) > 0 and 0 <= values.min() < NEAR_ZERO * values.std()
        if is_close and variable.name not in bounded:
            bound = f"--non-negative {variable.name} bounds them"
            notes.append(f"{variable.name} is never negative, but forecasts may be: {bound}")
    return notes


def spaced_frames(data: FieldData, most: int) -> Iterator[np.ndarray]:
    """Yields evenly spaced frames of all samples, as (points, variables)."""
    num_times = len(data.time)
    count = data.num_samples * num_times
    for index in np.unique(np.linspace(0, count - 1, most).astype(int)).tolist():
        sample, frame = divmod(index, num_times)
        yield data.frames(sample, slice(frame, frame + 1))[0]


class _Statistics:
    """Running minimum, mean, maximum and count of finite values."""

    def __init__(self) -> None:
        self.low, self.high, self.total = np.inf, -np.inf, 0.0
        self.num_finite = self.num_values = 0

    def add(self, values: np.ndarray) -> None:
        finite = values[np.isfinite(values)].astype(np.float64)
        self.num_values += values.size
        self.num_finite += finite.size
        if finite.size:
            self.low = min(self.low, float(finite.min()))
            self.high = max(self.high, float(finite.max()))
            self.total += float(finite.sum())

    def range(self, name: str, units: str) -> Range:
        mean = self.total / self.num_finite if self.num_finite else float("nan")
        missing = 1 - self.num_finite / self.num_values
        return Range(name, units, self.low, mean, self.high, missing)
