"""A forecaster fed with its own forecasts."""

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
        forecaster: Predicts one frame.
        frames: Where it starts, oldest first, `lead` steps apart.
        coords: The sites.
        num_steps: How often it is applied.
        weights: Quadrature weights; 0 masks a site.
        forcings: Of `2 lead`, `3 lead`, ... steps ahead, where the model has any; those of `lead`
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
    """Yields the forecasts of `rollout` one by one; whoever has seen enough stops."""
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
