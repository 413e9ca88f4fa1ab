r"""Reference forecasts, which need no trained model: one class each, with the interface of a forecast.

A reference predicts the next frame from the last frames and their seasons, and is rolled out like a
model (`rollout.py`). Those that continue each point from its own past are

$\hat u' = c' + \alpha (u - c) + \tau (u - u_{-1})$

with a climatology $c$ and factors $\alpha$ and $\tau$ for each variable. These are also what a model
may add its increment to.
"""

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar

import torch
from jaxtyping import Float, Num
from torch import Tensor

from gpo.data.dataset import FieldData
from gpo.data.splits import TimeSlice, evenly
from gpo.forecast.examples import Example, TimeSliceExamples, rollout_starts
from gpo.forecast.registry import REFERENCES
from gpo.forecast.rollout import AbstractForecast
from gpo.forecast.statistics import SiteMeans
from gpo.forecast.task import Task

MAX_EXAMPLES = 1024
"""Maximum number of examples to which factors are fitted; they are evenly spaced."""
MAX_VALUES = 2**26
"""Maximum number of values of these examples together."""
HELD_OUT = 5
"""Inverse of the fraction of the training examples on which references are judged."""
MIN_HELD_OUT = 8
"""Minimum number of these examples, if that is not more than half of all."""


@dataclass(frozen=True, kw_only=True)
class ReferenceInputs:
    """What a reference forecast is fitted to: training data only."""

    task: Task
    data: FieldData
    samples: Sequence[TimeSlice]
    """The training split."""
    input_mean: Float[Tensor, "*sites inputs"]
    """Means of the inputs, for each site where static maps share them."""
    output_mean: Float[Tensor, "*sites outputs"]

    @property
    def is_forecast(self) -> bool:
        """Whether later frames of a time series are predicted."""
        return self.task.lead > 0

    @property
    def is_map(self) -> bool:
        """Whether static maps are predicted, which have no times."""
        return not self.data.has_time

    @property
    def reconstructs(self) -> bool:
        """Whether the target is the last input frame of a time series."""
        return not self.is_forecast and not self.is_map

    @property
    def num_held_out(self) -> int:
        """Number of examples at the end of the training data on which references are judged."""
        count = len(self.samples)
        return max(count // HELD_OUT, min(count // 2, MIN_HELD_OUT))

    def earlier(self) -> "ReferenceInputs":
        """Returns the same without the examples that are held out, and without those that overlap."""
        gap = self.task.history * self.task.lead
        stop = len(self.samples) - self.num_held_out
        return replace(self, samples=self.samples[: max(1, stop - gap)])

    def examples(self, most: int = MAX_EXAMPLES, num_steps: int = 1) -> Iterable[Example]:
        """Yields evenly spaced training examples that have values.

        Args:
            most: Maximum number of examples.
            num_steps: Number of targets; fewer where no example is followed by as many.
        """
        size = self.data.geometry().num_points * self.task.history * len(self.task.inputs)
        while num_steps > 1 and not rollout_starts(self.samples, num_steps):
            num_steps -= 1
        examples = TimeSliceExamples(self.data, self.samples, num_steps=num_steps)
        numbers = evenly(range(len(examples)), max(2, min(most, MAX_VALUES // size)))
        yield from (e for e in map(examples.__getitem__, numbers) if e.weights.any())


@dataclass(frozen=True)
class AbstractReference(AbstractForecast):
    """A forecast without a trained model; all fields but the task are tensors."""

    uses_forcings: ClassVar[bool] = False
    """Whether the prediction depends on forcings."""
    task: Task

    @classmethod
    @abstractmethod
    def fit(cls, inputs: ReferenceInputs) -> "AbstractReference | None":
        """Returns the reference fitted to training data; None where it does not apply."""

    def applies_to(self, num_points: int) -> bool:
        """Returns whether the reference can predict at as many points."""
        return True

    def tensors(self) -> dict[str, Tensor]:
        """Returns what was fitted, by name."""
        named = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in named.items() if isinstance(value, Tensor)}


def fit_references(
    inputs: ReferenceInputs, names: Sequence[str] | None = None
) -> dict[str, AbstractReference]:
    """Returns the registered references that apply, by name; all of them unless named."""
    fitted = {name: REFERENCES[name].fit(inputs) for name in names or REFERENCES}
    return {name: reference for name, reference in fitted.items() if reference is not None}


@dataclass(frozen=True)
class TrainingMean(AbstractReference):
    """The mean output of static maps: at each site, or overall where their sites differ."""

    mean: Float[Tensor, "*sites outputs"]

    @classmethod
    def fit(cls, inputs: ReferenceInputs) -> "TrainingMean | None":
        """Averages the outputs; returns None for time series."""
        if not inputs.is_map:
            return None
        means = SiteMeans.of(inputs.data, inputs.samples)
        return cls(inputs.task, inputs.output_mean if means is None else means.outputs)

    def __call__(self, frames, coords, *, weights=None, seasons=None) -> Tensor:  # noqa: ANN001
        """Returns the mean."""
        mean = self.mean.to(frames)
        if mean.ndim > 1 and len(mean) != frames.shape[2]:
            mean = mean.mean(0)
        return mean.expand(len(frames), frames.shape[2], -1)


@dataclass(frozen=True)
class AbstractContinuation(AbstractReference):
    """A reference that continues each point from its own past."""

    @property
    def trend(self) -> Float[Tensor, " outputs"] | None:
        """Factor of the last change; None without one."""
        return None

    @property
    def damping(self) -> Float[Tensor, " outputs"] | None:
        """Factor of the last anomaly; None without a climatology."""
        return None

    def normal(
        self,
        coords: Float[Tensor, "*#batch points dim"],
        seasons: Float[Tensor, "batch times 2"] | None,
    ) -> Float[Tensor, "batch times points outputs"] | None:
        """Returns the climatology of the last frame and of the target; None without one."""
        return None

    def __call__(self, frames, coords, *, weights=None, seasons=None) -> Tensor:  # noqa: ANN001
        """Returns the continued last frame."""
        return self.continued(self.task.state(frames), coords, seasons)

    def continued(
        self,
        state: Float[Tensor, "batch history points outputs"],
        coords: Float[Tensor, "*#batch points dim"],
        seasons: Float[Tensor, "batch times 2"] | None = None,
        mean: Num[Tensor, "*sites outputs"] | float = 0.0,
        std: Num[Tensor, "*places outputs"] | float = 1.0,
    ) -> Float[Tensor, "batch points outputs"]:
        """Returns the next frame.

        Args:
            state: The last frames, oldest first, minus `mean` over `std`.
            coords: The points.
            seasons: Time of day and month of the frames and of the target.
            mean: What was subtracted from the frames.
            std: By what they were divided.
        """
        last = result = state[:, -1]
        normal = self.normal(coords, seasons)
        if normal is not None:
            assert self.damping is not None
            normal = normal.to(state.device)
            now, later = ((normal - mean) / std).to(state).unbind(1)
            result = later + self.damping.to(state) * (last - now)
        if self.trend is not None:
            result = result + self.trend.to(state) * (last - state[:, -2])
        return result


@dataclass(frozen=True)
class Persistence(AbstractContinuation):
    """The last frame."""

    @classmethod
    def fit(cls, inputs: ReferenceInputs) -> "Persistence | None":
        """Returns persistence; None where no later frame is predicted."""
        return cls(inputs.task) if inputs.is_forecast else None


@dataclass(frozen=True)
class Trend(AbstractContinuation):
    """The last frame plus a fitted fraction of its last change."""

    factor: Float[Tensor, " outputs"]

    @classmethod
    def fit(cls, inputs: ReferenceInputs) -> "Trend | None":
        """Fits a factor for each variable by least squares; None with one frame.

        Factors are between -1 and 1: a change that grows does not persist, and a rollout of it would
        diverge. They are negative where changes swing back.
        """
        if not inputs.is_forecast or inputs.task.history < 2:
            return None

        def pairs(example: Example) -> tuple[Tensor, Tensor]:
            before, last = example.fields[:, -2], example.fields[:, -1]
            return last - before, example.target - last

        factor = fitted_factor(inputs, pairs)
        return cls(inputs.task, factor) if bool(factor.any()) else None

    @property
    def trend(self) -> Tensor:
        """The fitted factor."""
        return self.factor


def base_of(task: Task, references: Mapping[str, AbstractReference]) -> Any:
    """Returns the reference to which increments are added; None where it is missing."""
    if task.base == "trend":
        return Trend(task, torch.tensor(task.trend, dtype=torch.double))
    return Persistence(task) if task.base == "persistence" else references.get(task.base)


def fitted_factor(inputs: ReferenceInputs, pairs: Any) -> Float[Tensor, " outputs"]:
    """Returns the least-squares factor, from -1 to 1, between two fields of each example.

    Args:
        inputs: The training data.
        pairs: Returns what is multiplied and what is approximated, for an example.
    """
    products = squares = torch.zeros(len(inputs.task.outputs), dtype=torch.double)
    for example in inputs.examples():
        given, expected = pairs(example)
        weights = example.weights[..., None]
        products = products + (weights * given * expected).sum((0, 1))
        squares = squares + (weights * given.square()).sum((0, 1))
    return torch.where(squares > 0, products / squares, 0.0).clamp(-1.0, 1.0)
