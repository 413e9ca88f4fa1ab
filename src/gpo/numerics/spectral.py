"""Fourier series on periodic boxes: wavenumbers, truncation, random fields, energy spectra."""

import math
from collections.abc import Callable

import torch
from jaxtyping import Complex, Float
from torch import Tensor


def half_wavenumbers(
    size: int, dtype: torch.dtype = torch.float64, device: torch.device | str = "cpu"
) -> tuple[Float[Tensor, "size 1"], Float[Tensor, "1 half"]]:
    """Returns integer wavenumbers along both axes of `torch.fft.rfft2` on a square grid."""
    along_x = torch.fft.fftfreq(size, 1 / size, dtype=dtype, device=device)
    along_y = torch.fft.rfftfreq(size, 1 / size, dtype=dtype, device=device)
    return along_x[:, None], along_y[None, :]


def resample(
    spectrum: Complex[Tensor, "*batch rows half"], size: int
) -> Complex[Tensor, "*batch size h"]:
    """Returns the `rfft2` spectrum of the same function on another square grid.

    Modes that both grids resolve are kept, the rest is cut or zero; the Nyquist mode, which
    stands for two waves at once, is dropped.
    """
    old = spectrum.shape[-2]
    kept = (min(old, size) - 1) // 2
    out = spectrum.new_zeros(*spectrum.shape[:-2], size, size // 2 + 1)
    out[..., : kept + 1, : kept + 1] = spectrum[..., : kept + 1, : kept + 1]
    out[..., size - kept :, : kept + 1] = spectrum[..., old - kept :, : kept + 1]
    return out * (size / old) ** 2


def random_field(
    size: int, variance: Callable[[Tensor], Tensor], generator: torch.Generator
) -> Float[Tensor, "size size"]:
    r"""Draws a periodic Gaussian field of zero mean on the unit square.

    Args:
        size: Points along each side.
        variance: Variance of the Fourier coefficient as a function of $|2\pi k|^2$.
        generator: Where the numbers come from.
    """
    along_x, along_y = half_wavenumbers(size)
    squared = 4 * math.pi**2 * (along_x.square() + along_y.square())
    noise = torch.randn(size, size, dtype=torch.float64, generator=generator)
    spectrum = torch.fft.rfft2(noise) * size * variance(squared).sqrt()
    spectrum[0, 0] = 0
    return torch.fft.irfft2(spectrum, s=(size, size))


def energy_spectrum(vorticity: Float[Tensor, "*batch size size"]) -> Float[Tensor, "*batch shells"]:
    r"""Returns kinetic energy per shell of integer wavenumber, $E(k)=\sum_{|k'|\approx k}\frac{|\hat\omega|^2}{2|2\pi k'|^2}$.

    Shell 0 is the mean flow, which vorticity does not know: zero. The sum over shells up to
    the corner of the spectrum is the kinetic energy.
    """
    size = vorticity.shape[-1]
    along_x, along_y = half_wavenumbers(size, vorticity.dtype, vorticity.device)
    squared = along_x.square() + along_y.square()
    density = (torch.fft.rfft2(vorticity) / size**2).abs().square()
    # Columns other than the first and the Nyquist one stand for their mirror image too.
    is_alone = (along_y == 0) | (along_y == size / 2)
    density = density * torch.where(is_alone, 1.0, 2.0)
    energy = density / (8 * math.pi**2 * squared).clamp_min(1e-30)
    energy[..., 0, 0] = 0
    shell = squared.sqrt().round().long().flatten()
    shells = energy.new_zeros(*vorticity.shape[:-2], int(shell.max()) + 1)
    return shells.index_add_(-1, shell, energy.flatten(-2))
