r"""Displacements of particles, and predictions with other displacements or scales as controls.

The displacement $\delta=x-\mu$ points from the center of a particle to the site that owns it. In the
geometric variant the center is the departure point that the site samples, so $\delta$ is a motion that
the model computed. Controls replace it: by zero, by means, or by the displacements of other examples.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from gpo.forecast.forecaster import Forecaster
from gpo.interpretation.batches import Batch, distances, mean_error
from gpo.interpretation.diffusion import (
    Scales,
    learned_scales,
    one_scale,
    replaced_scales,
    scales_at_floor,
    scales_at_start,
)
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


@dataclass(frozen=True)
class Controls:
    """A model with its displacements in every batch, to compare with other displacements and scales."""

    forecaster: Forecaster
    batches: Sequence[Batch]
    displacements: Sequence[Displacements]
    """Those of the intact model in every batch."""
    other_scales: Scales | None = None
    """Those of another model, in the order of its own."""

    @classmethod
    def of(
        cls, forecaster: Forecaster, batches: Sequence[Batch], other_scales: Scales | None = None
    ) -> "Controls":
        """Computes the displacements of the intact model."""
        by_batch = [layer_displacements(forecaster, batch) for batch in batches]
        return cls(forecaster, batches, by_batch, other_scales)

    def describe(self) -> dict[str, Any]:
        """Returns the error of the model, and with displacements or scales of each control."""
        starts = [initial_state(self.forecaster, batch) for batch in self.batches]
        return {
            "own": {"error": self.error(self.displacements)},
            "still": {"error": self.error(self._mapped(torch.zeros_like))},
            "constant": {"error": self.error(self._constant())},
            "site_mean": self._over_examples(
                lambda part: part.mean(1, keepdim=True).expand_as(part)
            ),
            "other_example": self._over_examples(
                lambda part: part.roll(part.shape[1] // 2, dims=1)
            ),
            "permuted": self._permuted(),
            **self._scaled(),
            "no_change": {"error": mean_error(self.batches, starts)},
        }

    def error(self, displacements: Sequence[Displacements]) -> float:
        """Returns the relative L2 error with these displacements, the mean over examples."""
        changes = [Ablation(displacing=replaced_by(by_layer)) for by_layer in displacements]
        pairs = zip(self.batches, changes, strict=True)
        return mean_error(self.batches, [b.predicted(self.forecaster, a) for b, a in pairs])

    def _scaled(self) -> dict[str, Any]:
        """Returns the errors with other scales, and the model's own displacements."""
        own = learned_scales(self.forecaster)
        controls = {
            "at_floor": scales_at_floor(own),
            "initial_scales": scales_at_start(self.forecaster),
            "one_scale": one_scale(own),
        }
        if self.other_scales is not None:
            controls["other_scales"] = self.other_scales
        return {name: {"error": self.error_with(scales)} for name, scales in controls.items()}

    def error_with(self, scales: Scales) -> float:
        """Returns the relative L2 error with these scales, the mean over examples."""
        ablation = Ablation(scaling=replaced_scales(scales))
        return mean_error(
            self.batches, [batch.predicted(self.forecaster, ablation) for batch in self.batches]
        )

    def _mapped(self, change: Callable[[Tensor], Tensor]) -> list[Displacements]:
        return [{n: change(part) for n, part in row.items()} for row in self.displacements]

    def _constant(self) -> list[Displacements]:
        """Returns the mean over all sites and examples: one displacement per particle number."""
        means = {}
        count = sum(float(batch.example.weights.sum()) for batch in self.batches)
        for layer in self.displacements[0]:
            totals = [
                torch.einsum("bn,nbga->ga", batch.example.weights.to(row[layer]), row[layer])
                for batch, row in zip(self.batches, self.displacements, strict=True)
            ]
            means[layer] = torch.stack(totals).sum(0) / count
        return [
            {layer: means[layer].expand_as(part).contiguous() for layer, part in row.items()}
            for row in self.displacements
        ]

    def _over_examples(self, change: Callable[[Tensor], Tensor]) -> dict[str, Any]:
        """Returns the error where `change` maps the displacements of all examples at once."""
        if any(batch.geometry is not self.batches[0].geometry for batch in self.batches):
            return {"reason": "examples have different sites"}
        sizes = [len(batch.example.frames) for batch in self.batches]
        if sum(sizes) < 2:
            return {"reason": "there is one example only"}
        parts = {}
        for layer in self.displacements[0]:
            joined = torch.cat([row[layer] for row in self.displacements], 1)
            parts[layer] = change(joined).split(sizes, 1)
        batched = [
            {layer: part[number].contiguous() for layer, part in parts.items()}
            for number in range(len(sizes))
        ]
        return {"error": self.error(batched)}

    def _permuted(self) -> dict[str, Any]:
        """Returns the mean error where the particles of every site exchange displacements."""
        num_gaussians = next(iter(self.displacements[0].values())).shape[2]
        if num_gaussians < 2:
            return {"reason": "a site has one particle only"}
        errors = [
            self.error(self._mapped(lambda part, k=shift: part.roll(k, dims=2)))
            for shift in range(1, num_gaussians)
        ]
        return {"error": float(np.mean(errors)), "low": min(errors), "high": max(errors)}
