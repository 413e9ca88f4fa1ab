r"""The Latent Spectral Model of Wu et al. (2023): a U-Net with a spectral solver at every scale.

Every scale is cut into patches; a few latent tokens read each patch by attention, are advanced
by a sine series, $z\mapsto z+\sum_j a_j\sin(\pi jz/K)+b_j\cos(\pi jz/K)$, and are read back.
"""

import math
from dataclasses import dataclass
from itertools import pairwise

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn.functional import interpolate, max_pool2d, scaled_dot_product_attention

from gpo.model.problem import Problem
from gpo_bench.baselines.base import (
    AbstractBaseline,
    Perceptron,
    PointwiseLinear,
    check_heads,
    check_sizes,
    crop_ends,
    from_grid,
    pad_ends,
    to_grid,
    with_index_coordinates,
)
from gpo_bench.baselines.geo_fno import check_mesh, check_plane
from gpo_bench.baselines.point_projection import DeformationNetwork, GridToPoints, PointsToGrid

PATCHES = 16
"""Patches along an axis at the finest scale; four halvings leave one."""
HEAD_WIDTH = 128


@dataclass(frozen=True, kw_only=True)
class LSMConfig:
    """Sizes of an `LSM`; the defaults have 19,187,457 parameters on a grid, as in the paper's table."""

    width: int = 64
    """Channels at the finest scale."""
    num_tokens: int = 4
    """Latent tokens of a patch."""
    num_basis: int = 12
    """Frequencies of the solver."""
    num_heads: int = 8
    """Heads of every attention, which share the width."""
    latent_size: int = 96
    """Sites along both sides of the latent grid of scattered points."""
    modes: tuple[int, int] = (12, 12)
    """Modes kept along both axes between points and latent grid."""

    def __post_init__(self) -> None:
        check_sizes(self)
        check_heads(self.width, self.num_heads)


class LSM(AbstractBaseline):
    """Maps fields on 2-D grids and, through Geo-FNO's projection, on scattered 2-D points.

    Args:
        problem: The data it is built for; `grid_shape` decides between grid and points.
        config: Its sizes.
    """

    def __init__(self, problem: Problem, config: LSMConfig = LSMConfig()) -> None:
        super().__init__(problem)
        width, modes = config.width, config.modes
        shape = problem.grid_shape or (config.latent_size, config.latent_size)
        check_mesh(shape)
        if not problem.grid_shape:
            check_plane(problem)
            self.deformation = DeformationNetwork()
            self.to_latent = PointsToGrid(width, modes, shape)
            self.to_points = GridToPoints(width, modes, shape)
        self.lift = nn.Linear(problem.in_channels + 2, width)
        self.unet = LatentSpectralUNet(shape, config)
        self.head = Perceptron(width, HEAD_WIDTH, problem.out_channels)

    def predict(
        self,
        values: Float[Tensor, "batch points in_channels"],
        coords: Float[Tensor, "batch points dim"],
        is_counted: Bool[Tensor, "batch points"],
    ) -> Float[Tensor, "batch points out_channels"]:
        """Returns the prediction for checked input."""
        shape = self.problem.grid_shape
        if shape:
            hidden = self.lift(with_index_coordinates(values, shape))
            return self.head(from_grid(self.unet(to_grid(hidden, shape))))
        coords = coords.masked_fill(~is_counted.unsqueeze(-1), 0)
        image = self.deformation(coords)
        hidden = self.lift(torch.cat([values, coords], dim=-1))
        latent = self.unet(self.to_latent(hidden, image, is_counted))
        return self.head(self.to_points(latent, image, coords))


class LatentSpectralUNet(nn.Module):
    """A U-Net of five scales, whose every scale passes a spectral block before it is decoded."""

    def __init__(self, grid_shape: tuple[int, ...], config: LSMConfig) -> None:
        super().__init__()
        width, self.grid_shape = config.width, grid_shape
        self.padding = tuple(-size % PATCHES for size in grid_shape)
        # A patch has as many sites at every scale; there are fewer of them on coarse ones.
        patch = tuple(-(-size // PATCHES) for size in grid_shape)
        widths = (width, 2 * width, 4 * width, 8 * width, 8 * width)
        self.enter = DoubleConvolution(width, width, width)
        self.downs = nn.ModuleList(DoubleConvolution(a, b, b) for a, b in pairwise(widths))
        self.blocks = nn.ModuleList(
            SpectralBlock(channels, patch, config.num_heads, config.num_tokens, config.num_basis)
            for channels in widths
        )
        skips, outs = widths[-2::-1], (*widths[-3::-1], width)
        self.ups = nn.ModuleList(
            DoubleConvolution(2 * skip, skip, out) for skip, out in zip(skips, outs, strict=True)
        )
        self.leave = PointwiseLinear(width, width)

    def forward(
        self, values: Float[Tensor, "batch width rows columns"]
    ) -> Float[Tensor, "batch width rows columns"]:
        """Returns the field on the same grid."""
        scales = [self.enter(pad_ends(values, self.padding))]
        for down in self.downs:
            scales.append(down(max_pool2d(scales[-1], 2)))
        *skips, hidden = (block(scale) for block, scale in zip(self.blocks, scales, strict=True))
        for up, skip in zip(self.ups, reversed(skips), strict=True):
            finer = interpolate(hidden, skip.shape[2:], mode="bilinear", align_corners=True)
            hidden = up(torch.cat([skip, finer], dim=1))
        return crop_ends(self.leave(hidden), self.grid_shape)


class DoubleConvolution(nn.Sequential):
    """Twice a 3 x 3 convolution, batch normalisation and ReLU."""

    def __init__(self, in_channels: int, hidden: int, out_channels: int) -> None:
        super().__init__(
            nn.Conv2d(in_channels, hidden, kernel_size=3, padding=1, bias=False),
            nn.BatchNorm2d(hidden),
            nn.ReLU(),
            nn.Conv2d(hidden, out_channels, kernel_size=3, padding=1, bias=False),
            nn.BatchNorm2d(out_channels),
            nn.ReLU(),
        )


class SpectralBlock(nn.Module):
    r"""Encodes every patch into tokens, advances these and decodes them.

    $T=T_0+\mathrm{softmax}(T_0K^\top)V$, then the solver, then $x+\mathrm{softmax}(QT^\top)T$, with
    keys, values and queries linear in the sites of the patch and no scaling of logits.

    Args:
        channels: Channels of the field and of a token, all heads together.
        patch: Sites of a patch along both axes.
        num_heads: Heads of both attentions.
        num_tokens: Tokens of a patch.
        num_basis: Frequencies $K$ of the solver.
    """

    orders: Tensor

    def __init__(
        self,
        channels: int,
        patch: tuple[int, ...],
        num_heads: int,
        num_tokens: int,
        num_basis: int,
    ) -> None:
        super().__init__()
        self.patch, self.num_heads = patch, num_heads
        head_dim = channels // num_heads
        self.project = nn.Linear(channels, 3 * channels)
        self.tokens = nn.Parameter(torch.rand(num_heads, num_tokens, head_dim) / channels)
        self.sines = nn.Parameter(torch.rand(num_heads, 1, head_dim, num_basis) / channels)
        self.cosines = nn.Parameter(torch.rand(num_heads, 1, head_dim, num_basis) / channels)
        orders = torch.arange(num_basis, dtype=torch.get_default_dtype())
        self.register_buffer("orders", orders, persistent=False)

    def forward(
        self, values: Float[Tensor, "batch channels rows columns"]
    ) -> Float[Tensor, "batch channels rows columns"]:
        """Returns the updated field."""
        patches = cut(values, self.patch)
        projected = self.project(patches).unflatten(-1, (3, self.num_heads, -1))
        query, key, value = projected.movedim(1, -2).unbind(1)
        start = self.tokens.expand(len(patches), -1, -1, -1)
        tokens = start + scaled_dot_product_attention(start, key, value, scale=1.0)
        tokens = self.advance(tokens)
        decoded = scaled_dot_product_attention(query, tokens, tokens, scale=1.0)
        patches = patches + decoded.movedim(1, -2).flatten(-2)
        return join(patches, self.patch, tuple(values.shape[2:]))

    def advance(
        self, tokens: Float[Tensor, "patches heads tokens head_dim"]
    ) -> Float[Tensor, "patches heads tokens head_dim"]:
        r"""Returns $z+\sum_{j<K}a_j\sin(\pi jz/K)+b_j\cos(\pi jz/K)$, $a$ and $b$ by channel."""
        phases = (math.pi / len(self.orders) * tokens).unsqueeze(-1) * self.orders
        return tokens + (self.sines * phases.sin() + self.cosines * phases.cos()).sum(-1)


def cut(
    values: Float[Tensor, "batch channels rows columns"], patch: tuple[int, ...]
) -> Float[Tensor, "patches sites channels"]:
    """Returns the sites of every patch of every sample, channels last."""
    tiles = values.unflatten(3, (-1, patch[1])).unflatten(2, (-1, patch[0]))
    return tiles.permute(0, 2, 4, 3, 5, 1).flatten(3, 4).flatten(0, 2)


def join(
    patches: Float[Tensor, "patches sites channels"],
    patch: tuple[int, ...],
    grid_shape: tuple[int, ...],
) -> Float[Tensor, "batch channels rows columns"]:
    """Returns the field of which these are the patches; inverts `cut`."""
    counts = [size // sites for size, sites in zip(grid_shape, patch, strict=True)]
    tiles = patches.unflatten(1, patch).unflatten(0, (-1, *counts))
    return tiles.permute(0, 5, 1, 3, 2, 4).flatten(4, 5).flatten(2, 3)
