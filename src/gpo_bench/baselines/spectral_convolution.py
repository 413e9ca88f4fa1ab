r"""The spectral layer of Fourier neural operators, $v\mapsto F^{-1}(R\cdot Fv)$ (Li et al., 2021).

The layer keeps the low modes of a real field: $-m\le k<m$ along all axes except the last, in the
order $0,\dots,m-1,-m,\dots,-1$, and $0\le k<m$ along the last axis, whose other half is the complex
conjugate. Each mode has its own complex matrix $R_k$.
"""

from collections.abc import Callable

import torch
from jaxtyping import Complex, Float
from torch import Tensor, nn


class SpectralConvolution(nn.Module):
    """Convolves a field on a grid with a learned kernel of low Fourier modes.

    Args:
        in_channels: Number of input channels.
        out_channels: Number of output channels.
        modes: Number of modes along each axis, per sign except along the last axis.
    """

    def __init__(self, in_channels: int, out_channels: int, modes: tuple[int, ...]) -> None:
        super().__init__()
        self.modes = modes
        self.mix = ModeMixing(in_channels, out_channels, modes)

    def forward(
        self, values: Float[Tensor, "batch in_channels *grid"]
    ) -> Float[Tensor, "batch out_channels *grid"]:
        """Returns the convolved field on the same grid."""
        coefficients = self.mix(low_modes(values, self.modes))
        return from_low_modes(coefficients, tuple(values.shape[2:]))


class ModeMixing(nn.Module):
    r"""Mixes the channels of each mode, $\hat v_k\mapsto\hat v_kR_k$."""

    def __init__(self, in_channels: int, out_channels: int, modes: tuple[int, ...]) -> None:
        super().__init__()
        kept = (*(2 * count for count in modes[:-1]), modes[-1])
        parts = torch.rand(*kept, in_channels, out_channels, 2) / (in_channels * out_channels)
        self.weight = nn.Parameter(torch.view_as_complex(parts))

    def forward(
        self, coefficients: Complex[Tensor, "batch in_channels *modes"]
    ) -> Complex[Tensor, "batch out_channels *modes"]:
        """Returns the mixed coefficients of each mode."""
        weight = self.weight.flatten(end_dim=-3)
        mixed = torch.einsum("bim,mio->bom", coefficients.flatten(2), weight)
        return mixed.unflatten(2, coefficients.shape[2:])

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> "ModeMixing":
        """Converts complex weights as pairs of real numbers.

        Otherwise `double` would skip them, and `to` would discard their imaginary parts.
        """

        def convert(tensor: Tensor) -> Tensor:
            if not tensor.is_complex():
                return fn(tensor)
            return torch.view_as_complex(fn(torch.view_as_real(tensor)))

        return super()._apply(convert, recurse)


def resolved_modes(modes: tuple[int, ...], grid_shape: tuple[int, ...]) -> tuple[int, ...]:
    """Returns `modes`, limited to the modes that the grid resolves."""
    limits = (*(size // 2 for size in grid_shape[:-1]), grid_shape[-1] // 2 + 1)
    return tuple(min(pair) for pair in zip(modes, limits, strict=True))


def low_modes(
    values: Float[Tensor, "batch channels *grid"], modes: tuple[int, ...]
) -> Complex[Tensor, "batch channels *modes"]:
    """Returns the low modes of the unnormalised `torch.fft.rfftn`.

    Each axis is truncated before the next is transformed, which is less than half the work of a
    full transform.
    """
    spectrum = torch.fft.rfft(at_least_single(values))[..., : modes[-1]]
    for axis, count in enumerate(modes[:-1], start=2):
        spectrum = torch.fft.fft(spectrum, dim=axis)
        negative = spectrum.narrow(axis, spectrum.shape[axis] - count, count)
        spectrum = torch.cat([spectrum.narrow(axis, 0, count), negative], dim=axis)
    return spectrum


def from_low_modes(
    coefficients: Complex[Tensor, "batch channels *modes"], grid_shape: tuple[int, ...]
) -> Float[Tensor, "batch channels *grid"]:
    """Returns the field on a grid from its low modes; the inverse of `low_modes`."""
    for axis, size in enumerate(grid_shape[:-1], start=2):
        positive, negative = coefficients.chunk(2, dim=axis)
        gap = list(coefficients.shape)
        gap[axis] = size - gap[axis]
        padded = torch.cat([positive, coefficients.new_zeros(gap), negative], dim=axis)
        coefficients = torch.fft.ifft(padded, dim=axis)
    return torch.fft.irfft(coefficients, n=grid_shape[-1])


def at_least_single(values: Tensor) -> Tensor:
    """Returns a tensor of at least single precision, which Fourier transforms need."""
    return values.float() if values.itemsize < 4 else values
