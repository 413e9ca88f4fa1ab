r"""Displacements of particles, and the part of a prediction that is due to them.

The displacement $\delta=x-\mu$ points from the center of a particle to the site that owns it. In the
geometric variant the center is the departure point that the site samples, so $\delta$ is a motion that
the model computed. Predictions with other displacements are in `controls.py`.
"""

from collections.abc import Sequence

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from gpo.forecast.forecaster import Forecaster
from gpo.interpretation.batches import Batch, distances
from gpo.model.ablation import Ablation, Displacing
from gpo.model.model import AbstractModel
from gpo.model.particles import Particles
from gpo.numerics.domain import Domain
from gpo.numerics.footprints import tangent_frame

Displacements = dict[int, Float[Tensor, "_ _ gaussians axes"]]
"""Displacements by the number of the layer, in units of the axes of the waves: sites, examples, ….

The first two sizes may differ between batches."""


def transporting_layers(model: AbstractModel) -> list[int]:
    """Returns the numbers of the layers with transport."""
    return [] if model.operator is None else model.operator.transports


def has_moving_particles(model: AbstractModel) -> bool:
    """Returns whether any layer has transport."""
    return bool(transporting_layers(model))


def displacements(
    particles: Particles, coords: Float[Tensor, "#batch points dim"], domain: Domain
) -> Float[Tensor, "batch points gaussians axes"]:
    """Returns the vector from the center of every particle to its site.

    In a box it is the minimum image, in domain units. On the sphere it is the great circle, by its
    east and north components at the site, in radii.
    """
    if not domain.is_sphere:
        return domain.offset(coords.unsqueeze(-2), particles.centers)
    tangential = particles.centers @ tangent_frame(coords).mT
    radial = particles.centers @ coords.unsqueeze(-1)
    sine = tangential.norm(dim=-1, keepdim=True)
    angle = torch.atan2(sine, radial)
    return -tangential * angle / sine.clamp_min(torch.finfo(sine.dtype).tiny)


def layer_displacements(forecaster: Forecaster, batch: Batch) -> Displacements:
    """Returns the displacements of all transport layers, in units of the axes of the waves."""
    by_layer: Displacements = {}

    def record(layer: int, displacement: Tensor) -> Tensor:
        by_layer[layer] = displacement
        return displacement

    batch.predicted(forecaster, Ablation(displacing=record))
    return by_layer


def initial_state(forecaster: Forecaster, batch: Batch) -> Float[Tensor, "batch points outputs"]:
    """Returns the field that a prediction changes: the last frame, or the mean of static maps."""
    if forecaster.task.lead > 0:
        return batch.example.fields[:, -1]
    return forecaster.denormalised(torch.zeros_like(batch.example.target))


def without_displacement(layer: int, particle: int) -> Displacing:
    """Returns the function that sets the displacement of one particle of one layer to zero."""

    def change(number: int, displacement: Tensor) -> Tensor:
        if number != layer:
            return displacement
        index = torch.tensor([particle], device=displacement.device)
        return displacement.index_fill(2, index, 0.0)

    return change


def replaced_by(by_layer: Displacements) -> Displacing:
    """Returns the function that replaces the displacements of a model."""

    def replace(layer: int, own: Tensor) -> Tensor:
        if by_layer[layer].shape != own.shape:
            raise ValueError(
                f"Displacements of layer {layer} must have the shape of the model's own, "
                f"{tuple(own.shape)}, got {tuple(by_layer[layer].shape)}. Compute them on the "
                "same sites and examples."
            )
        return by_layer[layer].to(own)

    return replace


def importance(
    forecaster: Forecaster, batches: Sequence[Batch], intact: Sequence[Tensor], ablation: Ablation
) -> float:
    r"""Returns the fraction $\|\hat u-\hat u'\|/\|\hat u-u\|$ of the predicted change lost under an ablation.

    The mean over examples; 0 if nothing is lost.

    Args:
        forecaster: A trained gpo.
        batches: The examples.
        intact: Predictions of the intact model, one tensor per batch.
        ablation: The components that are switched off.
    """
    fractions = []
    for batch, before in zip(batches, intact, strict=True):
        start = initial_state(forecaster, batch)
        after = batch.predicted(forecaster, ablation)
        fractions += distances(after - start, before - start, batch.example.weights)
    return float(np.mean(fractions))
