"""Time steps between frames: steps of one length, or calendar months.

Months have 28 to 31 days, so a monthly series would lose half of its examples if only steps of the
most frequent length were used. All calendar months therefore count as the same step.
"""

import numpy as np

from gpo.data.dates import TimeOrigin

MONTH = 730.485
"""Mean hours of a month, the nominal step of monthly frames."""
MIN_MONTH, MAX_MONTH = 28 * 24 - 1.0, 31 * 24 + 1.0
"""Shortest and longest month, in hours."""
TOLERANCE = 1e-3
"""Relative difference up to which two steps have the same length."""


def usual_step(time: np.ndarray, origin: TimeOrigin | None) -> float:
    """Returns the most frequent step between frames; 1 for a single frame.

    Args:
        time: Times of the frames, increasing.
        origin: Date of time zero if frames have dates; times are then in hours.
    """
    steps = np.diff(time)
    if len(steps) == 0:
        return 1.0
    return MONTH if _are_months(steps, origin) else _most_frequent(steps)


def even_steps(time: np.ndarray, origin: TimeOrigin | None) -> np.ndarray:
    """Returns whether each step between frames has the most frequent length, or is a month."""
    steps = np.diff(time)
    if len(steps) == 0:
        return np.zeros(0, dtype=bool)
    if _are_months(steps, origin):
        return is_month(steps)
    usual = _most_frequent(steps)
    return np.abs(steps - usual) < TOLERANCE * usual


def later_times(
    start: float, num_steps: np.ndarray, step: float, origin: TimeOrigin | None
) -> np.ndarray:
    """Returns the times after numbers of steps, by the calendar if the step is a month.

    Args:
        start: Time of the first frame.
        num_steps: Numbers of steps.
        step: Length of a step, as `usual_step` returns it.
        origin: Date of time zero, if frames have dates.
    """
    if step == MONTH and origin is not None:
        return origin.months_later(start, num_steps)
    return start + num_steps * step


def is_month(steps: np.ndarray) -> np.ndarray:
    """Returns which steps, in hours, have the length of a month."""
    return (steps >= MIN_MONTH) & (steps <= MAX_MONTH)


def format_step(step: float, units: str) -> str:
    """Returns a time step as text; less than an hour in minutes."""
    if units == "h" and step < 1 - TOLERANCE:
        step, units = 60 * step, "min"
    return "1 month" if step == MONTH else f"{step:g} {units or '(no units)'}"


def _most_frequent(steps: np.ndarray) -> float:
    """Returns the length that most steps have within the tolerance; the shortest of several."""
    middle = float(np.median(steps))
    if np.abs(steps - middle).max() < TOLERANCE * middle:
        return middle
    ordered = np.sort(steps)
    first = np.searchsorted(ordered, (1 - TOLERANCE) * ordered, side="right")
    last = np.searchsorted(ordered, (1 + TOLERANCE) * ordered, side="left")
    best = int(np.argmax(last - first))
    return float(np.median(ordered[first[best] : last[best]]))


def _are_months(steps: np.ndarray, origin: TimeOrigin | None) -> bool:
    """Returns whether most steps are months; steps that all have one length are not."""
    if origin is None or np.ptp(steps) <= TOLERANCE * steps.max():
        return False
    months = steps[is_month(steps)]
    return len(months) > len(steps) / 2 and bool(np.ptp(months) > TOLERANCE * months.max())
