"""Training, validation and test splits without leakage.

A time slice has `history` input frames, `lead` steps apart, and a target frame `lead` steps after
the last input, so forecasts can be rolled out autoregressively. The time slice of a static map is
its only frame, with a lead of 0. All time slices of a sample belong to the same split. A single
series is split in time, with gaps of (history + 1) * lead frames between the splits, so that no
frame occurs in two splits.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeVar

import numpy as np

from gpo.data.dataset import FieldData
from gpo.data.steps import even_steps, format_step

Item = TypeVar("Item")


@dataclass(frozen=True)
class TimeSlice:
    """An example: frames `first` to `last` of a sample are inputs, `target` is predicted."""

    sample: int
    first: int
    last: int
    target: int

    @property
    def lead(self) -> int:
        """Steps from the last input frame to the target; 0 for a static map."""
        return self.target - self.last

    @property
    def inputs(self) -> range:
        """Indices of the input frames."""
        return range(self.first, self.last + 1, max(self.lead, 1))


@dataclass(frozen=True, repr=False)
class Split:
    """Examples for training, validation and testing."""

    training: tuple[TimeSlice, ...]
    validation: tuple[TimeSlice, ...]
    test: tuple[TimeSlice, ...]
    kind: str
    """How the data are split: by trajectory, time, date, file or sample."""

    def __repr__(self) -> str:
        sizes = f"{len(self.training)} / {len(self.validation)} / {len(self.test)}"
        return f"Split({sizes} examples to train / validate / test, by {self.kind})"


def used_frames(time_slices: Sequence[TimeSlice]) -> dict[int, list[int]]:
    """Returns the distinct input and target frames of time slices, by sample."""
    used: dict[int, set[int]] = {}
    for time_slice in time_slices:
        frames = (*time_slice.inputs, time_slice.target)
        used.setdefault(time_slice.sample, set()).update(frames)
    return {sample: sorted(frames) for sample, frames in used.items()}


def evenly(items: Sequence[Item], most: int) -> list[Item]:
    """Returns at most `most` evenly spaced items, including the first and the last."""
    indices = np.unique(np.linspace(0, len(items) - 1, most).round().astype(int))
    return [items[index] for index in indices.tolist()]


def split_time_slices(
    data: FieldData,
    *,
    history: int = 1,
    lead: int = 1,
    fractions: tuple[float, float, float] = (0.8, 0.1, 0.1),
) -> Split:
    """Splits time slices by sample if there are at least three, otherwise by time.

    Args:
        data: The data set.
        history: Number of input frames, `lead` steps apart; 1 for static maps.
        lead: Steps from the last input frame to the target; 0 for static maps.
        fractions: Fractions of training, validation and test, which sum to one.
    """
    if history < 1 or lead < 1:
        raise ValueError(
            f"`history` and `lead` must be at least 1, got history={history}, lead={lead}."
        )
    _check_fractions(fractions)
    frames, samples = range(len(data.time)), range(data.num_samples)
    if not data.has_time:
        history, lead = 1, 0
    if data.num_samples >= 3:
        parts = split_range(data.num_samples, fractions)
        kind = "trajectory" if lead else "sample"
        return _split(data, [(part, frames) for part in parts], history, lead, kind)
    if not lead:
        problem = "must have at least 3 samples, one for each split, got"
        raise ValueError(f"`data` {problem} {data.num_samples}.")
    gap = (history + 1) * lead
    usable = len(data.time) - 2 * gap
    if usable < 3:
        raise _too_short(data, history, lead)
    parts = enumerate(split_range(usable, fractions))
    shifted = [range(part.start + n * gap, part.stop + n * gap) for n, part in parts]
    return _split(data, [(samples, part) for part in shifted], history, lead, "time")


def all_time_slices(data: FieldData, *, history: int, lead: int) -> tuple[TimeSlice, ...]:
    """Returns all time slices that do not cross a gap in time; the lead of static maps is 0."""
    is_even, frames = even_steps(data.time, data.origin), range(len(data.time))
    result = _time_slices(range(data.num_samples), frames, is_even, history, lead)
    if not result:
        raise ValueError(
            f"{data.source} must have more than {history * lead} consecutive frames for "
            f"history={history} and lead={lead}, got {len(data.time)}."
        )
    return result


def split_by_date(
    data: FieldData,
    validation_from: str | None,
    test_from: str,
    *,
    history: int = 1,
    lead: int = 1,
) -> Split:
    """Splits all samples at two times, with (history + 1) * lead unused frames before each.

    Args:
        data: The time series.
        validation_from: Date or time of the first validation frame; by default, the last tenth
            of the frames before the test is used.
        test_from: Date or time of the first test frame.
        history: Number of input frames, `lead` steps apart.
        lead: Steps from the last input frame to the target.
    """
    test = _first_frame(data, "test_from", test_from)
    if validation_from is None:
        validation = test - max(1, round(0.1 * test))
    else:
        validation = _first_frame(data, "validation_from", validation_from)
    return _split_at(data, validation, test, history, lead, "date")


def split_by_file(data: FieldData, count: int, *, history: int = 1, lead: int = 1) -> Split:
    """Splits by file: the last files are for testing, as many before them for validation.

    Args:
        data: The time series of several files.
        count: Number of files for testing.
        history: Number of input frames, `lead` steps apart.
        lead: Steps from the last input frame to the target.
    """
    num_files = 1 if data.files is None else len(data.files.starts)
    if data.files is None or num_files < 2 * count + 1:
        raise ValueError(
            f"`test_files` must leave files to train on: {count} are for testing and {count} for "
            f"validation, but {data.source} is {num_files} file(s). Use fewer, or more files."
        )
    validation, test = data.files.starts[-2 * count], data.files.starts[-count]
    if data.files.kind == "series":
        return _split_at(data, validation, test, history, lead, "file")
    frames, ends = range(len(data.time)), (0, validation, test, data.num_samples)
    parts = [(range(*pair), frames) for pair in pairwise(ends)]
    return _split(data, parts, history, lead, "file")


def _split(
    data: FieldData, parts: Sequence[tuple[range, range]], history: int, lead: int, kind: str
) -> Split:
    """Splits by ranges of samples and frames for training, validation and test."""
    is_even = even_steps(data.time, data.origin)
    training, validation, test = (_time_slices(*part, is_even, history, lead) for part in parts)
    if not (training and validation and test):
        raise _too_short(data, history, lead)
    return Split(training, validation, test, kind)


def _split_at(
    data: FieldData, validation: int, test: int, history: int, lead: int, kind: str
) -> Split:
    """Splits at the first validation frame and the first test frame."""
    is_even, gap = even_steps(data.time, data.origin), (history + 1) * lead
    samples = range(data.num_samples)
    ranges = (range(validation - gap), range(validation, test - gap), range(test, len(data.time)))
    parts = [_time_slices(samples, frames, is_even, history, lead) for frames in ranges]
    for name, part in zip(("training", "validation", "test"), parts, strict=True):
        if not part:
            raise ValueError(
                f"`data` must have {name} examples, got none: validation begins at frame "
                f"{validation} and the test at frame {test} of {len(data.time)}, and {gap} frames "
                f"before each are unused for history={history} and lead={lead}."
            )
    return Split(parts[0], parts[1], parts[2], kind)


def _first_frame(data: FieldData, name: str, text: str) -> int:
    """Returns the index of the first frame at or after a date or time."""
    try:
        time = data.time_of(text)
    except ValueError as error:
        raise ValueError(f"`{name}` {error}") from error
    frame = int(np.searchsorted(data.time, time - 1e-9 * max(1.0, abs(time))))
    if not 0 < frame < len(data.time):
        first, last = data.time[0], data.time[-1]
        ends = (f"{first:g}", f"{last:g}")
        if data.origin is not None:
            ends = tuple(data.origin.labels(np.array([first, last])))
        raise ValueError(
            f"`{name}` must lie within the data, which go from {ends[0]} to {ends[1]}, got {text}."
        )
    return frame


def split_range(count: int, fractions: tuple[float, float, float]) -> list[range]:
    """Splits `range(count)` into three consecutive ranges of these fractions, none empty."""
    test = max(1, round(count * fractions[2]))
    validation = max(1, round(count * fractions[1]))
    training = count - validation - test
    return [range(training), range(training, count - test), range(count - test, count)]


def _check_fractions(fractions: tuple[float, float, float]) -> None:
    if min(fractions) <= 0 or abs(sum(fractions) - 1) > 1e-9:
        raise ValueError(f"`fractions` must be positive and sum to 1, got {fractions}.")


def _time_slices(
    samples: Sequence[int], frames: range, is_even: np.ndarray, history: int, lead: int
) -> tuple[TimeSlice, ...]:
    """Returns all time slices inside `frames` that do not cross a gap in time."""
    span = history * lead
    starts = [s for s in range(frames.start, frames.stop - span) if is_even[s : s + span].all()]
    return tuple(
        TimeSlice(sample, start, start + span - lead, start + span)
        for sample in samples
        for start in starts
    )


def _too_short(data: FieldData, history: int, lead: int) -> ValueError:
    is_even = even_steps(data.time, data.origin)
    got = f"{len(data.time)} frames of {data.num_samples} trajectories"
    help_ = "Choose a shorter history or lead."
    if not is_even.all():
        step = format_step(data.time_step, data.time_units)
        got += f", between which {(~is_even).sum()} of {len(is_even)} steps are not {step} long"
        help_ = "Interpolate to regular times first, for example with xarray: ds.interp(time=...)."
    elif history == lead == 1:
        help_ = "Add frames, for example from several files: --data 'folder/*.nc'."
    return ValueError(
        f"`data` must have enough frames for history={history} and lead={lead} in all three "
        f"splits, got {got}. {help_}"
    )
