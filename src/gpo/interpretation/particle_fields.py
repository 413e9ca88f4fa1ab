r"""Statistics of particles as fields on the sites and over all particles, and the field they represent.

In a field of statistics a particle contributes to the site nearest to its center, not to the site that
owns it: structures are compared with the particles at the same location.

Gaussians $z_i=w_iG_i$ with the values $a_i$ of their sites represent the field
$\hat a(x)=\sum_i a_iz_i(x)\,/\,\sum_i z_i(x)$. A Gaussian field has a decoder of its own for that.
Particles that move represent no field: they are the departure points that a site samples.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from gpo.data.geometry import Geometry
from gpo.evaluation.derivatives import LocalFits, nearest_sites
from gpo.forecast.examples import Example
from gpo.forecast.forecaster import Forecaster
from gpo.interpretation.batches import Batch
from gpo.interpretation.correlations import Null
from gpo.interpretation.displacements import displacements, has_moving_particles
from gpo.model.particles import Particles
from gpo.numerics.domain import Domain
from gpo.numerics.gaussian import gaussian

MAX_PAIRS = 2**26
"""Pairs of site and particle up to which footprints are summed on unstructured points."""
CHUNK = 2**22
"""Such pairs that are evaluated at a time."""
MAX_RECONSTRUCTED = 2**28
"""Pairs of a point and a particle in a reconstruction; larger sets use the particles of every n-th site."""
MAX_OFFSETS = 2**20
"""Offsets of a reconstruction in memory at a time."""

Quantities = dict[str, list[np.ndarray]]
"""By name, one array per example: weight and displacement of all its particles, and their scale and
anisotropy if the encoder predicts them."""


@dataclass(frozen=True)
class Assigned:
    """Particles, each assigned to the site nearest to its center."""

    site: Int[np.ndarray, " particles"]
    """Number of that site."""
    is_inside: Bool[np.ndarray, " particles"]
    """False if the center lies beyond the sites."""
    weights: Float[np.ndarray, " particles"]
    area: Float[np.ndarray, " points"]
    """Of every site; NaN at sites without derivatives."""

    @classmethod
    def of(
        cls,
        centers: Float[np.ndarray, "particles dim"],
        weights: Float[np.ndarray, " particles"],
        geometry: Geometry,
        fits: LocalFits,
    ) -> "Assigned":
        """Assigns every particle to the nearest fitted site."""
        known = np.flatnonzero(fits.is_fitted)
        distances, nearest = nearest_sites(geometry.coords[known], centers, geometry.domain)
        site = known[nearest]
        area = np.where(fits.is_fitted & (geometry.weights > 0), geometry.weights, np.nan)
        return cls(site, distances <= fits.reach[site], weights, area)

    @property
    def density(self) -> Float[np.ndarray, " points"]:
        """Weight of the assigned particles per area; zero at sites without particles."""
        return self._sum(self.weights) / self.area

    @property
    def fraction_outside(self) -> float:
        """Fraction of the weight whose centers lie beyond the sites."""
        outside = self.weights[~self.is_inside].sum()
        return float(outside / max(self.weights.sum(), 1e-300))

    def mean(self, values: Float[np.ndarray, " particles"]) -> Float[np.ndarray, " points"]:
        """Returns the weighted mean over the particles of every site; NaN without particles."""
        total, weight = self._sum(self.weights * values), self._sum(self.weights)
        return np.where(weight > 0, total / np.where(weight > 0, weight, 1.0), np.nan)

    def _sum(self, values: np.ndarray) -> np.ndarray:
        inside = self.is_inside
        return np.bincount(self.site[inside], values[inside], minlength=len(self.area))


@dataclass(frozen=True)
class ParticleFields:
    """Statistics of the particles nearest to every site; NaN without particles."""

    QUANTITIES: ClassVar = ("density", "footprints", "scale", "anisotropy")
    """Fields that are compared with structures."""
    DIRECTION: ClassVar = "long axis"
    """What `orientation` is the direction of."""

    density: Float[np.ndarray, " points"]
    """Weight of the centers nearest to a site, per area."""
    footprints: Float[np.ndarray, " points"] | None
    """Sum of all weighted Gaussians, each of integral one; None if it is too costly."""
    scale: Float[np.ndarray, " points"]
    """Mean logarithm of the scales."""
    anisotropy: Float[np.ndarray, " points"] | None
    """Mean logarithm of the ratio of largest to smallest scale; None in one dimension."""
    orientation: Float[np.ndarray, "points axes axes"] | None
    """Mean traceless tensor of logarithmic scales: the direction of the long axis; None in one
    dimension."""
    fraction_outside: float
    """Fraction of the weight whose centers lie beyond the sites."""
    basis_at_site: float
    """Sum of a site's own basis functions at the site, from 0 to 1, mean over sites."""

    @classmethod
    def of(
        cls, particles: Particles, sample: int, geometry: Geometry, fits: LocalFits
    ) -> "ParticleFields":
        """Averages the particles of one sample over the fitted sites."""
        particles, coords = _at_fitted(particles, sample, geometry, fits)
        basis = particles.basis(coords, geometry.domain).sum(-1).mean().item()
        centers, scales = (p.flatten(0, 2).numpy() for p in (particles.centers, particles.scales))
        weights = particles.weights.flatten().numpy()
        assigned = Assigned.of(centers, weights, geometry, fits)
        log_scales, tensors = _shapes(scales, fits.directions[assigned.site])
        num_axes, anisotropy, orientation = tensors.shape[-1], None, None
        if num_axes > 1:
            anisotropy = assigned.mean(np.ptp(log_scales, axis=-1))
            rows = [assigned.mean(row) for row in tensors.reshape(-1, num_axes**2).T]
            orientation = np.stack(rows, -1).reshape(-1, num_axes, num_axes)
        return cls(
            assigned.density,
            _footprints(centers, scales, weights / np.exp(log_scales.sum(-1)), geometry, fits),
            assigned.mean(log_scales.mean(-1)),
            anisotropy,
            orientation,
            assigned.fraction_outside,
            basis,
        )


@dataclass(frozen=True)
class MotionFields:
    """Statistics of the displacements at every site; NaN at sites without derivatives."""

    QUANTITIES: ClassVar = ("density", "displacement")
    """Fields that are compared with structures."""
    DIRECTION: ClassVar = "displacement"
    """What `orientation` is the direction of."""

    density: Float[np.ndarray, " points"]
    """Weight of the centers nearest to a site, per area: how often other sites sample it."""
    displacement: Float[np.ndarray, " points"]
    """Mean length of the displacements of a site."""
    mean: Float[np.ndarray, "points axes"]
    """Mean displacement of the particles of a site."""
    each: Float[np.ndarray, "points gaussians axes"]
    """Displacement of every particle."""
    orientation: Float[np.ndarray, "points axes axes"] | None
    """Mean traceless tensor of displacements: the line along which they lie; None in one dimension."""
    fraction_outside: float
    """Fraction of the weight whose centers lie beyond the sites."""

    @classmethod
    def of(
        cls, particles: Particles, sample: int, geometry: Geometry, fits: LocalFits
    ) -> "MotionFields":
        """Averages the particles of one sample, by weight, over the fitted sites."""
        particles, coords = _at_fitted(particles, sample, geometry, fits)
        vectors = displacements(particles, coords, geometry.domain)[0].numpy()
        weights = particles.weights[0].numpy()
        lengths, num_axes = np.linalg.norm(vectors, axis=-1), vectors.shape[-1]
        per_length = weights / np.where(lengths > 0, lengths, 1)
        tensors = np.einsum("ng,nga,ngb->nab", per_length, vectors, vectors)
        mean_length = (weights * lengths).sum(-1)
        tensors -= mean_length[:, None, None] / num_axes * np.eye(num_axes)
        centers = particles.centers.flatten(0, 2).numpy()
        assigned = Assigned.of(centers, weights.ravel(), geometry, fits)

        def at_sites(values: np.ndarray) -> np.ndarray:
            field = np.full((geometry.num_points, *values.shape[1:]), np.nan)
            field[fits.is_fitted] = values
            return field

        return cls(
            assigned.density,
            at_sites(mean_length),
            at_sites(np.einsum("ng,nga->na", weights, vectors)),
            at_sites(vectors),
            at_sites(tensors) if num_axes > 1 else None,
            assigned.fraction_outside,
        )


def _at_fitted(
    particles: Particles, sample: int, geometry: Geometry, fits: LocalFits
) -> tuple[Particles, torch.Tensor]:
    """Returns the particles of the fitted sites of one sample, and the coordinates of these sites."""
    index = torch.from_numpy(np.flatnonzero(fits.is_fitted))
    parts = (particles.centers, particles.scales, particles.weights)
    kept = Particles(*(part[sample, index][None].double() for part in parts))
    return kept, torch.from_numpy(geometry.coords)[None, index]


def fits_and_nulls(
    geometry: Geometry,
    is_known: Bool[np.ndarray, "batch points"],
    generator: np.random.Generator,
) -> Iterator[tuple[LocalFits, Null]]:
    """Yields derivatives and null of every example, computed again when the known sites change.

    Args:
        geometry: The sites of all examples.
        is_known: False where an example has no value.
        generator: Draws the nulls.
    """
    fits = null = None
    for number, row in enumerate(is_known):
        if fits is None or null is None or (row != is_known[number - 1]).any():
            fits = LocalFits.of(geometry, row)
            null = Null.of(geometry, fits.is_fitted, generator)
        yield fits, null


def _shapes(scales: np.ndarray, directions: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Returns logarithmic scales along the principal axes, and the traceless tensor of them.

    On the sphere a Gaussian in space is restricted to the tangent plane.
    """
    precision = np.einsum("pad,pd,pbd->pab", directions, scales**-2, directions)
    values, vectors = np.linalg.eigh(precision)
    log_scales = -0.5 * np.log(values)
    deviations = log_scales - log_scales.mean(-1, keepdims=True)
    return log_scales, np.einsum("pai,pi,pbi->pab", vectors, deviations, vectors)


def _footprints(
    centers: np.ndarray,
    scales: np.ndarray,
    weights: np.ndarray,
    geometry: Geometry,
    fits: LocalFits,
) -> np.ndarray | None:
    """Returns the sum of all Gaussians at the sites, up to a constant factor."""
    domain = geometry.domain
    is_grid = bool(geometry.axes) and not domain.is_sphere
    if not is_grid and geometry.num_points * len(centers) > MAX_PAIRS:
        return None
    # Axis-aligned Gaussians on a grid are products of functions of one coordinate.
    lines = geometry.axes if is_grid else geometry.coords.T
    letters = "ijk"[: len(lines)] if is_grid else "i" * len(lines)
    rule = ",".join(f"{letter}p" for letter in letters) + f",p->{''.join(dict.fromkeys(letters))}"
    total, step = np.zeros(geometry.num_points), max(1, CHUNK // geometry.num_points)
    for start in range(0, len(centers), step):
        some, kernels = slice(start, start + step), []
        for axis, line in enumerate(lines):
            offset = line[:, None] - centers[some, axis]
            if domain.periodic[axis]:
                length = domain.upper[axis] - domain.lower[axis]
                offset -= length * np.round(offset / length)
            kernels.append(np.exp(-0.5 * (offset / scales[some, axis]) ** 2))
        total += np.einsum(rule, *kernels, weights[some], optimize=True).ravel()
    return np.where(fits.is_fitted, total, np.nan)


def particle_quantities(forecaster: Forecaster, batches: Sequence[Batch]) -> Quantities:
    """Returns the quantities of all particles, lengths in unit lengths of the domain.

    `scale` is the geometric mean over axes, `anisotropy` the logarithm of the largest over the
    smallest; particles that move have neither, since their scales are those of a lattice.
    `displacement` contains the components of the displacements.
    """
    rows: Quantities = {}
    for batch in batches:
        particles, coords = batch.particles(forecaster), batch.example.coords
        domain = batch.geometry.domain
        lengths = domain.unit_lengths(coords)
        quantities = {
            "weight": particles.weights,
            "displacement": displacements(particles, coords, domain) / lengths,
        }
        if not has_moving_particles(forecaster.model):
            scales = (particles.scales / lengths).log()
            quantities["scale"] = scales.mean(-1).exp()
            quantities["anisotropy"] = scales.amax(-1) - scales.amin(-1)
        for sample, is_known in enumerate(torch.from_numpy(batch.is_known)):
            for name, values in quantities.items():
                row = values[sample, is_known].double().flatten().numpy()
                rows.setdefault(name, []).append(row)
    return rows


def fraction_from_field(quantities: Quantities) -> dict[str, float | None]:
    """Returns the fraction of the variance of every quantity that is between examples at one site.

    0: a quantity depends only on the site and the number of the particle; 1: only on the field.
    None if examples have different sites, or nothing varies.
    """
    fractions: dict[str, float | None] = {}
    for name, arrays in quantities.items():
        if len(arrays) < 2 or len({len(values) for values in arrays}) > 1:
            fractions[name] = None
            continue
        stacked = np.stack(arrays)
        total = float(stacked.var())
        fractions[name] = float(stacked.var(axis=0).mean()) / total if total > 0 else None
    return fractions


@dataclass(frozen=True)
class ParticleReconstruction:
    """Particles, and the field reconstructed from them alone."""

    particles: Particles
    field: Float[Tensor, "points variables"]
    """The last input frame, which the particles encode, in the units of the data."""
    reconstructed: Float[Tensor, "points variables"]
    """Its reconstruction from the particles."""


@torch.no_grad()
def reconstruct(forecaster: Forecaster, example: Example) -> ParticleReconstruction | None:
    """Returns the particle reconstruction of one example; None for a model without an encoder."""
    operator = forecaster.model.operator
    if operator is None or not operator.lift.has_particles:
        return None
    values = forecaster.normalised_input(example.frames)
    (particles,) = operator.particles(values, example.coords, weights=example.site_weights)
    field = example.fields[0, -1]
    if forecaster.reconstructs:
        reconstructed = forecaster.alone(
            example.frames, example.coords, weights=example.site_weights
        )[0]
        return ParticleReconstruction(particles, field, reconstructed)
    amounts = values[0, :, -len(forecaster.task.inputs) :]
    reconstructed = _reconstructed(particles, amounts, example, operator.problem.domain)
    reconstructed = reconstructed * forecaster.input_scale + forecaster.input_mean
    return ParticleReconstruction(
        particles, field, reconstructed[:, forecaster.task.num_forcings :]
    )


def _reconstructed(
    particles: Particles, amounts: Tensor, example: Example, domain: Domain
) -> Tensor:
    coords, num_gaussians = example.coords[0], particles.weights.shape[-1]
    sites = (example.weights[0] > 0).nonzero().flatten()
    stride = 1 + len(coords) * len(sites) * num_gaussians // MAX_RECONSTRUCTED
    sites = sites[::stride]
    return superposition(
        coords,
        particles.centers[0, sites].flatten(0, 1).double(),
        particles.scales[0, sites].flatten(0, 1).double(),
        particles.weights[0, sites].flatten().double(),
        amounts[sites].repeat_interleave(num_gaussians, dim=0).double(),
        domain,
    )


def superposition(
    points: Float[Tensor, "points dim"],
    centers: Float[Tensor, "gaussians dim"],
    scales: Float[Tensor, "gaussians dim"],
    weights: Float[Tensor, " gaussians"],
    amounts: Float[Tensor, "gaussians channels"],
    domain: Domain,
) -> Float[Tensor, "points channels"]:
    """Returns the mean of the amounts, weighted by the Gaussians; NaN where all of them vanish.

    Args:
        points: Coordinates at which the mean is evaluated.
        centers: Centers of the Gaussians.
        scales: Their standard deviations along every axis.
        weights: Their peak values.
        amounts: The value of each.
        domain: Defines offsets.
    """
    columns = torch.cat([amounts, torch.ones_like(amounts[:, :1])], -1)
    num_points = max(1, MAX_OFFSETS // max(1, centers.numel()))
    sums = torch.cat(
        [
            (weights * gaussian(domain.offset(part.unsqueeze(1), centers), scales)) @ columns
            for part in points.split(num_points)
        ]
    )
    return sums[:, :-1] / sums[:, -1:]
