"""Spectra: Fourier series on boxes, and power per degree of fields on the sphere.

Coefficients of spherical harmonics come from `ducc0`, whose transforms on latitude-longitude grids
are exact for every degree they hold; it works on arrays, on the CPU and without derivatives. It is
an extra, because its licence (GPL) is not ours: pip install 'gpo[sphere]'.
"""

import math
from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np
import torch
from jaxtyping import Complex, Float, Int
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


def energy_spectrum(
    vorticity: Float[Tensor, "*batch rows columns"], lengths: Sequence[float] = (1.0, 1.0)
) -> Float[Tensor, "*batch shells"]:
    r"""Returns kinetic energy per shell of wavenumber, $E(k)=\sum_{k'\in k}\frac{|\hat\omega_{k'}|^2}{2|2\pi k'/L|^2}$.

    It is that of the flow without mean and without divergence that has this vorticity on a periodic
    rectangle (Biot and Savart's law). Shells are those of `shell_numbers`. Shell 0 is the mean flow,
    which vorticity does not know: zero. The sum over shells is the kinetic energy per mass, the mean
    of $\tfrac12|u|^2$. For any other field, and for lines, spaces and open axes, see `shell_spectrum`.

    Args:
        vorticity: On a uniform grid.
        lengths: Sides of the rectangle, in the units of length of the flow.
    """
    shape = vorticity.shape[-2:]
    frequencies = (torch.fft.fftfreq, torch.fft.rfftfreq)
    along_x, along_y = (
        2 * math.pi / length * frequency(size, 1 / size, dtype=vorticity.dtype, device=vorticity.device)
        for frequency, size, length in zip(frequencies, shape, lengths, strict=True)
    )  # fmt: skip
    squared = along_x[:, None].square() + along_y.square()
    squared[0, 0] = torch.inf
    return _sum_shells(_power(vorticity, 2) / (2 * squared), shell_numbers(shape, lengths))


def shell_spectrum(
    values: Float[Tensor, "..."],
    lengths: Sequence[float],
    periodic: bool | Sequence[bool] = True,
) -> Float[Tensor, "*batch shells"]:
    r"""Returns half the mean square per shell of wavenumber, $E(k)=\sum_{k'\in k}\tfrac12|\hat u_{k'}|^2$.

    Shells are those of `shell_numbers`; the last one holds the corner of the spectrum. On a
    periodic grid their sum is half the mean square (Parseval), and shell 0 half the squared
    mean.

    On a grid with open axes the mean is removed, the rest is multiplied by a Hann window
    $\sin^2(\pi(j+\tfrac12)/n)$ along each open axis, and shell 0 gets half the squared mean
    back. A window has mean square one, so that the sum over shells is still half the mean
    square wherever fluctuations do not depend on the place; of a single field it is the
    windowed mean square. A wave spreads over three neighbouring numbers along an open axis.

    Args:
        values: A field on a uniform grid; its last axes are those of the grid.
        lengths: Spacing times number of sites, for each of the 1, 2 or 3 axes of the grid.
        periodic: Which axes close on themselves.
    """
    num_axes = len(lengths)
    if not 1 <= num_axes <= min(3, values.ndim):
        raise ValueError(
            "`lengths` must have one entry for each of the 1, 2 or 3 axes of the grid, got "
            f"{num_axes} for values of shape {tuple(values.shape)}."
        )
    is_periodic = [periodic] * num_axes if isinstance(periodic, bool) else list(periodic)
    shape = values.shape[-num_axes:]
    mean = values.new_zeros(())
    if not all(is_periodic):
        mean = values.mean(tuple(range(-num_axes, 0)), keepdim=True)
        values = (values - mean) * _window(shape, is_periodic, values)
        mean = mean.flatten(-num_axes)[..., 0]
    shells = _sum_shells(_power(values, num_axes) / 2, shell_numbers(shape, lengths))
    shells[..., 0] += mean.square() / 2
    return shells


def shell_numbers(shape: Sequence[int], lengths: Sequence[float]) -> Int[Tensor, "..."]:
    r"""Returns the shell of every mode of `torch.fft.rfftn` on a box.

    Shell $k$ holds wavenumbers in $[k-\tfrac12, k+\tfrac12)$ in units of $2\pi$ over the
    longest side. On a cube that is the integer wavenumber. A shorter side has coarser
    wavenumbers, so that in a box which is not a cube some shells may hold no mode. A side of
    one site has no wavenumber but zero, whatever its length, and is never the longest.
    """
    sides = [length for size, length in zip(shape, lengths, strict=True) if size > 1]
    longest = max(sides, default=1.0)
    squared = torch.zeros((), dtype=torch.float64)
    for axis, (size, length) in enumerate(zip(shape, lengths, strict=True)):
        frequencies = torch.fft.rfftfreq if axis == len(shape) - 1 else torch.fft.fftfreq
        along = frequencies(size, 1 / size, dtype=torch.float64) * (longest / length)
        squared = squared[..., None] + along.square()
    return (squared.sqrt() + 0.5).floor().long()


def _power(values: Tensor, num_axes: int) -> Tensor:
    """Returns the mean square that every mode of `rfftn` carries, over the last axes."""
    axes = tuple(range(-num_axes, 0))
    size = values.shape[-1]
    power = torch.fft.rfftn(values, dim=axes, norm="forward").abs().square()
    # Columns other than the first and the Nyquist one stand for their mirror image too.
    along = torch.arange(size // 2 + 1, device=values.device)
    is_alone = (along == 0) | (2 * along == size)
    return power * torch.where(is_alone, 1.0, 2.0)


def _sum_shells(energy: Tensor, numbers: Tensor) -> Tensor:
    """Sums over the modes of each shell."""
    shells = energy.new_zeros(*energy.shape[: -numbers.ndim], int(numbers.max()) + 1)
    index = numbers.flatten().to(energy.device)
    return shells.index_add_(-1, index, energy.flatten(-numbers.ndim))


def _window(shape: Sequence[int], is_periodic: Sequence[bool], like: Tensor) -> Tensor:
    """Returns the product of Hann windows along open axes, each of mean square one."""
    window = like.new_ones(())
    for size, wraps in zip(shape, is_periodic, strict=True):
        along = torch.arange(size, dtype=like.dtype, device=like.device)
        # Half a site off the ends, so that none is lost and the window is symmetric.
        hann = torch.ones_like(along) if wraps else torch.sin(math.pi * (along + 0.5) / size) ** 2
        window = window[..., None] * (hann / hann.square().mean().sqrt())
    return window


TOLERANCE = 1e-3
"""How far a latitude may be off, as a part of the spacing."""


def degree_spectrum(
    values: Float[np.ndarray, "*batch latitudes longitudes"],
    latitude: Float[np.ndarray, " latitudes"],
) -> Float[np.ndarray, "*batch degrees"]:
    r"""Returns the power per degree, $P_l=\frac{1}{4\pi}\sum_{m=-l}^{l}|a_{lm}|^2$, with orthonormal $Y_{lm}$.

    The sum over degrees is the area-weighted mean square over the sphere (Parseval), and
    $P_0$ the squared mean, of a field that has no more degrees than are returned: as many as
    the latitudes resolve (all but two of them with both poles, else all but one), and none
    whose orders the longitudes do not resolve ($2l<$ their number).

    The power does not know where longitudes start nor which way they and latitudes run: a
    turn about the axis changes the phase of $a_{lm}$, a reflection its sign.

    Args:
        values: A field; its longitudes are evenly spaced, once around, without a repeated one.
        latitude: Evenly spaced degrees: with both poles (Clenshaw and Curtis' rule), or the
            centres of cells from pole to pole (Fejér's first rule).
    """
    import ducc0

    rule = latitude_rule(latitude)
    if rule is None:
        raise ValueError(
            "`latitude` must be evenly spaced degrees with both poles, or centres of cells from "
            f"pole to pole, got {len(latitude)} from {latitude[0]:g} to {latitude[-1]:g}."
        )
    num_latitudes, num_longitudes = values.shape[-2:]
    max_degree = num_latitudes - (2 if rule == "CC" else 1)
    max_order = min(max_degree, (num_longitudes - 1) // 2)
    # Coefficients are listed order by order from 0; a positive order stands for its negative.
    orders = range(max_order + 1)
    degree = np.concatenate([np.arange(order, max_degree + 1) for order in orders])
    share = np.where(np.arange(len(degree)) <= max_degree, 1, 2) / (4 * math.pi)
    maps = np.ascontiguousarray(values, dtype=np.float64).reshape(-1, 1, *values.shape[-2:])
    power = np.empty((len(maps), max_order + 1))
    for number, field in enumerate(maps):
        coefficients = ducc0.sht.analysis_2d(
            map=field, spin=0, lmax=max_degree, mmax=max_order, geometry=rule, nthreads=1
        )[0]
        squared = coefficients.real**2 + coefficients.imag**2
        power[number] = np.bincount(degree, share * squared)[: max_order + 1]
    return power.reshape(*values.shape[:-2], max_order + 1)


def latitude_rule(latitude: Float[np.ndarray, " latitudes"]) -> Literal["CC", "F1"] | None:
    """Returns what `ducc0` calls the grid: CC with both poles, F1 for centres of cells, else None."""
    size = len(latitude)
    if size < 3:
        return None
    ascending = latitude if latitude[0] < latitude[-1] else latitude[::-1]
    if _are_close(ascending, np.linspace(-90, 90, size)):
        return "CC"
    if _are_close(ascending, (np.arange(size) + 0.5) * (180 / size) - 90):
        return "F1"
    return None


def _are_close(latitude: np.ndarray, nodes: np.ndarray) -> bool:
    return bool(np.abs(latitude - nodes).max() <= TOLERANCE * (nodes[1] - nodes[0]))
