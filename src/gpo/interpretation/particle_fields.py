"""Particles as fields on the sites: their density, scale, anisotropy and orientation.

A particle counts at the site nearest to its center, not at the site that owns it: structures are
compared with what lies at the same place.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Bool, Float, Int

from gpo.data.geometry import Geometry
from gpo.interpretation.derivatives import LocalFits, shifted, site_tree
from gpo.interpretation.null import Null
from gpo.model.particles import Particles

MAX_PAIRS = 2**26
"""Pairs of site and particle up to which the sum of all footprints is taken without a grid."""
CHUNK = 2**22
"""Such pairs at a time."""


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
