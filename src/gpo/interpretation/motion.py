r"""How far particles are from their sites, and in which direction.

The displacement $\delta=x-\mu$ leads from the center of a particle to the site that owns it. In the
geometric variant the center is where what arrives at the site came from, so that $\delta$ is a motion
that the model computed; whether it is one of the field is for comparisons to tell.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from gpo.data.geometry import Geometry
from gpo.interpretation.derivatives import LocalFits
from gpo.interpretation.particle_fields import Assigned
from gpo.model.model import AbstractModel
from gpo.model.operator import GaussianParticleOperator
from gpo.model.particles import Particles
from gpo.numerics.domain import Domain
from gpo.numerics.footprints import tangent_frame

AT_REACH = 0.99
"""Fraction of the reach from which on a displacement counts as being as far as it may be."""


def has_moving_particles(model: AbstractModel) -> bool:
    """Returns whether sites look at each other through particles that move."""
    operator = model.operator
    return operator is not None and bool(operator.transports)


def displacements(
    particles: Particles, coords: Float[Tensor, "#batch points dim"], domain: Domain
) -> Float[Tensor, "batch points gaussians axes"]:
    """Returns the way from the center of every particle to its site.

    In a box it is the shortest one around periodic axes, in domain units. On the sphere it is the
    great circle, by its components to the east and to the north at the site, in radii.
    """
    if not domain.is_sphere:
        return domain.offset(coords.unsqueeze(-2), particles.centers)
    # East and north of a site, one row for all of its particles.
    aside = particles.centers @ tangent_frame(coords).mT
    ahead = particles.centers @ coords.unsqueeze(-1)
    sine = aside.norm(dim=-1, keepdim=True)
    return -aside * torch.atan2(sine, ahead) / sine.clamp_min(torch.finfo(sine.dtype).tiny)


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


def fraction_at_reach(
    moving: Sequence[MotionFields], model: GaussianParticleOperator
) -> float | None:
    """Returns the fraction of displacements as long along some axis as they may be.

    Such a particle says that its site looks far away, not where to, and learns nothing any more.
    None on a mesh fitted to a body, where a reach is counted in nodes.
    """
    if model.problem.is_fitted:
        return None
    domain = model.problem.domain
    sides = np.subtract(domain.upper, domain.lower)
    most = AT_REACH * model.config.reach * (sides.max() if domain.is_sphere else sides)
    rows = [one.each[np.isfinite(one.displacement)] for one in moving]
    return float(np.mean([(np.abs(ways) > most).any(-1).mean() for ways in rows]))
