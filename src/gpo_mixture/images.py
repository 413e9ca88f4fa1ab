r"""Periodic images of Gaussians: $\sum_m\exp(-\tfrac12|L^{-1}(x-\mu-mP)|^2)$ has no seam.

Only images whose Gaussian reaches into the box are listed, so most particles have one.
"""

import itertools
import math
from typing import NamedTuple

import torch
from jaxtyping import Float, Int64
from torch import Tensor

from gpo.numerics.domain import Domain

EXACT = 8.6
"""Standard deviations beyond which a Gaussian is below the rounding of double precision."""


class Images(NamedTuple):
    """Centers of Gaussians with their periodic images, and which particle each belongs to."""

    owners: Int64[Tensor, " images"]
    centers: Float[Tensor, "images dim"]


def images_of(
    centers: Float[Tensor, "particles dim"],
    reaches: Float[Tensor, "particles dim"],
    domain: Domain,
) -> Images:
    """Returns all images from which a Gaussian reaches into the box; on open axes there is one.

    Args:
        centers: Inside the box.
        reaches: How far each Gaussian reaches along every axis.
        domain: The box.
    """
    owners = torch.arange(len(centers), device=centers.device)
    if not any(domain.periodic) or not len(centers):
        return Images(owners, centers)
    per_axis = []
    for axis, is_periodic in enumerate(domain.periodic):
        low, high = domain.lower[axis], domain.upper[axis]
        period = high - low
        most = math.ceil(float(reaches[:, axis].detach().max()) / period) if is_periodic else 0
        turns = torch.arange(-most, most + 1).to(centers) * period
        moved = centers[:, axis, None] + turns
        beyond = torch.maximum(low - moved, moved - high)
        needed = (beyond <= reaches[:, axis, None]) | (turns == 0)
        per_axis.append((turns, needed))
    found: list[Images] = []
    for numbers in itertools.product(*(range(len(turns)) for turns, _ in per_axis)):
        pairs = list(zip(per_axis, numbers, strict=True))
        needed = torch.stack([needed[:, number] for (_, needed), number in pairs]).all(0)
        if not bool(needed.any()):
            continue
        shift = torch.stack([turns[number] for (turns, _), number in pairs])
        found.append(Images(owners[needed], centers[needed] + shift))
    return Images(
        torch.cat([one.owners for one in found]), torch.cat([one.centers for one in found])
    )
