"""How frames follow each other: by steps of one length, or by calendar months.

A month has 28 to 31 days. To leave out all steps but those of the usual length would leave a monthly
series without history and with half of its examples.
"""

import numpy as np

from gpo.data.dates import TimeOrigin

MONTH = 730.485
"""Hours of a month in the mean over many years, which stands for the step of monthly frames."""
SHORTEST, LONGEST = 28 * 24 - 1.0, 31 * 24 + 1.0
"""Hours of a month, at least and at most."""
TOLERANCE = 1e-3
"""Part of a step by which another one of its length may differ."""


def usual_step(time: np.ndarray, origin: TimeOrigin | None) -> float:
    """Returns the commonest time from frame to frame; one where there is a single frame.

    Args:
        time: Times of the frames, increasing.
        origin: The date of time zero, where frames have dates; times are hours then.
    """
    steps = np.diff(time)
    if len(steps) == 0:
        return 1.0
    return MONTH if _are_months(steps, origin) else _commonest(steps)


def even_steps(time: np.ndarray, origin: TimeOrigin | None) -> np.ndarray:
    """Returns, for every step between frames, whether it is of the usual length, or a month."""
    steps = np.diff(time)
    if len(steps) == 0:
        return np.zeros(0, dtype=bool)
    if _are_months(steps, origin):
        return is_month(steps)
    usual = _commonest(steps)
    return np.abs(steps - usual) < TOLERANCE * usual


def later_times(
    start: float, num_steps: np.ndarray, step: float, origin: TimeOrigin | None
) -> np.ndarray:
    """Returns the times after some numbers of steps: dates of later months where a step is one.

    Args:
        start: Where counting begins.
        num_steps: How many steps.
        step: Length of one, as `usual_step` returns it.
        origin: The date of time zero, where there are dates.
    """
    if step == MONTH and origin is not None:
        return origin.months_later(start, num_steps)
    return start + num_steps * step


def is_month(steps: np.ndarray) -> np.ndarray:
    """Returns which steps, in hours, may be a month."""
    return (steps >= SHORTEST) & (steps <= LONGEST)


def spell_step(step: float, units: str) -> str:
    """Returns a step in words."""
    return "1 month" if step == MONTH else f"{step:g} {units or '(no units)'}"


def _commonest(steps: np.ndarray) -> float:
    """Returns the length that most steps have within the tolerance; of several the shortest."""
    middle = float(np.median(steps))
    if np.abs(steps - middle).max() < TOLERANCE * middle:
        return middle
    ordered = np.sort(steps)
    first = np.searchsorted(ordered, (1 - TOLERANCE) * ordered, side="right")
    last = np.searchsorted(ordered, (1 + TOLERANCE) * ordered, side="left")
    best = int(np.argmax(last - first))
    return float(np.median(ordered[first[best] : last[best]]))


def _are_months(steps: np.ndarray, origin: TimeOrigin | None) -> bool:
    """Tells whether most steps are months, and not all of one length: thirty days are no month."""
    if origin is None or np.ptp(steps) <= TOLERANCE * steps.max():
        return False
    found = steps[is_month(steps)]
    return len(found) > len(steps) / 2 and bool(np.ptp(found) > TOLERANCE * found.max())
