r"""The Fourier Neural Operator of Li et al. (2021), with widths and modes per layer.

A layer on a structured grid is $v\mapsto\sigma(F^{-1}(R\cdot Fv)+Wv)$, the sum of a global
convolution with low Fourier modes and a pointwise linear map.
"""

from dataclasses import dataclass
from itertools import pairwise

from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn.functional import gelu

from gpo.model.problem import Problem, UnsupportedGeometryError
from gpo_bench.baselines.base import (
    AbstractBaseline,
    Perceptron,
    PointwiseLinear,
    check_sizes,
    crop_ends,
    from_grid,
    pad_ends,
    to_grid,
    with_index_coordinates,
)
from gpo_bench.baselines.spectral_convolution import SpectralConvolution, resolved_modes


@dataclass(frozen=True, kw_only=True)
class FNOConfig:
    """Architecture of an `FNO`.

    With the defaults it has 640,305 parameters on a 2-D grid, as in the paper's table. The original
    network for Navier-Stokes is `widths=(20,) * 5, modes=(12,) * 4, head=(128,)`, that of the
    Neural-Solver-Library `widths=(64,) * 5, modes=(12,) * 4, lift=(128,), head=(64,)`.
    """

    widths: tuple[int, ...] = (16, 24, 24, 32, 32)
    """Number of channels before the first Fourier layer and after each layer."""
    modes: tuple[int, ...] = (15, 12, 9, 9)
    """Number of Fourier modes of each layer along each axis, at most those of the grid."""
    lift: tuple[int, ...] = ()
    """Hidden widths of the perceptron before the Fourier layers."""
    head: tuple[int, ...] = (128, 32)
    """Hidden widths of the perceptron after the Fourier layers."""
    padding: int = 0
    """Number of zeros appended along each axis, for fields that are not periodic."""

    def __post_init__(self) -> None:
        check_sizes(self, padding=0)
        if len(self.widths) != len(self.modes) + 1:
            raise ValueError(
                "`widths` must have one entry more than `modes`, "
                f"got {len(self.widths)} and {len(self.modes)}."
            )


class FNO(AbstractBaseline):
    """Maps fields on structured grids of one to three axes.

    Args:
        problem: Channels and geometry.
        config: The architecture.
    """

    point_dims = ()

    def __init__(self, problem: Problem, config: FNOConfig = FNOConfig()) -> None:
        super().__init__(problem)
        num_axes = len(problem.grid_shape)
        self.network = FourierNetwork(
            (problem.in_channels + num_axes, *config.lift),
            config.widths,
            (*config.head, problem.out_channels),
            tuple((count,) * num_axes for count in config.modes),
            problem.grid_shape,
            config.padding,
        )

    def predict(
        self,
        values: Float[Tensor, "batch points in_channels"],
        coords: Float[Tensor, "batch points dim"],
        is_active: Bool[Tensor, "batch points"],
    ) -> Float[Tensor, "batch points out_channels"]:
        """Returns the prediction for validated input."""
        return self.network(with_index_coordinates(values, self.problem.grid_shape))


class FourierNetwork(nn.Module):
    """Fourier layers between two perceptrons, on one grid.

    Args:
        before: Widths of the first perceptron, from the channels of the input on.
        widths: Number of channels before the first Fourier layer and after each layer.
        after: Widths of the last perceptron, up to the channels of the output.
        modes: Number of Fourier modes of each layer, by axis.
        grid_shape: Number of sites along each axis.
        padding: Number of zeros appended along each axis inside the Fourier layers.
    """

    def __init__(
        self,
        before: tuple[int, ...],
        widths: tuple[int, ...],
        after: tuple[int, ...],
        modes: tuple[tuple[int, ...], ...],
        grid_shape: tuple[int, ...],
        padding: int,
    ) -> None:
        super().__init__()
        self.grid_shape, self.padding = grid_shape, (padding,) * len(grid_shape)
        padded = tuple(size + padding for size in grid_shape)
        if min(padded) < 2:
            raise UnsupportedGeometryError("needs at least two sites along every axis of the grid")
        self.lift = Perceptron(*before, widths[0])
        self.layers = nn.ModuleList(
            FourierLayer(in_channels, out_channels, resolved_modes(counts, padded))
            for (in_channels, out_channels), counts in zip(pairwise(widths), modes, strict=True)
        )
        self.head = Perceptron(widths[-1], *after)

    def forward(
        self, values: Float[Tensor, "batch points in_channels"]
    ) -> Float[Tensor, "batch points out_channels"]:
        """Returns the predicted field at the sites of the grid."""
        hidden = pad_ends(to_grid(self.lift(values), self.grid_shape), self.padding)
        for layer in self.layers[:-1]:
            hidden = gelu(layer(hidden))
        return self.head(from_grid(crop_ends(self.layers[-1](hidden), self.grid_shape)))


class FourierLayer(nn.Module):
    r"""$F^{-1}(R\cdot Fv)+Wv$, without the activation."""

    def __init__(self, in_channels: int, out_channels: int, modes: tuple[int, ...]) -> None:
        super().__init__()
        self.convolution = SpectralConvolution(in_channels, out_channels, modes)
        self.pointwise = PointwiseLinear(in_channels, out_channels)

    def forward(
        self, values: Float[Tensor, "batch in_channels *grid"]
    ) -> Float[Tensor, "batch out_channels *grid"]:
        """Returns the sum of the spectral and the pointwise branch."""
        return self.convolution(values) + self.pointwise(values)
