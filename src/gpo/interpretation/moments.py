"""First and second moments of mass on the sites of a domain, periodic or on the sphere."""

import torch
from jaxtyping import Float
from torch import Tensor

from gpo.numerics.domain import Domain


def spread(
    mass: Float[Tensor, "batch windows points"],
    coords: Float[Tensor, "batch points dim"],
    domain: Domain,
) -> Float[Tensor, "batch windows"]:
    """Returns the root mean square distance of mass from its center, in minimum images."""
    density = mass / mass.sum(-1, keepdim=True).clamp_min(1e-300)
    offset = domain.offset(
        coords.unsqueeze(1), center_of_mass(density, coords, domain).unsqueeze(2)
    )
    return torch.einsum("bwn,bwnd->bw", density, offset.square()).sqrt()


def center_of_mass(
    density: Float[Tensor, "batch windows points"],
    coords: Float[Tensor, "batch points dim"],
    domain: Domain,
) -> Float[Tensor, "batch windows dim"]:
    """Returns the mean position of mass: the circular mean along periodic axes.

    Args:
        density: Mass at the sites; it sums to one.
        coords: The sites.
        domain: Its periodic axes close; a mean on the sphere is projected back onto it.
    """
    if domain.is_sphere or not any(domain.periodic):
        return domain.wrap(density @ coords)
    angles = 2 * torch.pi * domain.to_unit(coords)
    circular = torch.atan2(density @ angles.sin(), density @ angles.cos()) / (2 * torch.pi)
    straight = density @ domain.to_unit(coords)
    return domain.from_unit(torch.where(torch.tensor(domain.periodic), circular % 1, straight))
