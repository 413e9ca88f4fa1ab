"""Removes Gaussians from a mixture, those with least removal costs first."""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from gpo_mixture.fitting import mixture_shapes, to_mixture
from gpo_mixture.mixture import GaussianMixture
from gpo_mixture.projection import Solution, solve
from gpo_mixture.target import Target


def prune(
    mixture: GaussianMixture,
    values: Float[Tensor, "points channels"] | Float[Tensor, " points"],
    coords: Float[Tensor, "points dim"],
    weights: Float[Tensor, " points"] | None = None,
    *,
    allowed: float = 0.1,
) -> GaussianMixture:
    """Returns a mixture with fewer Gaussians and refitted amplitudes.

    Args:
        mixture: The mixture to prune.
        values: The field that it represents.
        coords: Coordinates of the sites.
        weights: Quadrature weights; 0 masks a site.
        allowed: Largest relative increase of the error.
    """
    if not (math.isfinite(allowed) and allowed >= 0):
        raise ValueError(f"`allowed` must be a fraction, 0 or more, got {allowed}.")
    target = Target.of(values, coords, weights, mixture.domain)
    if target.values.shape[1] != len(mixture.offset):
        raise ValueError(
            f"`values` must have the variables of the mixture ({len(mixture.offset)}), "
            f"got {target.values.shape[1]}."
        )
    sites = target.subsampled()
    kept = torch.arange(len(mixture))
    solution = solve(mixture_shapes(mixture, sites), sites)
    largest = (1 + allowed) ** 2 * _squared_error(solution, sites)
    while len(kept):
        rows = solution.without_cheapest(1)
        trial = solve(solution.shapes.rows(rows), sites)
        if _squared_error(trial, sites) > largest:
            break
        solution, kept = trial, kept[rows]
    return to_mixture(solution, target, mixture.labels[kept], mixture.variables)


def _squared_error(solution: Solution, target: Target) -> float:
    return float((target.weights @ solution.residual(target).square()).sum())
