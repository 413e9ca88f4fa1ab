"""Domains, random mixtures and grids for tests."""

import torch

from gpo import Domain
from gpo_mixture import GaussianMixture
from gpo_mixture.shapes import make_shapes

BOXES = {
    "line": Domain.box([0], [2]),
    "circle": Domain.box([0], [2], True),
    "plane": Domain.box([0, -1], [2, 1]),
    "torus": Domain.box([0, -1], [2, 1], True),
    "tube": Domain.box([0, -1], [2, 1], [True, False]),
    "space": Domain.unit_box(3),
    "sphere": Domain.sphere(),
}


def random_mixture(domain, *, count=5, channels=2, seed=0, size=0.25):
    """Returns Gaussians of random orientation in a domain."""
    generator = torch.Generator().manual_seed(seed)

    def uniform(*shape):
        return torch.rand(*shape, generator=generator, dtype=torch.float64)

    def normal(*shape):
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    if domain.is_sphere:
        centers = domain.wrap(normal(count, 3))
        stretch = size * (normal(count, 3, 3) + 2 * torch.eye(3))
        factors = make_shapes(centers, stretch @ stretch.mT, domain).factors()
    else:
        centers = domain.from_unit(0.2 + 0.6 * uniform(count, domain.dim))
        diagonal = size * (0.5 + uniform(count, domain.dim))
        factors = torch.diag_embed(diagonal) + size * normal(count, domain.dim, domain.dim).tril(-1)
    return GaussianMixture(
        centers, factors, normal(count, channels), normal(channels), torch.arange(count), domain
    )


def grid(domain, *shape):
    """Returns coordinates and quadrature weights of a grid in double precision."""
    coords, weights = domain.grid(*shape)
    return coords.double(), weights.double()
