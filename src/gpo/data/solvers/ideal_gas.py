"""An ideal gas in two sets of variables; arrays are channels by trajectories by grid.

Conserved ones are density, momentum along every axis, energy; primitive ones are density,
velocity, pressure.
"""

import torch
from jaxtyping import Float
from torch import Tensor


def to_primitive(
    conserved: Float[Tensor, "channels batch *grid"], gamma: float
) -> Float[Tensor, "channels batch *grid"]:
    """Returns density, velocity and pressure."""
    out = torch.empty_like(conserved)
    out[0] = conserved[0]
    torch.div(conserved[1:-1], conserved[0], out=out[1:-1])
    kinetic = torch.mul(out[1:-1], conserved[1:-1]).sum(0)
    torch.sub(conserved[-1], kinetic, alpha=0.5, out=out[-1]).mul_(gamma - 1)
    return out


def to_conserved(
    primitive: Float[Tensor, "channels batch *grid"], gamma: float
) -> Float[Tensor, "channels batch *grid"]:
    """Returns mass, momentum and energy per volume."""
    density, velocity, pressure = primitive[0], primitive[1:-1], primitive[-1]
    kinetic = density * velocity.square().sum(0) / 2
    energy = pressure / (gamma - 1) + kinetic
    return torch.cat([density[None], density * velocity, energy[None]])
