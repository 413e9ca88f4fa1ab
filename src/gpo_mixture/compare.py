r"""Two mixtures beside each other: which Gaussians are the same, and how far the fields are apart.

Two Gaussians overlap by the cosine of the angle between them as functions,
$\langle\varphi_k,\varphi_l\rangle/(\|\varphi_k\|\|\varphi_l\|)=\sqrt{2^d\,(|\Sigma_k||\Sigma_l|)^{1/2}/|\Sigma_k+\Sigma_l|}\;
e^{-\frac12\delta^\top(\Sigma_k+\Sigma_l)^{-1}\delta}$ with $\delta=\mu_l-\mu_k$ over all of space. Times the
cosine between their amplitudes it is that of what they add to a field: 1 for the same, -1 for opposite ones.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int64
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from gpo_mixture.mixture import GaussianMixture


@dataclass(frozen=True)
class MixtureComparison:
    """The Gaussians of two mixtures that are alike, one row per pair, and the fields of both."""

    labels: Int64[Tensor, "pairs 2"]
    """Names of both."""
    similarities: Float[Tensor, " pairs"]
    """Cosine between what both add to the field, 1 where it is the same."""
    displacements: Float[Tensor, "pairs dim"]
    """From the first center to the second: the shortest way on periodic axes, the chord on the sphere."""
    amplitude_changes: Float[Tensor, "pairs channels"]
    """The second amplitude minus the first."""
    difference: float
    """Relative L2 of the second field to the first at the sites, from zero."""


def compare_mixtures(
    first: GaussianMixture,
    second: GaussianMixture,
    coords: Tensor,
    weights: Tensor | None,
    min_similarity: float,
) -> MixtureComparison:
    """Returns pairs of Gaussians and the difference of the fields; see `GaussianMixture.compare`."""
    if second.domain != first.domain:
        raise ValueError(
            f"`other` must live on the domain of this mixture, {first.domain}, got {second.domain}."
        )
    if len(second.offset) != len(first.offset) or second.variables != first.variables:
        raise ValueError(
            f"`other` must have the variables of this mixture, {_told(first)}, got {_told(second)}."
        )
    if not -1 <= min_similarity <= 1:
        raise ValueError(f"`min_similarity` must be from -1 to 1, got {min_similarity}.")
    alike = _overlaps(first, second) * _amplitude_cosines(first, second)
    ours, theirs = (torch.from_numpy(rows) for rows in linear_sum_assignment(-alike.cpu().numpy()))
    is_alike = alike[ours, theirs] >= min_similarity
    ours, theirs = ours[is_alike], theirs[is_alike]
    return MixtureComparison(
        torch.stack([first.labels[ours], second.labels[theirs]], -1),
        alike[ours, theirs],
        first.domain.offset(second.centers[theirs], first.centers[ours]),
        second.amplitudes[theirs] - first.amplitudes[ours],
        second.error(first(coords), coords, weights),
    )


def _overlaps(first: GaussianMixture, second: GaussianMixture) -> Float[Tensor, "first second"]:
    """Returns the cosine between every two Gaussians, of the nearest images on periodic axes."""
    way = first.domain.offset(second.centers, first.centers.unsqueeze(1))
    factor = torch.linalg.cholesky(first.covariances.unsqueeze(1) + second.covariances)
    z = torch.linalg.solve_triangular(factor, way.unsqueeze(-1), upper=False).squeeze(-1)
    sizes = (_log_size(first.factors).unsqueeze(1) + _log_size(second.factors)) / 2
    dim = first.domain.dim
    # Every determinant is the square of that of a factor.
    logarithm = dim / 2 * torch.log(torch.tensor(2.0)) + sizes - _log_size(factor)
    return torch.exp(logarithm.to(z) - 0.5 * z.square().sum(-1))


def _log_size(factors: Tensor) -> Tensor:
    return factors.diagonal(dim1=-2, dim2=-1).log().sum(-1)


def _amplitude_cosines(
    first: GaussianMixture, second: GaussianMixture
) -> Float[Tensor, "first second"]:
    """Returns the cosine between every two amplitudes, variables in units of their usual size."""
    size = torch.cat([first.amplitudes, second.amplitudes]).square().mean(0).sqrt()
    size = torch.where(size > 0, size, 1.0)
    units = [
        torch.nn.functional.normalize(one.amplitudes / size, dim=-1) for one in (first, second)
    ]
    return units[0] @ units[1].mT


def _told(mixture: GaussianMixture) -> str:
    names = ", ".join(mixture.variables)
    return f"{len(mixture.offset)} ({names})" if names else f"{len(mixture.offset)} without names"
