r"""Incompressible flow in a periodic box in vorticity form: the benchmark of FNO.

$\partial_t\omega+u\cdot\nabla\omega=\nu\Delta\omega+f$ with
$f=0.1(\sin2\pi(x+y)+\cos2\pi(x+y))$ and $u=\nabla^\perp\psi$, $-\Delta\psi=\omega$.
Pseudo-spectral in space, de-aliased by the 2/3 rule; integrating-factor Runge-Kutta of
fourth order in time.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Complex, Float
from torch import Tensor

from gpo.data.readers.fno import write_fno
from gpo.data.solvers.base import AbstractSolver, BlowUpError, Portion
from gpo.numerics.spectral import half_wavenumbers, random_field, resample

INITIAL_SIZE = 64
"""Grid size on which initial fields are drawn, independent of the solver's grid."""
STEPS_PER_UPDATE = 4
"""Time steps after which the step length is adapted to the maximum speed."""


@dataclass(frozen=True, kw_only=True)
class NavierStokes2D(AbstractSolver):
    """Forced turbulence, recorded once per unit of time."""

    viscosity: float = 1e-4
    """Kinematic viscosity nu."""
    size: int = 64
    """Stored grid points along each axis."""
    refinement: int = 2
    """Ratio of the solver's to the stored grid points along each axis, at least 2."""
    num_trajectories: int = 64
    """Number of trajectories."""
    num_frames: int = 20
    """Number of frames, recorded at t = 1, 2, and so on."""
    seed: int = 0
    """Random seed of the initial fields."""
    covariance: float = 2 * 7.0**3
    """Factor c of the initial covariance c (-Laplace + 49)^(-5/2). FNO's data generator uses
    2 * 7^3; the paper states 7^1.5, which is 37 times less."""
    courant: float = 1.2
    """Courant number: wavenumber times speed times step; stable up to about 2.8."""
    portion_size: int = 16
    """Trajectories solved in one batch, with a common time step."""

    suffix = ".mat"

    def __post_init__(self) -> None:
        """Raises a `ValueError` for invalid parameters."""
        if self.viscosity < 0 or self.courant <= 0:
            raise ValueError(
                "`viscosity` must not be negative and `courant` must be positive, "
                f"got viscosity={self.viscosity}, courant={self.courant}."
            )
        if self.size < 8 or self.size % 2:
            raise ValueError(f"`size` must be even and at least 8, got size={self.size}.")
        if self.refinement < 2:
            raise ValueError(f"`refinement` must be at least 2, got {self.refinement}.")
        if self.num_trajectories < 1 or self.num_frames < 1:
            raise ValueError(
                "`num_trajectories` and `num_frames` must be at least 1, "
                f"got {self.num_trajectories} and {self.num_frames}."
            )

    def solve(self, trajectories: range) -> Portion:
        """Returns initial fields `a` and frames `u` (trajectories, x, y, time)."""
        initial = torch.stack([self.initial_field(index) for index in trajectories])
        device = "cuda" if torch.cuda.is_available() else "cpu"
        grid_size = self.size * self.refinement
        start = resample(torch.fft.rfft2(initial), grid_size).to(torch.complex64).to(device)
        courant = self.courant
        for _ in range(4):
            frames = self._record(start, courant)
            if all(frame.isfinite().all() for frame in frames):
                stored = torch.fft.irfft2(resample(torch.fft.rfft2(initial), self.size))
                return {
                    "a": stored.float().numpy(),
                    "u": torch.stack(frames, -1).cpu().numpy(),
                }
            courant /= 2
        raise BlowUpError(
            f"Trajectories {trajectories.start} to {trajectories.stop - 1} blew up even with "
            f"courant={2 * courant:g}. Raise `viscosity` or `refinement`."
        )

    def write(self, path: Path, portions: Iterable[Portion]) -> None:
        """Writes FNO's MATLAB file."""
        times = np.arange(1.0, self.num_frames + 1)
        write_fno(path, times, portions, (self.num_trajectories, self.size, self.size))

    def initial_field(self, index: int) -> Float[Tensor, "size size"]:
        r"""Draws the initial field of a trajectory from $N(0,c(-\Delta+49I)^{-5/2})$."""
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + index)
        return random_field(
            INITIAL_SIZE, lambda squared: self.covariance * (squared + 49) ** -2.5, generator
        )

    def _record(self, start: Tensor, courant: float) -> list[Tensor]:
        size = start.shape[-2]
        forcing = fno_forcing(size, start.real.dtype, start.device)
        spectrum, frames = start, []
        for _ in range(self.num_frames):
            spectrum = advance(
                spectrum, 1.0, viscosity=self.viscosity, forcing=forcing, courant=courant
            )
            frames.append(torch.fft.irfft2(resample(spectrum, self.size)))
        return frames


PRESETS = {
    "quick": NavierStokes2D(),
    "default": NavierStokes2D(num_trajectories=240),
    "paper": NavierStokes2D(num_trajectories=1200, refinement=4),
}
"""Sizes of `gpo data make ns2d`, at viscosity 1e-4."""

THIN_PRESETS = {name: replace(solver, viscosity=1e-5) for name, solver in PRESETS.items()}
"""Sizes of `gpo data make ns2d-1e-5`, at the viscosity of the paper."""


def fno_forcing(
    size: int, dtype: torch.dtype, device: torch.device | str
) -> Complex[Tensor, "size half"]:
    r"""Returns the spectrum of $0.1(\sin2\pi(x+y)+\cos2\pi(x+y))$."""
    x = torch.arange(size, dtype=torch.float64, device=device) / size
    angle = 2 * math.pi * (x[:, None] + x[None, :])
    return torch.fft.rfft2(0.1 * (angle.sin() + angle.cos()).to(dtype))


def advance(
    spectrum: Complex[Tensor, "*batch size half"],
    duration: float,
    *,
    viscosity: float,
    forcing: Complex[Tensor, "size half"] | None = None,
    courant: float = 1.2,
    step: float | None = None,
) -> Complex[Tensor, "*batch size half"]:
    """Returns the `rfft2` spectrum of vorticity after `duration`.

    Args:
        spectrum: Spectrum of the initial vorticity.
        duration: Integration time.
        viscosity: Kinematic viscosity.
        forcing: Spectrum of a steady forcing, if any.
        courant: Courant number that limits the time step.
        step: Fixed time step instead, for measuring the order of convergence.
    """
    flow = Flow(spectrum.shape[-2], spectrum.real.dtype, spectrum.device)
    spectrum = spectrum * flow.is_resolved
    remaining = duration
    while remaining > 1e-9 * duration:
        longest = step or courant / (flow.largest_wavenumber * flow.largest_speed(spectrum))
        if not math.isfinite(longest) or longest <= 0:
            return spectrum * math.nan
        count = max(1, math.ceil(remaining / longest - 1e-9))
        for _ in range(min(count, STEPS_PER_UPDATE)):
            spectrum = runge_kutta_step(spectrum, remaining / count, flow, viscosity, forcing)
            remaining -= remaining / count
            count -= 1
    return spectrum


class Flow:
    """Wavenumbers and operators of a grid, computed once."""

    def __init__(self, size: int, dtype: torch.dtype, device: torch.device | str) -> None:
        along_x, along_y = half_wavenumbers(size, torch.float64, device)
        kx, ky = 2 * math.pi * along_x, 2 * math.pi * along_y
        squared = kx.square() + ky.square()
        inverse = torch.where(squared > 0, 1 / squared, 0.0)
        complex_dtype = torch.complex64 if dtype == torch.float32 else torch.complex128
        self.squared = squared.to(dtype)
        cut = size / 3
        self.is_resolved = ((along_x.abs() < cut) & (along_y.abs() < cut)).to(dtype)
        self.largest_wavenumber = 2 * math.pi * cut
        # Velocity from vorticity: u = d psi/dy, v = -d psi/dx.
        self.to_u = (1j * ky * inverse).to(complex_dtype)
        self.to_v = (-1j * kx * inverse).to(complex_dtype)
        # curl div(u u) needs only two products: uv and v^2 - u^2.
        self.from_product = ((kx.square() - ky.square()) * self.is_resolved).to(dtype)
        self.from_difference = (kx * ky * self.is_resolved).to(dtype)

    def velocity(self, spectrum: Tensor) -> tuple[Tensor, Tensor]:
        """Returns both velocity components on the grid."""
        return torch.fft.irfft2(self.to_u * spectrum), torch.fft.irfft2(self.to_v * spectrum)

    def largest_speed(self, spectrum: Tensor) -> float:
        """Returns the maximum of |u| + |v|, at least 1e-3."""
        u, v = self.velocity(spectrum)
        return max((u.abs() + v.abs()).max().item(), 1e-3)

    def advection(self, spectrum: Tensor) -> Tensor:
        r"""Returns the spectrum of $-u\cdot\nabla\omega$, de-aliased."""
        u, v = self.velocity(spectrum)
        product, difference = torch.fft.rfft2(u * v), torch.fft.rfft2((v - u) * (v + u))
        return self.from_product * product + self.from_difference * difference


def runge_kutta_step(
    spectrum: Tensor, step: float, flow: Flow, viscosity: float, forcing: Tensor | None
) -> Tensor:
    """Advances by one time step; the integrating factor makes viscosity exact."""
    half = torch.exp(-viscosity * flow.squared * (step / 2))
    steady = 0.0 if forcing is None else forcing * flow.is_resolved

    def tendency(state: Tensor) -> Tensor:
        return flow.advection(state) + steady

    decayed = half * spectrum
    first = half * tendency(spectrum)
    second = tendency(decayed + (step / 2) * first)
    third = tendency(decayed + (step / 2) * second)
    fourth = tendency(half * (decayed + step * third))
    return half * (decayed + step / 6 * (first + 2 * (second + third))) + step / 6 * fourth
