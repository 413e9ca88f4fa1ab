r"""M2NO, the multiresolution operator of Li et al. (2024): algebraic multigrid with multiwavelets.

The model is a stack of multigrid V-cycles. Smoothers and the operator $A$ are learned convolutions;
the restriction $Hu$ and the prolongation $H^\top u$ are fixed Legendre multiwavelet filters. As in
the released code, a coarser level receives the restricted state, not the residual.

With $\phi_i(x)=\sqrt{2i+1}\,P_i(2x-1)$ on $[0,1]$ and $i<k$, the scaling coefficients of a cell
follow from those of its halves,
$s_i=\sum_j H^0_{ij}\,s^{\mathrm{left}}_j+H^1_{ij}\,s^{\mathrm{right}}_j$.
"""

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Bool, Float
from numpy.polynomial import legendre
from torch import Tensor, nn
from torch.nn.functional import gelu

from gpo.model.problem import Problem
from gpo_bench.baselines.base import (
    AbstractBaseline,
    Perceptron,
    check_sizes,
    from_grid,
    to_grid,
    with_index_coordinates,
)
from gpo_bench.baselines.convolutions import check_divisible


@dataclass(frozen=True, kw_only=True)
class M2NOConfig:
    """Architecture of an `M2NO`."""

    num_cycles: int = 2
    """Number of V-cycles; 5 in the released configuration, but 2 in the released code."""
    order: int = 8
    """Number of polynomials k per axis and cell."""
    multiplicity: int = 2
    """Number of multiwavelet fields c; there are c k^2 channels."""
    sweeps: tuple[int, ...] = (1, 1, 2, 2, 2, 3)
    """Number of smoothing steps on each coarser level, as many levels as both sides can be halved."""
    spatial_2x2: bool = False
    """Restricts 2 x 2 blocks of cells; the released code restricts four cells of a row."""

    def __post_init__(self) -> None:
        check_sizes(self)


class M2NO(AbstractBaseline):
    """V-cycles with a GELU between them, on a grid whose sides can be halved.

    The released code has square grids whose sides are powers of two, but shapes its norms by both
    sides. A grid with an odd side cannot be halved; its authors have ERA5 on 512 x 512 sites.

    Args:
        problem: Channels and geometry; the grid determines the shapes of the layer norms.
        config: The architecture.
    """

    grid_axes, point_dims = (2,), ()
    limits = "its authors have no 3-D version"

    def __init__(self, problem: Problem, config: M2NOConfig = M2NOConfig()) -> None:
        super().__init__(problem)
        check_divisible(problem.grid_shape, 2)
        # The lowest set bit says how often a number can be halved.
        halvings = min((size & -size).bit_length() - 1 for size in problem.grid_shape)
        sweeps = config.sweeps[:halvings]
        channels = config.multiplicity * config.order**2
        transfer = Transfer(config.order, config.multiplicity, config.spatial_2x2)
        self.lift = nn.Linear(problem.in_channels + 2, channels)
        self.cycles = nn.ModuleList(
            VCycle(channels, problem.grid_shape, sweeps, transfer) for _ in range(config.num_cycles)
        )
        self.project = Perceptron(channels, channels, problem.out_channels)

    def predict(
        self,
        values: Float[Tensor, "batch points in_channels"],
        coords: Float[Tensor, "batch points dim"],
        is_active: Bool[Tensor, "batch points"],
    ) -> Float[Tensor, "batch points out_channels"]:
        """Returns the prediction; masked sites are zeros, and grid indices replace `coords`."""
        shape = self.problem.grid_shape
        hidden = to_grid(self.lift(with_index_coordinates(values, shape)), shape)
        for index, cycle in enumerate(self.cycles):
            hidden = cycle(hidden if index == 0 else gelu(hidden))
        return self.project(from_grid(hidden))


class Transfer(nn.Module):
    """Fixed restriction to a grid half as fine, and its transpose, the prolongation."""

    matrix: Tensor

    def __init__(self, order: int, multiplicity: int, spatial_2x2: bool) -> None:
        super().__init__()
        self.multiplicity, self.spatial_2x2 = multiplicity, spatial_2x2
        # Double precision keeps the rows orthonormal in a double-precision model.
        matrix = torch.from_numpy(transfer_matrix(order))
        self.register_buffer("matrix", matrix, persistent=False)

    def restrict(
        self, field: Float[Tensor, "batch channels rows columns"]
    ) -> Float[Tensor, "batch channels half_rows half_columns"]:
        """Returns the low-pass part of each group of four cells."""
        batch, _, *size = field.shape
        cells, (rows, columns) = field.movedim(1, -1), (count // 2 for count in size)
        if self.spatial_2x2:
            cells = cells.reshape(batch, rows, 2, columns, 2, self.multiplicity, -1)
            cells = cells.permute(0, 1, 3, 5, 2, 4, 6)
        four = cells.reshape(batch, rows, columns, self.multiplicity, -1)
        return (four @ self.matrix.to(field.dtype).T).flatten(-2).movedim(-1, 1)

    def prolong(
        self, field: Float[Tensor, "batch channels half_rows half_columns"]
    ) -> Float[Tensor, "batch channels rows columns"]:
        """Returns the field on the finer grid by the transpose of `restrict`."""
        batch, channels, rows, columns = field.shape
        coarse = field.movedim(1, -1).unflatten(-1, (self.multiplicity, -1))
        four = coarse @ self.matrix.to(field.dtype)
        if self.spatial_2x2:
            four = four.unflatten(-1, (2, 2, -1)).permute(0, 1, 4, 2, 5, 3, 6)
        return four.reshape(batch, 2 * rows, 2 * columns, channels).movedim(-1, 1)


class VCycle(nn.Module):
    r"""A V-cycle for $Au=f$: smoothing, restriction, prolongation with layer norms, correction."""

    def __init__(
        self, channels: int, shape: tuple[int, ...], sweeps: tuple[int, ...], transfer: Transfer
    ) -> None:
        super().__init__()
        self.transfer = transfer
        self.operator = periodic_conv(channels)
        self.before = periodic_conv(channels)
        self.smoothers = nn.ModuleList(
            nn.ModuleList(periodic_conv(channels) for _ in range(count)) for count in sweeps
        )
        self.norms = nn.ModuleList(
            nn.LayerNorm([channels, *(size >> level for size in shape)])
            for level in range(len(sweeps))
        )
        self.after = periodic_conv(channels)

    def forward(
        self, forcing: Float[Tensor, "batch channels rows columns"]
    ) -> Float[Tensor, "batch channels rows columns"]:
        """Returns the approximate solution for a right-hand side $f$."""
        states = [self.before(forcing)]
        for smoothers in self.smoothers:
            states.append(self._smooth(smoothers, self.transfer.restrict(states[-1])))
        solution = states.pop()
        for norm, state in zip(reversed(self.norms), reversed(states), strict=True):
            solution = norm(state + self.transfer.prolong(solution))
        return solution + self.after(forcing - self.operator(solution))

    def _smooth(self, smoothers: nn.Module, forcing: Tensor) -> Tensor:
        first, *others = smoothers.children()
        state = first(forcing)
        for smoother in others:
            state = state + smoother(forcing - self.operator(state))
        return state


def periodic_conv(channels: int) -> nn.Conv2d:
    """Returns a 3x3 convolution with periodic padding."""
    return nn.Conv2d(channels, channels, 3, padding=1, padding_mode="circular")


def low_pass_filters(order: int) -> tuple[np.ndarray, np.ndarray]:
    r"""Returns $H^0$ and $H^1$, $H^s_{ij}=2^{-1/2}\int_0^1\phi_i((x+s)/2)\,\phi_j(x)\,dx$.

    Args:
        order: Number of polynomials $k$ per cell.
    """
    # The quadrature is exact, because the integrand has degree 2k - 2.
    nodes, weights = legendre.leggauss(order)
    nodes, weights = (nodes + 1) / 2, weights / 2
    fine = _scaling_functions(nodes, order) * weights[:, None]
    left, right = (_scaling_functions((nodes + side) / 2, order).T @ fine for side in (0, 1))
    return left / np.sqrt(2), right / np.sqrt(2)


def transfer_matrix(order: int) -> np.ndarray:
    r"""Returns $[H^0\otimes H^0\,|\,H^0\otimes H^1\,|\,H^1\otimes H^0\,|\,H^1\otimes H^1]$.

    The $k^2$ rows are orthonormal, so that restriction inverts prolongation by the transpose.
    """
    filters = low_pass_filters(order)
    return np.hstack([np.kron(row, column) for row in filters for column in filters])


def _scaling_functions(points: np.ndarray, order: int) -> np.ndarray:
    """Returns the scaling functions, one per column, at points in the unit interval."""
    return legendre.legvander(2 * points - 1, order - 1) * np.sqrt(2 * np.arange(order) + 1)
