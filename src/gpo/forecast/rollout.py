"""Autoregressive rollouts."""

from collections.abc import Iterator

import torch
from jaxtyping import Float
from torch import Tensor

from gpo.forecast.forecaster import Forecaster


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
    forecast: Tensor | None = None
    for step in range(num_steps):
        if forecast is not None and not bool(forecast.isfinite().all()):
            forecast = torch.full_like(forecast, torch.nan)
        else:
            with torch.no_grad():
                forecast = forecaster(frames, coords, weights=weights)
            assert forecast is not None
            if step + 1 < num_steps:
                following = (
                    None if forcings is None else forcings[:, step].expand(len(frames), -1, -1)
                )
                frames = forecaster.advance(frames, forecast, following)
        yield forecast
