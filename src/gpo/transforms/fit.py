r"""Fits a transform to sites: the Galerkin projection onto a set of waves.

$T=\arg\min_T\sum_jq_j\,|h(x_j)-\mathrm{Re}\sum_kc_k\psi_k(x_j)T_k|^2$ are the tokens of a field
$h$; where the sites do not determine a field, the smoother one is taken (`axis_basis.py`). On a
periodic grid this is a truncated discrete Fourier transform; on any other sites it is the least-squares
projection, so that tokens depend on the positions of the sites as little as possible. On a tensor
grid it is one small matrix product per axis.

Where the weights of the nodes of a grid are products of weights along the axes, so are the tokens.
Behind a mask they are not, but fields still are products of functions: their moments are computed axis
by axis, and one matrix, functions by modes, maps these to tokens. It is computed once per mask.
"""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from gpo.parallel.shard import SINGLE_PROCESS, SpatialShard
from gpo.transforms.axis_basis import AxisBasis
from gpo.transforms.axis_lines import lines_in_order
from gpo.transforms.gram import grid_gram, inverse_gram
from gpo.transforms.transform import (
    AbstractGridTransform,
    AbstractWaveTransform,
    GridTransform,
    MaskedGridTransform,
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

SEPARABLE = 1e-3
"""Relative tolerance within which weights are a product of weights along the axes."""


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
    num_sites = _count_positions(positions, weights, shard, len(roughness))
    return tokens_of_functions(waves, gram) @ inverse_gram(shard.sum(gram), roughness, num_sites)


def _count_positions(
    positions: Tensor, weights: Tensor, shard: SpatialShard, num_functions: int
) -> Float[Tensor, " sets"]:
    """Returns the number of distinct positions of active sites.

    Sites at the same position count once. Duplicates are searched only where they could matter: many
    times more sites than functions are enough in any case.
    """
    is_active = weights > 0
    counts = shard.sum(is_active.sum(-1).double())
    if bool((counts > MIN_SITES_PER_MODE * num_functions).all()):
        return counts
    everywhere = shard.gathered(positions, 1), shard.gathered(is_active, 1)
    numbers = [
        len(torch.unique(coords[active], dim=0)) for coords, active in zip(*everywhere, strict=True)
    ]
    return counts.new_tensor(numbers)


def synthesis_at(waves: Waves, positions: Float[Tensor, "batch points axes"]) -> PointTransform:
    """Returns a transform for synthesis only, at query points."""
    synthesis = waves_at(waves, positions.double()).to(positions)
    return PointTransform(synthesis.new_zeros(()).expand(synthesis.mT.shape), synthesis)


@dataclass(frozen=True)
class TensorGrid:
    """A tensor grid whose nodes are the sites."""

    axes: tuple[Tensor, ...]
    """Positions of the grid lines along every axis, in the order of the sites."""
    weights: tuple[Tensor, ...]
    """Quadrature weights of the grid lines along every axis; they sum to one."""
    node_weights: Float[Tensor, "*nodes"] | None
    """Weights of the nodes, where these are not products of the weights along the axes."""
    order: Int[Tensor, " points"] | None
    """Index of the site at every node; None where sites are in the order of the grid."""


def find_tensor_grid(
    positions: Float[Tensor, "points axes"], weights: Float[Tensor, " points"]
) -> TensorGrid | None:
    """Returns the tensor grid that the sites form, in any order; None where they form none."""
    axes: list[Tensor] = []
    coefficients: list[Tensor] = []
    number = torch.zeros(len(positions), dtype=torch.long, device=positions.device)
    expected = torch.ones_like(weights)
    for along in positions.unbind(-1):
        lines = lines_in_order(along)
        zeros = along.new_zeros(int(lines.max()) + 1)
        axes.append(zeros.index_add(0, lines, along) / torch.bincount(lines))
        coefficients.append(zeros.index_add(0, lines, weights))
        expected = expected * coefficients[-1][lines]
        number = number * len(zeros) + lines
    shape = [len(axis) for axis in axes]
    if math.prod(shape) != len(positions):
        return None
    order = torch.argsort(number)
    straight = torch.arange(len(positions), device=positions.device)
    if not bool((number[order] == straight).all()):
        return None
    factors = torch.allclose(expected, weights, rtol=SEPARABLE, atol=0)
    is_straight = bool((order == straight).all())
    return TensorGrid(
        tuple(axes),
        tuple(coefficients),
        None if factors else weights[order].view(shape),
        None if is_straight else order,
    )


def fit_grid(waves: Waves, grid: TensorGrid, like: Tensor) -> AbstractGridTransform:
    """Returns analysis and synthesis on a tensor grid, in the type of a tensor."""
    shape = tuple(len(axis) for axis in grid.axes)
    syntheses = tuple(matrix.to(like) for matrix in _syntheses(waves, grid))
    if grid.node_weights is None:
        analyses = tuple(matrix.to(like) for matrix in _analyses(waves, grid))
        return GridTransform(shape, grid.order, syntheses, analyses)
    functions = [basis.at(axis) for basis, axis in zip(waves.bases, grid.axes, strict=True)]
    gram = grid_gram(functions, grid.node_weights)
    num_sites = (grid.node_weights > 0).sum().to(gram)
    matrix = tokens_of_functions(waves, gram) @ inverse_gram(
        gram, waves.roughness.to(gram), num_sites
    )
    return MaskedGridTransform(
        shape, grid.order, syntheses,
        tuple(along.mT.contiguous().to(like) for along in functions),
        grid.node_weights.flatten().to(like), matrix.to(like),
    )  # fmt: skip


def tokens_of_functions(waves: Waves, like: Tensor) -> Float[Tensor, "rows functions"]:
    """Returns the tokens of every orthonormal function, real parts first."""
    tokens = torch.ones(1, 1, dtype=torch.cdouble)
    for axis, basis in enumerate(waves.bases):
        is_last = axis == len(waves.bases) - 1
        tokens = torch.kron(tokens, basis.tokens[basis.limit if is_last else 0 :])
    return torch.cat([tokens.real, tokens.imag]).to(like)


def _analyses(waves: Waves, grid: TensorGrid) -> list[Tensor]:
    """Returns the matrix along every axis that takes a field to tokens."""
    analyses: list[Tensor] = []
    for basis, along, weights in zip(waves.bases, grid.axes, grid.weights, strict=True):
        fit = _least_squares(basis, along, weights).to(torch.cdouble)
        analyses.append(basis.tokens.to(along.device) @ fit)
    *others, last = analyses
    last = last[waves.bases[-1].limit :]
    blocks = [_complex_block(matrix, is_analysis=True) for matrix in others]
    return [*blocks, torch.cat([last.real, last.imag])]


def _syntheses(waves: Waves, grid: TensorGrid) -> list[Tensor]:
    """Returns the matrix along every axis that takes tokens to a field."""
    turns: list[Tensor] = []
    for numbers, period, along in zip(waves.numbers, waves.periods, grid.axes, strict=True):
        phase = along.unsqueeze(-1) * numbers.to(along) / period
        turns.append(torch.exp(2j * math.pi * phase))
    *others, last = turns
    twice = torch.where(waves.numbers[-1] == 0, 1.0, 2.0).to(grid.axes[-1])
    blocks = [_complex_block(matrix, is_analysis=False) for matrix in others]
    return [*blocks, torch.cat([twice * last.real, -twice * last.imag], dim=1)]


def _least_squares(basis: AxisBasis, along: Tensor, weights: Tensor) -> Tensor:
    """Returns the matrix that takes values on an axis to coefficients of its functions."""
    functions = basis.at(along)
    measured = functions.mT * weights.unsqueeze(-2)
    num_sites = (weights > 0).sum(-1).to(along)
    return inverse_gram(measured @ functions, basis.roughness.to(along), num_sites) @ measured


def _complex_block(matrix: Tensor, *, is_analysis: bool) -> Tensor:
    """Returns a complex matrix as a real one.

    Its columns are (positions, parts) and its rows (parts, waves) where a field is measured, the
    other way round where it is made; the arrays between two axes then need no copies.
    """
    rows, columns = matrix.shape
    parts = torch.stack(
        [torch.stack([matrix.real, -matrix.imag]), torch.stack([matrix.imag, matrix.real])]
    )
    order = (0, 2, 3, 1) if is_analysis else (2, 0, 1, 3)
    return parts.permute(order).reshape(2 * rows, 2 * columns)
