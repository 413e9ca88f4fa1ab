r"""Gaussians of a domain at any points: value, gradient and Laplacian in closed form.

On periodic axes the nearest image of a Gaussian counts, so derivatives are exact everywhere but
half a period away from a center, where another image takes over. On the sphere derivatives are
those along the surface: the tangent part of the gradient, and the Laplace-Beltrami operator
$\Delta_S f=\Delta f-n\cdot\nabla^2f\,n-2\,n\cdot\nabla f$ with the normal $n=x$.
"""

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from gpo.numerics.domain import Domain
from gpo.numerics.gaussian import (
    gaussian,
    gaussian_curvature,
    gaussian_gradient,
    gaussian_laplacian,
)


@dataclass(frozen=True)
class Derivatives:
    """What functions are at points, and how they change there."""

    values: Float[Tensor, "*batch"]
    gradients: Float[Tensor, "*batch dim"]
    """Along the axes of the domain; on the sphere a tangent vector in three dimensions."""
    laplacians: Float[Tensor, "*batch"]


def gaussians_at(
    points: Float[Tensor, "points dim"],
    centers: Float[Tensor, "gaussians dim"],
    scales: Float[Tensor, "gaussians dim"],
    weights: Float[Tensor, " gaussians"],
    domain: Domain,
) -> Derivatives:
    r"""Returns every $z_i(x)=w_i\,G(x;\mu_i,\sigma_i)$ at every point, with its derivatives.

    Args:
        points: Where; unit vectors on the sphere.
        centers: Where the Gaussians peak.
        scales: Their standard deviations along every axis.
        weights: Their heights.
        domain: Where all of them live.
    """
    points = points.unsqueeze(1)
    offset = domain.offset(points, centers)
    gradients = gaussian_gradient(offset, scales)
    laplacians = gaussian_laplacian(offset, scales)
    if domain.is_sphere:
        outward = (gradients * points).sum(-1)
        laplacians = laplacians - gaussian_curvature(offset, scales, points) - 2 * outward
        gradients = gradients - outward.unsqueeze(-1) * points
    return Derivatives(
        weights * gaussian(offset, scales), weights.unsqueeze(-1) * gradients, weights * laplacians
    )
