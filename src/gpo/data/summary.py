"""Summary statistics of a data set: ranges and missing values of every variable."""

from dataclasses import dataclass

import numpy as np

from gpo.data.dataset import StaticMaps, Trajectories, Variable

MAX_VALUES = 20_000_000
"""Number of values above which only evenly spaced frames are read."""


@dataclass(frozen=True)
class Range:
    """Statistics of one variable over the frames or samples that were read."""

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
    """Number of frames or samples that were read, and of all."""


def summarise(data: Trajectories | StaticMaps) -> Summary:
    """Returns ranges over the whole data set, or over evenly spaced frames if it is large."""
    if isinstance(data, StaticMaps):
        return _summarise_maps(data)
    per_frame = data.geometry().num_points * len(data.variables)
    num_frames = data.num_trajectories * len(data.time)
    stride = max(1, -(-num_frames * per_frame // MAX_VALUES))
    statistics = [_Statistics() for _ in data.variables]
    num_read = 0
    for trajectory in range(data.num_trajectories):
        first = (-trajectory * len(data.time)) % stride
        if first >= len(data.time):
            continue
        values = data.frames(trajectory, slice(first, None, stride))
        num_read += len(values)
        for channel, part in enumerate(statistics):
            part.add(values[..., channel])
    return Summary(_ranges(statistics, data.variables), f"{num_read} of {num_frames} frames")


def _summarise_maps(data: StaticMaps) -> Summary:
    per_sample = data.geometry().num_points * (len(data.inputs) + len(data.outputs))
    stride = max(1, -(-data.num_samples * per_sample // MAX_VALUES))
    variables = (*data.inputs, *data.outputs)
    statistics = [_Statistics() for _ in variables]
    samples = range(0, data.num_samples, stride)
    for sample in samples:
        values = np.concatenate(data.sample(sample), axis=-1)
        for channel, part in enumerate(statistics):
            part.add(values[..., channel])
    coverage = f"{len(samples)} of {data.num_samples} samples"
    return Summary(_ranges(statistics, variables), coverage)


def _ranges(statistics: "list[_Statistics]", variables: tuple[Variable, ...]) -> tuple[Range, ...]:
    pairs = zip(statistics, variables, strict=True)
    return tuple(part.range(variable.name, variable.units) for part, variable in pairs)


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
