r"""The time of day, which a model may be given: known of any frame in advance, never predicted.

A clock has one hand that goes round once a day: $(\cos\varphi,\sin\varphi)$ with
$\varphi=2\pi\,\mathrm{hour}/24$, where the hour is that of the dates in the file.
"""

import math
from typing import Literal

import numpy as np

Clock = Literal["none", "day"]

HAND = ("day_cos", "day_sin")
"""Names of the two numbers."""


def hands_at(hours: np.ndarray) -> np.ndarray:
    """Returns where the hand stands at hours since a midnight, times by two numbers."""
    angles = hours * turn(1.0)
    return np.stack([np.cos(angles), np.sin(angles)], -1)


def turn(hours: float) -> float:
    """Returns the angle by which the hand turns in so many hours."""
    return 2 * math.pi * hours / 24
