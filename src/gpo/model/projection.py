r"""From fields to modes and back: the Galerkin projection onto a set of wave windows.

$T=\arg\min_T\sum_jq_j\,|h(x_j)-\mathrm{Re}\sum_kc_k\psi_k(x_j)T_k|^2$ are the tokens of a field
$h$, where `axis_basis.py` decides between equals. On a periodic grid that is a discrete Fourier
transform cut off at the last wave; on any other sites it is what comes closest, so that tokens
say as little as can be about where the sites are. On a tensor grid it is one small matrix
product per axis.

Sites come first in all arrays here, then samples, then channels: products with matrices that
all samples share then need no copies. Real and imaginary parts are an axis of length two.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from gpo.model.wave_windows import WaveWindows

FADED = 0.1
"""Mean square over the sites, below which a function of mean square one counts as hardly seen."""

RESOLUTION = 1e-5
"""Neighbouring places that differ less than this lie on the same line of a grid."""

SEPARABLE = 1e-3
"""How far, relatively, weights may be from a product of weights along the axes."""


class AbstractProjection(ABC):
    """Windows at given sites."""

    @abstractmethod
    def measure(
        self, field: Float[Tensor, "points batch channels"]
    ) -> Float[Tensor, "2 modes batch channels"]:
        """Returns the tokens of a field."""

    @abstractmethod
    def scatter(
        self, tokens: Float[Tensor, "2 modes batch channels"]
    ) -> Float[Tensor, "points batch channels"]:
        """Returns the field of tokens."""


@dataclass(frozen=True)
class GridProjection(AbstractProjection):
    """Windows on a tensor grid, which factor into windows along its axes."""

    shape: tuple[int, ...]
    order: Int[Tensor, " points"] | None
    """Site at every node of the grid; None where they are in the grid's order."""
    analyses: tuple[Tensor, ...]
    """One matrix per axis: complex numbers in, but for the last axis, and complex numbers out."""
    syntheses: tuple[Tensor, ...]
    """The same in the other direction."""

    def measure(
        self, field: Float[Tensor, "points batch channels"]
    ) -> Float[Tensor, "2 modes batch channels"]:
        """Returns the tokens of a field, last axis first."""
        if self.order is not None:
            field = field[self.order]
        part = self.analyses[-1] @ field.reshape(*self.shape, -1)
        for axis in range(len(self.shape) - 2, -1, -1):
            lines = part.reshape(*self.shape[:axis], 2 * self.shape[axis], -1)
            part = self.analyses[axis] @ lines
        return part.reshape(2, -1, *field.shape[1:])

    def scatter(
        self, tokens: Float[Tensor, "2 modes batch channels"]
    ) -> Float[Tensor, "points batch channels"]:
        """Returns the field of tokens, first axis first."""
        part = tokens
        for axis, synthesis in enumerate(self.syntheses):
            part = synthesis @ part.reshape(*self.shape[:axis], synthesis.shape[1], -1)
        field = part.reshape(-1, *tokens.shape[2:])
        if self.order is None:
            return field
        return torch.empty_like(field).index_copy(0, self.order, field)


@dataclass(frozen=True)
class PointProjection(AbstractProjection):
    """Windows on any points, shared by the batch or one set per sample."""

    analysis: Float[Tensor, "sets rows points"]
    synthesis: Float[Tensor, "sets points rows"]

    def measure(
        self, field: Float[Tensor, "points batch channels"]
    ) -> Float[Tensor, "2 modes batch channels"]:
        """Returns the tokens of a field."""
        return _by_set(self.analysis, field).unflatten(0, (2, -1))

    def scatter(
        self, tokens: Float[Tensor, "2 modes batch channels"]
    ) -> Float[Tensor, "points batch channels"]:
        """Returns the field of tokens."""
        return _by_set(self.synthesis, tokens.flatten(0, 1))


def _by_set(matrix: Tensor, field: Tensor) -> Tensor:
    if len(matrix) == 1:
        return (matrix[0] @ field.flatten(1)).unflatten(1, field.shape[1:])
    return (matrix @ field.transpose(0, 1)).transpose(0, 1)


def project(
    windows: WaveWindows,
    places: Float[Tensor, "sets points axes"],
    weights: Float[Tensor, "sets points"],
) -> AbstractProjection:
    """Returns the windows at places along their axes.

    Args:
        windows: The waves.
        places: Where the sites are: one set that all samples share, or one per sample.
        weights: Quadrature weights; 0 masks a site.
    """
    like, places, weights = places, places.double(), weights.double()
    if len(places) == 1:
        grid = _tensor_grid(places[0], weights[0])
        if grid is not None:
            return _grid_projection(windows, grid, like)
    functions, tokens = torch.ones_like(places[..., :1]), torch.ones(1, 1, dtype=torch.cdouble)
    for axis, basis in enumerate(windows.bases):
        along = basis.at(places[..., axis])
        functions = (functions.unsqueeze(-1) * along.unsqueeze(-2)).flatten(-2)
        is_last = axis == len(windows.bases) - 1
        tokens = torch.kron(tokens, basis.tokens[basis.limit if is_last else 0 :])
    measured = _least_squares(functions, weights)
    analysis = torch.cat([tokens.real, tokens.imag]).to(places) @ measured
    return PointProjection(analysis.to(like), _synthesis(windows, places).to(like))


def _least_squares(functions: Tensor, weights: Tensor) -> Tensor:
    """Returns the matrix that takes values at sites to coefficients of functions.

    Functions are orthonormal where sites are spread evenly. A combination of them that sites
    hardly see, behind a mask or between points that are too few, is faded out: its coefficient
    would be mostly error.
    """
    measured = functions.mT * weights.unsqueeze(-2)
    seen, directions = torch.linalg.eigh(measured @ functions)
    inverse = torch.where(seen > FADED, 1 / seen.clamp_min(FADED), seen / FADED**2)
    return directions @ (inverse.unsqueeze(-1) * (directions.mT @ measured))


def scatter_at(windows: WaveWindows, places: Float[Tensor, "batch points axes"]) -> PointProjection:
    """Returns windows that only scatter, at points where nothing is measured."""
    synthesis = _synthesis(windows, places.double()).to(places)
    return PointProjection(synthesis.new_zeros(()).expand(synthesis.mT.shape), synthesis)


def _synthesis(windows: WaveWindows, places: Tensor) -> Tensor:
    phase = 2 * math.pi * places @ windows.vectors.to(places).mT
    counts = windows.multiplicities.to(places)
    return torch.cat([counts * torch.cos(phase), -counts * torch.sin(phase)], dim=-1)


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
    """Returns the number of the line that every place along an axis lies on."""
    ordered, order = along.sort()
    starts = torch.cat([ordered.new_zeros(1), ordered.diff() > RESOLUTION])
    return torch.empty_like(order).index_copy(0, order, starts.cumsum(0).long())


def _grid_projection(windows: WaveWindows, grid: TensorGrid, like: Tensor) -> GridProjection:
    analyses: list[Tensor] = []
    syntheses: list[Tensor] = []
    last = len(grid.axes) - 1
    for axis, (along, weights) in enumerate(zip(grid.axes, grid.weights, strict=True)):
        basis = windows.bases[axis]
        analysis = basis.tokens.to(along.device) @ _least_squares(basis.at(along), weights).to(
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
    return GridProjection(
        tuple(len(axis) for axis in grid.axes), grid.order,
        tuple(matrix.to(like) for matrix in analyses),
        tuple(matrix.to(like) for matrix in syntheses),
    )  # fmt: skip


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
