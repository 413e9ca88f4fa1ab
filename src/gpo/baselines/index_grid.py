"""Structured grids as arrays: the place of a site is its index."""

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import pad

from gpo.baselines.base import from_grid


def index_coordinates(grid_shape: tuple[int, ...], like: Tensor) -> Float[Tensor, "1 axes *grid"]:
    """Returns the index of every site along every axis, scaled to [0, 1], both ends included."""
    axes = [torch.linspace(0, 1, size, dtype=like.dtype, device=like.device) for size in grid_shape]
    return torch.stack(torch.meshgrid(*axes, indexing="ij")).unsqueeze(0)


def with_index_coordinates(
    values: Float[Tensor, "batch points channels"], grid_shape: tuple[int, ...]
) -> Float[Tensor, "batch points more_channels"]:
    """Returns a field with the index coordinates of its sites as last channels."""
    coords = from_grid(index_coordinates(grid_shape, like=values))
    return torch.cat([values, coords.expand(len(values), -1, -1)], dim=-1)


def pad_ends(
    values: Float[Tensor, "batch channels *grid"], num_sites: tuple[int, ...]
) -> Float[Tensor, "batch channels *padded"]:
    """Returns a field with this many zeros behind the end of every axis."""
    widths = [width for count in reversed(num_sites) for width in (0, count)]
    return pad(values, widths) if any(num_sites) else values


def crop_ends(
    values: Float[Tensor, "batch channels *padded"], grid_shape: tuple[int, ...]
) -> Float[Tensor, "batch channels *grid"]:
    """Returns the beginning of every axis; inverts `pad_ends`."""
    for axis, size in enumerate(grid_shape, start=2):
        values = values.narrow(axis, 0, size)
    return values
