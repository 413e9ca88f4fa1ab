"""Climatology, and persistence of anomalies from it."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from scipy.spatial import KDTree
from torch import Tensor

from gpo.data.dataset import FieldData
from gpo.data.frame_chunks import frame_chunks
from gpo.data.seasons import DAY_LENGTHS, seasons_of
from gpo.data.splits import used_frames
from gpo.data.steps import even_steps
from gpo.forecast.examples import Example
from gpo.forecast.references import AbstractContinuation, ReferenceInputs, fitted_factor

MIN_MONTHLY_HOURS = 2 * 365 * 24 - 31 * 24.0
"""Time span of the training frames from which on the climatology is monthly: two years, less the
length of the last month."""
MAX_MEANS = 2**27
"""Maximum number of values of a climatology; for more, there is a single mean at each site."""
NUM_NEIGHBOURS = 4
"""Number of sites from which the climatology at another point is interpolated."""


_recent: deque[tuple[Any, tuple, Any]] = deque(maxlen=2)
"""The last data, samples and their climatology: training, weights and scores need the same two."""


@dataclass(frozen=True)
class Cycle:
    """The phases of a climatology: times of day, and months for long series."""

    num_times: int = 1
    """Number of times of day."""
    per_day: int = 1
    """Number of time steps in a day."""
    first: float = 0.0
    """Time of day of the first phase, as a fraction of the day."""
    num_months: int = 1
    """1 or 12."""

    @classmethod
    def of(cls, data: FieldData, frames: Sequence[int]) -> "Cycle":
        """Returns the phases that each occur at least twice in the training frames.

        A series shorter than a day has one time of day per frame. There is a single one where a day
        is not a whole number of steps.
        """
        seasons, cycle = seasons_of(data, frames), cls()
        day, step = DAY_LENGTHS.get(data.time_units), data.time_step
        per_day = 1 if day is None or not even_steps(data.time, data.origin).any() else day / step
        if round(per_day) > 1 and abs(per_day - round(per_day)) <= 1e-6 * per_day:
            count, first = round(per_day), float(seasons_of(data, [0])[0, 0])
            times = np.round((seasons[:, 0] - first) * count).astype(int) % count
            timed = cls(int(times.max()) + 1, count, first)
            cycle = timed if timed._is_sampled(seasons) else cycle
        if data.origin is not None and np.ptp(data.time[list(frames)]) >= MIN_MONTHLY_HOURS:
            monthly = cls(cycle.num_times, cycle.per_day, cycle.first, 12)
            cycle = monthly if monthly._is_sampled(seasons) else cycle
        return cycle

    @property
    def size(self) -> int:
        """Number of phases."""
        return self.num_times * self.num_months

    def phases(self, seasons: Float[Tensor, "*times 2"]) -> Tensor:
        """Returns the index of the phase at each time; later times of a short day have the last."""
        phase = torch.zeros(seasons.shape[:-1], dtype=torch.long, device=seasons.device)
        if self.per_day > 1:
            steps = ((seasons[..., 0] - self.first) * self.per_day).round().long() % self.per_day
            phase = steps.clamp(max=self.num_times - 1)
        return 12 * phase + seasons[..., 1].long() if self.num_months > 1 else phase

    def is_unknown(self, seasons: Float[Tensor, "*times 2"]) -> bool:
        """Returns whether times lack a date or time of day that the phase depends on."""
        needed = [self.per_day > 1, self.num_months > 1]
        return bool(seasons[..., needed].isnan().any())

    def _is_sampled(self, seasons: np.ndarray) -> bool:
        counts = np.bincount(self.phases(torch.from_numpy(seasons)).numpy(), minlength=self.size)
        return bool(counts.min() >= 2)


@dataclass(frozen=True)
class Climatology(AbstractContinuation):
    """Mean of the training frames at each site, by time of day and, for long series, by month."""

    coords: Float[Tensor, "points dim"]
    """The sites of the training data."""
    means: Float[Tensor, "phases points outputs"]
    cycle: Float[Tensor, " 4"]
    """The numbers of a `Cycle`."""

    @classmethod
    def fit(cls, inputs: ReferenceInputs) -> "Climatology | None":
        """Averages all training frames; returns None where sites differ or move."""
        data = inputs.data
        if inputs.is_map or len(data.geometries) > 1:
            return None
        for known, samples, means in _recent:
            if known is data and samples == tuple(inputs.samples):
                return replace(means, task=inputs.task)
        frames = used_frames(inputs.samples)
        cycle = Cycle.of(data, [number for numbers in frames.values() for number in numbers])
        geometry = data.geometry()
        if cycle.size * geometry.num_points * len(data.variables) > MAX_MEANS:
            cycle = Cycle()
        shape = (cycle.size, geometry.num_points, len(data.variables))
        total, counts = np.zeros(shape), np.zeros(shape, dtype=np.int32)
        for chunk in frame_chunks(data, frames):
            seasons = torch.from_numpy(seasons_of(data, chunk.frames))
            for phase, frame in zip(cycle.phases(seasons).tolist(), chunk.read(data), strict=True):
                is_finite = np.isfinite(frame)
                total[phase] += np.where(is_finite, frame, 0.0)
                counts[phase] += is_finite
        total /= np.maximum(counts, 1)
        numbers = [cycle.num_times, cycle.per_day, cycle.first, cycle.num_months]
        climatology = cls(
            inputs.task,
            coords=torch.from_numpy(geometry.coords).double(),
            means=torch.from_numpy(total),
            cycle=torch.tensor(numbers, dtype=torch.double),
        )
        _recent.append((data, tuple(inputs.samples), climatology))
        return climatology

    @property
    def damping(self) -> Tensor:
        """Zero: no anomaly persists."""
        return self.means.new_zeros(self.means.shape[-1])

    @property
    def phases(self) -> Cycle:
        """The phases of `means`."""
        times, per_day, first, months = self.cycle.tolist()
        return Cycle(int(times), int(per_day), first, int(months))

    def at(
        self,
        coords: Float[Tensor, "*#batch points dim"],
        seasons: Float[Tensor, "batch times 2"] | None,
    ) -> Float[Tensor, "#batch times points outputs"]:
        """Returns the means of some times, at the sites of training or between them."""
        if len(self.means) == 1:
            size = (1, 2) if seasons is None else seasons.shape[:2]
            fields = self.means.expand(*size, -1, -1)
        else:
            if seasons is None or self.phases.is_unknown(seasons):
                raise ValueError(
                    "The frames must have dates or times of day, on which the climatology depends: "
                    "a model trained with --no-blend needs none."
                )
            fields = self.means[self.phases.phases(seasons).to(self.means.device)]
        places = coords.reshape(-1, *coords.shape[-2:])[0].to(self.coords)
        if places.shape == self.coords.shape and torch.equal(places, self.coords):
            return fields
        index, weights = _neighbours(*(_Key(part.cpu().numpy()) for part in (self.coords, places)))
        return (fields[:, :, index] * weights[..., None]).sum(-2)

    def normal(self, coords, seasons) -> Tensor:  # noqa: ANN001
        """Returns the means of the last frame and of the target."""
        return self.at(coords, None if seasons is None else seasons[:, -2:])


@dataclass(frozen=True)
class DampedPersistence(AbstractContinuation):
    """The climatology of the target plus a fitted fraction of the last anomaly.

    This is the standard reference of seasonal forecasting.
    """

    coords: Float[Tensor, "points dim"]
    means: Float[Tensor, "phases points outputs"]
    cycle: Float[Tensor, " 4"]
    factor: Float[Tensor, " outputs"]

    @classmethod
    def fit(cls, inputs: ReferenceInputs) -> "DampedPersistence | None":
        """Fits a fraction for each variable by least squares."""
        climatology = Climatology.fit(inputs) if inputs.is_forecast else None
        if climatology is None:
            return None

        def pairs(example: Example) -> tuple[Tensor, Tensor]:
            now, later = climatology.normal(example.coords, example.seasons).unbind(1)
            return example.fields[:, -1] - now, example.target - later

        factor = fitted_factor(inputs, pairs)
        return cls(inputs.task, **climatology.tensors(), factor=factor)

    @property
    def climatology(self) -> Climatology:
        """The climatology from which anomalies are counted."""
        return Climatology(self.task, coords=self.coords, means=self.means, cycle=self.cycle)

    @property
    def damping(self) -> Tensor:
        """The fraction of the last anomaly that persists."""
        return self.factor

    def normal(self, coords, seasons) -> Tensor:  # noqa: ANN001
        """Returns the climatology of the last frame and of the target."""
        return self.climatology.normal(coords, seasons)


class _Key:
    """An array that can be the key of a cache."""

    def __init__(self, array: np.ndarray) -> None:
        self.array, self._bytes = array, array.tobytes()

    def __hash__(self) -> int:
        return hash(self._bytes)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Key) and self._bytes == other._bytes


@lru_cache(maxsize=4)
def _neighbours(sites: _Key, places: _Key) -> tuple[Tensor, Tensor]:
    """Returns the sites next to each place and their weights; a place on a site has that alone."""
    count = min(NUM_NEIGHBOURS, len(sites.array))
    nearest = KDTree(sites.array).query(places.array, k=count)
    distances, index = (np.reshape(part, (len(places.array), count)) for part in nearest)
    spacing = np.maximum(distances.mean(), 1e-300)
    weights = 1 / np.maximum(distances / spacing, 1e-9) ** 2
    weights = np.where(distances[:, :1] == 0, distances == 0, weights)
    return torch.from_numpy(index), torch.from_numpy(weights / weights.sum(-1, keepdims=True))
