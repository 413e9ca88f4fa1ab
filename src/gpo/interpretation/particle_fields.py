"""Particles as fields on the sites: their density, scale, anisotropy and orientation.

A particle counts at the site nearest to its center, not at the site that owns it: structures are
compared with what lies at the same place.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from scipy.stats import wasserstein_distance

from gpo.data.geometry import Geometry
from gpo.forecast.forecaster import Forecaster
from gpo.interpretation.batches import Batch
from gpo.interpretation.correlations import Null
from gpo.interpretation.derivatives import LocalFits, shifted, site_tree
from gpo.interpretation.displacements import displacements, has_moving_particles
from gpo.model.particles import Particles

MAX_PAIRS = 2**26
"""Pairs of site and particle up to which the sum of all footprints is taken without a grid."""
CHUNK = 2**22
"""Such pairs at a time."""
MAX_NUMBERS = 2**18
"""Particles of a set that enter its distribution, evenly chosen."""
Quantities = dict[str, list[np.ndarray]]
"""By name, one array per example: weight and displacement of all its particles, and their scale and
anisotropy where the encoder predicts them."""


@dataclass(frozen=True)
class Assigned:
    """Particles, each at the site nearest to its center."""

    site: Int[np.ndarray, " particles"]
    """Number of that site."""
    is_inside: Bool[np.ndarray, " particles"]
    """False where the center lies beyond the sites."""
    weights: Float[np.ndarray, " particles"]
    area: Float[np.ndarray, " points"]
    """Of every site; NaN where it has no derivatives."""

    @classmethod
    def of(
        cls,
        centers: Float[np.ndarray, "particles dim"],
        weights: Float[np.ndarray, " particles"],
        geometry: Geometry,
        fits: LocalFits,
    ) -> "Assigned":
        """Finds the nearest of the sites that are fitted."""
        known = np.flatnonzero(fits.is_fitted)
        tree = site_tree(geometry.coords[known], geometry.domain)
        distances, nearest = tree.query(shifted(centers, geometry.domain))
        site = known[nearest]
        area = np.where(fits.is_fitted & (geometry.weights > 0), geometry.weights, np.nan)
        return cls(site, distances <= fits.reach[site], weights, area)

    @property
    def density(self) -> Float[np.ndarray, " points"]:
        """Weight of the centers per area; a site that no center is nearest to is empty, not unknown."""
        return self._sum(self.weights) / self.area

    @property
    def fraction_outside(self) -> float:
        """Fraction of the weight whose centers lie beyond the sites."""
        outside = self.weights[~self.is_inside].sum()
        return float(outside / max(self.weights.sum(), 1e-300))

    def mean(self, numbers: Float[np.ndarray, " particles"]) -> Float[np.ndarray, " points"]:
        """Returns the mean over the particles of every site, by weight; NaN where there is none."""
        total, counted = self._sum(self.weights * numbers), self._sum(self.weights)
        return np.where(counted > 0, total / np.where(counted > 0, counted, 1.0), np.nan)

    def _sum(self, numbers: np.ndarray) -> np.ndarray:
        inside = self.is_inside
        return np.bincount(self.site[inside], numbers[inside], minlength=len(self.area))


@dataclass(frozen=True)
class ParticleFields:
    """Statistics of the particles nearest to every site; NaN where there is none."""

    QUANTITIES: ClassVar = ("density", "footprints", "scale", "anisotropy")
    """What is compared with structures."""
    DIRECTION: ClassVar = "long axis"
    """What has an orientation."""

    density: Float[np.ndarray, " points"]
    """Weight of the centers that are nearest to a site, per area."""
    footprints: Float[np.ndarray, " points"] | None
    """Sum of all weighted Gaussians, each of mass one; None where it is too costly."""
    scale: Float[np.ndarray, " points"]
    """Mean logarithm of the scales of the particles there."""
    anisotropy: Float[np.ndarray, " points"] | None
    """Mean logarithm of the ratio of their largest to their smallest scale; None on a line."""
    orientation: Float[np.ndarray, "points axes axes"] | None
    """Mean of their logarithmic scales as a traceless tensor: the direction they are long in; None
    on a line."""
    fraction_outside: float
    """Fraction of the weight whose centers lie beyond the sites."""
    basis_at_site: float
    """Mean over sites of the sum of the site's own basis, between 0 and 1: how much of its
    particles reaches the site."""

    @classmethod
    def of(
        cls, particles: Particles, sample: int, geometry: Geometry, fits: LocalFits
    ) -> "ParticleFields":
        """Averages the particles of one sample over the sites that are fitted."""
        domain, known = geometry.domain, np.flatnonzero(fits.is_fitted)
        coords = torch.from_numpy(geometry.coords)[None, known]
        chosen = (sample, torch.from_numpy(known))
        mine = Particles(
            particles.centers[chosen][None].double(),
            particles.scales[chosen][None].double(),
            particles.weights[chosen][None].double(),
        )
        basis = mine.basis(coords, domain).sum(-1).mean().item()
        centers, scales = (part.flatten(0, 2).numpy() for part in (mine.centers, mine.scales))
        weights = mine.weights.flatten().numpy()
        assigned = Assigned.of(centers, weights, geometry, fits)
        sizes, stretch = _shapes(scales, fits.directions[assigned.site])
        num_axes, anisotropy, orientation = stretch.shape[-1], None, None
        if num_axes > 1:
            anisotropy = assigned.mean(np.ptp(sizes, axis=-1))
            rows = [assigned.mean(row) for row in stretch.reshape(-1, num_axes**2).T]
            orientation = np.stack(rows, -1).reshape(-1, num_axes, num_axes)
        return cls(
            assigned.density,
            _footprints(centers, scales, weights / np.exp(sizes.sum(-1)), geometry, fits),
            assigned.mean(sizes.mean(-1)),
            anisotropy,
            orientation,
            assigned.fraction_outside,
            basis,
        )


def fits_and_nulls(
    geometry: Geometry,
    is_known: Bool[np.ndarray, "batch points"],
    generator: np.random.Generator,
) -> Iterator[tuple[LocalFits, Null]]:
    """Yields derivatives and null of every example, computed anew where other sites are known.

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
    """Returns logarithmic scales along the axes of every footprint, and the tensor of them.

    On the sphere a Gaussian of space is cut by the tangent plane.
    """
    precision = np.einsum("pad,pd,pbd->pab", directions, scales**-2, directions)
    values, vectors = np.linalg.eigh(precision)
    sizes = -0.5 * np.log(values)
    free = sizes - sizes.mean(-1, keepdims=True)
    return sizes, np.einsum("pai,pi,pbi->pab", vectors, free, vectors)


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
    # Axis-aligned Gaussians on a grid are products of what they are along its axes.
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
    smallest; both are left out where particles move, whose scales are those of a lattice.
    `displacement` are the components of the way from the center of a particle to its site.
    """
    rows: Quantities = {}
    for batch in batches:
        particles, domain = batch.particles(forecaster), batch.geometry.domain
        coords = batch.example.coords
        lengths = domain.unit_lengths(coords)
        numbers = {
            "weight": particles.weights,
            "displacement": displacements(particles, coords, domain) / lengths,
        }
        if not has_moving_particles(forecaster.model):
            scales = (particles.scales / lengths).log()
            numbers["scale"] = scales.mean(-1).exp()
            numbers["anisotropy"] = scales.amax(-1) - scales.amin(-1)
        for number, is_known in enumerate(torch.from_numpy(batch.is_known)):
            for name, values in numbers.items():
                row = values[number, is_known].double().flatten().numpy()
                rows.setdefault(name, []).append(row)
    return rows


def fraction_from_field(quantities: Quantities) -> dict[str, float | None]:
    """Returns the fraction of the variance of every quantity that is between examples at one site.

    0: a quantity depends on the site and on the number of the particle there alone; 1: on the
    field alone. None where examples have different sites, or nothing varies.
    """
    fractions: dict[str, float | None] = {}
    for name, arrays in quantities.items():
        if len(arrays) < 2 or len({len(numbers) for numbers in arrays}) > 1:
            fractions[name] = None
            continue
        stacked = np.stack(arrays)
        total = float(stacked.var())
        fractions[name] = float(stacked.var(axis=0).mean()) / total if total > 0 else None
    return fractions


def drift(usual: Quantities, other: Quantities) -> dict[str, dict[str, Any]]:
    """Returns the Wasserstein-1 distance of every quantity, in its units and in usual spreads.

    `spread` is the distance between the first and the second half of the usual examples, which
    `ratio` is relative to: 1 is no drift. None where both halves are the same.
    """
    rows = {}
    for name, mine in usual.items():
        half = (len(mine) + 1) // 2
        distance = _distance(mine, other[name])
        spread = _distance(mine[:half], mine[half:]) if len(mine) > 1 else 0.0
        ratio = distance / spread if spread > 0 else None
        rows[name] = {"distance": distance, "spread": spread, "ratio": ratio}
    return rows


def _distance(first: Sequence[np.ndarray], second: Sequence[np.ndarray]) -> float:
    pair = []
    for arrays in (first, second):
        numbers = np.concatenate(arrays)
        pair.append(numbers[:: max(1, -(-len(numbers) // MAX_NUMBERS))])
    return float(wasserstein_distance(*pair))


@dataclass(frozen=True)
class MotionFields:
    """Statistics of moving particles, as fields on the sites; NaN at sites without derivatives."""

    QUANTITIES: ClassVar = ("density", "displacement")
    """What is compared with structures."""
    DIRECTION: ClassVar = "displacement"
    """What has an orientation."""

    density: Float[np.ndarray, " points"]
    """Weight of the centers that are nearest to a site, per area: how much is looked at from elsewhere."""
    displacement: Float[np.ndarray, " points"]
    """Mean distance of a site from the centers of its particles."""
    mean: Float[np.ndarray, "points axes"]
    """Mean displacement of the particles of a site."""
    each: Float[np.ndarray, "points gaussians axes"]
    """Displacement of every particle."""
    orientation: Float[np.ndarray, "points axes axes"] | None
    """Mean of displacements as a traceless tensor: the line along which they lie; None on a line."""
    fraction_outside: float
    """Fraction of the weight whose centers lie beyond the sites."""

    @classmethod
    def of(
        cls, particles: Particles, sample: int, geometry: Geometry, fits: LocalFits
    ) -> "MotionFields":
        """Averages the particles of one sample, by weight, over the sites that are fitted."""
        chosen = torch.from_numpy(fits.is_fitted)
        mine = Particles(
            *(
                getattr(particles, name)[sample, chosen][None].double()
                for name in ("centers", "scales", "weights")
            )
        )
        coords = torch.from_numpy(geometry.coords)[None, chosen]
        ways = displacements(mine, coords, geometry.domain)[0].numpy()
        weights = mine.weights[0].numpy()
        lengths, num_axes = np.linalg.norm(ways, axis=-1), ways.shape[-1]
        along = np.einsum(
            "ng,nga,ngb->nab", weights / np.where(lengths > 0, lengths, 1), ways, ways
        )
        distance = (weights * lengths).sum(-1)
        along -= distance[:, None, None] / num_axes * np.eye(num_axes)
        assigned = Assigned.of(mine.centers.flatten(0, 2).numpy(), weights.ravel(), geometry, fits)

        def at_sites(numbers: np.ndarray) -> np.ndarray:
            placed = np.full((geometry.num_points, *numbers.shape[1:]), np.nan)
            placed[fits.is_fitted] = numbers
            return placed

        return cls(
            assigned.density,
            at_sites(distance),
            at_sites(np.einsum("ng,nga->na", weights, ways)),
            at_sites(ways),
            at_sites(along) if num_axes > 1 else None,
            assigned.fraction_outside,
        )
