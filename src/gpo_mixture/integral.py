r"""Integrals of Gaussians over a box or the sphere.

Over all space a Gaussian integrates to $(2\pi)^{d/2}\det L$, and so does the sum of its images over
a periodic box. A non-periodic boundary at $b$ truncates it: with $x-\mu=Lz$ the first coordinate of
$z$ ends at $(b_1-\mu_1)/L_{11}$, the second at a bound that depends on the first, and so on. The
last of these integrals is an error function; the others use composite Gauss-Legendre quadrature,
accurate to rounding.
"""

import math

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from gpo.numerics.domain import Domain
from gpo.numerics.footprints import tangent_frame

CUTOFF = 9.0
"""Standard deviations beyond which a Gaussian contributes nothing."""
NUM_PANELS, NUM_NODES = 40, 8
"""Panels of the quadrature, and Gauss-Legendre nodes per panel."""


def gaussian_integrals(
    centers: Float[Tensor, "particles dim"],
    factors: Float[Tensor, "particles dim dim"],
    domain: Domain,
) -> Float[Tensor, " particles"]:
    """Returns the integral over the domain of every Gaussian with peak one.

    Args:
        centers: Centers.
        factors: Cholesky factors of the covariances.
        domain: The box or sphere.
    """
    if domain.is_sphere:
        return _sphere_integrals(centers, factors)
    is_periodic = torch.tensor(domain.periodic, device=centers.device)
    lower = torch.tensor(domain.lower).to(centers) - centers
    upper = torch.tensor(domain.upper).to(centers) - centers
    lower = torch.where(is_periodic, -math.inf, lower)
    upper = torch.where(is_periodic, math.inf, upper)
    fractions = [
        _fraction_inside(factor, low, high, 0, factor.new_zeros(1, 0))[:1]
        for factor, low, high in zip(factors, lower, upper, strict=True)
    ]
    totals = (2 * math.pi) ** (domain.dim / 2) * factors.diagonal(dim1=-2, dim2=-1).prod(-1)
    return totals * torch.cat(fractions) if fractions else totals


def _fraction_inside(
    factor: Tensor, low: Tensor, high: Tensor, axis: int, previous: Tensor
) -> Tensor:
    """Returns the normal probability of the box along `axis` and later axes.

    Args:
        factor: Cholesky factor of the covariance.
        low: Lower bounds relative to the center.
        high: Upper bounds relative to the center.
        axis: First axis to integrate over.
        previous: Whitened coordinates along the axes before it.
    """
    if bool(torch.isinf(low[axis:]).all()):
        return previous.new_ones(len(previous))
    shift = previous @ factor[axis, :axis]
    start, end = ((bound[axis] - shift) / factor[axis, axis] for bound in (low, high))
    if axis == len(factor) - 1:
        root = math.sqrt(2)
        return (torch.special.erf(end / root) - torch.special.erf(start / root)) / 2
    start, end = start.clamp(-CUTOFF, CUTOFF), end.clamp(-CUTOFF, CUTOFF)
    nodes, weights = _quadrature(previous)
    z = start.unsqueeze(-1) + (end - start).unsqueeze(-1) * nodes
    coords = torch.cat([previous.repeat_interleave(len(nodes), 0), z.reshape(-1, 1)], -1)
    inner = _fraction_inside(factor, low, high, axis + 1, coords).reshape(z.shape)
    density = torch.exp(-0.5 * z.square()) / math.sqrt(2 * math.pi)
    return (density * inner) @ weights * (end - start)


def _sphere_integrals(centers: Tensor, factors: Tensor) -> Tensor:
    r"""Returns $2\pi\int e^{-A}I_0(B)\,dh$ over $h=x\cdot\mu$; the azimuthal integral is exact."""
    frame = torch.cat([tangent_frame(centers), centers.unsqueeze(-2)], -2)
    inverse = torch.linalg.inv(frame @ factors @ factors.mT @ frame.mT)
    mean = (inverse[:, 0, 0] + inverse[:, 1, 1]) / 2
    anisotropy = torch.hypot((inverse[:, 0, 0] - inverse[:, 1, 1]) / 2, inverse[:, 0, 1])
    nodes, weights = _quadrature(centers)
    # Depth below the center, with nodes concentrated there, where narrow Gaussians are.
    depth = 2 * nodes.square()
    squared = depth * (2 - depth)
    exponent = mean[:, None] * squared + inverse[:, 2, 2, None] * depth.square()
    argument = anisotropy[:, None] * squared / 2
    bessel = torch.special.i0e(argument) * torch.exp(argument - exponent / 2)
    return 2 * math.pi * (bessel * 4 * nodes) @ weights


def _quadrature(like: Tensor) -> tuple[Tensor, Tensor]:
    """Returns nodes and weights of the composite Gauss-Legendre rule on [0, 1]."""
    points, weights = np.polynomial.legendre.leggauss(NUM_NODES)
    nodes = (np.arange(NUM_PANELS)[:, None] + (points + 1) / 2) / NUM_PANELS
    weights = np.tile(weights / 2 / NUM_PANELS, NUM_PANELS)
    return torch.from_numpy(nodes.ravel()).to(like), torch.from_numpy(weights).to(like)
