"""What a prediction loses when something is switched off: how much, on which scales, and where."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from gpo.evaluation.spectrum import NoSpectrumError, spectral_errors
from gpo.forecast.forecaster import Forecaster
from gpo.interpretation.batches import Batch, distances
from gpo.interpretation.windows import middle
from gpo.model.ablation import Ablation
from gpo.numerics.norms import normalised_weights


@dataclass(frozen=True)
class Effects:
    """A model with its predictions, to be compared with what it predicts without a part."""

    forecaster: Forecaster
    batches: Sequence[Batch]
    intact: list[Tensor]
    """The predictions of every batch."""

    @classmethod
    def of(cls, forecaster: Forecaster, batches: Sequence[Batch]) -> "Effects":
        """Predicts everything once."""
        return cls(forecaster, batches, [batch.predicted(forecaster) for batch in batches])

    @property
    def error(self) -> float:
        """Relative L2 of the whole model against the truth."""
        pairs = zip(self.batches, self.intact, strict=True)
        return float(np.mean([error for batch, guess in pairs for error in batch.errors(guess)]))

    def error_without(self, ablation: Ablation) -> float:
        """Returns the relative L2 against the truth with parts switched off."""
        rows = [batch.errors(batch.predicted(self.forecaster, ablation)) for batch in self.batches]
        return float(np.mean(np.concatenate(rows)))

    def without(
        self, ablation: Ablation, supports: Sequence[Float[Tensor, "batch points"]] | None = None
    ) -> dict[str, Any]:
        """Returns by how much predictions change, the mean over examples.

        - `relative_l2`: norm of the change over the norm of the prediction.
        - `low`, `middle`, `high`: the same on long, middle and short waves, where sites allow.
        - `spread`: share of the domain that the change fills, 1 where it is even.
        - `share_inside`: share of the squared change inside the part's own support, and
          `share_expected`: what it would be if the change were even.
        - `distance`: from the middle of the support to the middle of the change, in unit lengths.

        Args:
            ablation: What is switched off.
            supports: How much every site of every batch belongs to it, from 0 to 1; a part
                without a place has none.
        """
        rows: list[dict[str, float]] = []
        for number, (batch, intact) in enumerate(zip(self.batches, self.intact, strict=True)):
            guess = batch.predicted(self.forecaster, ablation)
            support = None if supports is None else supports[number]
            rows += _changes(batch, intact, guess, support)
        names = list(dict.fromkeys(name for row in rows for name in row))
        return {name: _mean([row[name] for row in rows if name in row]) for name in names}


def _changes(
    batch: Batch, intact: Tensor, guess: Tensor, support: Tensor | None
) -> list[dict[str, float]]:
    weights = batch.example.weights
    rows = [{"relative_l2": size} for size in distances(guess, intact, weights)]
    for row, before, after in zip(rows, intact, guess, strict=True):
        row.update(_bands(batch, before.double().numpy(), after.double().numpy()))
    q = normalised_weights(weights, intact).double()
    squared = (guess - intact).double().square().sum(-1)
    share = q * squared
    total = share.sum(1)
    for number, row in enumerate(rows):
        if total[number] > 0:
            filled = total[number].square() / (q[number] * squared[number].square()).sum()
            row["spread"] = filled.item()
    if support is None:
        return rows
    support = support.double()
    share, held = share / total.clamp_min(1e-300).unsqueeze(1), q * support
    domain, coords = batch.geometry.domain, batch.example.coords.double()
    held_share = held / held.sum(1, keepdim=True).clamp_min(1e-300)
    places = middle(torch.stack([share, held_share], 1), coords, domain)
    apart = domain.offset(places[:, 0], places[:, 1]) / domain.unit_lengths(coords)
    for number, row in enumerate(rows):
        if total[number] > 0:
            row["share_inside"] = (share[number] @ support[number]).item()
            row["share_expected"] = held[number].sum().item()
            row["distance"] = apart[number].norm().item()
    return rows


def _bands(batch: Batch, before: np.ndarray, after: np.ndarray) -> dict[str, float]:
    """Returns the change on long, middle and short waves, the mean over variables; or nothing."""
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
