"""Autoregressive rollouts of a model or a reference."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import TYPE_CHECKING

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
    prediction: Tensor | None = None
    for step in range(num_steps):
        if prediction is not None and not bool(prediction.isfinite().all()):
            prediction = torch.full_like(prediction, torch.nan)
        else:
            times = None if seasons is None else seasons[:, step : step + frames.shape[1] + 1]
            with torch.no_grad():
                prediction = forecast(frames, coords, weights=weights, seasons=times)
            assert prediction is not None
            if step + 1 < num_steps:
                following = (
                    None if forcings is None else forcings[:, step].expand(len(frames), -1, -1)
                )
                frames = forecast.task.advance(frames, prediction, following)
        yield prediction
