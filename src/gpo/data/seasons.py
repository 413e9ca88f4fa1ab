"""Time of day and month of frames, on which a climatology depends."""

from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from jaxtyping import Float

from gpo.data.dataset import FieldData
from gpo.data.dates import TimeOrigin
from gpo.data.steps import later_times

DAY_LENGTHS = {"s": 86400.0, "min": 1440.0, "h": 24.0, "d": 1.0}
"""Length of a day by unit of time."""


def seasons_of(
    data: FieldData, numbers: Sequence[int] | np.ndarray
) -> Float[np.ndarray, "frames 2"]:
    """Returns the time of day, as a fraction of it, and the month, from 0 to 11; NaN where unknown.

    Where frames have no dates, the time of day is counted from the zero of the time axis.

    Args:
        data: The time series.
        numbers: Frame indices; beyond the last frame, time continues at `time_step`.
    """
    numbers, last = np.asarray(numbers, dtype=int), len(data.time) - 1
    times, beyond = data.time[np.minimum(numbers, last)].astype(np.float64), numbers > last
    times[beyond] = later_times(
        float(data.time[-1]), numbers[beyond] - last, data.time_step, data.origin
    )
    seasons = np.full((len(numbers), 2), np.nan)
    day = DAY_LENGTHS.get(data.time_units)
    if day is not None:
        first = 0.0 if data.first_hour is None else data.first_hour / 24 - float(data.time[0]) / day
        seasons[:, 0] = (first + times / day) % 1
    if data.origin is not None and len(numbers):
        seasons[:, 1] = _months(data.origin, times.tobytes())
    return seasons


@lru_cache(maxsize=8)
def _months(origin: TimeOrigin, times: bytes) -> np.ndarray:
    """Returns months; cached, because dates of long series take seconds."""
    return origin.months(np.frombuffer(times))
