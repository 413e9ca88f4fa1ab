"""Layers of convolutional networks on structured grids of one to three axes."""

from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.functional import conv1d, max_pool1d, max_pool2d, max_pool3d

from gpo.model.problem import Problem, UnsupportedGeometryError
from gpo.numerics.domain import Domain

CONVOLUTIONS = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}
TRANSPOSED = {1: nn.ConvTranspose1d, 2: nn.ConvTranspose2d, 3: nn.ConvTranspose3d}
NORMS = {1: nn.BatchNorm1d, 2: nn.BatchNorm2d, 3: nn.BatchNorm3d}
POOLS = {1: max_pool1d, 2: max_pool2d, 3: max_pool3d}
Padding = Literal["zeros", "periodic"]
"""Padding beyond the ends of periodic axes; beyond those of open axes there are zeros."""


class SameConvolution(nn.Module):
    """A convolution that keeps the grid.

    Args:
        in_channels: Number of channels of the input.
        out_channels: Number of channels of the output.
        size: Number of sites of the kernel along each axis, odd.
        is_wrapped: Which axes are continued periodically; the others are continued with zeros.
        groups: Number of groups of channels with a kernel each.
        bias: Whether a bias is added.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        size: int,
        is_wrapped: tuple[bool, ...],
        *,
        groups: int = 1,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.reach, self.is_wrapped = size // 2, is_wrapped
        padding = tuple(0 if wraps else self.reach for wraps in is_wrapped)
        self.convolution = CONVOLUTIONS[len(is_wrapped)](
            in_channels, out_channels, size, padding=padding, groups=groups, bias=bias
        )

    def forward(
        self, values: Float[Tensor, "batch in_channels *grid"]
    ) -> Float[Tensor, "batch out_channels *grid"]:
        """Returns the output channels on the same grid."""
        return self.convolution(continued(values, self.is_wrapped, self.reach, self.reach))


class ChannelLinear(nn.Linear):
    """A linear map of channels in channels-first layout, whose weight is a matrix.

    Muon updates matrices, but not the kernels of convolutions, be they of size one.
    """

    def forward(
        self, input: Float[Tensor, "batch in_channels *grid"]
    ) -> Float[Tensor, "batch out_channels *grid"]:
        """Returns the output channels on the same grid."""
        output = conv1d(input.flatten(2), self.weight.unsqueeze(-1), self.bias)
        return output.unflatten(2, input.shape[2:])


def halving(in_channels: int, out_channels: int, num_axes: int) -> nn.Module:
    """Returns a convolution of size two that halves every axis."""
    return CONVOLUTIONS[num_axes](in_channels, out_channels, 2, stride=2)


def doubling(in_channels: int, out_channels: int, num_axes: int) -> nn.Module:
    """Returns a transposed convolution of size two that doubles every axis."""
    return TRANSPOSED[num_axes](in_channels, out_channels, 2, stride=2)


def continued(
    values: Float[Tensor, "batch channels *grid"],
    is_wrapped: tuple[bool, ...],
    before: int,
    after: int,
) -> Float[Tensor, "batch channels *larger"]:
    """Returns a field with copies of its sites before and after the ends of periodic axes."""
    for axis, wraps in enumerate(is_wrapped, start=2):
        if wraps:
            size = values.shape[axis]
            sites = torch.arange(-before, size + after, device=values.device) % size
            values = values.index_select(axis, sites)
    return values


def periodic_axes(problem: Problem) -> tuple[bool, ...]:
    """Returns which axes of a grid are periodic; on the whole sphere, longitude is."""
    if problem.is_fitted:
        return (False,) * len(problem.grid_shape)
    if problem.domain.is_sphere:
        return (False, problem.domain == Domain.sphere())
    return problem.domain.periodic


def wrapped_axes(problem: Problem, padding: Padding) -> tuple[bool, ...]:
    """Returns which axes of a grid are continued periodically with a kind of padding."""
    return tuple(padding == "periodic" and is_periodic for is_periodic in periodic_axes(problem))


def check_divisible(grid_shape: tuple[int, ...], divisor: int) -> None:
    """Raises an `UnsupportedGeometryError` with the nearest sizes unless all are divisible."""
    if any(size % divisor for size in grid_shape):
        nearest = (max(1, round(size / divisor)) * divisor for size in grid_shape)
        raise UnsupportedGeometryError(
            f"needs grid sizes that are multiples of {divisor}, such as "
            f"{' x '.join(map(str, nearest))}"
        )
