"""Effect of an ablation on predictions: its size, its scales and its location."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from gpo.evaluation.spectrum import NoSpectrumError, spectral_errors
from gpo.forecast.forecaster import Forecaster
from gpo.interpretation.batches import Batch, distances, mean_error
from gpo.interpretation.modes import center_of_mass
from gpo.model.ablation import Ablation
from gpo.numerics.norms import normalised_weights


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
