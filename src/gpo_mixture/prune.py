"""Fewer Gaussians where few do: the least needed goes first."""

import math

import torch
from torch import Tensor

from gpo_mixture.fit import finished, scaled
from gpo_mixture.mixture import GaussianMixture
from gpo_mixture.projection import Solved, solve
from gpo_mixture.target import Target


def prune_mixture(
    mixture: GaussianMixture, values: Tensor, coords: Tensor, weights: Tensor | None, allowed: float
) -> GaussianMixture:
    """Returns as few particles as the allowed growth of the error leaves; see `GaussianMixture.prune`."""
    if not (math.isfinite(allowed) and allowed >= 0):
        raise ValueError(f"`allowed` must be a fraction, 0 or more, got {allowed}.")
    whole = Target.of(values, coords, weights, mixture.domain)
    if whole.values.shape[1] != len(mixture.offset):
        raise ValueError(
            f"`values` must have the variables of the mixture ({len(mixture.offset)}), "
            f"got {whole.values.shape[1]}."
        )
    target = whole.thinned()
    kept = torch.arange(len(mixture))
    best = solve(scaled(mixture, target, "full"), target)
    most = (1 + allowed) ** 2 * _squared(best, target)
    while len(kept):
        needed = best.needs().argsort(descending=True)[:-1].sort().values
        fewer = solve(best.shapes.rows(needed), target)
        if _squared(fewer, target) > most:
            break
        best, kept = fewer, kept[needed]
    return finished(best, whole, mixture.labels[kept], mixture.domain, mixture.variables)


def _squared(solved: Solved, target: Target) -> float:
    return float((target.weights @ solved.left(target).square()).sum())
