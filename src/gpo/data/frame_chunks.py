"""Frames in chunks that are small enough to be read at once."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from gpo.data.dataset import FieldData
from gpo.limits import MAX_CHUNK_VALUES


@dataclass(frozen=True)
class FrameChunk:
    """Consecutive frames of one sample."""

    sample: int
    frames: range

    def read(self, data: FieldData, sites: slice = slice(None)) -> np.ndarray:
        """Returns the values of these frames as (times, points, variables)."""
        return data.frames(self.sample, slice(self.frames.start, self.frames.stop), sites)


def frame_chunks(
    data: FieldData, frames: Mapping[int, Sequence[int]], most: int = MAX_CHUNK_VALUES
) -> list[FrameChunk]:
    """Groups frames into chunks of consecutive frames that are small enough to read at once.

    Args:
        data: The data set.
        frames: Increasing frame indices by sample.
        most: Maximum number of values in a chunk; a single frame may have more.
    """
    chunks: list[FrameChunk] = []
    for sample, numbers in frames.items():
        size = data.geometry(sample).num_points * len(data.variables)
        length = max(1, most // size)
        run = range(0)
        for number in numbers:
            if run and number == run.stop and len(run) < length:
                run = range(run.start, number + 1)
                continue
            if run:
                chunks.append(FrameChunk(sample, run))
            run = range(number, number + 1)
        if run:
            chunks.append(FrameChunk(sample, run))
    return chunks
