"""The control of a mixture: isotropic Gaussians on a regular lattice, of which only amplitudes are fitted."""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from gpo.numerics.domain import Domain
from gpo_mixture.fitting import to_mixture
from gpo_mixture.mixture import GaussianMixture
from gpo_mixture.projection import solve
from gpo_mixture.shapes import make_shapes
from gpo_mixture.target import Target

WIDTHS = (0.6, 0.8, 1.1)
"""Standard deviations in units of the node spacing; the best fit is returned."""
NUM_TRIES, MIN_FRACTION = 12, 0.93
"""Lattices to try until this fraction of the requested nodes lies near sites."""


def fit_lattice(
    values: Float[Tensor, "points channels"] | Float[Tensor, " points"],
    coords: Float[Tensor, "points dim"],
    weights: Float[Tensor, " points"],
    num_particles: int,
    domain: Domain,
) -> GaussianMixture:
    """Fits isotropic Gaussians on a regular lattice to a field.

    Args:
        values: The field at its sites.
        coords: Coordinates of the sites; unit vectors on the sphere.
        weights: Quadrature weights; 0 masks a site.
        num_particles: Number of Gaussians; slightly fewer if sites fill little of the domain.
        domain: Domain of the field.
    """
    target = Target.of(values, coords, weights, domain)
    centers, spacing = _nodes(coords[weights > 0].double(), domain, num_particles)
    solutions = []
    for width in WIDTHS:
        covariance = (width * spacing) ** 2 * torch.eye(coords.shape[1], dtype=torch.float64)
        covariances = (covariance / target.units**2).expand(len(centers), -1, -1)
        shapes = make_shapes(centers / target.units, covariances, target.domain)
        solutions.append(solve(shapes, target))
    best = min(solutions, key=lambda solution: solution.loss)
    return to_mixture(best, target, torch.arange(len(centers)))


def _nodes(
    sites: Float[Tensor, "points dim"], domain: Domain, count: int
) -> tuple[Float[Tensor, "nodes dim"], Float[Tensor, " dim"]]:
    """Returns about `count` regular nodes near sites, and their spacing."""
    size, tries = count, 0
    while True:
        nodes, spacing = _fibonacci_sphere(size) if domain.is_sphere else _grid(domain, size)
        distances = torch.stack([domain.offset(sites, node).norm(dim=-1).min() for node in nodes])
        nodes, tries = nodes[distances < spacing.max()], tries + 1
        if len(nodes) >= MIN_FRACTION * count or tries == NUM_TRIES:
            selected = torch.linspace(0, len(nodes) - 1, min(count, len(nodes))).long()
            return nodes[selected], spacing
        size = max(size + 1, int(size * max(1.05, count / max(1, len(nodes)))))


def _fibonacci_sphere(count: int) -> tuple[Float[Tensor, "nodes 3"], Float[Tensor, " 3"]]:
    """Returns nearly uniform points on the sphere, along a spiral of the golden angle."""
    number = torch.arange(count, dtype=torch.float64)
    height, angle = 1 - (2 * number + 1) / count, number * math.pi * (3 - math.sqrt(5))
    radius = (1 - height**2).sqrt()
    nodes = torch.stack([radius * angle.cos(), radius * angle.sin(), height], -1)
    return nodes, torch.full((3,), math.sqrt(4 * math.pi / count), dtype=torch.float64)


def _grid(domain: Domain, count: int) -> tuple[Float[Tensor, "nodes dim"], Float[Tensor, " dim"]]:
    """Returns the centers of about `count` nearly cubic cells of a box."""
    lower = torch.tensor(domain.lower, dtype=torch.float64)
    lengths = torch.tensor(domain.upper, dtype=torch.float64) - lower
    side = float((lengths.prod() / count) ** (1 / domain.dim))
    shape = [max(1, round(float(length) / side)) for length in lengths]
    axes = [
        low + (torch.arange(n, dtype=torch.float64) + 0.5) / n * length
        for low, n, length in zip(lower, shape, lengths, strict=True)
    ]
    return torch.cartesian_prod(*axes).reshape(-1, domain.dim), lengths / torch.tensor(shape)
