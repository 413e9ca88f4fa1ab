r"""Compares two mixtures: matching Gaussians, and the difference of the fields.

The overlap of two Gaussians is the cosine of the angle between them as functions over all space,
$\langle\varphi_k,\varphi_l\rangle/(\|\varphi_k\|\|\varphi_l\|)=\sqrt{2^d\,(|\Sigma_k||\Sigma_l|)^{1/2}/|\Sigma_k+\Sigma_l|}\;
e^{-\frac12\delta^\top(\Sigma_k+\Sigma_l)^{-1}\delta}$ with $\delta=\mu_l-\mu_k$. Multiplied by the cosine
between their amplitudes it is their similarity: 1 for equal contributions to the field, -1 for
opposite ones.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int64
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from gpo_mixture.mixture import GaussianMixture


@dataclass(frozen=True)
class MixtureComparison:
    """Matching Gaussians of two mixtures, one row per pair, and the difference of the fields."""

    labels: Int64[Tensor, "pairs 2"]
    """Labels in the first and in the second mixture."""
    similarities: Float[Tensor, " pairs"]
    """Cosine between the contributions of both to the field; 1 if they are equal."""
    displacements: Float[Tensor, "pairs dim"]
    """Second minus first center: minimum image on periodic axes, the chord on the sphere."""
    amplitude_changes: Float[Tensor, "pairs channels"]
    """Second minus first amplitude."""
    difference: float
    """Relative L2 difference of the second field from the first at the sites."""


def compare(
    first: GaussianMixture,
    second: GaussianMixture,
    coords: Float[Tensor, "points dim"],
    weights: Float[Tensor, " points"] | None = None,
    *,
    min_similarity: float = 0.5,
) -> MixtureComparison:
    """Matches the Gaussians of two mixtures and compares their fields.

    Pairs maximise the sum of similarities; labels are not used.

    Args:
        first: A mixture.
        second: A mixture of the same domain and variables.
        coords: Sites at which the fields are compared.
        weights: Quadrature weights; 0 masks a site.
        min_similarity: Smallest similarity of a pair.
    """
    if second.domain != first.domain:
        raise ValueError(
            f"Both mixtures must have the same domain, got {first.domain} and {second.domain}."
        )
    if len(second.offset) != len(first.offset) or second.variables != first.variables:
        raise ValueError(
            "Both mixtures must have the same variables, got "
            f"{_describe_variables(first)} and {_describe_variables(second)}."
        )
    if not -1 <= min_similarity <= 1:
        raise ValueError(f"`min_similarity` must be from -1 to 1, got {min_similarity}.")
    similarities = _overlaps(first, second) * _amplitude_cosines(first, second)
    assignment = linear_sum_assignment(-similarities.cpu().numpy())
    i, j = (torch.from_numpy(rows) for rows in assignment)
    is_similar = similarities[i, j] >= min_similarity
    i, j = i[is_similar], j[is_similar]
    return MixtureComparison(
        torch.stack([first.labels[i], second.labels[j]], -1),
        similarities[i, j],
        first.domain.offset(second.centers[j], first.centers[i]),
        second.amplitudes[j] - first.amplitudes[i],
        second.error(first(coords), coords, weights),
    )


def _overlaps(first: GaussianMixture, second: GaussianMixture) -> Float[Tensor, "first second"]:
    """Returns the overlap of every pair of Gaussians, with the minimum image on periodic axes."""
    offsets = first.domain.offset(second.centers, first.centers.unsqueeze(1))
    factor = torch.linalg.cholesky(first.covariances.unsqueeze(1) + second.covariances)
    z = torch.linalg.solve_triangular(factor, offsets.unsqueeze(-1), upper=False).squeeze(-1)
    log_dets = (_log_det(first.factors).unsqueeze(1) + _log_det(second.factors)) / 2
    # The determinant of a covariance is the square of that of its factor.
    log_norm = first.domain.dim / 2 * torch.log(torch.tensor(2.0)) + log_dets - _log_det(factor)
    return torch.exp(log_norm.to(z) - 0.5 * z.square().sum(-1))


def _log_det(factors: Tensor) -> Tensor:
    return factors.diagonal(dim1=-2, dim2=-1).log().sum(-1)


def _amplitude_cosines(
    first: GaussianMixture, second: GaussianMixture
) -> Float[Tensor, "first second"]:
    """Returns the cosine between all amplitudes, each variable in units of its RMS amplitude."""
    size = torch.cat([first.amplitudes, second.amplitudes]).square().mean(0).sqrt()
    size = torch.where(size > 0, size, 1.0)
    directions = [
        torch.nn.functional.normalize(mixture.amplitudes / size, dim=-1)
        for mixture in (first, second)
    ]
    return directions[0] @ directions[1].mT


def _describe_variables(mixture: GaussianMixture) -> str:
    names = ", ".join(mixture.variables)
    return f"{len(mixture.offset)} ({names})" if names else f"{len(mixture.offset)} without names"
