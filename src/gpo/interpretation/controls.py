"""Predictions with other displacements or scales of particles, as controls of those of the model.

Displacements are replaced by zero, by means, or by those of other examples; scales by their floor, by
those before training, or by those of another model.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gpo.forecast.forecaster import Forecaster
from gpo.interpretation.batches import Batch, mean_error
from gpo.interpretation.diffusion import (
    Scales,
    learned_scales,
    one_scale,
    replaced_scales,
    scales_at_floor,
    scales_at_start,
)
from gpo.interpretation.displacements import (
    Displacements,
    initial_state,
    layer_displacements,
    replaced_by,
)
from gpo.model.ablation import Ablation


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
