"""Distributions of particle scales, weights and displacements, and their drift between data sets."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from scipy.stats import wasserstein_distance

from gpo.forecast.forecaster import Forecaster
from gpo.interpretation.batches import Batch
from gpo.interpretation.motion import displacements, has_moving_particles

MAX_NUMBERS = 2**18
"""Particles of a set that enter its distribution, evenly chosen."""

Quantities = dict[str, list[np.ndarray]]
"""By name, one array per example: weight and displacement of all its particles, and their scale and
anisotropy where the encoder predicts them."""


def particle_quantities(forecaster: Forecaster, batches: Sequence[Batch]) -> Quantities:
    """Returns the quantities of all particles, lengths in unit lengths of the domain.

    `scale` is the geometric mean over axes, `anisotropy` the logarithm of the largest over the
    smallest; both are left out where particles move, whose scales are those of a lattice.
    `displacement` are the components of the way from the center of a particle to its site.
    """
    rows: Quantities = {}
    for batch in batches:
        particles, domain = batch.particles(forecaster), batch.geometry.domain
        coords = batch.example.coords
        lengths = domain.unit_lengths(coords)
        numbers = {
            "weight": particles.weights,
            "displacement": displacements(particles, coords, domain) / lengths,
        }
        if not has_moving_particles(forecaster.model):
            scales = (particles.scales / lengths).log()
            numbers["scale"] = scales.mean(-1).exp()
            numbers["anisotropy"] = scales.amax(-1) - scales.amin(-1)
        for number, is_known in enumerate(torch.from_numpy(batch.is_known)):
            for name, values in numbers.items():
                row = values[number, is_known].double().flatten().numpy()
                rows.setdefault(name, []).append(row)
    return rows


def fraction_from_field(quantities: Quantities) -> dict[str, float | None]:
    """Returns the fraction of the variance of every quantity that is between examples at one site.

    0: a quantity depends on the site and on the number of the particle there alone; 1: on the
    field alone. None where examples have different sites, or nothing varies.
    """
    fractions: dict[str, float | None] = {}
    for name, arrays in quantities.items():
        if len(arrays) < 2 or len({len(numbers) for numbers in arrays}) > 1:
            fractions[name] = None
            continue
        stacked = np.stack(arrays)
        total = float(stacked.var())
        fractions[name] = float(stacked.var(axis=0).mean()) / total if total > 0 else None
    return fractions


def drift(usual: Quantities, other: Quantities) -> dict[str, dict[str, Any]]:
    """Returns the Wasserstein-1 distance of every quantity, in its units and in usual spreads.

    `spread` is the distance between the first and the second half of the usual examples, which
    `ratio` is relative to: 1 is no drift. None where both halves are the same.
    """
    rows = {}
    for name, mine in usual.items():
        half = (len(mine) + 1) // 2
        distance = _distance(mine, other[name])
        spread = _distance(mine[:half], mine[half:]) if len(mine) > 1 else 0.0
        ratio = distance / spread if spread > 0 else None
        rows[name] = {"distance": distance, "spread": spread, "ratio": ratio}
    return rows


def _distance(first: Sequence[np.ndarray], second: Sequence[np.ndarray]) -> float:
    pair = []
    for arrays in (first, second):
        numbers = np.concatenate(arrays)
        pair.append(numbers[:: max(1, -(-len(numbers) // MAX_NUMBERS))])
    return float(wasserstein_distance(*pair))
