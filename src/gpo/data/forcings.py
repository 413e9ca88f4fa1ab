r"""Time features: forcings that follow from the date of a frame.

A forcing is an input of a model that is known in advance and never predicted. The time features
so far are those of the daily cycle, $(\cos\varphi,\sin\varphi)$ with
$\varphi=2\pi\,\mathrm{hour}/24$ and the hour of the dates in the file.
"""

import math
from typing import Literal

import numpy as np

TimeFeatures = Literal["none", "day"]

DAY_CYCLE = ("day_cos", "day_sin")
"""Names of the two forcings of the daily cycle."""


def day_cycle(hours: np.ndarray) -> np.ndarray:
    """Returns cosine and sine of the time of day, times by two.

    Args:
        hours: Hours since a midnight.
    """
    angles = hours * day_angle(1.0)
    return np.stack([np.cos(angles), np.sin(angles)], -1)


def day_angle(hours: float) -> float:
    """Returns the angle by which the daily cycle advances in so many hours."""
    return 2 * math.pi * hours / 24
