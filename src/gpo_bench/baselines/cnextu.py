"""CNextU, the U-Net with ConvNeXt blocks of The Well (Ohana et al. 2024, arXiv 2412.00568).

A block is a depthwise convolution over 7 sites along each axis, a layer norm and a perceptron at
each site, scaled and added to its input. The convolutions of the published model continue fields
with zeros, on periodic domains too; `padding="periodic"` continues them periodically.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn.functional import normalize

from gpo.limits import check_width
from gpo.model.problem import Problem
from gpo_bench.baselines.base import (
    AbstractBaseline,
    AbstractSizedConfig,
    Perceptron,
    check_sizes,
    from_grid,
    to_grid,
)
from gpo_bench.baselines.convolutions import (
    ChannelLinear,
    Padding,
    SameConvolution,
    check_divisible,
    doubling,
    halving,
    wrapped_axes,
)

INITIAL_SCALE = 1e-6
"""Initial factor of what a block adds to its input."""
EPS = 1e-6
"""Added to the variance of a layer norm; smallest length by which features are divided."""


@dataclass(frozen=True, kw_only=True)
class CNextUConfig(AbstractSizedConfig):
    """Architecture of a `CNextU`; 18,568,537 parameters on a 2-D grid, small 470,689."""

    SIZES: ClassVar[Mapping[str, Mapping[str, int]]] = {
        "small": {"width": 16, "num_levels": 3, "num_blocks": 1},
        "medium": {"width": 16, "num_levels": 4, "num_blocks": 2},
        "published": {"width": 42, "num_levels": 4, "num_blocks": 2},
    }

    width: int = 0
    """Number of channels on the finest grid; each coarser grid has twice as many (0: by size)."""
    num_levels: int = 0
    """Number of times the encoder halves the grid (0: by size)."""
    num_blocks: int = 0
    """Number of blocks before each change of the grid; the coarsest grid has one (0: by size)."""
    padding: Padding = "zeros"
    """Padding of convolutions on periodic axes: zeros, as published, or periodic."""

    def check(self) -> None:
        """Raises an error for numbers that nothing can be built with."""
        check_sizes(self)
        check_width("width", self.width * 2**self.num_levels)


class CNextU(AbstractBaseline):
    """Maps fields on structured grids that can be halved.

    The skip connection of the finest grid is missing, as in the published model.

    Args:
        problem: Channels and geometry; a 2-D or 3-D grid.
        config: The architecture.
    """

    grid_axes, point_dims = (2, 3), ()

    def __init__(self, problem: Problem, config: CNextUConfig = CNextUConfig()) -> None:
        super().__init__(problem)
        config = config.resolved
        check_divisible(problem.grid_shape, 2**config.num_levels)
        is_wrapped = wrapped_axes(problem, config.padding)
        num_axes = len(is_wrapped)
        widths = [config.width * 2**level for level in range(config.num_levels + 1)]

        def blocks(channels: int) -> nn.Sequential:
            return nn.Sequential(*(Block(channels, is_wrapped) for _ in range(config.num_blocks)))

        self.lift = SameConvolution(problem.in_channels, widths[0], 3, is_wrapped)
        self.encoder = nn.ModuleList(blocks(width) for width in widths[:-1])
        self.downs = nn.ModuleList(
            nn.Sequential(UnitLength(fine, num_axes), halving(fine, coarse, num_axes))
            for fine, coarse in pairwise(widths)
        )
        self.bottleneck = Block(widths[-1], is_wrapped)
        self.merges = nn.ModuleList(ChannelLinear(2 * width, width) for width in widths[1:-1])
        self.decoder = nn.ModuleList(blocks(width) for width in widths[1:])
        self.ups = nn.ModuleList(
            nn.Sequential(UnitLength(coarse, num_axes), doubling(coarse, fine, num_axes))
            for fine, coarse in pairwise(widths)
        )
        self.head = SameConvolution(widths[0], problem.out_channels, 3, is_wrapped)
        self.unused = frozenset(
            f"{name}.bias" for name, part in self.named_modules() if isinstance(part, UnitLength)
        )

    def predict(
        self,
        values: Float[Tensor, "batch points in_channels"],
        coords: Float[Tensor, "batch points dim"],
        is_active: Bool[Tensor, "batch points"],
    ) -> Float[Tensor, "batch points out_channels"]:
        """Returns the prediction; masked sites are zeros, and `coords` are not used."""
        hidden = self.lift(to_grid(values, self.problem.grid_shape))
        skips: list[Tensor] = []
        for blocks, down in zip(self.encoder, self.downs, strict=True):
            skips.append(hidden)
            hidden = down(blocks(hidden))
        *decoder, deepest = zip(self.decoder, self.ups, strict=True)
        blocks, up = deepest
        hidden = up(blocks(self.bottleneck(hidden)))
        stages = list(zip(self.merges, skips[1:], decoder, strict=True))
        for merge, skip, (blocks, up) in reversed(stages):
            hidden = up(blocks(merge(torch.cat([hidden, skip], dim=1))))
        return from_grid(self.head(hidden))


class Block(nn.Module):
    """A depthwise convolution and a perceptron at each site, scaled and added to the input."""

    def __init__(self, channels: int, is_wrapped: tuple[bool, ...]) -> None:
        super().__init__()
        self.depthwise = SameConvolution(channels, channels, 7, is_wrapped, groups=channels)
        self.norm = nn.LayerNorm(channels, eps=EPS)
        self.mlp = Perceptron(channels, 4 * channels, channels)
        self.scale = nn.Parameter(torch.full((channels,), INITIAL_SCALE))

    def forward(
        self, features: Float[Tensor, "batch channels *grid"]
    ) -> Float[Tensor, "batch channels *grid"]:
        """Returns the updated features."""
        update = self.mlp(self.norm(self.depthwise(features).movedim(1, -1)))
        return features + (self.scale * update).movedim(-1, 1)


class UnitLength(nn.Module):
    """Divides the channels of each site by their length, and multiplies them by learned weights.

    The published model has a bias here that it never adds.
    """

    def __init__(self, channels: int, num_axes: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(channels, *(1,) * num_axes))
        self.bias = nn.Parameter(torch.zeros(channels))

    def forward(
        self, features: Float[Tensor, "batch channels *grid"]
    ) -> Float[Tensor, "batch channels *grid"]:
        """Returns the normalised features."""
        return self.weight * normalize(features, dim=1, eps=EPS)
