r"""A field as its Gaussians carry it: $\hat a(x)=\sum_i a_iz_i(x)\,/\,\sum_i z_i(x)$ with $z_i=w_iG_i$."""

import torch
from jaxtyping import Float
from torch import Tensor

from gpo.numerics.domain import Domain
from gpo.numerics.gaussian import gaussian

MOST_NUMBERS = 2**20
"""Offsets that are held at once."""


def superposition(
    points: Float[Tensor, "points dim"],
    centers: Float[Tensor, "gaussians dim"],
    scales: Float[Tensor, "gaussians dim"],
    weights: Float[Tensor, " gaussians"],
    amounts: Float[Tensor, "gaussians channels"],
    domain: Domain,
) -> Float[Tensor, "points channels"]:
    """Returns the mean of what Gaussians carry, weighted with their heights; NaN where none reaches.

    Args:
        points: Where.
        centers: Where the Gaussians peak.
        scales: Their standard deviations along every axis.
        weights: Their peaks.
        amounts: What each of them carries.
        domain: Where all of them live.
    """
    carried = torch.cat([amounts, torch.ones_like(amounts[:, :1])], -1)
    num_points = max(1, MOST_NUMBERS // max(1, centers.numel()))
    sums = torch.cat(
        [
            (weights * gaussian(domain.offset(part.unsqueeze(1), centers), scales)) @ carried
            for part in points.split(num_points)
        ]
    )
    return sums[:, :-1] / sums[:, -1:]
