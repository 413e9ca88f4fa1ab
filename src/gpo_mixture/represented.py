"""Do the Gaussians of a field follow its structures? Alignment and density, each with its null.

Structures are where the field changes: its gradient, of all variables, each normalised.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float

from gpo.data.geometry import Geometry
from gpo.interpretation.derivatives import LocalFits
from gpo.interpretation.null import MEANINGS, Comparison, Null, rank_test
from gpo.interpretation.particle_fields import Assigned
from gpo_mixture.integral import masses
from gpo_mixture.mixture import GaussianMixture


@dataclass(frozen=True)
class RepresentedField:
    """A field on its sites and the Gaussians that stand for it."""

    mixture: GaussianMixture
    geometry: Geometry
    """Masked where the field is not known."""
    values: Float[np.ndarray, "points variables"]
    units: tuple[str, ...] = ()
    """Of every variable, where they are known."""


def describe_mixtures(
    fields: Sequence[RepresentedField], generator: np.random.Generator
) -> dict[str, Any]:
    """Returns how Gaussians lie beside the gradient, the mean over fields, with null bands.

    `alignment` is the mean cosine of twice the angle between long axes and the gradient at the
    nearest site, by steepness and anisotropy: -1 along fronts, 1 across, 0 no relation; in space and
    on a line it has no such name and is left out. `density` is the rank correlation of the number of
    centers per area with the gradient, `footprints` that of the sum of all Gaussians, each of mass one.

    Args:
        fields: Fields of one kind.
        generator: Draws the null distributions: the gradient moved against the Gaussians.
    """
    nulls, steep, found = [], [], {"density": [], "footprints": []}
    measures: list[Callable[[np.ndarray], float]] = []
    for field in fields:
        known = ~field.geometry.is_masked
        fits = LocalFits.of(field.geometry, known)
        nulls.append(Null.of(field.geometry, fits.is_fitted, generator))
        gradient = fits.gradient(_normal(field.values, field.geometry))
        tensor = np.einsum("nac,nbc->nab", gradient, gradient)
        strength = np.sqrt(np.trace(tensor, axis1=1, axis2=2))
        steep.append(np.where(fits.is_fitted, strength, np.nan))
        assigned = Assigned.of(
            field.mixture.centers.numpy(), np.ones(len(field.mixture)), field.geometry, fits
        )
        found["density"].append(assigned.density)
        found["footprints"].append(np.where(fits.is_fitted, _footprints(field), np.nan))
        if fits.directions.shape[1] == 2:
            measures.append(_alignment(field, fits, assigned, tensor))
    told: dict[str, Any] = {"null": nulls[0].kind, "null_means": MEANINGS[nulls[0].kind]}
    for name, fields_of in found.items():
        compared = rank_test(fields_of, steep, nulls)
        told[name] = asdict(compared) if compared else {"reason": "the same at all sites"}
    if measures:
        values = [measure(np.arange(null.orders.shape[1])) for measure, null in zip(measures, nulls, strict=True)]  # fmt: skip
        draws = [[measure(order) for order in null.orders] for measure, null in zip(measures, nulls, strict=True)]  # fmt: skip
        told["alignment"] = asdict(Comparison.of(float(np.mean(values)), np.mean(draws, axis=0)))
    return told


def _normal(values: np.ndarray, geometry: Geometry) -> np.ndarray:
    q = geometry.weights[:, None]
    values = np.where(q > 0, values, 0.0)
    mean = (q * values).sum(0)
    spread = np.sqrt((q * (values - mean) ** 2).sum(0))
    return (values - mean) / np.where(spread > 0, spread, 1.0)


def _footprints(field: RepresentedField) -> np.ndarray:
    """Returns the sum of all Gaussians, each of mass one, at the sites."""
    mixture = field.mixture
    size = masses(mixture.centers, mixture.factors, mixture.domain).clamp_min(1e-300)
    columns = {"amplitudes": (1 / size).unsqueeze(-1), "offset": size.new_zeros(1)}
    even = GaussianMixture(**{**vars(mixture), "variables": (), **columns})
    return even(torch.from_numpy(field.geometry.coords))[:, 0].numpy()


def _alignment(
    field: RepresentedField, fits: LocalFits, assigned: Assigned, tensor: np.ndarray
) -> Callable[[np.ndarray], float]:
    """Returns a measure of the angle between long axes and gradients, given an order of the sites."""
    inside = assigned.is_inside
    site, directions = assigned.site[inside], fits.directions[assigned.site[inside]]
    covariances = field.mixture.covariances.numpy()[inside]
    squares, turns = np.linalg.eigh(directions @ covariances @ directions.transpose(0, 2, 1))
    length = np.log(squares[:, 1] / squares[:, 0]) / 2
    stretch = _free(np.einsum("pa,pb->pab", turns[:, :, 1], turns[:, :, 1]))
    free = _free(tensor)
    size = np.sqrt(2 * (free**2).sum((1, 2)))
    strength = np.sqrt(np.trace(tensor, axis1=1, axis2=2))
    # The cosine of twice the angle is the product of traceless tensors of unit vectors, doubled.
    direction = free * (strength / np.where(size > 0, size, 1.0))[:, None, None] * 2

    def measure(order: np.ndarray) -> float:
        there = order[site]
        total = float(length @ strength[there])
        product = float(np.einsum("p,pab,pab->", length, stretch, direction[there]))
        return product / total if total > 0 else 0.0

    return measure


def _free(tensor: np.ndarray) -> np.ndarray:
    """Returns symmetric tensors of the plane without their trace."""
    return tensor - np.trace(tensor, axis1=1, axis2=2)[:, None, None] / 2 * np.eye(2)
