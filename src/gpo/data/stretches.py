"""Frames in turn, some at a time: for passes over data that does not fit into memory."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from gpo.data.trajectories import Trajectories

MAX_NUMBERS = 2**23
"""Numbers that are read at a time; a single frame may have more."""


@dataclass(frozen=True)
class Stretch:
    """Frames of one trajectory that follow one another."""

    trajectory: int
    frames: range

    def read(self, data: Trajectories, sites: slice = slice(None)) -> np.ndarray:
        """Returns their values: times by points by variables."""
        return data.frames(self.trajectory, slice(self.frames.start, self.frames.stop), sites)


def stretches(
    data: Trajectories, frames: Mapping[int, Sequence[int]], most: int = MAX_NUMBERS
) -> list[Stretch]:
    """Returns all frames in stretches that can be read at once.

    Args:
        data: The time series.
        frames: Increasing numbers of frames, by trajectory.
        most: Numbers of a stretch, at most.
    """
    found: list[Stretch] = []
    for trajectory, numbers in frames.items():
        size = data.geometry(trajectory).num_points * len(data.variables)
        length = max(1, most // size)
        run = range(0)
        for number in numbers:
            if run and number == run.stop and len(run) < length:
                run = range(run.start, number + 1)
                continue
            if run:
                found.append(Stretch(trajectory, run))
            run = range(number, number + 1)
        if run:
            found.append(Stretch(trajectory, run))
    return found
