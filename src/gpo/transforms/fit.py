r"""Fits a transform to sites: the Galerkin projection onto a set of waves.

$T=\arg\min_T\sum_jq_j\,|h(x_j)-\mathrm{Re}\sum_kc_k\psi_k(x_j)T_k|^2$ are the tokens of a field
$h$; where the sites do not determine a field, the smoother one is taken (`axis_basis.py`). On a
periodic grid this is a truncated discrete Fourier transform; on any other sites it is the least-squares
projection, so that tokens depend on the positions of the sites as little as possible. On a tensor
grid it is one small matrix product per axis.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from gpo.parallel.shard import SINGLE_PROCESS, SpatialShard
from gpo.transforms.gram import inverse_gram
from gpo.transforms.grid_fit import find_tensor_grid, fit_grid, tokens_of_functions
from gpo.transforms.transform import (
    AbstractGridTransform,
    AbstractWaveTransform,
    PointTransform,
    StreamedTransform,
    functions_at,
    waves_at,
)
from gpo.transforms.waves import Waves

MIN_SITES_PER_MODE = 16.0
"""Sites per mode from which on duplicated positions need not be counted."""

MAX_KEPT_NUMBERS = 2**26
"""Larger transforms are computed whenever they are needed, not stored."""

PORTION = 2**13
"""Number of points that are processed at a time while a transform is fitted."""


def fit_transform(
    waves: Waves,
    positions: Float[Tensor, "sets points axes"],
    weights: Float[Tensor, "sets points"],
    shard: SpatialShard = SINGLE_PROCESS,
) -> AbstractWaveTransform:
    """Returns analysis and synthesis at sites; separable where they form a tensor grid.

    Args:
        waves: The test functions.
        positions: Where the sites are along the axes of the waves: one set that all samples share, or one per sample.
        weights: Quadrature weights; 0 masks a site.
        shard: Which part of all sites this process holds.
    """
    if len(positions) == 1:
        grid = _grid_part(waves, positions, weights, shard)
        if grid is not None:
            return grid
    matrix = _token_matrix(waves, positions, weights, shard)
    if not shard.is_whole or matrix.shape[1] * weights.numel() > MAX_KEPT_NUMBERS:
        return StreamedTransform(waves, positions, weights, matrix.to(positions))
    exact = positions.double()
    tested = functions_at(waves, exact) * weights.double().unsqueeze(-1)
    return PointTransform((matrix @ tested.mT).to(positions), waves_at(waves, exact).to(positions))


def _grid_part(
    waves: Waves, positions: Tensor, weights: Tensor, shard: SpatialShard
) -> AbstractGridTransform | None:
    """Returns the part of a tensor grid that this process holds; None where there is no grid."""
    everywhere = shard.gathered(positions, 1)[0].double(), shard.gathered(weights, 1)[0].double()
    grid = find_tensor_grid(*everywhere)
    if grid is None:
        return None
    if shard.is_whole:
        return fit_grid(waves, grid, positions)
    starts = shard.starts(positions.shape[1])
    per_line = math.prod(len(axis) for axis in grid.axes[1:])
    if grid.order is not None or any(start % per_line for start in starts):
        return None
    begin, end = starts[shard.rank : shard.rank + 2]
    return fit_grid(waves, grid, positions).lines(begin // per_line, end // per_line)


def _token_matrix(
    waves: Waves, positions: Tensor, weights: Tensor, shard: SpatialShard
) -> Float[Tensor, "sets rows functions"]:
    """Returns the matrix that takes sums of a field times functions over all sites to tokens."""
    gram = torch.zeros((), dtype=torch.double, device=positions.device)
    pieces = zip(positions.split(PORTION, 1), weights.split(PORTION, 1), strict=True)
    for piece, weight in pieces:
        functions = functions_at(waves, piece.double())
        gram = gram + functions.mT @ (functions * weight.double().unsqueeze(-1))
    roughness = waves.roughness.to(gram)
    num_sites = _count_places(positions, weights, shard, len(roughness))
    return tokens_of_functions(waves, gram) @ inverse_gram(shard.sum(gram), roughness, num_sites)


def _count_places(
    positions: Tensor, weights: Tensor, shard: SpatialShard, num_functions: int
) -> Float[Tensor, " sets"]:
    """Returns the number of distinct positions of active sites.

    Sites at the same place are one. They are told apart only where that could matter: many times
    more sites than functions are enough in any case.
    """
    is_active = weights > 0
    counts = shard.sum(is_active.sum(-1).double())
    if bool((counts > MIN_SITES_PER_MODE * num_functions).all()):
        return counts
    everywhere = shard.gathered(positions, 1), shard.gathered(is_active, 1)
    different = [
        len(torch.unique(places[counted], dim=0))
        for places, counted in zip(*everywhere, strict=True)
    ]
    return counts.new_tensor(different)


def synthesis_at(waves: Waves, positions: Float[Tensor, "batch points axes"]) -> PointTransform:
    """Returns a transform for synthesis only, at query points."""
    synthesis = waves_at(waves, positions.double()).to(positions)
    return PointTransform(synthesis.new_zeros(()).expand(synthesis.mT.shape), synthesis)
