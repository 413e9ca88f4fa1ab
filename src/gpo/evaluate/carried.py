"""A field as the particles of its sites carry it, in the units of the data."""

from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from gpo.model.field import GaussianField
from gpo.model.operator import GaussianParticleOperator
from gpo.model.particles import Particles
from gpo.numerics.superposition import superposition
from gpo.train.examples import Example
from gpo.train.forecaster import Forecaster

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
