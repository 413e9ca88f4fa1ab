r"""Particle reconstruction: the field that the particles of all sites represent.

Gaussians $z_i=w_iG_i$ with the values $a_i$ of their sites represent the field
$\hat a(x)=\sum_i a_iz_i(x)\,/\,\sum_i z_i(x)$. A Gaussian field has a decoder of its own for that.
Particles that move represent no field: they are the departure points that a site samples.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from gpo.forecast.examples import Example
from gpo.forecast.forecaster import Forecaster
from gpo.model.particles import Particles
from gpo.numerics.domain import Domain
from gpo.numerics.gaussian import gaussian

MAX_PAIRS = 2**28
"""Pairs of a point and a particle that are evaluated; larger sets use the particles of every n-th site."""
MAX_OFFSETS = 2**20
"""Offsets in memory at a time."""


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
        reconstructed = forecaster(example.frames, example.coords, weights=example.site_weights)[0]
        return ParticleReconstruction(particles, field, reconstructed)
    amounts = values[0, :, -len(forecaster.task.inputs) :]
    reconstructed = _reconstructed(particles, amounts, example, operator.problem.domain)
    reconstructed = reconstructed * forecaster.input_std + forecaster.input_mean
    return ParticleReconstruction(
        particles, field, reconstructed[:, forecaster.task.num_forcings :]
    )


def _reconstructed(
    particles: Particles, amounts: Tensor, example: Example, domain: Domain
) -> Tensor:
    coords, num_gaussians = example.coords[0], particles.weights.shape[-1]
    sites = (example.weights[0] > 0).nonzero().flatten()
    stride = 1 + len(coords) * len(sites) * num_gaussians // MAX_PAIRS
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
