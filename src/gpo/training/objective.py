"""Training losses of any model, over one step or an autoregressive rollout, and input noise.

Input noise prepares a model for the errors of its own forecasts. Only a fraction of the examples
gets noise, so that the model also stays accurate on clean inputs.
"""

from collections.abc import Iterable
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from gpo.forecast.examples import Example
from gpo.forecast.forecaster import Forecaster, stack_frames
from gpo.forecast.rollout import rollout_results
from gpo.model.losses import LossWeights, losses_of
from gpo.parallel.partition import SitePartition


def training_losses(
    forecaster: Forecaster,
    batch: Example,
    *,
    num_steps: int = 1,
    pushforward: bool = False,
    noise: Float[Tensor, "batch points channels"] | None = None,
    weights: LossWeights = LossWeights(),
    relative_to: Literal["state", "change"] = "state",
) -> dict[str, Tensor]:
    """Returns every loss by name, averaged over the steps, and their weighted sum as `total`.

    Args:
        forecaster: The model in training.
        batch: Examples with at least `num_steps` targets.
        num_steps: Number of autoregressive steps.
        pushforward: Whether to take loss and gradient of the last step only.
        noise: Noise that is added to the normalised input.
        weights: Weights of the losses.
        relative_to: Denominator of relative errors: the target state, or the true change to it.
    """
    values = forecaster.normalised_input(batch.frames)
    if noise is not None:
        values = values + noise.to(values)
    states = [batch.fields[:, -1], *batch.targets.unbind(1)]

    def predict(step: int, values: Tensor) -> tuple[dict[str, Tensor], Tensor]:
        target = forecaster.normalised(states[step + 1])
        origin = forecaster.normalised(states[step]) if relative_to == "change" else None
        is_scored = step == num_steps - 1 or not pushforward
        with torch.set_grad_enabled(torch.is_grad_enabled() and is_scored):
            base = forecaster.continued(values, batch.coords, batch.seasons_of_step(step))
            return _step_losses(forecaster, values, batch, base, target, origin, weights)

    def advance(step: int, values: Tensor, result: tuple[dict[str, Tensor], Tensor]) -> Tensor:
        frames, later = values.unflatten(-1, (forecaster.task.history, -1)), batch.forcings
        if later is not None:
            later = forecaster.normalised_forcings(later[:, step])
        return stack_frames(forecaster.task.advance(frames.transpose(1, 2), result[1], later))

    steps = [losses for losses, _ in rollout_results(values, range(num_steps), predict, advance)]
    scored = steps[-1:] if pushforward else steps
    return {name: torch.stack([losses[name] for losses in scored]).mean() for name in scored[0]}


def _step_losses(
    forecaster: Forecaster,
    values: Tensor,
    batch: Example,
    base: Tensor | None,
    target: Tensor,
    origin: Tensor | None,
    weights: LossWeights,
) -> tuple[dict[str, Tensor], Tensor]:
    """Returns the losses of a step and its normalised prediction."""
    return losses_of(
        forecaster.model,
        values,
        batch.coords,
        target,
        weights=batch.site_weights,
        target_weights=batch.weights,
        apply_increment=lambda output: forecaster.apply_increment(output, base),
        loss_weights=weights,
        origin=origin,
    )


def draw_noise(
    batch: Example,
    *,
    size: Float[Tensor, " variables"] | float,
    fraction: float,
    seeds: Iterable[int],
    partition: SitePartition = SitePartition(),
) -> Float[Tensor, "batch points channels"]:
    """Returns Gaussian input noise, a function of the seeds only; forcings get none.

    Noise is drawn for all points of an example, so that it does not depend on the number of
    processes that share them.

    Args:
        batch: The examples.
        size: Standard deviation in normalised units, per variable or common.
        fraction: Fraction of the examples that get noise.
        seeds: One seed per example.
        partition: The points in the batch.
    """
    _, history, points, inputs = batch.frames.shape
    noise = torch.zeros(len(batch.frames), points, history * inputs)
    for row, num_sites, seed in zip(noise, batch.num_sites, seeds, strict=True):
        generator = torch.Generator().manual_seed(seed)
        if torch.rand((), generator=generator) < fraction:
            whole = torch.randn(num_sites, row.shape[1], generator=generator)
            local = whole[partition.among(num_sites)]
            row[: len(local)] = local
    by_frame = noise.unflatten(-1, (history, inputs))
    by_frame[..., batch.num_forcings :] *= size
    by_frame[..., : batch.num_forcings] = 0
    return noise.to(batch.frames)
