"""What a training step minimises, for any model: one step ahead, or several on its own forecasts.

Noise on inputs lets a model meet errors before its own forecasts are its input. A fraction of the
examples gets it: a model tells the two apart, steadies what is noisy and stays accurate on what is
clean.
"""

from collections.abc import Iterable
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from gpo.forecast.examples import Example
from gpo.forecast.forecaster import Forecaster, stack_frames
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
    """Returns every loss by name, a mean over the steps, and their weighted sum as `total`.

    Args:
        forecaster: The model in training.
        batch: Examples with at least `num_steps` targets.
        num_steps: Steps to take, each on the forecasts of those before.
        pushforward: Whether only the last step counts and no gradient reaches those before.
        noise: What is added to the normalised input.
        weights: How the losses add up.
        relative_to: What errors are measured by: the next state, or the true change to it.
    """
    values = forecaster.normalised_input(batch.frames)
    state = forecaster.normalised(batch.fields[:, -1]) if relative_to == "change" else None
    if noise is not None:
        values = values + noise.to(values)
    steps: list[dict[str, Tensor]] = []
    for step in range(num_steps):
        is_last = step == num_steps - 1
        target = forecaster.normalised(batch.targets[:, step])
        with torch.set_grad_enabled(torch.is_grad_enabled() and (is_last or not pushforward)):
            losses, prediction = _one_step(forecaster, values, batch, target, state, weights)
        if is_last or not pushforward:
            steps.append(losses)
        if not is_last:
            frames = values.unflatten(-1, (forecaster.task.history, -1)).transpose(1, 2)
            following = None
            if batch.forcings is not None:
                following = forecaster.normalised_forcings(batch.forcings[:, step])
            values = stack_frames(forecaster.advance(frames, prediction, following))
            state = None if state is None else target
    return {name: torch.stack([losses[name] for losses in steps]).mean() for name in steps[0]}


def _one_step(
    forecaster: Forecaster,
    values: Tensor,
    batch: Example,
    target: Tensor,
    origin: Tensor | None,
    weights: LossWeights,
) -> tuple[dict[str, Tensor], Tensor]:
    """Returns the losses of one step and its normalised prediction."""
    return losses_of(
        forecaster.model,
        values,
        batch.coords,
        target,
        weights=batch.site_weights,
        target_weights=batch.weights,
        apply_increment=lambda output: forecaster.apply_increment(output, values),
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
    """Returns noise on what a model sees, which depends on the seeds alone.

    It is drawn at all sites of an example, so processes that share them have the noise of one.
    Forcings get none.

    Args:
        batch: The examples.
        size: Standard deviation, in units of normalised input; of every variable or of all.
        fraction: The part of the examples that gets any.
        seeds: One for every example.
        partition: Which of the sites are in the batch.
    """
    _, history, points, inputs = batch.frames.shape
    noise = torch.zeros(len(batch.frames), points, history * inputs)
    for row, num_sites, seed in zip(noise, batch.num_sites, seeds, strict=True):
        drawn = torch.Generator().manual_seed(seed)
        if torch.rand((), generator=drawn) < fraction:
            mine = torch.randn(num_sites, row.shape[1], generator=drawn)[partition.among(num_sites)]
            row[: len(mine)] = mine
    by_frame = noise.unflatten(-1, (history, inputs))
    by_frame[..., batch.num_forcings :] *= size
    by_frame[..., : batch.num_forcings] = 0
    return noise.to(batch.frames)
