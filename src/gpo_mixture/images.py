r"""Periodic images of Gaussians: $\sum_m\exp(-\tfrac12|L^{-1}(x-\mu-mP)|^2)$ is continuous at the boundary.

Only images whose Gaussian reaches into the box are listed, so most Gaussians have one.
"""

import itertools
import math
from typing import NamedTuple

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from gpo.numerics.domain import Domain

EXACT_CUTOFF = 8.6
"""Standard deviations beyond which a Gaussian is below double-precision rounding."""


class Images(NamedTuple):
    """Centers of Gaussians and of their periodic images."""

    indices: Int64[Tensor, " images"]
    """The Gaussian that each image belongs to."""
    centers: Float[Tensor, "images dim"]


def periodic_images(
    centers: Float[Tensor, "particles dim"],
    reaches: Float[Tensor, "particles dim"],
    domain: Domain,
) -> Images:
    """Returns the Gaussians and those of their periodic images that reach into the box.

    Args:
        centers: Centers, inside the box.
        reaches: Distance along every axis beyond which each Gaussian is negligible.
        domain: The box.
    """
    indices = torch.arange(len(centers), device=centers.device)
    if not any(domain.periodic) or not len(centers):
        return Images(indices, centers)
    per_axis = []
    for axis, is_periodic in enumerate(domain.periodic):
        low, high = domain.lower[axis], domain.upper[axis]
        period = high - low
        most = math.ceil(float(reaches[:, axis].detach().max()) / period) if is_periodic else 0
        shifts = torch.arange(-most, most + 1).to(centers) * period
        shifted = centers[:, axis, None] + shifts
        outside = torch.maximum(low - shifted, shifted - high)
        is_needed = (outside <= reaches[:, axis, None]) | (shifts == 0)
        per_axis.append((shifts, is_needed))
    images: list[Images] = []
    for numbers in itertools.product(*(range(len(shifts)) for shifts, _ in per_axis)):
        pairs = list(zip(per_axis, numbers, strict=True))
        is_needed = torch.stack([needed[:, number] for (_, needed), number in pairs]).all(0)
        if not bool(is_needed.any()):
            continue
        shift = torch.stack([shifts[number] for (shifts, _), number in pairs])
        images.append(Images(indices[is_needed], centers[is_needed] + shift))
    return Images(*(torch.cat(parts) for parts in zip(*images, strict=True)))
