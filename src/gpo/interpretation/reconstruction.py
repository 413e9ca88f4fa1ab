"""A field as the particles of its sites carry it, in the units of the data."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from gpo.forecast.examples import Example
from gpo.forecast.forecaster import Forecaster
from gpo.model.field import GaussianField
from gpo.model.operator import GaussianParticleOperator
from gpo.model.particles import Particles
from gpo.numerics.domain import Domain
from gpo.numerics.gaussian import gaussian

MOST_PAIRS = 2**28
"""Pairs of a point and a particle that are looked at; of larger sets every n-th site gives its particles."""


@dataclass(frozen=True)
class Carried:
    """Particles, and the field that is made of them alone."""

    particles: Particles
    field: Float[Tensor, "points variables"]
    """What the particles were made of: the last frame that was given."""
    rebuilt: Float[Tensor, "points variables"]
    """The mean of what particles carry, each the values of its site; of a Gaussian field, its decoder's."""


@torch.no_grad()
def carried_field(forecaster: Forecaster, example: Example) -> Carried | None:
    """Returns what the particles of one example carry; None where the model has none."""
    model = forecaster.model
    if not isinstance(model, GaussianParticleOperator | GaussianField):
        return None
    if not model.config.has_gaussian_field:
        return None
    values = forecaster.normalised_input(example.frames)
    particles = model.particles(values, example.coords, weights=example.weights)
    field = example.fields[0, -1]
    if isinstance(model, GaussianField):
        rebuilt = forecaster(example.frames, example.coords, weights=example.weights)[0]
        return Carried(particles, field, rebuilt)
    amounts = values[0, :, -len(forecaster.task.inputs) :]
    rebuilt = _rebuilt(particles, amounts, example, model)
    rebuilt = rebuilt * forecaster.input_std + forecaster.input_mean
    return Carried(particles, field, rebuilt[:, forecaster.task.num_known :])


def _rebuilt(
    particles: Particles, amounts: Tensor, example: Example, model: GaussianParticleOperator
) -> Tensor:
    coords, num_gaussians = example.coords[0], particles.weights.shape[-1]
    sites = (example.weights[0] > 0).nonzero().flatten()
    stride = 1 + len(coords) * len(sites) * num_gaussians // MOST_PAIRS
    sites = sites[::stride]
    return superposition(
        coords,
        particles.centers[0, sites].flatten(0, 1),
        particles.scales[0, sites].flatten(0, 1),
        particles.weights[0, sites].flatten(),
        amounts[sites].repeat_interleave(num_gaussians, dim=0),
        model.config.space,
    )


# >>> r"""A field as its Gaussians carry it: $\hat a(x)=\sum_i a_iz_i(x)\,/\,\sum_i z_i(x)$ with $z_i=w_iG_i$."""

MOST_NUMBERS = 2**20
"""Offsets that are held at once."""


def superposition(
    points: Float[Tensor, "points dim"],
    centers: Float[Tensor, "gaussians dim"],
    scales: Float[Tensor, "gaussians dim"],
    weights: Float[Tensor, " gaussians"],
    amounts: Float[Tensor, "gaussians channels"],
    domain: Domain,
) -> Float[Tensor, "points channels"]:
    """Returns the mean of what Gaussians carry, weighted with their heights; NaN where none reaches.

    Args:
        points: Where.
        centers: Where the Gaussians peak.
        scales: Their standard deviations along every axis.
        weights: Their peaks.
        amounts: What each of them carries.
        domain: Where all of them live.
    """
    carried = torch.cat([amounts, torch.ones_like(amounts[:, :1])], -1)
    num_points = max(1, MOST_NUMBERS // max(1, centers.numel()))
    sums = torch.cat(
        [
            (weights * gaussian(domain.offset(part.unsqueeze(1), centers), scales)) @ carried
            for part in points.split(num_points)
        ]
    )
    return sums[:, :-1] / sums[:, -1:]
