r"""CNO, the convolutional neural operator of Raonic et al. (2023), in its vanilla version.

A U-Net whose nonlinearity acts on an upsampled, band-limited signal,
$\sigma_{s\to s'} = \mathcal{D}_{2s\to s'}\circ\mathrm{LeakyReLU}\circ\mathcal{U}_{s\to 2s}$,
with bicubic, anti-aliased resampling $\mathcal{U}, \mathcal{D}$ in place of designed filters.
"""

from dataclasses import dataclass
from itertools import pairwise

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn.functional import interpolate, leaky_relu

from gpo.model.problem import Problem
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
    """Architecture of a `CNO`."""

    num_levels: int = 3
    """Number of times the encoder halves the grid."""
    width: int = 32
    """Number of channels after the first halving; the full grid has half as many."""
    num_residuals: int = 4
    """Number of residual blocks in each skip connection."""
    num_bottleneck_residuals: int = 6
    """Number of residual blocks on the coarsest grid."""
    lift_width: int = 64
    """Number of hidden channels of the lift and the projection."""

    def __post_init__(self) -> None:
        check_sizes(self, width=2, num_residuals=0, num_bottleneck_residuals=0)


class CNO(AbstractBaseline):
    """An encoder that halves the grid, a bottleneck, and a decoder with skip connections.

    Grids that cannot be halved `num_levels` times are padded with zeros at the end of each axis,
    and the prediction is cropped.

    Args:
        problem: Channels and geometry; any 2-D grid.
        config: The architecture.
    """

    grid_axes, point_dims = (2,), ()
    limits = "its authors have no 3-D version"

    def __init__(self, problem: Problem, config: CNOConfig = CNOConfig()) -> None:
        super().__init__(problem)
        self.multiple = 2**config.num_levels
        channels = [config.width * 2**level // 2 for level in range(config.num_levels + 1)]
        self.lift = Projection(problem.in_channels + 2, config.lift_width, channels[0])
        self.downs = nn.ModuleList(Block(fine, coarse) for fine, coarse in pairwise(channels))
        self.skips = nn.ModuleList(
            residuals(count, config.num_residuals) for count in channels[:-1]
        )
        self.bottleneck = residuals(channels[-1], config.num_bottleneck_residuals)
        self.bridges = nn.ModuleList(Block(count, count) for count in channels)
        # All levels except the coarsest concatenate their skip connection.
        decoded = [2 * count for count in channels[:-1]] + channels[-1:]
        self.ups = nn.ModuleList(
            Block(coarse, fine) for fine, coarse in zip(channels[:-1], decoded[1:], strict=True)
        )
        self.project = Projection(decoded[0], config.lift_width, problem.out_channels)

    def predict(
        self,
        values: Float[Tensor, "batch points in_channels"],
        coords: Float[Tensor, "batch points dim"],
        is_active: Bool[Tensor, "batch points"],
    ) -> Float[Tensor, "batch points out_channels"]:
        """Returns the prediction; masked sites are zeros, and grid indices replace `coords`."""
        shape = self.problem.grid_shape
        field = to_grid(with_index_coordinates(values, shape), shape)
        padded = pad_ends(field, tuple(-size % self.multiple for size in shape))
        return from_grid(crop_ends(self._predict_padded(padded), shape))

    def _predict_padded(
        self, field: Float[Tensor, "batch in_channels height width"]
    ) -> Float[Tensor, "batch out_channels height width"]:
        hidden = self.lift(field)
        skips: list[Tensor] = []
        for skip, down in zip(self.skips, self.downs, strict=True):
            skips.append(skip(hidden))
            height, width = hidden.shape[2:]
            hidden = down(hidden, (height // 2, width // 2))
        *bridges, deepest = self.bridges
        hidden = deepest(self.bottleneck(hidden))
        for up, bridge, skip in reversed(list(zip(self.ups, bridges, skips, strict=True))):
            height, width = skip.shape[2:]
            hidden = torch.cat([up(hidden, (height, width)), bridge(skip)], dim=1)
        return self.project(hidden)


class Block(nn.Module):
    r"""$\sigma_{s\to s'}\circ\mathrm{BatchNorm}\circ\mathrm{Conv}$, which may change the size."""

    def __init__(self, in_channels: int, out_channels: int) -> None:
        super().__init__()
        self.conv = conv3x3(in_channels, out_channels)
        self.norm = nn.BatchNorm2d(out_channels)

    def forward(
        self, field: Float[Tensor, "batch in_channels _ _"], size: tuple[int, int] | None = None
    ) -> Float[Tensor, "batch out_channels _ _"]:
        """Returns the output channels on a grid of `size`, by default the grid of the input."""
        return band_limited_relu(self.norm(self.conv(field)), size)


class Residual(nn.Module):
    r"""$x + \mathrm{BN}\,\mathrm{Conv}\,\sigma\,\mathrm{BN}\,\mathrm{Conv}\,x$ on one grid."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = Block(channels, channels)
        self.conv = conv3x3(channels, channels)
        self.norm = nn.BatchNorm2d(channels)

    def forward(
        self, field: Float[Tensor, "batch channels height width"]
    ) -> Float[Tensor, "batch channels height width"]:
        """Returns the updated field."""
        return field + self.norm(self.conv(self.first(field)))


class Projection(nn.Module):
    r"""$\mathrm{Conv}\circ\sigma\circ\mathrm{Conv}$, the lift and the projection."""

    def __init__(self, in_channels: int, hidden: int, out_channels: int) -> None:
        super().__init__()
        self.first = conv3x3(in_channels, hidden)
        self.second = conv3x3(hidden, out_channels)

    def forward(
        self, field: Float[Tensor, "batch in_channels height width"]
    ) -> Float[Tensor, "batch out_channels height width"]:
        """Returns the output channels on the same grid."""
        return self.second(band_limited_relu(self.first(field)))


def band_limited_relu(
    field: Float[Tensor, "batch channels _ _"], size: tuple[int, int] | None = None
) -> Float[Tensor, "batch channels _ _"]:
    """Returns the leaky ReLU of a field, applied on a grid twice as fine, resampled to `size`."""
    height, width = field.shape[2:]
    fine = resample(field, (2 * height, 2 * width))
    return resample(leaky_relu(fine, 0.01), size or (height, width))


def resample(
    field: Float[Tensor, "batch channels _ _"], size: tuple[int, int]
) -> Float[Tensor, "batch channels _ _"]:
    """Returns the field on a grid of another size, by anti-aliased bicubic interpolation."""
    # Some devices have no interpolation in half precision.
    single = field.to(torch.promote_types(field.dtype, torch.float32))
    return interpolate(single, size, mode="bicubic", antialias=True)


def residuals(channels: int, count: int) -> nn.Sequential:
    """Returns a sequence of residual blocks."""
    return nn.Sequential(*(Residual(channels) for _ in range(count)))


def conv3x3(in_channels: int, out_channels: int) -> nn.Conv2d:
    """Returns a 3x3 convolution with zero padding that keeps the grid size."""
    return nn.Conv2d(in_channels, out_channels, 3, padding=1)
