"""The classic U-Net as PDEBench and The Well compare it (arXiv 2210.07182 and 2412.00568).

Two convolutions over 3 sites along each axis, with batch norm and tanh, on each of five grids;
maximum pooling in between, and transposed convolutions with skip connections on the way back
(Ronneberger et al. 2015). On a 2-D grid it has 17,460,529 parameters with the 48 channels of The
Well, which are the default, and 7,762,465 with the 32 channels of PDEBench. Fields are continued
with zeros, on periodic domains too; `padding="periodic"` continues them periodically.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from gpo.limits import check_width
from gpo.model.problem import Problem
from gpo_bench.baselines.base import (
    AbstractBaseline,
    AbstractSizedConfig,
    check_sizes,
    from_grid,
    to_grid,
)
from gpo_bench.baselines.convolutions import (
    NORMS,
    POOLS,
    ChannelLinear,
    Padding,
    SameConvolution,
    check_divisible,
    doubling,
    wrapped_axes,
)


@dataclass(frozen=True, kw_only=True)
class UNetConfig(AbstractSizedConfig):
    """Architecture of a `UNet`; that of PDEBench is `width=32`."""

    SIZES: ClassVar[Mapping[str, Mapping[str, int]]] = {
        "small": {"width": 12, "num_levels": 3},
        "medium": {"width": 20, "num_levels": 4},
        "published": {"width": 48, "num_levels": 4},
    }

    width: int = 0
    """Number of channels on the finest grid; each coarser grid has twice as many (0: by size)."""
    num_levels: int = 0
    """Number of times the encoder halves the grid (0: by size)."""
    padding: Padding = "zeros"
    """Padding of convolutions on periodic axes: zeros, as published, or periodic."""

    def check(self) -> None:
        """Raises an error for numbers that nothing can be built with."""
        check_sizes(self)
        check_width("width", self.width * 2**self.num_levels)


class UNet(AbstractBaseline):
    """Maps fields on structured grids that can be halved.

    Args:
        problem: Channels and geometry; any grid.
        config: The architecture.
    """

    point_dims = ()

    def __init__(self, problem: Problem, config: UNetConfig = UNetConfig()) -> None:
        super().__init__(problem)
        config = config.resolved
        check_divisible(problem.grid_shape, 2**config.num_levels)
        is_wrapped = wrapped_axes(problem, config.padding)
        num_axes = len(is_wrapped)
        widths = [config.width * 2**level for level in range(config.num_levels + 1)]
        self.pool = POOLS[num_axes]
        self.encoder = nn.ModuleList(
            DoubleConvolution(*pair, is_wrapped)
            for pair in pairwise([problem.in_channels, *widths])
        )
        self.ups = nn.ModuleList(doubling(b, a, num_axes) for a, b in pairwise(widths))
        self.decoder = nn.ModuleList(
            DoubleConvolution(2 * width, width, is_wrapped) for width in widths[:-1]
        )
        self.head = ChannelLinear(widths[0], problem.out_channels)

    def predict(
        self,
        values: Float[Tensor, "batch points in_channels"],
        coords: Float[Tensor, "batch points dim"],
        is_active: Bool[Tensor, "batch points"],
    ) -> Float[Tensor, "batch points out_channels"]:
        """Returns the prediction; masked sites are zeros, and `coords` are not used."""
        first, *others = self.encoder
        scales = [first(to_grid(values, self.problem.grid_shape))]
        for block in others:
            scales.append(block(self.pool(scales[-1], 2)))
        hidden = scales.pop()
        for up, block in reversed(list(zip(self.ups, self.decoder, strict=True))):
            hidden = block(torch.cat([up(hidden), scales.pop()], dim=1))
        return from_grid(self.head(hidden))


class DoubleConvolution(nn.Sequential):
    """Two convolutions over 3 sites along each axis, each followed by batch norm and tanh."""

    def __init__(self, in_channels: int, out_channels: int, is_wrapped: tuple[bool, ...]) -> None:
        norm = NORMS[len(is_wrapped)]
        super().__init__(
            SameConvolution(in_channels, out_channels, 3, is_wrapped, bias=False),
            norm(out_channels),
            nn.Tanh(),
            SameConvolution(out_channels, out_channels, 3, is_wrapped, bias=False),
            norm(out_channels),
            nn.Tanh(),
        )
