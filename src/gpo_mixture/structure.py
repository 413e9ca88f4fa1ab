"""Alignment of Gaussians with the gradient of a field, and their density, each with a null band.

The gradient is that of all variables, each normalised.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float

from gpo.data.geometry import Geometry
from gpo.evaluation.derivatives import LocalFits
from gpo.interpretation.correlations import MEANINGS, Comparison, Null, rank_test
from gpo.interpretation.particle_fields import Assigned
from gpo_mixture.integral import gaussian_integrals
from gpo_mixture.mixture import GaussianMixture


@dataclass(frozen=True)
class RepresentedField:
    """A field at its sites and the mixture fitted to it."""

    mixture: GaussianMixture
    geometry: Geometry
    """Sites, masked where the field is missing."""
    values: Float[np.ndarray, "points variables"]
    units: tuple[str, ...] = ()
    """Units of every variable; may be empty."""


def describe_structure(
    fields: Sequence[RepresentedField], generator: np.random.Generator
) -> dict[str, Any]:
    """Returns the relation of Gaussians to the gradient, averaged over fields, with null bands.

    `alignment` is the mean cosine of twice the angle between the long axis of a Gaussian and the
    gradient at the nearest site, weighted by anisotropy and gradient: -1 along fronts, 1 across
    them, 0 unrelated. It is omitted in one and three dimensions. `density` is the rank correlation
    of the density of centers with the gradient, `footprints` that of the sum of all Gaussians, each
    with integral one.

    Args:
        fields: Fields of the same kind.
        generator: Draws the null distributions, in which the gradient is displaced.
    """
    nulls, gradients, densities = [], [], {"density": [], "footprints": []}
    alignments: list[Callable[[np.ndarray], float]] = []
    for field in fields:
        fits = LocalFits.of(field.geometry, ~field.geometry.is_masked)
        nulls.append(Null.of(field.geometry, fits.is_fitted, generator))
        gradient = fits.gradient(_normalised(field.values, field.geometry))
        tensor = np.einsum("nac,nbc->nab", gradient, gradient)
        strength = np.sqrt(np.trace(tensor, axis1=1, axis2=2))
        gradients.append(np.where(fits.is_fitted, strength, np.nan))
        assigned = Assigned.of(
            field.mixture.centers.numpy(), np.ones(len(field.mixture)), field.geometry, fits
        )
        densities["density"].append(assigned.density)
        densities["footprints"].append(np.where(fits.is_fitted, _footprints(field), np.nan))
        if fits.directions.shape[1] == 2:
            alignments.append(_alignment(field, fits, assigned, tensor))
    description: dict[str, Any] = {"null": nulls[0].kind, "null_means": MEANINGS[nulls[0].kind]}
    for name, density in densities.items():
        comparison = rank_test(density, gradients, nulls)
        description[name] = asdict(comparison) if comparison else {"reason": "the same at all sites"}  # fmt: skip
    if alignments:
        pairs = list(zip(alignments, nulls, strict=True))
        values = [alignment(np.arange(null.orders.shape[1])) for alignment, null in pairs]
        draws = [[alignment(order) for order in null.orders] for alignment, null in pairs]
        comparison = Comparison.of(float(np.mean(values)), np.mean(draws, axis=0))
        description["alignment"] = asdict(comparison)
    return description


def _normalised(values: np.ndarray, geometry: Geometry) -> np.ndarray:
    """Returns values of zero mean and unit variance; masked sites are set to zero first."""
    weights = geometry.weights[:, None]
    values = np.where(weights > 0, values, 0.0)
    mean = (weights * values).sum(0)
    spread = np.sqrt((weights * (values - mean) ** 2).sum(0))
    return (values - mean) / np.where(spread > 0, spread, 1.0)


def _footprints(field: RepresentedField) -> np.ndarray:
    """Returns the sum of all Gaussians, each with integral one, at the sites."""
    mixture = field.mixture
    integrals = gaussian_integrals(mixture.centers, mixture.factors, mixture.domain)
    amplitudes = (1 / integrals.clamp_min(1e-300)).unsqueeze(-1)
    columns = {"amplitudes": amplitudes, "offset": amplitudes.new_zeros(1), "variables": ()}
    normalised = GaussianMixture(**{**vars(mixture), **columns})
    return normalised(torch.from_numpy(field.geometry.coords))[:, 0].numpy()


def _alignment(
    field: RepresentedField, fits: LocalFits, assigned: Assigned, tensor: np.ndarray
) -> Callable[[np.ndarray], float]:
    """Returns the alignment as a function of a permutation of the sites."""
    is_inside = assigned.is_inside
    sites = assigned.site[is_inside]
    directions = fits.directions[sites]
    covariances = field.mixture.covariances.numpy()[is_inside]
    squares, axes = np.linalg.eigh(directions @ covariances @ directions.transpose(0, 2, 1))
    anisotropy = np.log(squares[:, 1] / squares[:, 0]) / 2
    long_axes = _traceless(np.einsum("pa,pb->pab", axes[:, :, 1], axes[:, :, 1]))
    traceless = _traceless(tensor)
    size = np.sqrt(2 * (traceless**2).sum((1, 2)))
    strength = np.sqrt(np.trace(tensor, axis1=1, axis2=2))
    # The cosine of twice the angle between unit vectors is twice the inner product of the
    # traceless parts of their outer products.
    gradients = traceless * (strength / np.where(size > 0, size, 1.0))[:, None, None] * 2

    def alignment(order: np.ndarray) -> float:
        rows = order[sites]
        total = float(anisotropy @ strength[rows])
        product = float(np.einsum("p,pab,pab->", anisotropy, long_axes, gradients[rows]))
        return product / total if total > 0 else 0.0

    return alignment


def _traceless(tensor: np.ndarray) -> np.ndarray:
    """Returns symmetric 2 by 2 tensors minus their isotropic part."""
    return tensor - np.trace(tensor, axis1=1, axis2=2)[:, None, None] / 2 * np.eye(2)
