"""Reference predictions without a model: the climatology of a series, the mean of static maps."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from gpo.data.dataset import StaticMaps, Trajectories, frame_chunks
from gpo.data.splits import TimeSlice, touched_frames
from gpo.data.steps import even_steps
from gpo.forecast.statistics import SiteMeans

DAY = {"s": 86400.0, "min": 1440.0, "h": 24.0, "d": 1.0}
"""Length of a day in the units that times may have."""
YEARS = 2 * 365 * 24 - 31 * 24.0
"""Hours from the first to the last training frame from which on there is a climatology by month:
two years, whose last month may begin at its end."""


@dataclass(frozen=True)
class Climatology:
    """The mean of the training frames at every site, by time of day and, over years, by month."""

    means: Float[Tensor, "phases points variables"]
    phases: np.ndarray
    """Which mean belongs to a frame, by its number."""
    is_monthly: bool = False
    """Whether every month has means of its own, twelve for every time of day."""

    @classmethod
    def of(cls, data: Trajectories, windows: Sequence[TimeSlice]) -> "Climatology | None":
        """Averages all frames that training windows touch; None where sites differ or move."""
        if len(data.geometries) > 1:
            return None
        used = touched_frames(windows)
        frames = np.array([frame for frames in used.values() for frame in frames])
        phases, per_day = _times_of_day(data)
        found = np.zeros(len(data.time), dtype=int), 1, False
        if _are_known(phases[frames], per_day):
            found = phases, per_day, False
        if data.origin is not None and np.ptp(data.time[frames]) >= YEARS:
            by_month = 12 * phases + data.origin.months(data.time)
            if _are_known(by_month[frames], 12 * per_day):
                found = by_month, 12 * per_day, True
        phases, count, is_monthly = found
        shape = (count, data.geometry().num_points, len(data.variables))
        total, known = np.zeros(shape), np.zeros(shape, dtype=np.int32)
        for part in frame_chunks(data, used):
            for phase, frame in zip(phases[list(part.frames)], part.read(data), strict=True):
                is_known = np.isfinite(frame)
                total[phase] += np.where(is_known, frame, 0.0)
                known[phase] += is_known
        total /= np.maximum(known, 1)
        return cls(torch.from_numpy(total), phases, is_monthly)

    def for_data(self, trained: Trajectories, other: Trajectories) -> "Climatology | None":
        """Returns the same means for the frames of other data; None where sites or days do not match.

        Args:
            trained: What the means are of.
            other: What they are compared with.
        """
        if len(other.geometries) > 1 or other.geometry().num_points != self.means.shape[1]:
            return None
        phases = np.zeros(len(other.time), dtype=int)
        per_day = len(self.means) // (12 if self.is_monthly else 1)
        if per_day > 1:
            if trained.first_hour is None or other.first_hour is None:
                return None
            hours = other.first_hour - trained.first_hour + other.time - other.time[0]
            phases = np.round(hours / trained.time_step).astype(int) % per_day
        if self.is_monthly:
            if other.origin is None:
                return None
            phases = 12 * phases + other.origin.months(other.time)
        return replace(self, phases=phases)

    def at(self, frames: Sequence[int]) -> Float[Tensor, "frames points variables"]:
        """Returns the means that belong to frames of these numbers."""
        return self.means[torch.from_numpy(self.phases[list(frames)])]


def _times_of_day(data: Trajectories) -> tuple[np.ndarray, int]:
    """Returns the index of the time of day of every frame, and how many there are; one without days.

    Series that are shorter than a day have as many as frames.
    """
    nothing = np.zeros(len(data.time), dtype=int), 1
    day, step = DAY.get(data.time_units), data.time_step
    if day is None or len(data.time) < 2 or not even_steps(data.time, data.origin).any():
        return nothing
    per_day = round(day / step)
    if per_day < 2 or abs(per_day * step - day) > 1e-6 * day:
        return nothing
    phases = np.round((data.time - data.time[0]) / step).astype(int) % per_day
    return phases, int(phases.max()) + 1


def _are_known(phases: np.ndarray, count: int) -> bool:
    """Tells whether training frames have every phase at least twice."""
    return bool(np.bincount(phases, minlength=count).min() >= 2)


def training_mean(
    data: StaticMaps, numbers: Sequence[int], overall: Tensor
) -> Float[Tensor, "*points outputs"]:
    """Returns the mean output of static maps site by site, or `overall` where their sites differ."""
    means = SiteMeans.of(data, numbers)
    return overall if means is None else means.outputs
