"""Test examples in batches that share their sites, and the effect of an ablation on their predictions."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from gpo.data.dataset import FieldData
from gpo.data.geometry import Geometry
from gpo.data.splits import TimeSlice
from gpo.evaluation.spectrum import NoSpectrumError, spectral_errors
from gpo.forecast.examples import Example, TimeSliceExamples, collate
from gpo.forecast.forecaster import Forecaster
from gpo.model.ablation import Ablation
from gpo.model.particles import Particles
from gpo.model.trace import Trace
from gpo.numerics.domain import Domain
from gpo.numerics.norms import normalised_weights, relative_l2

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
            return forecaster.alone(
                example.frames,
                example.coords,
                weights=example.site_weights,
                seasons=example.seasons,
            )

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
    data: FieldData, samples: Sequence[TimeSlice], *, reconstructs: bool = False
) -> list[Batch]:
    """Returns the examples of some samples of a split, batched where their sites are the same."""
    examples = TimeSliceExamples(data, samples, reconstructs=reconstructs)
    return grouped([(data.geometry(m.sample), examples[n]) for n, m in enumerate(samples)])


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


@dataclass(frozen=True)
class Effects:
    """A model with its intact predictions, to which predictions under ablation are compared."""

    forecaster: Forecaster
    batches: Sequence[Batch]
    intact: list[Tensor]
    """Predictions of the intact model for every batch."""

    @classmethod
    def of(cls, forecaster: Forecaster, batches: Sequence[Batch]) -> "Effects":
        """Predicts all batches with the intact model."""
        return cls(forecaster, batches, [batch.predicted(forecaster) for batch in batches])

    @property
    def error(self) -> float:
        """Relative L2 error of the intact model."""
        return mean_error(self.batches, self.intact)

    def error_without(self, ablation: Ablation) -> float:
        """Returns the relative L2 error under an ablation."""
        guesses = [batch.predicted(self.forecaster, ablation) for batch in self.batches]
        return mean_error(self.batches, guesses)

    def without(
        self, ablation: Ablation, supports: Sequence[Float[Tensor, "batch points"]] | None = None
    ) -> dict[str, Any]:
        """Returns by how much predictions change under an ablation, the mean over examples.

        - `relative_l2`: norm of the change over the norm of the prediction.
        - `low`, `middle`, `high`: the same by wave number, on uniform grids.
        - `spread`: fraction of the domain that the change fills, 1 if it is uniform.
        - `fraction_inside`: fraction of the squared change inside the support, and
          `fraction_expected`: what it would be if the change were uniform.
        - `distance`: from the center of the support to that of the change, in unit lengths.

        Args:
            ablation: The components that are switched off.
            supports: How much every site of every batch belongs to them, from 0 to 1; None if
                they are not localised.
        """
        rows: list[dict[str, float]] = []
        for number, (batch, intact) in enumerate(zip(self.batches, self.intact, strict=True)):
            guess = batch.predicted(self.forecaster, ablation)
            rows += _changes(batch, intact, guess, None if supports is None else supports[number])
        names = list(dict.fromkeys(name for row in rows for name in row))
        return {name: _mean([row[name] for row in rows if name in row]) for name in names}


def _changes(
    batch: Batch, intact: Tensor, guess: Tensor, support: Tensor | None
) -> list[dict[str, float]]:
    """Returns the statistics of `Effects.without` for every example of a batch."""
    weights = batch.example.weights
    rows = [{"relative_l2": size} for size in distances(guess, intact, weights)]
    for row, before, after in zip(rows, intact, guess, strict=True):
        row.update(_bands(batch, before.double().numpy(), after.double().numpy()))
    q = normalised_weights(weights, intact).double()
    squared = (guess - intact).double().square().sum(-1)
    change = q * squared
    total = change.sum(1)
    changed = [(number, row) for number, row in enumerate(rows) if total[number] > 0]
    for number, row in changed:
        filled = total[number].square() / (q[number] * squared[number].square()).sum()
        row["spread"] = filled.item()
    if support is None:
        return rows
    support = support.double()
    change, mass = change / total.clamp_min(1e-300).unsqueeze(1), q * support
    domain, coords = batch.geometry.domain, batch.example.coords.double()
    density = mass / mass.sum(1, keepdim=True).clamp_min(1e-300)
    centers = center_of_mass(torch.stack([change, density], 1), coords, domain)
    offset = domain.offset(centers[:, 0], centers[:, 1]) / domain.unit_lengths(coords)
    for number, row in changed:
        row["fraction_inside"] = (change[number] @ support[number]).item()
        row["fraction_expected"] = mass[number].sum().item()
        row["distance"] = offset[number].norm().item()
    return rows


def _bands(batch: Batch, before: np.ndarray, after: np.ndarray) -> dict[str, float]:
    """Returns the change at low, middle and high wave numbers; empty without a spectrum."""
    if not (batch.example.weights > 0).all():
        return {}
    try:
        bands = [
            spectral_errors(before[None, :, channel], after[None, :, channel], batch.geometry)
            for channel in range(before.shape[-1])
        ]
    except NoSpectrumError:
        return {}
    return {name: float(np.mean([band[name] for band in bands])) for name in bands[0]}


def _mean(numbers: list[float]) -> float | None:
    known = [number for number in numbers if np.isfinite(number)]
    return float(np.mean(known)) if known else None


def center_of_mass(
    density: Float[Tensor, "batch windows points"],
    coords: Float[Tensor, "batch points dim"],
    domain: Domain,
) -> Float[Tensor, "batch windows dim"]:
    """Returns the mean position of mass: the circular mean along periodic axes.

    Args:
        density: Mass at the sites; it sums to one.
        coords: The sites.
        domain: Box or sphere; a mean on the sphere is projected back onto it.
    """
    if domain.is_sphere or not any(domain.periodic):
        return domain.wrap(density @ coords)
    angles = 2 * torch.pi * domain.to_unit(coords)
    circular = torch.atan2(density @ angles.sin(), density @ angles.cos()) / (2 * torch.pi)
    straight = density @ domain.to_unit(coords)
    return domain.from_unit(torch.where(torch.tensor(domain.periodic), circular % 1, straight))
