"""Summary statistics of a data set: ranges and missing values of every variable."""

from dataclasses import dataclass

import numpy as np

from gpo.data.dataset import StaticMaps, Trajectories

MAX_NUMBERS = 20_000_000
"""Above this many numbers, ranges come from evenly spaced frames."""


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
    """Ranges of all variables, and which part of the data they come from."""

    ranges: tuple[Range, ...]
    looked_at: str


def summarise(data: Trajectories | StaticMaps) -> Summary:
    """Returns ranges over the whole data set, or over evenly spaced parts where it is large."""
    if isinstance(data, StaticMaps):
        return _summarise_maps(data)
    per_frame = data.geometry().num_points * len(data.variables)
    num_frames = data.num_trajectories * len(data.time)
    stride = max(1, -(-num_frames * per_frame // MAX_NUMBERS))
    tallies = [_Tally() for _ in data.variables]
    looked = 0
    for trajectory in range(data.num_trajectories):
        first = (-trajectory * len(data.time)) % stride
        if first >= len(data.time):
            continue
        values = data.frames(trajectory, slice(first, None, stride))
        looked += len(values)
        for channel, tally in enumerate(tallies):
            tally.add(values[..., channel])
    ranges = tuple(t.range(v.name, v.units) for t, v in zip(tallies, data.variables, strict=True))
    return Summary(ranges, f"{looked} of {num_frames} frames")


def _summarise_maps(data: StaticMaps) -> Summary:
    per_sample = data.geometry().num_points * (len(data.inputs) + len(data.outputs))
    stride = max(1, -(-data.num_samples * per_sample // MAX_NUMBERS))
    variables = (*data.inputs, *data.outputs)
    tallies = [_Tally() for _ in variables]
    numbers = range(0, data.num_samples, stride)
    for number in numbers:
        values = np.concatenate(data.sample(number), axis=-1)
        for channel, tally in enumerate(tallies):
            tally.add(values[..., channel])
    ranges = tuple(t.range(v.name, v.units) for t, v in zip(tallies, variables, strict=True))
    return Summary(ranges, f"{len(numbers)} of {data.num_samples} samples")


class _Tally:
    """Running minimum, mean, maximum and count of finite values."""

    def __init__(self) -> None:
        self.low, self.high, self.total = np.inf, -np.inf, 0.0
        self.finite = self.seen = 0

    def add(self, values: np.ndarray) -> None:
        finite = values[np.isfinite(values)].astype(np.float64)
        self.seen += values.size
        self.finite += finite.size
        if finite.size:
            self.low = min(self.low, float(finite.min()))
            self.high = max(self.high, float(finite.max()))
            self.total += float(finite.sum())

    def range(self, name: str, units: str) -> Range:
        mean = self.total / self.finite if self.finite else float("nan")
        missing = 1 - self.finite / self.seen
        return Range(name, units, self.low, mean, self.high, missing)
