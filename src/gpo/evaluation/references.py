"""Reference forecasts, which need no trained model: persistence, trend, climatology, training mean."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from gpo.data.dataset import FieldData
from gpo.data.frame_chunks import frame_chunks
from gpo.data.splits import TimeSlice, used_frames
from gpo.data.steps import even_steps
from gpo.evaluation.registry import REFERENCES
from gpo.forecast.examples import Example
from gpo.forecast.forecaster import Forecaster
from gpo.forecast.statistics import SiteMeans

if TYPE_CHECKING:
    from gpo.evaluation.rollout import Rollout

DAY_LENGTHS = {"s": 86400.0, "min": 1440.0, "h": 24.0, "d": 1.0}
"""Length of a day by unit of time."""
MIN_MONTHLY_HOURS = 2 * 365 * 24 - 31 * 24.0
"""Time span of the training frames from which on the climatology is monthly: two years, less the
length of the last month."""


@dataclass(frozen=True, kw_only=True)
class ReferenceInputs:
    """The data and the task for which a reference forecast is built."""

    forecaster: Forecaster
    """The trained model; a reference uses its task and normalisation."""
    data: FieldData
    """The data that are scored."""
    training_data: FieldData
    """The data of the training split; the same as `data` unless another file is scored."""
    training_samples: Sequence[Any]
    """The training split."""
    validation_samples: Sequence[Any] = ()
    """The validation split."""

    @property
    def is_forecast(self) -> bool:
        """Whether later frames of a time series are predicted."""
        return self.forecaster.task.lead > 0


@dataclass(frozen=True)
class Reference:
    """A reference forecast."""

    predict: Callable[[Example, Sequence[Any]], Tensor]
    """Predicts the targets of a batch; the second argument has its time slices or map numbers."""
    roll_out: "Callable[[Rollout], Tensor] | None" = None
    """Predicts all steps of a rollout; None leaves the reference out of rollouts."""


PERSISTENCE = Reference(
    lambda batch, _: batch.fields[:, -1],
    lambda rollout: rollout.persistence,
)
"""The last input frame, as the forecast of each step."""


def build_references(inputs: ReferenceInputs) -> dict[str, Reference]:
    """Returns the registered references that apply, by name."""
    built = {name: build(inputs) for name, build in REFERENCES.items()}
    return {name: reference for name, reference in built.items() if reference is not None}


def build_training_mean(inputs: ReferenceInputs) -> Reference | None:
    """Returns the mean output of static maps: at each site, or overall where their sites differ."""
    if inputs.training_samples[0].lead > 0:
        return None
    means = SiteMeans.of(inputs.training_data, inputs.training_samples)
    mean = inputs.forecaster.output_mean if means is None else means.outputs
    if mean.ndim > 1 and len(mean) != inputs.data.geometry().num_points:
        mean = mean.mean(0)
    return Reference(lambda batch, _: mean.expand_as(batch.target))


def build_persistence(inputs: ReferenceInputs) -> Reference | None:
    """Returns persistence, where later frames are predicted."""
    return PERSISTENCE if inputs.is_forecast else None


def build_trend(inputs: ReferenceInputs) -> Reference | None:
    """Returns the last frame plus the fitted fraction of its last change; not rolled out."""
    forecaster = inputs.forecaster
    if not inputs.is_forecast or not forecaster.task.trend:
        return None

    def predict(batch: Example, _: Sequence[Any]) -> Tensor:
        values = forecaster.normalised_input(batch.frames)
        return forecaster.denormalised(forecaster.continued(values))

    return Reference(predict)


def build_climatology(inputs: ReferenceInputs) -> Reference | None:
    """Returns the climatology of the training data, where its sites and times match the scored data."""
    data, training_data = inputs.data, inputs.training_data
    if inputs.training_samples[0].lead == 0:
        return None
    climatology = Climatology.of(training_data, inputs.training_samples)
    if climatology is not None and training_data is not data:
        climatology = climatology.for_data(training_data, data)
    if climatology is None:
        return None
    means, uses_last = climatology, not inputs.is_forecast

    def predict(_: Example, time_slices: Sequence[TimeSlice]) -> Tensor:
        return means.at([part.last if uses_last else part.target for part in time_slices])

    return Reference(predict, lambda rollout: means.at(rollout.frames))


@dataclass(frozen=True)
class Climatology:
    """Mean of the training frames at each site, by time of day and, for long series, by month."""

    means: Float[Tensor, "phases points variables"]
    phases: np.ndarray
    """Index into `means`, by frame."""
    is_monthly: bool = False
    """Whether there are twelve means per time of day, one for each month."""

    @classmethod
    def of(cls, data: FieldData, windows: Sequence[TimeSlice]) -> "Climatology | None":
        """Averages all frames of the training time slices; returns None where sites differ or move."""
        if len(data.geometries) > 1:
            return None
        frames_by_trajectory = used_frames(windows)
        frames = np.array([frame for numbers in frames_by_trajectory.values() for frame in numbers])
        phases, num_phases, is_monthly = np.zeros(len(data.time), dtype=int), 1, False
        times_of_day, per_day = _times_of_day(data)
        if _are_sampled(times_of_day[frames], per_day):
            phases, num_phases = times_of_day, per_day
        if data.origin is not None and np.ptp(data.time[frames]) >= MIN_MONTHLY_HOURS:
            by_month = 12 * times_of_day + data.origin.months(data.time)
            if _are_sampled(by_month[frames], 12 * per_day):
                phases, num_phases, is_monthly = by_month, 12 * per_day, True
        shape = (num_phases, data.geometry().num_points, len(data.variables))
        total, counts = np.zeros(shape), np.zeros(shape, dtype=np.int32)
        for chunk in frame_chunks(data, frames_by_trajectory):
            for phase, frame in zip(phases[list(chunk.frames)], chunk.read(data), strict=True):
                is_finite = np.isfinite(frame)
                total[phase] += np.where(is_finite, frame, 0.0)
                counts[phase] += is_finite
        total /= np.maximum(counts, 1)
        return cls(torch.from_numpy(total), phases, is_monthly)

    def for_data(self, trained: FieldData, other: FieldData) -> "Climatology | None":
        """Returns the same means for the frames of other data; None where sites or times do not match.

        Args:
            trained: The data that were averaged.
            other: The data that are scored.
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
        """Returns the means that belong to the frames with these indices."""
        return self.means[torch.from_numpy(self.phases[list(frames)])]


def _times_of_day(data: FieldData) -> tuple[np.ndarray, int]:
    """Returns the index of the time of day of each frame, and the number of such times.

    The number is 1 where a day is not a whole number of steps. A series shorter than a day has one time
    of day per frame.
    """
    no_times = np.zeros(len(data.time), dtype=int), 1
    day, step = DAY_LENGTHS.get(data.time_units), data.time_step
    if day is None or len(data.time) < 2 or not even_steps(data.time, data.origin).any():
        return no_times
    per_day = round(day / step)
    if per_day < 2 or abs(per_day * step - day) > 1e-6 * day:
        return no_times
    phases = np.round((data.time - data.time[0]) / step).astype(int) % per_day
    return phases, int(phases.max()) + 1


def _are_sampled(phases: np.ndarray, num_phases: int) -> bool:
    """Returns whether each phase occurs at least twice in the training frames."""
    return bool(np.bincount(phases, minlength=num_phases).min() >= 2)
