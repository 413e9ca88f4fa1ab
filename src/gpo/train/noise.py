"""Noise on inputs, so that a model has met errors before its own forecasts are its input.

A part of the examples gets it and the others none: a model tells them apart, steadies what is
noisy and stays accurate on what is clean.
"""

from collections.abc import Iterable

import torch
from jaxtyping import Float
from torch import Tensor

from gpo.train.examples import Example
from gpo.train.held_sites import HeldSites


def draw_noise(
    batch: Example,
    *,
    size: float,
    share: float,
    seeds: Iterable[int],
    held: HeldSites = HeldSites(),
) -> Float[Tensor, "batch points channels"]:
    """Returns noise on what a model sees, which depends on the seeds alone.

    It is drawn at all sites of an example, so processes that share them have the noise of one.
    What is known of any time gets none.

    Args:
        batch: The examples.
        size: Standard deviation, in units of normalised input.
        share: The part of the examples that gets any.
        seeds: One for every example.
        held: Which of the sites are in the batch.
    """
    _, history, points, inputs = batch.frames.shape
    noise = torch.zeros(len(batch.frames), points, history * inputs)
    for row, num_sites, seed in zip(noise, batch.num_sites, seeds, strict=True):
        drawn = torch.Generator().manual_seed(seed)
        if torch.rand((), generator=drawn) < share:
            mine = torch.randn(num_sites, row.shape[1], generator=drawn)[held.among(num_sites)]
            row[: len(mine)] = size * mine
    noise.unflatten(-1, (history, inputs))[..., : batch.num_known] = 0
    return noise.to(batch.frames)
