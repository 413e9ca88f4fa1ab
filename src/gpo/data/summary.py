"""Ranges and missing values of each variable, and frames to inspect."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from gpo.data.dataset import FieldData

NUM_INSPECTED = 8
"""Number of evenly spaced frames of large data whose values are inspected."""
MAX_INSPECTED = 2_000_000
"""Number of values of a variable up to which all frames are inspected."""
CODES = {999.0, 999.9, 9999.0, 9999.9, 99999.0, 999999.0, 32767.0, 32768.0}
"""Usual codes of missing values, without sign."""
SMALLEST_CODE = 1e15
"""Size above which a lone value is a code, such as 1e20 or 9.97e36."""
FAR = 3
"""Distance of a code from all other values, in terms of their range."""
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


def summarise(data: FieldData, most: int | None = MAX_VALUES) -> Summary:
    """Returns ranges over the whole data set, or over evenly spaced frames if it is large.

    Args:
        data: The data set.
        most: Number of values above which it is large (None: it never is).
    """
    variables, count = data.variables, data.num_samples * len(data.time)
    size = count * data.geometry().num_points * len(variables)
    stride = 1 if most is None else max(1, -(-size // most))
    statistics = [_Statistics() for _ in variables]
    for values in _values(data, stride):
        for channel, part in enumerate(statistics):
            part.add(values[..., channel])
    pairs = zip(statistics, variables, strict=True)
    ranges = tuple(part.range(variable.name, variable.units) for part, variable in pairs)
    return Summary(ranges, f"{-(-count // stride)} of {count} frames")


def _values(data: FieldData, stride: int) -> Iterator[np.ndarray]:
    """Yields the values of every n-th frame of all samples, in portions."""
    for sample in range(data.num_samples):
        first = (-sample * len(data.time)) % stride
        numbers = range(first, len(data.time), stride)
        size = data.geometry(sample).num_points * len(data.variables)
        portion = stride * max(1, MAX_VALUES // size)
        for start in numbers[:: portion // stride]:
            yield data.frames(sample, slice(start, start + portion, stride))


def value_notes(data: FieldData, bounded: Sequence[str] = ()) -> list[str]:
    """Returns notes on values that a model would learn as they are, but that mean something else.

    They are codes of missing values, such as -9999, sites at one position with different values,
    outputs that are never negative but close to zero, where forecasts may be negative, and what the
    reader noted of the file.

    Args:
        data: The data set.
        bounded: Names of outputs that are bounded already.
    """
    outputs = {variable.name for variable in data.outputs}
    frames, notes = list(_inspected_frames(data)), list[str]()
    for column, variable in enumerate(data.variables):
        values = np.concatenate([frame[:, column] for frame in frames]).astype(np.float64)
        values = values[np.isfinite(values)]
        notes += _code_note(variable.name, values)
        is_close = len(values) > 0 and 0 <= values.min() < NEAR_ZERO * values.std()
        if is_close and variable.name in outputs and variable.name not in bounded:
            bound = f"--non-negative {variable.name} bounds them"
            notes.append(f"{variable.name} is never negative, but forecasts may be: {bound}")
    return [*data.notes, *notes, *_position_note(data, frames)]


def _code_note(name: str, values: np.ndarray) -> list[str]:
    """Returns a note on an outermost value that is far from all others and a usual code."""
    for code in {values.min(), values.max()} if len(values) else ():
        others = values[values != code]
        is_code = round(abs(code), 1) in CODES or abs(code) > SMALLEST_CODE
        if is_code and len(others) and np.abs(others - code).min() > FAR * np.ptp(others):
            span = f"{others.min():.4g} to {others.max():.4g}"
            text = f"{name} is {code:g} at {len(values) - len(others):,} of {len(values):,} places"
            return [f"{text} and {span} elsewhere: if it means missing, write NaN in its place"]
    return []


def _position_note(data: FieldData, frames: Sequence[np.ndarray]) -> list[str]:
    """Returns a note on unstructured points that share a position, but not their values."""
    if len(data.geometries) > 1 or data.geometry().grid_shape:
        return []
    coords = data.geometry().coords
    _, first, inverse = np.unique(coords, axis=0, return_index=True, return_inverse=True)
    twins = first[inverse.ravel()]
    repeated = np.flatnonzero(twins != np.arange(len(coords)))
    differing = [
        site
        for site in repeated.tolist()
        if any(
            not np.array_equal(frame[site], frame[twins[site]], equal_nan=True) for frame in frames
        )
    ]
    if not differing:
        return []
    pair = f"sites {twins[differing[0]]} and {differing[0]} (from 0)"
    more = f", as {len(differing) - 1:,} more" if len(differing) > 1 else ""
    return [
        f"{pair} are at one position with different values{more}, which no model can tell apart: "
        "keep one of them, or their mean"
    ]


def _inspected_frames(data: FieldData) -> Iterator[np.ndarray]:
    """Yields all frames of small data, else some."""
    count = data.num_samples * len(data.time)
    is_small = count * data.geometry().num_points <= MAX_INSPECTED
    yield from spaced_frames(data, count if is_small else NUM_INSPECTED)


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
