r"""The Galerkin projection onto a set of wave windows, at given sites.

$T=\arg\min_T\sum_jq_j\,|h(x_j)-\mathrm{Re}\sum_kc_k\psi_k(x_j)T_k|^2$ are the tokens of a field
$h$; between fields that sites can hardly tell apart, `axis_basis.py` says which is smooth. On a
periodic grid that is a discrete Fourier transform cut off at the last wave; on any other sites it
is what comes closest, so that tokens say as little as can be about where the sites are. On a
tensor grid it is one small matrix product per axis.
"""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from gpo.parallel.shard import SINGLE_PROCESS, SpatialShard
from gpo.transforms.transform import (
    AbstractTransform,
    GridTransform,
    PointTransform,
    StreamedTransform,
    functions_at,
    waves_at,
)
from gpo.transforms.waves import AxisBasis, Waves

HARDLY_SEEN = 0.1
"""Mean square over the sites, below which a function of mean square one counts as hardly seen."""

UNSEEN = 1e-3
"""The same where sites are few and rough functions are held back: what is left lies outside all sites."""

ENOUGH = 1.5
"""Sites per function; fewer are too few everywhere, not only behind a mask."""

HELD_BACK = 0.1
"""How much the shortest wave of an axis is held back where such sites miss some function."""

RESOLUTION = 1e-5
"""Neighbouring places that differ less than this lie on the same line of a grid."""

SEPARABLE = 1e-3
"""How far, relatively, weights may be from a product of weights along the axes."""

KEPT_NUMBERS = 2**26
"""Windows at more points than have as many numbers are computed whenever they are needed."""

PORTION = 2**13
"""Points at a time while windows are placed."""


def project(
    windows: Waves,
    places: Float[Tensor, "sets points axes"],
    weights: Float[Tensor, "sets points"],
    shard: SpatialShard = SINGLE_PROCESS,
) -> AbstractTransform:
    """Returns the windows at places along their axes.

    Args:
        windows: The waves.
        places: Where the sites are: one set that all samples shard, or one per sample.
        weights: Quadrature weights; 0 masks a site.
        shard: Which part of all sites these are.
    """
    if len(places) == 1:
        grid = _grid_part(windows, places, weights, shard)
        if grid is not None:
            return grid
    matrix = _token_matrix(windows, places, weights, shard)
    if not shard.is_whole or matrix.shape[1] * weights.numel() > KEPT_NUMBERS:
        return StreamedTransform(windows, places, weights, matrix.to(places))
    exact = places.double()
    tested = functions_at(windows, exact) * weights.double().unsqueeze(-1)
    return PointTransform((matrix @ tested.mT).to(places), waves_at(windows, exact).to(places))


def _grid_part(
    windows: Waves, places: Tensor, weights: Tensor, shard: SpatialShard
) -> GridTransform | None:
    """Returns the part of a tensor grid that is here, None where there is no such grid."""
    everywhere = shard.gathered(places, 1)[0].double(), shard.gathered(weights, 1)[0].double()
    grid = _tensor_grid(*everywhere)
    if grid is None:
        return None
    projection = _grid_projection(windows, grid, places)
    if shard.is_whole:
        return projection
    starts, per_line = shard.starts(places.shape[1]), math.prod(projection.shape[1:])
    if grid.order is not None or any(start % per_line for start in starts):
        return None
    begin, end = starts[shard.rank : shard.rank + 2]
    return projection.lines(begin // per_line, end // per_line)


def _token_matrix(
    windows: Waves, places: Tensor, weights: Tensor, shard: SpatialShard
) -> Float[Tensor, "sets rows functions"]:
    """Returns the matrix that takes sums of a field times functions over all sites to tokens."""
    gram = torch.zeros((), dtype=torch.double, device=places.device)
    pieces = zip(places.split(PORTION, 1), weights.split(PORTION, 1), strict=True)
    for piece, weight in pieces:
        functions = functions_at(windows, piece.double())
        gram = gram + functions.mT @ (functions * weight.double().unsqueeze(-1))
    tokens = torch.ones(1, 1, dtype=torch.cdouble)
    roughness = torch.zeros(1, dtype=torch.double)
    for axis, basis in enumerate(windows.bases):
        is_last = axis == len(windows.bases) - 1
        tokens = torch.kron(tokens, basis.tokens[basis.limit if is_last else 0 :])
        roughness = (roughness.unsqueeze(-1) + basis.roughness).flatten()
    num_sites = shard.sum((weights > 0).sum(-1).double())
    inverse = _inverse(shard.sum(gram), roughness.to(gram), num_sites)
    return torch.cat([tokens.real, tokens.imag]).to(gram) @ inverse


def _inverse(
    gram: Float[Tensor, "*sets functions functions"],
    roughness: Float[Tensor, " functions"],
    num_sites: Float[Tensor, "*sets"],
) -> Float[Tensor, "*sets functions functions"]:
    """Returns the inverse of the products of all functions with each other.

    Functions are orthonormal where sites are spread evenly. A combination of them that sites
    hardly see, as behind a mask, is faded out: its coefficient would be mostly error. Where
    sites are too few for all functions, those combinations have long waves in them too. There
    rough functions are held back instead, the more so the less is seen: of all fields that agree
    at the sites, tokens are those of a smooth one.
    """
    are_few = (num_sites < ENOUGH * len(roughness)).unsqueeze(-1)
    blindness = (1 - torch.linalg.eigvalsh(gram)[..., :1] / HARDLY_SEEN).clamp(0, 1)
    held_back = are_few * blindness * HELD_BACK * roughness**3
    seen, directions = torch.linalg.eigh(gram + torch.diag_embed(held_back))
    least = torch.where(are_few, UNSEEN, HARDLY_SEEN)
    inverse = torch.where(seen > least, 1 / seen.clamp_min(least), seen / least**2)
    return directions @ (inverse.unsqueeze(-1) * directions.mT)


def scatter_at(windows: Waves, places: Float[Tensor, "batch points axes"]) -> PointTransform:
    """Returns windows that only scatter, at points where nothing is measured."""
    synthesis = waves_at(windows, places.double()).to(places)
    return PointTransform(synthesis.new_zeros(()).expand(synthesis.mT.shape), synthesis)


@dataclass(frozen=True)
class TensorGrid:
    """Sites that are all nodes of a grid, with weights that factor too."""

    axes: tuple[Tensor, ...]
    weights: tuple[Tensor, ...]
    """Of the lines across every axis; they sum to one."""
    order: Int[Tensor, " points"] | None
    """Site at every node; None where sites are in the grid's order."""


def _tensor_grid(places: Tensor, weights: Tensor) -> TensorGrid | None:
    """Returns the grid that sites form in whatever order, None where they form none."""
    axes: list[Tensor] = []
    shares: list[Tensor] = []
    number = torch.zeros(len(places), dtype=torch.long, device=places.device)
    expected = torch.ones_like(weights)
    for along in places.unbind(-1):
        lines = _lines(along)
        nothing = along.new_zeros(int(lines.max()) + 1)
        axes.append(nothing.index_add(0, lines, along) / torch.bincount(lines))
        shares.append(nothing.index_add(0, lines, weights))
        expected = expected * shares[-1][lines]
        number = number * len(nothing) + lines
    if math.prod(len(axis) for axis in axes) != len(places):
        return None
    order = torch.argsort(number)
    straight = torch.arange(len(places), device=places.device)
    is_whole = bool((number[order] == straight).all())
    if not is_whole or not torch.allclose(expected, weights, rtol=SEPARABLE, atol=0):
        return None
    is_straight = bool((order == straight).all())
    return TensorGrid(tuple(axes), tuple(shares), None if is_straight else order)


def _lines(along: Tensor) -> Tensor:
    """Returns the number of the line that every place along an axis lies on, as sites meet them.

    Latitudes from north to south and longitudes from 0 to 360 degrees are in order then too.
    """
    ordered, order = along.sort()
    starts = torch.cat([ordered.new_zeros(1), ordered.diff() > RESOLUTION])
    lines = torch.empty_like(order).index_copy(0, order, starts.cumsum(0).long())
    count = int(lines.max()) + 1
    first = torch.full_like(lines[:count], len(lines))
    first.scatter_reduce_(0, lines, torch.arange(len(lines), device=lines.device), "amin")
    return first.argsort().argsort()[lines]


def _grid_projection(windows: Waves, grid: TensorGrid, like: Tensor) -> GridTransform:
    analyses: list[Tensor] = []
    syntheses: list[Tensor] = []
    last = len(grid.axes) - 1
    for axis, (along, weights) in enumerate(zip(grid.axes, grid.weights, strict=True)):
        basis = windows.bases[axis]
        analysis = basis.tokens.to(along.device) @ _least_squares(basis, along, weights).to(
            torch.cdouble
        )
        numbers = torch.arange(-basis.limit, basis.limit + 1, device=along.device)
        waves = torch.exp(2j * math.pi * along.unsqueeze(-1) * numbers / basis.period)
        if axis < last:
            analyses.append(_complex_block(analysis, is_analysis=True))
            syntheses.append(_complex_block(waves, is_analysis=False))
            continue
        analysis, waves = analysis[basis.limit :], waves[:, basis.limit :]
        twice = torch.where(numbers[basis.limit :] == 0, 1.0, 2.0).to(along)
        analyses.append(torch.cat([analysis.real, analysis.imag]))
        syntheses.append(torch.cat([twice * waves.real, -twice * waves.imag], dim=1))
    return GridTransform(
        tuple(len(axis) for axis in grid.axes), grid.order,
        tuple(matrix.to(like) for matrix in analyses),
        tuple(matrix.to(like) for matrix in syntheses),
    )  # fmt: skip


def _least_squares(basis: AxisBasis, along: Tensor, weights: Tensor) -> Tensor:
    """Returns the matrix that takes values on an axis to coefficients of its functions."""
    functions = basis.at(along)
    measured = functions.mT * weights.unsqueeze(-2)
    num_sites = (weights > 0).sum(-1).to(along)
    return _inverse(measured @ functions, basis.roughness.to(along), num_sites) @ measured


def _complex_block(matrix: Tensor, *, is_analysis: bool) -> Tensor:
    """Returns a complex matrix as a real one.

    Its columns are (places, parts) and its rows (parts, waves) where a field is measured, the
    other way round where it is made; the arrays between two axes then need no copies.
    """
    rows, columns = matrix.shape
    parts = torch.stack(
        [torch.stack([matrix.real, -matrix.imag]), torch.stack([matrix.imag, matrix.real])]
    )
    order = (0, 2, 3, 1) if is_analysis else (2, 0, 1, 3)
    return parts.permute(order).reshape(2 * rows, 2 * columns)
