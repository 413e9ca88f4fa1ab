"""Test examples in batches that share their sites."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool
from torch import Tensor

from gpo.data.dataset import StaticMaps, Trajectories
from gpo.data.geometry import Geometry
from gpo.data.splits import trajectory_of
from gpo.forecast.examples import Example, collate, make_examples
from gpo.forecast.forecaster import Forecaster
from gpo.model.ablation import Ablation
from gpo.model.particles import Particles
from gpo.model.trace import Trace
from gpo.numerics.norms import relative_l2

MAX_SITES = 2**18
"""Sites of all examples in a batch."""


@dataclass(frozen=True)
class Batch:
    """Examples on the same sites."""

    example: Example
    geometry: Geometry

    @property
    def is_known(self) -> Bool[np.ndarray, "batch points"]:
        """False where a value is missing."""
        return self.example.weights.numpy() > 0

    def predicted(self, forecaster: Forecaster, ablation: Ablation | None = None) -> Tensor:
        """Returns the predictions in the units of the data."""
        example = self.example
        with torch.no_grad(), (ablation or Ablation()).applied(forecaster.model.operator):
            return forecaster(example.frames, example.coords, weights=example.site_weights)

    def traced(self, forecaster: Forecaster) -> Trace:
        """Returns all intermediate activations of the prediction."""
        example = self.example
        values = forecaster.normalised_input(example.frames)
        with torch.no_grad():
            return forecaster.operator.trace(values, example.coords, weights=example.site_weights)

    def particles(self, forecaster: Forecaster) -> Particles:
        """Returns the particles of the last layer that has any; raises `ValueError` if none has."""
        return self.layer_particles(forecaster)[-1]

    def layer_particles(self, forecaster: Forecaster) -> tuple[Particles, ...]:
        """Returns the particles of every transport layer, or those of the encoder."""
        example, values = self.example, forecaster.normalised_input(self.example.frames)
        with torch.no_grad():
            return forecaster.operator.particles(
                values, example.coords, weights=example.site_weights
            )

    def errors(self, prediction: Tensor) -> list[float]:
        """Returns the relative L2 error of every example."""
        return distances(prediction, self.example.target, self.example.weights)


def mean_error(batches: Sequence[Batch], predictions: Sequence[Tensor]) -> float:
    """Returns the relative L2 error of predictions, one tensor per batch, averaged over examples."""
    pairs = zip(batches, predictions, strict=True)
    return float(np.mean([error for batch, guess in pairs for error in batch.errors(guess)]))


def distances(first: Tensor, second: Tensor, weights: Tensor) -> list[float]:
    """Returns the norm of the difference over the norm of `second`, for every example."""
    rows = zip(first.split(1), second.split(1), weights.split(1), strict=True)
    return [relative_l2(*row).item() for row in rows]


def make_batches(
    data: Trajectories | StaticMaps, samples: Sequence[Any], *, reconstructs: bool = False
) -> list[Batch]:
    """Returns the examples of some samples of a split, batched where their sites are the same."""
    examples = make_examples(data, samples, reconstructs=reconstructs)
    return grouped([(data.geometry(trajectory_of(m)), examples[n]) for n, m in enumerate(samples)])


def grouped(examples: Sequence[tuple[Geometry, Example]]) -> list[Batch]:
    """Returns examples in batches; consecutive examples on the same sites share a batch."""
    groups: list[tuple[Geometry, list[Example]]] = []
    for geometry, example in examples:
        max_examples = max(1, MAX_SITES // geometry.num_points)
        if groups and groups[-1][0] is geometry and len(groups[-1][1]) < max_examples:
            groups[-1][1].append(example)
        else:
            groups.append((geometry, [example]))
    return [Batch(collate(group), geometry) for geometry, group in groups]
