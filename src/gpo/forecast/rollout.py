"""A forecaster fed with its own forecasts."""

import torch
from jaxtyping import Float
from torch import Tensor

from gpo.forecast.forecaster import Forecaster
from gpo.model.ablation import Ablation


@torch.no_grad()
def rollout(
    forecaster: Forecaster,
    frames: Float[Tensor, "batch history points inputs"],
    coords: Float[Tensor, "*#batch points dim"],
    num_steps: int,
    *,
    weights: Float[Tensor, "*#batch points"] | None = None,
    forcings: Float[Tensor, "#batch later points forcings"] | None = None,
    ablation: Ablation | None = None,
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
        ablation: Components of a gpo that are switched off in every step.
    """
    steps: list[Tensor] = []
    for step in range(num_steps):
        if steps and not bool(steps[-1].isfinite().all()):
            steps.append(torch.full_like(steps[-1], torch.nan))
            continue
        steps.append(forecaster(frames, coords, weights=weights, ablation=ablation))
        if step + 1 < num_steps:
            following = None if forcings is None else forcings[:, step].expand(len(frames), -1, -1)
            frames = forecaster.advance(frames, steps[-1], following)
    return torch.stack(steps, dim=1)
