r"""How far particles are from their sites, and in which direction.

The displacement $\delta=x-\mu$ leads from the center of a particle to the site that owns it. In the
geometric variant the center is where what arrives at the site came from, so that $\delta$ is a motion
that the model computed; whether it is one of the field is for comparisons to tell.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

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

Read = dict[int, Float[Tensor, "_ _ gaussians axes"]]
"""Displacements as the layers of a model read them, by the number of the layer: sites, examples, ….

Batches may differ in both."""


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


def read_displacements(forecaster: Forecaster, batch: Batch) -> Read:
    """Returns the displacements of all layers that transport, in units of the axes of the waves."""
    found: Read = {}

    def keep(layer: int, read: Tensor) -> Tensor:
        found[layer] = read
        return read

    batch.predicted(forecaster, Ablation(displacing=keep))
    return found


def start_of(forecaster: Forecaster, batch: Batch) -> Float[Tensor, "batch points outputs"]:
    """Returns what a prediction changes: the last frame, or the mean where there is no time."""
    if forecaster.task.lead > 0:
        return batch.example.fields[:, -1]
    return forecaster.denormalised(torch.zeros_like(batch.example.target))


def held_still(layer: int, particle: int) -> Displacing:
    """Returns what holds one particle of all sites still, in one layer, while the others stay."""

    def hold(number: int, read: Tensor) -> Tensor:
        if number != layer:
            return read
        chosen = torch.tensor([particle], device=read.device)
        return read.index_fill(2, chosen, 0.0)

    return hold


def share_of(
    forecaster: Forecaster, batches: Sequence[Batch], intact: Sequence[Tensor], ablation: Ablation
) -> float:
    r"""Returns how much of the predicted change is lost under an ablation, $\|\hat u-\hat u'\|/\|\hat u-u\|$.

    The mean over examples; 0 where nothing is lost.
    """
    rows = []
    for batch, before in zip(batches, intact, strict=True):
        start = start_of(forecaster, batch)
        after = batch.predicted(forecaster, ablation)
        rows += distances(after - start, before - start, batch.example.weights)
    return float(np.mean(rows))


@dataclass(frozen=True)
class Controls:
    """A model, and the displacements that it reads in every example."""

    forecaster: Forecaster
    batches: Sequence[Batch]
    reads: Sequence[Read]
    """Of every batch."""

    @classmethod
    def of(cls, forecaster: Forecaster, batches: Sequence[Batch]) -> "Controls":
        """Reads the displacements of the intact model."""
        return cls(forecaster, batches, [read_displacements(forecaster, one) for one in batches])

    def describe(self) -> dict[str, Any]:
        """Returns the error of the model with displacements of its own, and with those of controls."""
        rows = {
            "own": {"error": self.error(self.reads)},
            "still": {"error": self.error(self._each(torch.zeros_like))},
            "constant": {"error": self.error(self._constant())},
            "site_mean": self._over_examples(self._site_mean),
            "other_example": self._over_examples(self._other_example),
            "permuted": self._permuted(),
        }
        starts = [batch.errors(start_of(self.forecaster, batch)) for batch in self.batches]
        rows["no_change"] = {"error": float(np.mean(np.concatenate(starts)))}
        return rows

    def error(self, reads: Sequence[Read]) -> float:
        """Returns the relative L2 against the truth with these displacements, a mean over examples."""
        rows = []
        for batch, read in zip(self.batches, reads, strict=True):
            ablation = Ablation(displacing=replaced_by(read))
            rows += batch.errors(batch.predicted(self.forecaster, ablation))
        return float(np.mean(rows))

    def _each(self, change: Callable[[Tensor], Tensor]) -> list[Read]:
        return [{layer: change(one) for layer, one in read.items()} for read in self.reads]

    def _constant(self) -> list[Read]:
        """Returns the mean over all sites and examples, one displacement per particle number."""
        means = {}
        for layer in self.reads[0]:
            pairs = zip(self.batches, self.reads, strict=True)
            totals = [
                torch.einsum("bn,nbga->ga", batch.example.weights.to(read[layer]), read[layer])
                for batch, read in pairs
            ]
            count = sum(float(batch.example.weights.sum()) for batch in self.batches)
            means[layer] = torch.stack(totals).sum(0) / count
        return [
            {layer: means[layer].expand_as(one).contiguous() for layer, one in read.items()}
            for read in self.reads
        ]

    def _over_examples(self, made: Callable[[], list[Read]]) -> dict[str, Any]:
        """Returns the error of a control that takes several examples on the same sites."""
        if any(batch.geometry is not self.batches[0].geometry for batch in self.batches):
            return {"reason": "examples have different sites"}
        if sum(len(batch.example.frames) for batch in self.batches) < 2:
            return {"reason": "there is one example only"}
        return {"error": self.error(made())}

    def _site_mean(self) -> list[Read]:
        """Returns the mean over examples at every site."""
        joined = self._joined()
        means = {layer: one.mean(1, keepdim=True) for layer, one in joined.items()}
        return self._parted({layer: means[layer].expand_as(one) for layer, one in joined.items()})

    def _other_example(self) -> list[Read]:
        """Returns the displacements of an example half way through the list."""
        joined = self._joined()
        return self._parted(
            {layer: one.roll(one.shape[1] // 2, dims=1) for layer, one in joined.items()}
        )

    def _permuted(self) -> dict[str, Any]:
        """Returns the mean error where every particle moves as another of its site, by number."""
        gaussians = next(iter(self.reads[0].values())).shape[2]
        if gaussians < 2:
            return {"reason": "a site has one particle only"}
        turns = range(1, gaussians)
        errors = [self.error(self._each(lambda one, k=turn: one.roll(k, dims=2))) for turn in turns]
        return {"error": float(np.mean(errors)), "low": min(errors), "high": max(errors)}

    def _joined(self) -> Read:
        """Returns the displacements of all examples as one batch."""
        return {
            layer: torch.cat([read[layer] for read in self.reads], 1) for layer in self.reads[0]
        }

    def _parted(self, joined: Read) -> list[Read]:
        """Returns the same batch by batch."""
        sizes = [len(batch.example.frames) for batch in self.batches]
        parts = {layer: one.split(sizes, 1) for layer, one in joined.items()}
        return [
            {layer: part[number].contiguous() for layer, part in parts.items()}
            for number in range(len(sizes))
        ]


def replaced_by(read: Read) -> Displacing:
    """Returns what puts given displacements in the place of those that a model reads."""

    def replace(layer: int, own: Tensor) -> Tensor:
        if read[layer].shape != own.shape:
            raise ValueError(
                f"Displacements of layer {layer} must have the shape of the model's own, "
                f"{tuple(own.shape)}, got {tuple(read[layer].shape)}: they are those of other sites."
            )
        return read[layer].to(own)

    return replace


def transporting_layers(model: AbstractModel) -> list[int]:
    """Returns the numbers of the layers with transport."""
    return [] if model.operator is None else model.operator.transports
