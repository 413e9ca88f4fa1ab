"""Reference predictions without a model: the climatology of a series, the mean of static maps."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from gpo.data.dataset import StaticMaps, Trajectories, frame_chunks
from gpo.data.splits import TimeSlice, even_steps, touched_frames
from gpo.forecast.statistics import SiteMeans

DAY = {"s": 86400.0, "min": 1440.0, "h": 24.0, "d": 1.0}
"""Length of a day in the units that times may have."""


@dataclass(frozen=True)
class Climatology:
    """The mean of the training frames at every site, for every time of day where there are days."""

    means: Float[Tensor, "phases points variables"]
    phases: np.ndarray
    """Which mean belongs to a frame, by its number."""

    @classmethod
    def of(cls, data: Trajectories, windows: Sequence[TimeSlice]) -> "Climatology | None":
        """Averages all frames that training windows touch; None where sites differ or move."""
        if len(data.geometries) > 1:
            return None
        used = touched_frames(windows)
        phases = _times_of_day(data)
        counts = np.bincount([phases[frame] for frames in used.values() for frame in frames])
        if len(counts) <= phases.max() or counts.min() < 2:
            phases = np.zeros(len(data.time), dtype=int)
        shape = (phases.max() + 1, data.geometry().num_points, len(data.variables))
        total, known = np.zeros(shape), np.zeros(shape, dtype=np.int32)
        for part in frame_chunks(data, used):
            for phase, frame in zip(phases[list(part.frames)], part.read(data), strict=True):
                is_known = np.isfinite(frame)
                total[phase] += np.where(is_known, frame, 0.0)
                known[phase] += is_known
        total /= np.maximum(known, 1)
        return cls(torch.from_numpy(total), phases)

    def for_data(self, trained: Trajectories, other: Trajectories) -> "Climatology | None":
        """Returns the same means for the frames of other data; None where sites or days do not match.

        Args:
            trained: What the means are of.
            other: What they are compared with.
        """
        if len(other.geometries) > 1 or other.geometry().num_points != self.means.shape[1]:
            return None
        if len(self.means) == 1:
            return replace(self, phases=np.zeros(len(other.time), dtype=int))
        if trained.first_hour is None or other.first_hour is None:
            return None
        hours = other.first_hour - trained.first_hour + other.time - other.time[0]
        return replace(
            self, phases=np.round(hours / trained.time_step).astype(int) % len(self.means)
        )

    def at(self, frames: Sequence[int]) -> Float[Tensor, "frames points variables"]:
        """Returns the means that belong to frames of these numbers."""
        return self.means[torch.from_numpy(self.phases[list(frames)])]


def _times_of_day(data: Trajectories) -> np.ndarray:
    """Returns the index of the time of day of every frame; zeros where times have no days."""
    nothing = np.zeros(len(data.time), dtype=int)
    day = DAY.get(data.time_units)
    if day is None or len(data.time) < 2 or not even_steps(data.time).any():
        return nothing
    step = data.time_step
    per_day = round(day / step)
    if per_day < 2 or abs(per_day * step - day) > 1e-6 * day:
        return nothing
    return np.round((data.time - data.time[0]) / step).astype(int) % per_day


def training_mean(
    data: StaticMaps, numbers: Sequence[int], overall: Tensor
) -> Float[Tensor, "*points outputs"]:
    """Returns the mean output of static maps site by site, or `overall` where their sites differ."""
    means = SiteMeans.of(data, numbers)
    return overall if means is None else means.outputs
