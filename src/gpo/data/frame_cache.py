"""Frames of small data sets are kept in memory, so that their files are read once."""

from bisect import bisect_right
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Any

import numpy as np

from gpo.data.dataset import FieldData, RowReader
from gpo.limits import MAX_CHUNK_VALUES, max_bytes

MAX_CACHED_BYTES = 2**30
"""Maximum size of all frames of a data set that are kept in memory; a smaller `GPO_MAX_BYTES` lowers
it. The frames of larger data sets are read from the file at each access."""
MAX_PARTS = 64
"""Maximum number of processes of which each keeps its part of the sites."""


def cached(data: FieldData) -> FieldData:
    """Returns the same data, whose frames are kept in memory once read, unless they are too large."""
    return replace(data, fetch=RowReader(FrameCache(data)))


def is_large(data: FieldData, num_parts: int = 1, item_size: int | None = None) -> bool:
    """Returns whether the frames, or a part of their sites, take more than `MAX_CACHED_BYTES`.

    Args:
        data: The data set.
        num_parts: Number of equal parts of the sites.
        item_size: Bytes of a value; by default as in the file.
    """
    counts = [geometry.num_points for geometry in data.geometries]
    num_points = sum(counts) if len(counts) > 1 else data.num_samples * counts[0]
    num_values = num_points * len(data.time) * len(data.variables) / num_parts
    size = data.number_type.itemsize if item_size is None else item_size
    return size * num_values > min(MAX_CACHED_BYTES, max_bytes())


@dataclass
class FrameCache:
    """Reads frames in blocks of consecutive frames, and keeps these.

    Of large data it keeps the part of the sites that a process reads, if that is not large.
    """

    data: FieldData
    blocks: dict[tuple[int, int, int, int], np.ndarray] = field(default_factory=dict)
    """Blocks by sample, first frame, first and last site."""

    def __call__(self, sample: int, times: slice, sites: slice) -> np.ndarray:
        """Returns a copy of frames as (times, points, variables).

        Args:
            sample: Index of the sample.
            times: Slice of frame indices.
            sites: Slice of site indices.
        """
        num_points, numbers = self.data.geometry(sample).num_points, range(len(self.data.time))
        start, stop, _ = sites.indices(num_points)
        # Values take single precision at least.
        if not is_large(self.data, item_size=4):
            return self._read(sample, numbers[times], slice(0, num_points))[:, sites]
        num_parts = num_points // max(1, stop - start)
        if num_parts > MAX_PARTS or is_large(self.data, num_parts, item_size=4):
            return self.data.frames(sample, times, sites)
        return self._read(sample, numbers[times], slice(start, stop))

    def _read(self, sample: int, numbers: range, sites: slice) -> np.ndarray:
        """Returns a copy of frames, from blocks in memory."""
        size = (sites.stop - sites.start) * len(self.data.variables)
        length = max(1, MAX_CHUNK_VALUES // size)
        parts = [
            self._block(sample, block, sites)[[number - block.start for number in inside]]
            for block, inside in groupby(numbers, lambda number: self._range(number, length))
        ]
        if not parts:
            return self._block(sample, self._range(0, length), sites)[:0]
        return np.concatenate(parts) if len(parts) > 1 else parts[0]

    def _range(self, frame: int, length: int) -> range:
        """Returns the block of a frame; blocks do not reach into another file."""
        files, num_frames = self.data.files, len(self.data.time)
        starts = files.starts if files is not None and files.kind == "series" else (0,)
        number = bisect_right(starts, frame)
        first = frame - (frame - starts[number - 1]) % length
        return range(first, min(first + length, *starts[number : number + 1], num_frames))

    def _block(self, sample: int, frames: range, sites: slice) -> np.ndarray:
        """Returns a block of frames, reading it if it is not in memory."""
        key = sample, frames.start, sites.start, sites.stop
        if key in self.blocks:
            return self.blocks[key]
        values = self.data.frames(sample, slice(frames.start, frames.stop), sites)
        num_parts = self.data.geometry(sample).num_points // (sites.stop - sites.start)
        if not is_large(self.data, num_parts, values.dtype.itemsize):
            self.blocks[key] = values
        return values

    def __getstate__(self) -> dict[str, Any]:
        """Leaves out the frames: other processes read those that they need."""
        return {"data": self.data, "blocks": {}}
