"""Training, validation and test splits without leakage: which frames predict which.

A time slice is `history` frames, `lead` steps apart, that predict the frame `lead` steps after
the last of them; so a forecast can be fed with itself. Time slices of one trajectory stay in one
split. Where a single series is split by time, its parts lie apart by the length of a time slice
and a lead, (history + 1) lead frames, so that no frame is in two splits or next to another one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Generic, TypeVar

import numpy as np

from gpo.data.dataset import StaticMaps, Trajectories
from gpo.data.steps import even_steps, spell_step

Member = TypeVar("Member")


@dataclass(frozen=True)
class TimeSlice:
    """One example: frames `first` to `last` of a trajectory predict frame `target`."""

    trajectory: int
    first: int
    last: int
    target: int

    @property
    def lead(self) -> int:
        """Steps from the last frame that predicts to the one predicted."""
        return self.target - self.last

    @property
    def inputs(self) -> range:
        """Numbers of the frames that predict."""
        return range(self.first, self.last + 1, self.lead)


@dataclass(frozen=True)
class Split(Generic[Member]):
    """Members to train on, to choose and stop by, and to score once."""

    training: tuple[Member, ...]
    validation: tuple[Member, ...]
    test: tuple[Member, ...]
    kind: str
    """trajectory, time, date, file or sample."""


def owner(member: TimeSlice | int) -> int:
    """Returns the trajectory of a time slice, or the sample of a static map."""
    return member.trajectory if isinstance(member, TimeSlice) else member


def touched_frames(time_slices: Sequence[TimeSlice]) -> dict[int, list[int]]:
    """Returns the distinct frames that time slices read or predict, by trajectory."""
    touched: dict[int, set[int]] = {}
    for time_slice in time_slices:
        touched.setdefault(time_slice.trajectory, set()).update(
            (*time_slice.inputs, time_slice.target)
        )
    return {number: sorted(frames) for number, frames in touched.items()}


def evenly(members: Sequence[Member], most: int) -> list[Member]:
    """Returns at most `most` members, evenly spaced, including the first and the last."""
    numbers = np.unique(np.linspace(0, len(members) - 1, most).round().astype(int))
    return [members[number] for number in numbers.tolist()]


def split_time_slices(
    data: Trajectories,
    *,
    history: int = 1,
    lead: int = 1,
    fractions: tuple[float, float, float] = (0.8, 0.1, 0.1),
) -> Split[TimeSlice]:
    """Splits time slices by trajectory where there are at least three, else by time.

    Args:
        data: The time series.
        history: Frames that predict, `lead` steps apart.
        lead: Steps from the last of them to the predicted frame.
        fractions: Of training, validation and test; they sum to one.
    """
    if history < 1 or lead < 1:
        raise ValueError(
            f"`history` and `lead` must be at least 1, got history={history}, lead={lead}."
        )
    _check_fractions(fractions)
    is_even = even_steps(data.time, data.origin)
    if data.num_trajectories >= 3:
        ranges = split_range(data.num_trajectories, fractions)
        every = range(len(data.time))
        parts = [_time_slices(numbers, every, is_even, history, lead) for numbers in ranges]
        kind = "trajectory"
    else:
        numbers = range(data.num_trajectories)
        gap = (history + 1) * lead
        usable = len(data.time) - 2 * gap
        if usable < 3:
            raise _too_short(data, history, lead)
        parts = []
        for number, frames in enumerate(split_range(usable, fractions)):
            moved = range(frames.start + number * gap, frames.stop + number * gap)
            parts.append(_time_slices(numbers, moved, is_even, history, lead))
        kind = "time"
    if not all(parts):
        raise _too_short(data, history, lead)
    return Split(parts[0], parts[1], parts[2], kind)


def all_time_slices(data: Trajectories, *, history: int, lead: int) -> tuple[TimeSlice, ...]:
    """Returns the time slices of a whole series, none of which crosses a gap in time."""
    frames = range(len(data.time))
    found = _time_slices(
        range(data.num_trajectories), frames, even_steps(data.time, data.origin), history, lead
    )
    if not found:
        raise ValueError(
            f"{data.source} must have more than {history * lead} frames in a row for "
            f"history={history} and lead={lead}, got {len(data.time)}."
        )
    return found


def split_by_date(
    data: Trajectories,
    validation_from: str | None,
    test_from: str,
    *,
    history: int = 1,
    lead: int = 1,
) -> Split[TimeSlice]:
    """Splits all trajectories at two times; each part ends a time slice and a lead early.

    Args:
        data: The time series.
        validation_from: Date or time of the first validation frame; the last tenth of the frames
            before the test is for validation when not given.
        test_from: Date or time of the first test frame.
        history: Frames that predict, `lead` steps apart.
        lead: Steps from the last of them to the predicted frame.
    """
    test = _first_frame(data, "test_from", test_from)
    if validation_from is None:
        validation = test - max(1, round(0.1 * test))
    else:
        validation = _first_frame(data, "validation_from", validation_from)
    return _split_at(data, validation, test, history, lead, "date")


def split_by_file(
    data: Trajectories, count: int, *, history: int = 1, lead: int = 1
) -> Split[TimeSlice]:
    """Tests on the last files, and validates on as many before them.

    Args:
        data: The time series of several files.
        count: How many files.
        history: Frames that predict, `lead` steps apart.
        lead: Steps from the last of them to the predicted frame.
    """
    num_files = 1 if data.files is None else len(data.files.starts)
    if data.files is None or num_files < 2 * count + 1:
        raise ValueError(
            f"`test_files` must leave files to train on: {count} for the test and {count} for "
            f"validation, but {data.source} is {num_files} file(s)."
        )
    validation, test = data.files.starts[-2 * count], data.files.starts[-count]
    if data.files.kind == "series":
        return _split_at(data, validation, test, history, lead, "file")
    is_even, every = even_steps(data.time, data.origin), range(len(data.time))
    ends = (0, validation, test, data.num_trajectories)
    parts = [_time_slices(range(*pair), every, is_even, history, lead) for pair in pairwise(ends)]
    if not all(parts):
        raise _too_short(data, history, lead)
    return Split(parts[0], parts[1], parts[2], "file")


def _split_at(
    data: Trajectories, validation: int, test: int, history: int, lead: int, kind: str
) -> Split[TimeSlice]:
    """Splits at two frames, at which validation and test begin."""
    is_even, gap = even_steps(data.time, data.origin), (history + 1) * lead
    numbers = range(data.num_trajectories)
    ranges = (range(validation - gap), range(validation, test - gap), range(test, len(data.time)))
    parts = [_time_slices(numbers, frames, is_even, history, lead) for frames in ranges]
    for name, part in zip(("training", "validation", "test"), parts, strict=True):
        if not part:
            raise ValueError(
                f"`data` must have {name} examples, got none: validation begins at frame "
                f"{validation} and the test at frame {test} of {len(data.time)}, and {gap} frames "
                f"before each are left out for history={history} and lead={lead}."
            )
    return Split(parts[0], parts[1], parts[2], kind)


def _first_frame(data: Trajectories, name: str, text: str) -> int:
    """Returns the number of the first frame at or after a date, or a time where there are none."""
    try:
        time = data.time_of(text)
    except ValueError as error:
        raise ValueError(f"`{name}` {error}") from error
    found = int(np.searchsorted(data.time, time - 1e-9 * max(1.0, abs(time))))
    if not 0 < found < len(data.time):
        first, last = data.time[0], data.time[-1]
        ends = (f"{first:g}", f"{last:g}")
        if data.origin is not None:
            ends = tuple(data.origin.labels(np.array([first, last])))
        raise ValueError(
            f"`{name}` must lie within the data, which go from {ends[0]} to {ends[1]}, got {text}."
        )
    return found


def split_samples(
    data: StaticMaps, *, fractions: tuple[float, float, float] = (0.8, 0.1, 0.1)
) -> Split[int]:
    """Returns the numbers of the samples of all splits, in the order of the file."""
    _check_fractions(fractions)
    if data.num_samples < 3:
        raise ValueError(
            f"`data` must have at least 3 samples, one for each split, got {data.num_samples}."
        )
    training, validation, test = (tuple(part) for part in split_range(data.num_samples, fractions))
    return Split(training, validation, test, "sample")


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
    trajectories: Sequence[int], frames: range, is_even: np.ndarray, history: int, lead: int
) -> tuple[TimeSlice, ...]:
    """Returns all time slices inside `frames` that cross no gap in time."""
    span = history * lead
    starts = [s for s in range(frames.start, frames.stop - span) if is_even[s : s + span].all()]
    return tuple(
        TimeSlice(trajectory, start, start + span - lead, start + span)
        for trajectory in trajectories
        for start in starts
    )


def _too_short(data: Trajectories, history: int, lead: int) -> ValueError:
    is_even = even_steps(data.time, data.origin)
    got = f"{len(data.time)} frames of {data.num_trajectories} trajectories"
    help_ = "Choose a shorter history or lead."
    if not is_even.all():
        step = spell_step(data.time_step, data.time_units)
        got += f", between which {(~is_even).sum()} of {len(is_even)} steps are not {step} long"
        help_ = "Write them at even times first, such as ds.interp(time=...) of xarray does."
    elif history == lead == 1:
        help_ = "Give more of them, in several files perhaps: --data 'folder/*.nc'."
    return ValueError(
        f"`data` must have enough frames for history={history} and lead={lead} in all three "
        f"splits, got {got}. {help_}"
    )
