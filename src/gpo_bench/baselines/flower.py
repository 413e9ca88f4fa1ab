r"""Flower of Muser et al. (2026, arXiv 2603.04430): a U-Net whose layers sample displaced features.

In each head a pointwise perceptron of the features $u$ gives a displacement $\delta(x)$, in units
of half the grid, and a linear map gives the content $v$. The head samples the content there,
$v(x+\delta(x))$, by multilinear interpolation. A block is
$\mathrm{GELU}(\mathrm{GroupNorm}(\mathrm{samples}(u)+Wu))$. Nothing else connects sites, except for
the convolutions of size two that halve and double the grid.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn.functional import gelu, grid_sample, relu

from gpo.limits import check_width
from gpo.model.problem import Problem
from gpo_bench.baselines.base import (
    AbstractBaseline,
    AbstractSizedConfig,
    check_heads,
    check_sizes,
    from_grid,
    index_coordinates,
    to_grid,
)
from gpo_bench.baselines.convolutions import (
    ChannelLinear,
    check_divisible,
    continued,
    doubling,
    halving,
    periodic_axes,
)


@dataclass(frozen=True, kw_only=True)
class FlowerConfig(AbstractSizedConfig):
    """Architecture of a `Flower`; 17,328,081 parameters on a 2-D grid, small 172,145."""

    SIZES: ClassVar[Mapping[str, Mapping[str, int]]] = {
        "small": {"width": 32, "num_levels": 3, "num_heads": 8, "num_groups": 8},
        "medium": {"width": 64, "num_levels": 4, "num_heads": 16, "num_groups": 16},
        "published": {"width": 160, "num_levels": 4, "num_heads": 40, "num_groups": 40},
    }

    width: int = 0
    """Number of channels on the finest grid; each coarser grid has twice as many (0: by size)."""
    num_levels: int = 0
    """Number of grids, each with half the sites along every axis (0: by size)."""
    num_heads: int = 0
    """Number of displacements at a site; the channels are divided among them (0: by size)."""
    num_groups: int = 0
    """Number of groups of channels that are normalised together (0: by size)."""

    def check(self) -> None:
        """Raises an error for numbers that nothing can be built with."""
        check_sizes(self, num_levels=2)
        check_width("width", self.width * 2 ** (self.num_levels - 1))
        check_heads(self.width, self.num_heads)
        check_heads(self.width, self.num_groups, "num_groups")


class Flower(AbstractBaseline):
    """Maps fields on structured grids that can be halved; periodic axes wrap around.

    Args:
        problem: Channels and geometry; a 2-D or 3-D grid.
        config: The architecture.
    """

    grid_axes, point_dims = (2, 3), ()

    def __init__(self, problem: Problem, config: FlowerConfig = FlowerConfig()) -> None:
        super().__init__(problem)
        config, num_axes = config.resolved, len(problem.grid_shape)
        check_divisible(problem.grid_shape, 2 ** (config.num_levels - 1))
        widths = [config.width * 2**level for level in range(config.num_levels)]
        is_periodic = periodic_axes(problem)

        def block(in_channels: int, out_channels: int) -> Block:
            return Block(
                in_channels, out_channels, config.num_heads, config.num_groups, is_periodic
            )

        self.lift = ChannelLinear(problem.in_channels + num_axes, widths[0])
        self.encoder = nn.ModuleList(block(width, width) for width in widths[:-1])
        self.downs = nn.ModuleList(halving(*pair, num_axes) for pair in pairwise(widths))
        self.bottleneck = block(widths[-1], widths[-1])
        # Grids between the finest and the coarsest have a skip connection when they are refined.
        decoded = [*(2 * width for width in widths[1:-1]), widths[-1]]
        self.decoder = nn.ModuleList(
            block(coarse, fine) for fine, coarse in zip(widths[:-1], decoded, strict=True)
        )
        self.ups = nn.ModuleList(doubling(width, width, num_axes) for width in widths[:-1])
        self.head = nn.Sequential(
            ChannelLinear(2 * widths[0], widths[0]),
            nn.ReLU(),
            ChannelLinear(widths[0], problem.out_channels),
        )

    def predict(
        self,
        values: Float[Tensor, "batch points in_channels"],
        coords: Float[Tensor, "batch points dim"],
        is_active: Bool[Tensor, "batch points"],
    ) -> Float[Tensor, "batch points out_channels"]:
        """Returns the prediction; masked sites are zeros, and grid indices replace `coords`."""
        shape = self.problem.grid_shape
        unit_coords = grid_coords(shape, like=values)
        unit_coords = unit_coords.expand(len(values), *unit_coords.shape[1:])
        hidden = self.lift(torch.cat([to_grid(values, shape), unit_coords], dim=1))
        skips: list[Tensor] = []
        for block, down in zip(self.encoder, self.downs, strict=True):
            skips.append(hidden)
            hidden = relu(down(block(hidden)))
        hidden = self.bottleneck(hidden)
        for block, up, skip in reversed(list(zip(self.decoder, self.ups, skips, strict=True))):
            hidden = torch.cat([relu(up(block(hidden))), skip], dim=1)
        return from_grid(self.head(hidden))


class Block(nn.Module):
    """Displaced samples plus a linear map of the features, normalised in groups of channels."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        num_heads: int,
        num_groups: int,
        is_periodic: tuple[bool, ...],
    ) -> None:
        super().__init__()
        self.warp = Warp(in_channels, out_channels, num_heads, is_periodic)
        self.local = ChannelLinear(in_channels, out_channels)
        self.norm = nn.GroupNorm(num_groups, out_channels)

    def forward(
        self, features: Float[Tensor, "batch in_channels *grid"]
    ) -> Float[Tensor, "batch out_channels *grid"]:
        """Returns the output features on the same grid."""
        return gelu(self.norm(self.warp(features) + self.local(features)))


class Warp(nn.Module):
    """Samples each head's part of the content at displaced sites."""

    def __init__(
        self, in_channels: int, out_channels: int, num_heads: int, is_periodic: tuple[bool, ...]
    ) -> None:
        super().__init__()
        self.num_heads, self.is_periodic = num_heads, is_periodic
        self.guide = nn.Sequential(
            ChannelLinear(in_channels, out_channels),
            nn.ReLU(),
            ChannelLinear(out_channels, num_heads * len(is_periodic)),
        )
        self.content = ChannelLinear(in_channels, out_channels)

    def forward(
        self, features: Float[Tensor, "batch in_channels *grid"]
    ) -> Float[Tensor, "batch out_channels *grid"]:
        """Returns the samples of all heads."""
        shape = tuple(features.shape[2:])
        displacement, content = (
            part(features).unflatten(1, (self.num_heads, -1)).flatten(0, 1)
            for part in (self.guide, self.content)
        )
        # Half precision would lose fractions of a site.
        single = torch.promote_types(features.dtype, torch.float32)
        content, displacement = content.to(single), displacement.to(single)
        coords = (grid_coords(shape, like=content) + displacement).movedim(1, -1)
        samples = sample(content, coords, self.is_periodic)
        return samples.unflatten(0, (-1, self.num_heads)).flatten(1, 2)


def grid_coords(grid_shape: tuple[int, ...], like: Tensor) -> Float[Tensor, "1 axes *grid"]:
    """Returns the place of every site along each axis, from -1 at the first to 1 at the last."""
    return 2 * index_coordinates(grid_shape, like) - 1


def sample(
    content: Float[Tensor, "batch channels *grid"],
    coords: Float[Tensor, "batch *grid axes"],
    is_periodic: tuple[bool, ...],
) -> Float[Tensor, "batch channels *grid"]:
    """Returns a field at other points by multilinear interpolation.

    Args:
        content: The field.
        coords: Coordinates along each axis, -1 at the first site and 1 at the last one.
        is_periodic: Which axes are periodic; beyond the ends of the others the field is zero.
    """
    sizes, axes = content.shape[2:], list(coords.unbind(-1))
    for axis, size in enumerate(sizes):
        if is_periodic[axis]:
            # The first site follows the last one, where the place is 1.
            axes[axis] = 2 * ((axes[axis] + 1) / 2 * (size - 1) % size) / size - 1
    # The axes of a place are in reverse order.
    return grid_sample(
        continued(content, is_periodic, 0, 1), torch.stack(axes[::-1], dim=-1), align_corners=True
    )
