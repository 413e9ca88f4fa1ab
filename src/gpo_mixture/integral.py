r"""Integrals of Gaussians over a box or the sphere.

Over all space a Gaussian has the mass $(2\pi)^{d/2}\det L$, and so it has over a periodic box, whose
images fill all space. An open end at $b$ cuts it: with $x-\mu=Lz$ the first coordinate of $z$ ends
at $(b_1-\mu_1)/L_{11}$, the next at an end that depends on the first, and so on. The last of these
integrals is an error function; the others are taken by Gauss and Legendre's rule to rounding.
"""

import math

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from gpo.numerics.domain import Domain
from gpo.numerics.footprints import tangent_frame

FARTHEST = 9.0
"""Standard deviations beyond which nothing is left."""
PANELS, NODES = 40, 8


def masses(
    centers: Float[Tensor, "particles dim"],
    factors: Float[Tensor, "particles dim dim"],
    domain: Domain,
) -> Float[Tensor, " particles"]:
    """Returns the integral of every Gaussian, of height one, over the domain."""
    if domain.is_sphere:
        return _on_sphere(centers, factors)
    lower = torch.tensor(domain.lower).to(centers) - centers
    upper = torch.tensor(domain.upper).to(centers) - centers
    wraps = torch.tensor(domain.periodic, device=centers.device)
    lower = torch.where(wraps, -math.inf, lower)
    upper = torch.where(wraps, math.inf, upper)
    parts = [
        _fraction(factor, low, high, 0, factor.new_zeros(1, 0))
        for factor, low, high in zip(factors, lower, upper, strict=True)
    ]
    whole = (2 * math.pi) ** (domain.dim / 2) * factors.diagonal(dim1=-2, dim2=-1).prod(-1)
    return whole * torch.cat([part[:1] for part in parts]) if parts else whole


def _fraction(factor: Tensor, low: Tensor, high: Tensor, axis: int, before: Tensor) -> Tensor:
    """Returns the normal probability of the axes from `axis` on, given coordinates before it."""
    if bool(torch.isinf(low[axis:]).all()):
        return before.new_ones(len(before))
    shift = before @ factor[axis, :axis]
    start, end = ((side[axis] - shift) / factor[axis, axis] for side in (low, high))
    if axis == len(factor) - 1:
        root = math.sqrt(2)
        return (torch.special.erf(end / root) - torch.special.erf(start / root)) / 2
    start, end = start.clamp(-FARTHEST, FARTHEST), end.clamp(-FARTHEST, FARTHEST)
    nodes, rule = _rule(before)
    z = start.unsqueeze(-1) + (end - start).unsqueeze(-1) * nodes
    inner = torch.cat([before.repeat_interleave(len(nodes), 0), z.reshape(-1, 1)], -1)
    beyond = _fraction(factor, low, high, axis + 1, inner).reshape(z.shape)
    density = torch.exp(-0.5 * z.square()) / math.sqrt(2 * math.pi)
    return (density * beyond) @ rule * (end - start)


def _on_sphere(centers: Tensor, factors: Tensor) -> Tensor:
    r"""Returns $2\pi\int e^{-A}I_0(B)\,dh$ over heights $h=x\cdot\mu$: the angle is integrated exactly."""
    frame = torch.cat([tangent_frame(centers), centers.unsqueeze(-2)], -2)
    inverse = torch.linalg.inv(frame @ factors @ factors.mT @ frame.mT)
    mean = (inverse[:, 0, 0] + inverse[:, 1, 1]) / 2
    spread = torch.hypot((inverse[:, 0, 0] - inverse[:, 1, 1]) / 2, inverse[:, 0, 1])
    nodes, rule = _rule(centers)
    # Heights are counted down from the center, where narrow Gaussians are.
    depth = 2 * nodes.square()
    squared = depth * (2 - depth)
    cosine = mean[:, None] * squared + inverse[:, 2, 2, None] * depth.square()
    turned = spread[:, None] * squared / 2
    bessel = torch.special.i0e(turned) * torch.exp(turned - cosine / 2)
    return 2 * math.pi * (bessel * 4 * nodes) @ rule


def _rule(like: Tensor) -> tuple[Tensor, Tensor]:
    """Returns nodes and weights of a rule on [0, 1]."""
    points, weights = np.polynomial.legendre.leggauss(NODES)
    starts = np.arange(PANELS)[:, None]
    nodes = (starts + (points + 1) / 2) / PANELS
    rule = np.tile(weights / 2 / PANELS, PANELS)
    return torch.from_numpy(nodes.ravel()).to(like), torch.from_numpy(rule).to(like)
