r"""CNO, the convolutional neural operator of Raonic et al. (2023), in its vanilla version.

A U-shaped network whose nonlinearity acts on an up-sampled, band-limited signal,
$\sigma_{s\to s'} = \mathcal{D}_{2s\to s'}\circ\mathrm{LeakyReLU}\circ\mathcal{U}_{s\to 2s}$,
with bicubic, anti-aliased resampling $\mathcal{U}, \mathcal{D}$ in place of designed filters.
"""

from dataclasses import dataclass
from itertools import pairwise

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn.functional import interpolate, leaky_relu

from gpo.model.problem import Problem, UnsupportedGeometryError
from gpo_bench.baselines.base import (
    AbstractBaseline,
    check_sizes,
    crop_ends,
    from_grid,
    pad_ends,
    to_grid,
    with_index_coordinates,
)


@dataclass(frozen=True, kw_only=True)
class CNOConfig:
    """Sizes of a `CNO`."""

    num_levels: int = 3
    """How often the encoder halves the grid."""
    width: int = 32
    """Channels after the first halving; the grid itself carries half as many."""
    num_residuals: int = 4
    """Residual blocks in every skip."""
    num_bottleneck_residuals: int = 6
    """Residual blocks on the coarsest grid."""
    lift_width: int = 64
    """Hidden channels of the lift and of the projection."""

    def __post_init__(self) -> None:
        check_sizes(self, width=2, num_residuals=0, num_bottleneck_residuals=0)


class CNO(AbstractBaseline):
    """An encoder of halving blocks, a bottleneck, and a decoder that sees refined skips.

    Grids that the encoder cannot halve `num_levels` times are padded with zeros on the
    right and at the bottom, and the prediction is cropped.

    Args:
        problem: The data it is built for; any 2-D grid.
        config: Its sizes.
    """

    def __init__(self, problem: Problem, config: CNOConfig = CNOConfig()) -> None:
        super().__init__(problem)
        if len(problem.grid_shape) != 2:
            raise UnsupportedGeometryError("needs a 2-D grid")
        self.multiple = 2**config.num_levels
        channels = [config.width * 2**level // 2 for level in range(config.num_levels + 1)]
        self.lift = Projection(problem.in_channels + 2, config.lift_width, channels[0])
        self.downs = nn.ModuleList(Block(fine, coarse) for fine, coarse in pairwise(channels))
        self.skips = nn.ModuleList(
            residuals(count, config.num_residuals) for count in channels[:-1]
        )
        self.bottleneck = residuals(channels[-1], config.num_bottleneck_residuals)
        self.bridges = nn.ModuleList(Block(count, count) for count in channels)
        # All but the coarsest level hand their skip on, next to what comes from below.
        seen = [2 * count for count in channels[:-1]] + channels[-1:]
        self.ups = nn.ModuleList(
            Block(coarse, fine) for fine, coarse in zip(channels[:-1], seen[1:], strict=True)
        )
        self.project = Projection(seen[0], config.lift_width, problem.out_channels)

    def predict(
        self,
        values: Float[Tensor, "batch points in_channels"],
        coords: Float[Tensor, "batch points dim"],
        is_counted: Bool[Tensor, "batch points"],
    ) -> Float[Tensor, "batch points out_channels"]:
        """Returns the prediction; masked sites are seen as zeros, and `coords` as indices."""
        shape = self.problem.grid_shape
        field = to_grid(with_index_coordinates(values, shape), shape)
        padded = pad_ends(field, tuple(-size % self.multiple for size in shape))
        return from_grid(crop_ends(self._on_padded_grid(padded), shape))

    def _on_padded_grid(
        self, field: Float[Tensor, "batch in_channels height width"]
    ) -> Float[Tensor, "batch out_channels height width"]:
        hidden = self.lift(field)
        skips: list[Tensor] = []
        for skip, down in zip(self.skips, self.downs, strict=True):
            skips.append(skip(hidden))
            height, width = hidden.shape[2:]
            hidden = down(hidden, (height // 2, width // 2))
        *bridges, deepest = self.bridges
        hidden = self._same_size(deepest, self.bottleneck(hidden))
        for up, bridge, skip in reversed(list(zip(self.ups, bridges, skips, strict=True))):
            height, width = skip.shape[2:]
            hidden = up(hidden, (height, width))
            hidden = torch.cat([hidden, self._same_size(bridge, skip)], dim=1)
        return self.project(hidden)

    @staticmethod
    def _same_size(block: nn.Module, field: Tensor) -> Tensor:
        height, width = field.shape[2:]
        return block(field, (height, width))


class Block(nn.Module):
    r"""$\sigma_{s\to s'}\circ\mathrm{BatchNorm}\circ\mathrm{Conv}$: every change of channels or size."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.conv = conv3x3(in_channels, out_channels)
        self.norm = nn.BatchNorm2d(out_channels)

    def forward(
        self, field: Float[Tensor, "batch in_channels _ _"], size: tuple[int, int]
    ) -> Float[Tensor, "batch out_channels _ _"]:
        """Returns the new channels on a grid of the given size."""
        return band_limited_relu(self.norm(self.conv(field)), size)


class Residual(nn.Module):
    r"""$x + \mathrm{BN}\,\mathrm{Conv}\,\sigma\,\mathrm{BN}\,\mathrm{Conv}\,x$ at one size."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = Block(channels, channels)
        self.conv = conv3x3(channels, channels)
        self.norm = nn.BatchNorm2d(channels)

    def forward(
        self, field: Float[Tensor, "batch channels height width"]
    ) -> Float[Tensor, "batch channels height width"]:
        """Returns the refined field."""
        height, width = field.shape[2:]
        return field + self.norm(self.conv(self.first(field, (height, width))))


class Projection(nn.Module):
    r"""$\mathrm{Conv}\circ\sigma\circ\mathrm{Conv}$: the lift, and the way back to the field."""

    def __init__(self, in_channels: int, hidden: int, out_channels: int) -> None:
        super().__init__()
        self.first = conv3x3(in_channels, hidden)
        self.second = conv3x3(hidden, out_channels)

    def forward(
        self, field: Float[Tensor, "batch in_channels height width"]
    ) -> Float[Tensor, "batch out_channels height width"]:
        """Returns the new channels on the same grid."""
        height, width = field.shape[2:]
        return self.second(band_limited_relu(self.first(field), (height, width)))


def band_limited_relu(
    field: Float[Tensor, "batch channels _ _"], size: tuple[int, int]
) -> Float[Tensor, "batch channels _ _"]:
    """Returns the leaky ReLU of a field, taken on a grid twice as fine, on a grid of `size`."""
    height, width = field.shape[2:]
    return resample(leaky_relu(resample(field, (2 * height, 2 * width)), 0.01), size)


def resample(
    field: Float[Tensor, "batch channels _ _"], size: tuple[int, int]
) -> Float[Tensor, "batch channels _ _"]:
    """Returns the field on a grid of another size, by bicubic filtering without aliases."""
    # The filter does not exist in half precision on every device.
    single = field.to(torch.promote_types(field.dtype, torch.float32))
    return interpolate(single, size, mode="bicubic", antialias=True)


def residuals(channels: int, count: int) -> nn.Sequential:
    """Builds a chain of residual blocks."""
    return nn.Sequential(*(Residual(channels) for _ in range(count)))


def conv3x3(in_channels: int, out_channels: int) -> nn.Conv2d:
    """Builds a 3x3 convolution that pads with zeros and keeps the size."""
    return nn.Conv2d(in_channels, out_channels, 3, padding=1)
