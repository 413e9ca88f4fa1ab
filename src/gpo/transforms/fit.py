r"""Fits a transform to sites: the Galerkin projection onto a set of waves.

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
from gpo.transforms.axis_basis import AxisBasis
from gpo.transforms.lattice import LatticePoints
from gpo.transforms.lattice_fit import ascending_lines, fit_lattice
from gpo.transforms.transform import (
    AbstractWaveTransform,
    GridTransform,
    PointTransform,
    StreamedTransform,
    functions_at,
    waves_at,
)
from gpo.transforms.waves import Waves

HARDLY_SEEN = 0.1
"""Mean square over the sites, below which a function of mean square one counts as hardly seen."""

UNSEEN = 1e-3
"""The same where sites are few and rough functions are held back: what is left lies outside all sites."""

ENOUGH = 1.5
"""Sites per function; fewer are too few everywhere, not only behind a mask."""

PLENTY = 16.0
"""Sites per function, of which some may be at the same place, that are enough in any case."""

HELD_BACK = 0.1
"""How much the shortest wave of an axis is held back where such sites miss some function."""

SEPARABLE = 1e-3
"""How far, relatively, weights may be from a product of weights along the axes."""

KEPT_NUMBERS = 2**26
"""Transforms of more numbers than this are computed whenever they are needed."""

PORTION = 2**13
"""Points at a time while a transform is fitted."""


def fit_transform(
    waves: Waves,
    positions: Float[Tensor, "sets points axes"],
    weights: Float[Tensor, "sets points"],
    shard: SpatialShard = SINGLE_PROCESS,
) -> AbstractWaveTransform:
    """Returns analysis and synthesis at sites; separable where they form a tensor grid.

    Args:
        waves: The test functions.
        positions: Where the sites are along the axes of the waves: one set that all samples shard, or one per sample.
        weights: Quadrature weights; 0 masks a site.
        shard: Which part of all sites this process holds.
    """
    if len(positions) == 1:
        grid = _grid_part(waves, positions, weights, shard)
        if grid is not None:
            return grid
    matrix = _token_matrix(waves, positions, weights, shard)
    if not shard.is_whole or matrix.shape[1] * weights.numel() > KEPT_NUMBERS:
        return StreamedTransform(waves, positions, weights, matrix.to(positions))
    exact = positions.double()
    tested = functions_at(waves, exact) * weights.double().unsqueeze(-1)
    return PointTransform((matrix @ tested.mT).to(positions), waves_at(waves, exact).to(positions))


def _grid_part(
    waves: Waves, positions: Tensor, weights: Tensor, shard: SpatialShard
) -> GridTransform | None:
    """Returns the part of a tensor grid that is here, None where there is no such grid."""
    everywhere = shard.gathered(positions, 1)[0].double(), shard.gathered(weights, 1)[0].double()
    grid = _tensor_grid(*everywhere)
    if grid is None:
        return None
    projection = _grid_projection(waves, grid, positions)
    if shard.is_whole:
        return projection
    starts, per_line = shard.starts(positions.shape[1]), math.prod(projection.shape[1:])
    if grid.order is not None or any(start % per_line for start in starts):
        return None
    begin, end = starts[shard.rank : shard.rank + 2]
    return projection.lines(begin // per_line, end // per_line)


def _token_matrix(
    waves: Waves, positions: Tensor, weights: Tensor, shard: SpatialShard
) -> Float[Tensor, "sets rows functions"]:
    """Returns the matrix that takes sums of a field times functions over all sites to tokens."""
    gram = torch.zeros((), dtype=torch.double, device=positions.device)
    pieces = zip(positions.split(PORTION, 1), weights.split(PORTION, 1), strict=True)
    for piece, weight in pieces:
        functions = functions_at(waves, piece.double())
        gram = gram + functions.mT @ (functions * weight.double().unsqueeze(-1))
    tokens = torch.ones(1, 1, dtype=torch.cdouble)
    roughness = torch.zeros(1, dtype=torch.double)
    for axis, basis in enumerate(waves.bases):
        is_last = axis == len(waves.bases) - 1
        tokens = torch.kron(tokens, basis.tokens[basis.limit if is_last else 0 :])
        roughness = (roughness.unsqueeze(-1) + basis.roughness).flatten()
    num_sites = _count_places(positions, weights, shard, roughness.numel())
    inverse = _inverse(shard.sum(gram), roughness.to(gram), num_sites)
    return torch.cat([tokens.real, tokens.imag]).to(gram) @ inverse


def _count_places(
    positions: Tensor, weights: Tensor, shard: SpatialShard, num_functions: int
) -> Float[Tensor, " sets"]:
    """Returns at how many different places there are sites that count.

    Sites at the same place are one. They are told apart only where that could matter: many times
    more sites than functions are enough in any case.
    """
    is_counted = weights > 0
    counts = shard.sum(is_counted.sum(-1).double())
    if bool((counts > PLENTY * num_functions).all()):
        return counts
    everywhere = shard.gathered(positions, 1), shard.gathered(is_counted, 1)
    different = [
        len(torch.unique(places[counted], dim=0))
        for places, counted in zip(*everywhere, strict=True)
    ]
    return counts.new_tensor(different)


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


def synthesis_at(waves: Waves, positions: Float[Tensor, "batch points axes"]) -> PointTransform:
    """Returns a transform that only synthesises, at points where nothing is measured."""
    synthesis = waves_at(waves, positions.double()).to(positions)
    return PointTransform(synthesis.new_zeros(()).expand(synthesis.mT.shape), synthesis)


@dataclass(frozen=True)
class SiteGeometry:
    """All that a model has to search or solve for at sites, whatever they hold."""

    transform: AbstractWaveTransform
    """Waves there."""
    on_lattice: LatticePoints | None = None
    """Where the sites are on the lattice that particles look at; none where no layer transports."""


class CachedGeometry:
    """The geometry of the sites of a batch, found once for as long as sites stay."""

    def __init__(self, waves: Waves, *, num_nodes: int | None) -> None:
        """Knows nothing yet.

        Args:
            waves: The test functions.
            num_nodes: Of the lattice of scattered sites; None where no particles look.
        """
        self.waves, self.num_nodes = waves, num_nodes
        self._last: _Fitted | None = None

    def at(
        self,
        coords: Float[Tensor, "batch points dim"],
        weights: Float[Tensor, "batch points"],
        shard: SpatialShard = SINGLE_PROCESS,
    ) -> SiteGeometry:
        """Returns the geometry of sites, that of the last batch where its sites were the same."""
        if torch.compiler.is_compiling():
            # What kind of sites these are is looked up, which no graph can hold.
            torch._dynamo.graph_break()
        positions = self.waves.positions(coords, shard)
        is_known = self._last is not None and self._last.suits(positions, weights)
        if not _holds_everywhere(is_known, shard, positions):
            # What was found while scoring serves in training too.
            with torch.inference_mode(False), torch.no_grad():
                self._last = self._find(coords, positions, weights, shard)
        assert self._last is not None
        return self._last.geometry

    def _find(
        self, coords: Tensor, positions: Tensor, weights: Tensor, shard: SpatialShard
    ) -> "_Fitted":
        """Finds the geometry of sites, only once where all samples have the same."""
        is_shared = bool((positions == positions[:1]).all()) and bool(
            (weights == weights[:1]).all()
        )
        sets = slice(0, 1) if _holds_everywhere(is_shared, shard, weights) else slice(None)
        coords, positions, weights = (part[sets].clone() for part in (coords, positions, weights))
        transform = fit_transform(self.waves, positions, weights, shard)
        points = None
        if self.num_nodes is not None:
            counted = weights > 0
            points = fit_lattice(self.waves, self.num_nodes, coords, positions, counted, shard)
        return _Fitted(positions, weights, SiteGeometry(transform, points))


@dataclass(frozen=True)
class _Fitted:
    """A geometry, and the sites it was found for."""

    positions: Float[Tensor, "sets points axes"]
    """One set where all samples have the same."""
    weights: Float[Tensor, "sets points"]
    geometry: SiteGeometry

    def suits(
        self, positions: Float[Tensor, "batch points axes"], weights: Float[Tensor, "batch points"]
    ) -> bool:
        """Returns whether a batch has these sites."""
        mine = self.positions
        if mine.device != positions.device or mine.dtype != positions.dtype:
            return False
        if mine.shape[1:] != positions.shape[1:] or len(mine) not in (1, len(positions)):
            return False
        return bool((mine == positions).all()) and bool((self.weights == weights).all())


def _holds_everywhere(claim: bool, shard: SpatialShard, like: Tensor) -> bool:
    """Returns whether a claim holds in all processes, so that all of them do the same."""
    if shard.is_whole:
        return claim
    return shard.sum(like.new_tensor(0.0 if claim else 1.0)).item() == 0


@dataclass(frozen=True)
class TensorGrid:
    """Sites that are all nodes of a grid, with weights that factor too."""

    axes: tuple[Tensor, ...]
    weights: tuple[Tensor, ...]
    """Of the lines across every axis; they sum to one."""
    order: Int[Tensor, " points"] | None
    """Site at every node; None where sites are in the grid's order."""


def _tensor_grid(positions: Tensor, weights: Tensor) -> TensorGrid | None:
    """Returns the grid that sites form in whatever order, None where they form none."""
    axes: list[Tensor] = []
    shares: list[Tensor] = []
    number = torch.zeros(len(positions), dtype=torch.long, device=positions.device)
    expected = torch.ones_like(weights)
    for along in positions.unbind(-1):
        lines = _lines(along)
        nothing = along.new_zeros(int(lines.max()) + 1)
        axes.append(nothing.index_add(0, lines, along) / torch.bincount(lines))
        shares.append(nothing.index_add(0, lines, weights))
        expected = expected * shares[-1][lines]
        number = number * len(nothing) + lines
    if math.prod(len(axis) for axis in axes) != len(positions):
        return None
    order = torch.argsort(number)
    straight = torch.arange(len(positions), device=positions.device)
    is_whole = bool((number[order] == straight).all())
    if not is_whole or not torch.allclose(expected, weights, rtol=SEPARABLE, atol=0):
        return None
    is_straight = bool((order == straight).all())
    return TensorGrid(tuple(axes), tuple(shares), None if is_straight else order)


def _lines(along: Tensor) -> Tensor:
    """Returns the number of the line that every place along an axis lies on, as sites meet them.

    Latitudes from north to south and longitudes from 0 to 360 degrees are in order then too.
    """
    lines, places = ascending_lines(along)
    first = torch.full_like(lines[: len(places)], len(lines))
    first.scatter_reduce_(0, lines, torch.arange(len(lines), device=lines.device), "amin")
    return first.argsort().argsort()[lines]


def _grid_projection(waves: Waves, grid: TensorGrid, like: Tensor) -> GridTransform:
    analyses: list[Tensor] = []
    syntheses: list[Tensor] = []
    last = len(grid.axes) - 1
    for axis, (along, weights) in enumerate(zip(grid.axes, grid.weights, strict=True)):
        basis = waves.bases[axis]
        analysis = basis.tokens.to(along.device) @ _least_squares(basis, along, weights).to(
            torch.cdouble
        )
        numbers = torch.arange(-basis.limit, basis.limit + 1, device=along.device)
        turns = torch.exp(2j * math.pi * along.unsqueeze(-1) * numbers / basis.period)
        if axis < last:
            analyses.append(_complex_block(analysis, is_analysis=True))
            syntheses.append(_complex_block(turns, is_analysis=False))
            continue
        analysis, turns = analysis[basis.limit :], turns[:, basis.limit :]
        twice = torch.where(numbers[basis.limit :] == 0, 1.0, 2.0).to(along)
        analyses.append(torch.cat([analysis.real, analysis.imag]))
        syntheses.append(torch.cat([twice * turns.real, -twice * turns.imag], dim=1))
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

    Its columns are (positions, parts) and its rows (parts, waves) where a field is measured, the
    other way round where it is made; the arrays between two axes then need no copies.
    """
    rows, columns = matrix.shape
    parts = torch.stack(
        [torch.stack([matrix.real, -matrix.imag]), torch.stack([matrix.imag, matrix.real])]
    )
    order = (0, 2, 3, 1) if is_analysis else (2, 0, 1, 3)
    return parts.permute(order).reshape(2 * rows, 2 * columns)
