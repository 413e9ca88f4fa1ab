"""Autoregressive rollouts: the one loop of training, forecasts, evaluation and interpretation."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, TypeVar

import torch
from jaxtyping import Float
from torch import Tensor

from gpo.forecast.task import Task

if TYPE_CHECKING:
    from gpo.forecast.blend import Blend


class AbstractForecast(ABC):
    """Predicts the next frame from the last frames and their seasons."""

    task: Task
    blend: "Blend | None" = None
    """References with which the prediction is combined."""

    @abstractmethod
    def __call__(
        self,
        frames: Float[Tensor, "batch history points inputs"],
        coords: Float[Tensor, "*#batch points dim"],
        *,
        weights: Float[Tensor, "*#batch points"] | None = None,
        seasons: Float[Tensor, "#batch times 2"] | None = None,
    ) -> Float[Tensor, "batch points outputs"]:
        """Returns the predicted frame in the units of the data.

        Args:
            frames: The last frames, oldest first, in the units of the data.
            coords: The points.
            weights: Quadrature weights; 0 masks a point.
            seasons: Time of day and month of the frames and of the target (`seasons_of`).
        """

    @property
    def alone(self) -> "AbstractForecast":
        """The forecast without references."""
        return self


Result = TypeVar("Result")


def rollout_results(
    inputs: Tensor,
    steps: range,
    predict: Callable[[int, Tensor], Result],
    advance: Callable[[int, Tensor, Result], Tensor],
) -> Iterator[Result]:
    """Yields the result of each step of a rollout.

    Args:
        inputs: Input of the first step: frames, or their normalised channels.
        steps: Numbers of the steps, from 0 unless a rollout is continued.
        predict: Returns the result of a step from its number and input.
        advance: Returns the input of the next step from number, input and result of a step; it
            appends the predicted frame (`Task.advance`).
    """
    for step in steps:
        result = predict(step, inputs)
        yield result
        if step + 1 < steps.stop:
            inputs = advance(step, inputs, result)


def rollout(
    forecast: AbstractForecast,
    frames: Float[Tensor, "batch history points inputs"],
    coords: Float[Tensor, "*#batch points dim"],
    num_steps: int,
    *,
    weights: Float[Tensor, "*#batch points"] | None = None,
    forcings: Float[Tensor, "#batch later points forcings"] | None = None,
    seasons: Float[Tensor, "#batch times 2"] | None = None,
) -> Float[Tensor, "batch steps points variables"]:
    """Returns forecasts of `lead`, `2 lead`, ... steps ahead; NaN once they are not finite.

    Args:
        forecast: The model or a reference.
        frames: Initial frames, oldest first, `lead` steps apart.
        coords: The points.
        num_steps: Number of autoregressive steps.
        weights: Quadrature weights; 0 masks a point.
        forcings: Forcings `2 lead`, `3 lead`, ... steps ahead, if the model has any; those `lead`
            steps ahead are in the last frame.
        seasons: Time of day and month of the initial frames and of each step.
    """
    steps = rollout_steps(
        forecast, frames, coords, num_steps, weights=weights, forcings=forcings, seasons=seasons
    )
    return torch.stack(list(steps), dim=1)


def rollout_steps(
    forecast: AbstractForecast,
    frames: Float[Tensor, "batch history points inputs"],
    coords: Float[Tensor, "*#batch points dim"],
    num_steps: int,
    *,
    weights: Float[Tensor, "*#batch points"] | None = None,
    forcings: Float[Tensor, "#batch later points forcings"] | None = None,
    seasons: Float[Tensor, "#batch times 2"] | None = None,
) -> Iterator[Float[Tensor, "batch points variables"]]:
    """Yields the forecasts of `rollout` one by one.

    Where the forecast is blended, the model and each reference continue from their own frames.
    """
    options = {"weights": weights, "forcings": forcings, "seasons": seasons}
    steps = _steps(forecast.alone, frames, coords, num_steps, **options)
    if forecast.blend is None:
        yield from steps
    else:
        rest = forecast.blend.contributions(frames, coords, num_steps, **options)
        yield from (part.added_to(step) for step, part in zip(steps, rest, strict=True))


def _steps(
    forecast: AbstractForecast,
    frames: Tensor,
    coords: Tensor,
    num_steps: int,
    weights: Tensor | None,
    forcings: Tensor | None,
    seasons: Tensor | None,
) -> Iterator[Tensor]:
    history = frames.shape[1]

    def predict(step: int, frames: Tensor) -> Tensor:
        last = forecast.task.state(frames[:, -1])
        if step > 0 and not bool(last.isfinite().all()):
            return torch.full_like(last, torch.nan)
        times = None if seasons is None else seasons[:, step : step + history + 1]
        with torch.no_grad():
            return forecast(frames, coords, weights=weights, seasons=times)

    def advance(step: int, frames: Tensor, prediction: Tensor) -> Tensor:
        later = None if forcings is None else forcings[:, step].expand(len(frames), -1, -1)
        return forecast.task.advance(frames, prediction, later)

    return rollout_results(frames, range(num_steps), predict, advance)
