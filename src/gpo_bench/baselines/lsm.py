r"""The Latent Spectral Model of Wu et al. (2023): a U-Net with a spectral solver at each scale.

Each scale is divided into patches. Attention encodes a patch into a few latent tokens, a
trigonometric series advances them, $z\mapsto z+\sum_j a_j\sin(\pi jz/K)+b_j\cos(\pi jz/K)$, and
attention decodes them. The released code has the same network on grids of one to three axes.
"""

import math
from dataclasses import dataclass
from itertools import pairwise

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn.functional import interpolate, scaled_dot_product_attention

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
from gpo_bench.baselines.convolutions import CONVOLUTIONS, NORMS, POOLS
from gpo_bench.baselines.point_projection import DeformationNetwork, GridToPoints, PointsToGrid

NUM_PATCHES = 16
"""Number of patches along an axis at the finest scale; after four halvings there is one."""
HEAD_WIDTH = 128
INTERPOLATIONS = {1: "linear", 2: "bilinear", 3: "trilinear"}


@dataclass(frozen=True, kw_only=True)
class LSMConfig:
    """Architecture of an `LSM`; 19,187,457 parameters on a 2-D grid, as in the paper's table."""

    width: int = 64
    """Number of channels at the finest scale."""
    num_tokens: int = 4
    """Number of latent tokens per patch."""
    num_basis: int = 12
    """Number of frequencies of the spectral solver."""
    num_heads: int = 8
    """Number of attention heads; `width` is divided among them."""
    latent_size: int = 96
    """Side of the latent grid for unstructured points."""
    modes: tuple[int, int] = (12, 12)
    """Number of Fourier modes along each axis between points and latent grid."""

    def __post_init__(self) -> None:
        check_sizes(self)
        check_heads(self.width, self.num_heads)


class LSM(AbstractBaseline):
    """Maps fields on grids and, with the projection of Geo-FNO, on unstructured 2-D points.

    Args:
        problem: Channels and geometry; with a `grid_shape` the sites are a grid, else points.
        config: The architecture.
    """

    point_dims = (2,)
    limits = "its authors have no 3-D points"

    def __init__(self, problem: Problem, config: LSMConfig = LSMConfig()) -> None:
        super().__init__(problem)
        width, modes = config.width, config.modes
        shape = problem.grid_shape or (config.latent_size, config.latent_size)
        if not problem.grid_shape:
            self.deformation = DeformationNetwork()
            self.to_latent = PointsToGrid(width, modes, shape)
            self.to_points = GridToPoints(width, modes, shape)
        self.lift = nn.Linear(problem.in_channels + len(shape), width)
        self.unet = LatentSpectralUNet(shape, config)
        self.head = Perceptron(width, HEAD_WIDTH, problem.out_channels)

    def predict(
        self,
        values: Float[Tensor, "batch points in_channels"],
        coords: Float[Tensor, "batch points dim"],
        is_active: Bool[Tensor, "batch points"],
    ) -> Float[Tensor, "batch points out_channels"]:
        """Returns the prediction for validated input."""
        shape = self.problem.grid_shape
        if shape:
            hidden = self.lift(with_index_coordinates(values, shape))
            return self.head(from_grid(self.unet(to_grid(hidden, shape))))
        coords = coords.masked_fill(~is_active.unsqueeze(-1), 0)
        image = self.deformation(coords)
        hidden = self.lift(torch.cat([values, coords], dim=-1))
        latent = self.unet(self.to_latent(hidden, image, is_active))
        return self.head(self.to_points(latent, image, coords))


class LatentSpectralUNet(nn.Module):
    """A U-Net of five scales with a spectral block at each scale between encoder and decoder."""

    def __init__(self, grid_shape: tuple[int, ...], config: LSMConfig) -> None:
        super().__init__()
        width, num_axes, self.grid_shape = config.width, len(grid_shape), grid_shape
        self.pool, self.interpolation = POOLS[num_axes], INTERPOLATIONS[num_axes]
        self.padding = tuple(-size % NUM_PATCHES for size in grid_shape)
        # Patches have the same number of sites at each scale; coarse scales have fewer patches.
        patch = tuple(-(-size // NUM_PATCHES) for size in grid_shape)
        widths = (width, 2 * width, 4 * width, 8 * width, 8 * width)
        self.enter = DoubleConvolution(width, width, width, num_axes)
        self.downs = nn.ModuleList(
            DoubleConvolution(a, b, b, num_axes) for a, b in pairwise(widths)
        )
        self.blocks = nn.ModuleList(
            SpectralBlock(channels, patch, config.num_heads, config.num_tokens, config.num_basis)
            for channels in widths
        )
        skips, outs = widths[-2::-1], (*widths[-3::-1], width)
        self.ups = nn.ModuleList(
            DoubleConvolution(2 * skip, skip, out, num_axes)
            for skip, out in zip(skips, outs, strict=True)
        )
        self.leave = PointwiseLinear(width, width)

    def forward(
        self, values: Float[Tensor, "batch width *grid"]
    ) -> Float[Tensor, "batch width *grid"]:
        """Returns the field on the same grid."""
        scales = [self.enter(pad_ends(values, self.padding))]
        for down in self.downs:
            scales.append(down(self.pool(scales[-1], 2)))
        *skips, hidden = (block(scale) for block, scale in zip(self.blocks, scales, strict=True))
        for up, skip in zip(self.ups, reversed(skips), strict=True):
            size, mode = skip.shape[2:], self.interpolation
            finer = interpolate(hidden, size, mode=mode, align_corners=True)
            hidden = up(torch.cat([skip, finer], dim=1))
        return crop_ends(self.leave(hidden), self.grid_shape)


class DoubleConvolution(nn.Sequential):
    """Two convolutions over 3 sites along each axis, each with batch normalisation and ReLU."""

    def __init__(self, in_channels: int, hidden: int, out_channels: int, num_axes: int) -> None:
        convolution, norm = CONVOLUTIONS[num_axes], NORMS[num_axes]
        super().__init__(
            convolution(in_channels, hidden, kernel_size=3, padding=1, bias=False),
            norm(hidden),
            nn.ReLU(),
            convolution(hidden, out_channels, kernel_size=3, padding=1, bias=False),
            norm(out_channels),
            nn.ReLU(),
        )


class SpectralBlock(nn.Module):
    r"""Encodes each patch into tokens, advances the tokens and decodes them.

    The steps are $T=T_0+\mathrm{softmax}(T_0K^\top)V$, the solver, and
    $x+\mathrm{softmax}(QT^\top)T$. Keys, values and queries are linear in the features of the
    patch; logits are not scaled.

    Args:
        channels: Number of channels of the field and of a token, all heads together.
        patch: Number of sites of a patch along each axis.
        num_heads: Number of attention heads.
        num_tokens: Number of tokens per patch.
        num_basis: Number of frequencies $K$ of the solver.
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
        self, values: Float[Tensor, "batch channels *grid"]
    ) -> Float[Tensor, "batch channels *grid"]:
        """Returns the updated field."""
        patches = split_patches(values, self.patch)
        projected = self.project(patches).unflatten(-1, (3, self.num_heads, -1))
        query, key, value = projected.movedim(1, -2).unbind(1)
        start = self.tokens.expand(len(patches), -1, -1, -1)
        tokens = start + scaled_dot_product_attention(start, key, value, scale=1.0)
        tokens = self.advance(tokens)
        decoded = scaled_dot_product_attention(query, tokens, tokens, scale=1.0)
        patches = patches + decoded.movedim(1, -2).flatten(-2)
        return join_patches(patches, self.patch, tuple(values.shape[2:]))

    def advance(
        self, tokens: Float[Tensor, "patches heads tokens head_dim"]
    ) -> Float[Tensor, "patches heads tokens head_dim"]:
        r"""Returns $z+\sum_{j<K}a_j\sin(\pi jz/K)+b_j\cos(\pi jz/K)$, $a$ and $b$ by channel."""
        phases = (math.pi / len(self.orders) * tokens).unsqueeze(-1) * self.orders
        return tokens + (self.sines * phases.sin() + self.cosines * phases.cos()).sum(-1)


def split_patches(
    values: Float[Tensor, "batch channels *grid"], patch: tuple[int, ...]
) -> Float[Tensor, "patches sites channels"]:
    """Returns all patches of all samples as sets of sites with channels last."""
    last = values.ndim - 1
    for axis, sites in zip(range(last, 1, -1), reversed(patch), strict=True):
        values = values.unflatten(axis, (-1, sites))
    tiles = values.permute(0, *range(2, 2 * last, 2), *range(3, 2 * last, 2), 1)
    return tiles.flatten(last, -2).flatten(0, last - 1)


def join_patches(
    patches: Float[Tensor, "patches sites channels"],
    patch: tuple[int, ...],
    grid_shape: tuple[int, ...],
) -> Float[Tensor, "batch channels *grid"]:
    """Returns the field from its patches; the inverse of `split_patches`."""
    counts = [size // sites for size, sites in zip(grid_shape, patch, strict=True)]
    tiles = patches.unflatten(1, patch).unflatten(0, (-1, *counts))
    axes = range(1, len(patch) + 1)
    tiles = tiles.permute(0, -1, *(part for axis in axes for part in (axis, axis + len(patch))))
    return tiles.reshape(*tiles.shape[:2], *grid_shape)
