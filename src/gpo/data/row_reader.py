"""Frames at some sites without the others: whole rows of a grid are read, the rest is cut off."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class RowReader:
    """Reads frames at a range of sites in grid order.

    Worker processes get a copy: `read` must be an object that can be pickled, and open its file
    anew every time.
    """

    read: Callable[[int, slice, slice], np.ndarray]
    """Reads frames of one trajectory at some rows: times by points of these rows by variables."""
    row_size: int = 1
    """Sites of a row, which is one entry along the first axis; 1 for scattered points."""

    def __call__(self, trajectory: int, times: slice, sites: slice = slice(None)) -> np.ndarray:
        """Returns times by points by variables.

        Args:
            trajectory: Whose.
            times: Which frames.
            sites: Which sites: all, or a first one and the one after the last.
        """
        if sites == slice(None):
            return self.read(trajectory, times, sites)
        first = sites.start // self.row_size
        rows = slice(first, -(-sites.stop // self.row_size))
        before = first * self.row_size
        part = self.read(trajectory, times, rows)
        return part[:, sites.start - before : sites.stop - before]
