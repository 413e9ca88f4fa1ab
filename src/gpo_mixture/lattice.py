"""The control of a mixture: as many round Gaussians on an even lattice, of which only amplitudes are fitted."""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from gpo.numerics.domain import Domain
from gpo_mixture.fit import finished
from gpo_mixture.mixture import GaussianMixture
from gpo_mixture.projection import solve
from gpo_mixture.shapes import shapes_of
from gpo_mixture.target import Target

WIDTHS = (0.6, 0.8, 1.1)
"""Half widths of the Gaussians, in distances between nodes: the best one counts."""
NUM_TRIES, NEAR_ENOUGH = 12, 0.93
"""Lattices that are tried, until this fraction of the wanted nodes lies where sites are."""


def fit_lattice(
    values: Float[Tensor, "points channels"] | Float[Tensor, " points"],
    coords: Float[Tensor, "points dim"],
    weights: Float[Tensor, " points"],
    num_particles: int,
    domain: Domain,
) -> GaussianMixture:
    """Returns a field as round Gaussians on an even lattice.

    Args:
        values: The field at its sites.
        coords: The sites; unit vectors on the sphere.
        weights: Quadrature weights; 0 masks a site.
        num_particles: How many Gaussians; where sites fill little of the domain, a few less.
        domain: Where the sites lie.
    """
    target = Target.of(values, coords, weights, domain)
    centers, distance = _nodes(coords[weights > 0].double(), domain, num_particles)
    solved = []
    for width in WIDTHS:
        square = (width * distance) ** 2 * torch.eye(coords.shape[1], dtype=torch.float64)
        if domain.is_sphere:
            shapes = shapes_of(centers, square.expand(len(centers), 3, 3), domain)
        else:
            scaled = (square / target.units**2).expand(len(centers), -1, -1)
            shapes = shapes_of(centers / target.units, scaled, target.domain)
        solved.append(solve(shapes, target))
    best = min(solved, key=lambda one: one.loss)
    return finished(best, target, torch.arange(len(centers)), domain, ())


def _nodes(
    sites: Float[Tensor, "points dim"], domain: Domain, count: int
) -> tuple[Float[Tensor, "nodes dim"], Float[Tensor, " dim"]]:
    """Returns about `count` even nodes where there are sites, and how far apart they are."""
    many, tries = count, 0
    while True:
        nodes, distance = _spiral(many) if domain.is_sphere else _grid(domain, many)
        near = torch.stack([domain.offset(sites, node).norm(dim=-1).min() for node in nodes])
        nodes, tries = nodes[near < distance.max()], tries + 1
        if len(nodes) >= NEAR_ENOUGH * count or tries == NUM_TRIES:
            some = torch.linspace(0, len(nodes) - 1, min(count, len(nodes))).long()
            return nodes[some], distance
        many = max(many + 1, int(many * max(1.05, count / max(1, len(nodes)))))


def _spiral(count: int) -> tuple[Float[Tensor, "nodes 3"], Float[Tensor, " 3"]]:
    """Returns even points of the whole sphere, along a spiral of the golden angle."""
    number = torch.arange(count, dtype=torch.float64)
    height, angle = 1 - (2 * number + 1) / count, number * math.pi * (3 - math.sqrt(5))
    radius = (1 - height**2).sqrt()
    nodes = torch.stack([radius * angle.cos(), radius * angle.sin(), height], -1)
    return nodes, torch.full((3,), math.sqrt(4 * math.pi / count), dtype=torch.float64)


def _grid(domain: Domain, count: int) -> tuple[Float[Tensor, "nodes dim"], Float[Tensor, " dim"]]:
    """Returns the middles of about equal cells of a box."""
    lower = torch.tensor(domain.lower, dtype=torch.float64)
    lengths = torch.tensor(domain.upper, dtype=torch.float64) - lower
    side = float((lengths.prod() / count) ** (1 / domain.dim))
    shape = [max(1, round(float(length) / side)) for length in lengths]
    axes = [
        low + (torch.arange(n, dtype=torch.float64) + 0.5) / n * length
        for low, n, length in zip(lower, shape, lengths, strict=True)
    ]
    return torch.cartesian_prod(*axes).reshape(-1, domain.dim), lengths / torch.tensor(shape)
