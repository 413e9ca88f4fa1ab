"""Autoregressive rollouts: the one loop of training, forecasts, evaluation and interpretation."""

from collections.abc import Callable, Iterator
from typing import TypeVar

import torch
from jaxtyping import Float
from torch import Tensor

from gpo.forecast.forecaster import Forecaster

Result = TypeVar("Result")


def rollout_results(
    forecaster: Forecaster,
    frames: Float[Tensor, "batch history points inputs"],
    steps: range,
    predict: Callable[[int, Tensor], Result],
    frame_of: Callable[[Result], Tensor],
    forcings: Callable[[int], Tensor | None],
) -> Iterator[Result]:
    """Yields the result of each step; the predicted frame becomes an input of the next step.

    Args:
        forecaster: The model.
        frames: Input of the first step, oldest frame first, normalised or not.
        steps: Numbers of the steps, from 0 unless a rollout is continued.
        predict: Returns the result of a step from its number and input.
        frame_of: Returns the predicted frame of a result that has a next step.
        forcings: Returns the forcings of the target after that of a step; None without any.
    """
    for step in steps:
        result = predict(step, frames)
        yield result
        if step + 1 < steps.stop:
            frames = forecaster.advance(frames, frame_of(result), forcings(step))


def rollout(
    forecaster: Forecaster,
    frames: Float[Tensor, "batch history points inputs"],
    coords: Float[Tensor, "*#batch points dim"],
    num_steps: int,
    *,
    weights: Float[Tensor, "*#batch points"] | None = None,
    forcings: Float[Tensor, "#batch later points forcings"] | None = None,
) -> Float[Tensor, "batch steps points variables"]:
    """Returns forecasts of `lead`, `2 lead`, ... steps ahead; NaN once they are not finite.

    Args:
        forecaster: The model.
        frames: Initial frames, oldest first, `lead` steps apart.
        coords: The points.
        num_steps: Number of autoregressive steps.
        weights: Quadrature weights; 0 masks a point.
        forcings: Forcings `2 lead`, `3 lead`, ... steps ahead, if the model has any; those `lead`
            steps ahead are in the last frame.
    """
    steps = rollout_steps(forecaster, frames, coords, num_steps, weights=weights, forcings=forcings)
    return torch.stack(list(steps), dim=1)


def rollout_steps(
    forecaster: Forecaster,
    frames: Float[Tensor, "batch history points inputs"],
    coords: Float[Tensor, "*#batch points dim"],
    num_steps: int,
    *,
    weights: Float[Tensor, "*#batch points"] | None = None,
    forcings: Float[Tensor, "#batch later points forcings"] | None = None,
) -> Iterator[Float[Tensor, "batch points variables"]]:
    """Yields the forecasts of `rollout` one by one."""

    def predict(step: int, frames: Tensor) -> Tensor:
        last = frames[:, -1, :, forecaster.task.num_forcings :]
        if step > 0 and not bool(last.isfinite().all()):
            return torch.full_like(last, torch.nan)
        with torch.no_grad():
            return forecaster(frames, coords, weights=weights)

    def following(step: int) -> Tensor | None:
        return None if forcings is None else forcings[:, step].expand(len(frames), -1, -1)

    return rollout_results(
        forecaster, frames, range(num_steps), predict, lambda forecast: forecast, following
    )
