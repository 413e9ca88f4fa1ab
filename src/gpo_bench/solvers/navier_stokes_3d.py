r"""Compressible viscous flow in a periodic cube, as in PDEBench.

$\partial_t\rho+\nabla\cdot(\rho v)=0$,
$\rho(\partial_tv+v\cdot\nabla v)=-\nabla p+\eta\Delta v+(\zeta+\eta/3)\nabla\nabla\cdot v$,
$\partial_tE+\nabla\cdot((E+p)v-\sigma v)=0$ with $E=\frac p{\gamma-1}+\frac12\rho v^2$,
$\gamma=5/3$ and no heat conduction. Mean density and mean pressure are one, so that the speed of
sound is $\sqrt\gamma$; the cube has side one.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from jaxtyping import Complex, Float
from torch import Tensor

from gpo.data.readers.pdebench import FLOW
from gpo.data.solvers.base import AbstractSolver, Portion, stacked
from gpo_bench.solvers.finite_volume import Flow, Viscosity
from gpo_bench.solvers.published_files import write_pdebench
from gpo_bench.solvers.runge_kutta import check_recording, record_frames, solve_with_retries

GAMMA = 5 / 3
"""Ratio of specific heats of a monatomic gas."""
INITIAL_SIZE = 16
"""Size of the grid on which initial waves are drawn, independent of `size`."""


@dataclass(frozen=True, kw_only=True)
class NavierStokes3D(AbstractSolver):
    """Decaying turbulence, or random fields that steepen into sound waves and shocks."""

    start: Literal["turbulent", "random"] = "turbulent"
    """Initial fields: divergence-free eddies in a uniform gas (turbulent), or all five random."""
    mach: float = 1.0
    """Root-mean-square initial velocity over the speed of sound, 0.1 to 1."""
    shear_viscosity: float = 1e-8
    """Dynamic shear viscosity eta."""
    bulk_viscosity: float = 1e-8
    """Bulk viscosity zeta."""
    size: int = 64
    """Number of cells along each side."""
    num_trajectories: int = 100
    """Number of trajectories."""
    num_frames: int = 21
    """Number of frames; the first is at t = 0."""
    frame_step: float = 0.05
    """Time between frames; sound crosses the cube in 0.77."""
    contrast: float = 0.2
    """Root mean square of the logarithm of random initial density and pressure."""
    largest_wavenumber: int = 4
    """Largest initial wavenumber, in waves per side."""
    decay: float = 1.0
    """Exponent with which initial amplitudes fall off with the wavenumber."""
    seed: int = 0
    """Random seed of the initial fields."""
    courant: float = 0.8
    """Courant number: cells that the fastest wave crosses in a step, summed over axes."""
    portion_size: int = 1
    """Trajectories solved in one batch, each with its own time steps."""

    suffix = ".hdf5"

    def __post_init__(self) -> None:
        """Validates all parameters."""
        if self.start not in ("turbulent", "random"):
            raise ValueError(f"`start` must be turbulent or random, got {self.start!r}.")
        if not 0.01 <= self.mach <= 3:
            raise ValueError(f"`mach` must be between 0.01 and 3, got mach={self.mach}.")
        if self.shear_viscosity < 0 or self.bulk_viscosity < 0 or self.contrast < 0:
            raise ValueError(
                "`shear_viscosity`, `bulk_viscosity` and `contrast` must not be negative, got "
                f"{self.shear_viscosity}, {self.bulk_viscosity} and {self.contrast}."
            )
        if (
            not 1 <= self.largest_wavenumber < INITIAL_SIZE // 2
            or self.size <= 2 * self.largest_wavenumber
        ):
            raise ValueError(
                f"`largest_wavenumber` must be 1 to {INITIAL_SIZE // 2 - 1} and below half of "
                f"`size`, got largest_wavenumber={self.largest_wavenumber}, size={self.size}."
            )
        check_recording(self.num_trajectories, self.num_frames, self.frame_step, self.courant)

    @property
    def flow(self) -> Flow:
        """The spatial discretisation."""
        viscosity = Viscosity(self.shear_viscosity, self.bulk_viscosity)
        is_viscous = self.shear_viscosity > 0 or self.bulk_viscosity > 0
        return Flow(
            spacing=(1 / self.size,) * 3,
            periodic=(True,) * 3,
            gamma=GAMMA,
            viscosity=viscosity if is_viscous else None,
        )

    def solve(self, trajectories: range) -> Portion:
        """Returns `density`, `pressure`, `Vx`, `Vy` and `Vz` (trajectories, times, x, y, z)."""
        frames = solve_with_retries(self._record, trajectories, self.courant).cpu().numpy()
        channels = dict(zip(("density", "Vx", "Vy", "Vz", "pressure"), range(5), strict=True))
        return {name: np.ascontiguousarray(frames[:, :, channels[name]]) for name in FLOW}

    def write(self, path: Path, portions: Iterable[Portion]) -> None:
        """Writes a file in the layout of PDEBench."""
        centers = (np.arange(self.size) + 0.5) / self.size
        constants = {"eta": self.shear_viscosity, "zeta": self.bulk_viscosity, "M": self.mach}
        with stacked(path, self.num_trajectories, portions) as fields:
            write_pdebench(
                path,
                axes=(centers,) * 3,
                time=np.arange(self.num_frames) * self.frame_step,
                fields=fields,
                parameters=constants,
            )

    def initial_fields(self, number: int) -> Float[Tensor, "5 size size size"]:
        """Returns random density, velocity and pressure that depend only on seed and number."""
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + number)
        waves = self._draw_waves(5, generator)
        if self.start == "turbulent":
            waves[1:4] = _project_divergence_free(waves[1:4])
        fields = _evaluate_at_cells(waves, self.size)
        fields[1:4] *= self.mach * math.sqrt(GAMMA) / _root_mean_square(fields[1:4])
        for channel in (0, 4):
            if self.start == "turbulent":
                fields[channel] = 1
            else:
                logarithm = fields[channel] * (
                    self.contrast / _root_mean_square(fields[channel][None])
                )
                fields[channel] = logarithm.exp()
                fields[channel] /= fields[channel].mean()
        return fields

    def _record(self, numbers: Sequence[int], courant: float) -> Float[Tensor, "batch times ..."]:
        initial = torch.stack([self.initial_fields(number) for number in numbers], 1)
        return record_frames(self.flow, initial, self.num_frames, self.frame_step, courant)

    def _draw_waves(
        self, count: int, generator: torch.Generator
    ) -> Complex[Tensor, "count drawn drawn half"]:
        """Returns random spectra on the initial grid, whose amplitudes fall off by `decay`."""
        noise = torch.randn(
            count,
            INITIAL_SIZE,
            INITIAL_SIZE,
            INITIAL_SIZE,
            dtype=torch.float64,
            generator=generator,
            device="cpu",
        )
        squared = torch.stack(_wavenumbers()).square().sum(0)
        is_active = (squared > 0) & (squared <= self.largest_wavenumber**2)
        factor = torch.where(is_active, squared.clamp(min=1) ** (-self.decay / 2), 0.0)
        return torch.fft.rfftn(noise, dim=(1, 2, 3), norm="forward") * factor


PRESETS = {
    "quick": NavierStokes3D(
        size=32, num_trajectories=20, shear_viscosity=1e-3, bulk_viscosity=1e-3
    ),
    "default": NavierStokes3D(num_trajectories=32),
    "paper": NavierStokes3D(num_trajectories=100),
}
"""Presets of `gpo data make ns3d`."""


def _wavenumbers() -> tuple[Tensor, ...]:
    whole = torch.fft.fftfreq(INITIAL_SIZE, 1 / INITIAL_SIZE, dtype=torch.float64, device="cpu")
    half = torch.fft.rfftfreq(INITIAL_SIZE, 1 / INITIAL_SIZE, dtype=torch.float64, device="cpu")
    return torch.meshgrid(whole, whole, half, indexing="ij")


def _project_divergence_free(waves: Complex[Tensor, "3 x y half"]) -> Complex[Tensor, "3 x y half"]:
    r"""Returns the divergence-free part of a vector field, $\hat v-k(k\cdot\hat v)/k^2$."""
    wavenumbers = torch.stack(_wavenumbers())
    squared = wavenumbers.square().sum(0).clamp(min=1)
    return waves - wavenumbers * ((wavenumbers * waves).sum(0) / squared)


def _evaluate_at_cells(
    waves: Complex[Tensor, "count x y half"], size: int
) -> Float[Tensor, "count ..."]:
    """Returns the fields of a spectrum at the cell centers of a grid of this size."""
    half_cell_phase = torch.stack(_wavenumbers()).sum(0) * (math.pi / size)
    waves = waves * torch.exp(1j * half_cell_phase)
    spectrum = waves.new_zeros(len(waves), size, size, size // 2 + 1)
    kept = min(INITIAL_SIZE, size) // 2 - 1
    low, high = slice(0, kept + 1), slice(-kept, None)
    for along_x in (low, high):
        for along_y in (low, high):
            spectrum[:, along_x, along_y, low] = waves[:, along_x, along_y, low]
    return torch.fft.irfftn(spectrum, s=(size,) * 3, dim=(1, 2, 3), norm="forward")


def _root_mean_square(vectors: Float[Tensor, "components ..."]) -> Float[Tensor, ""]:
    return vectors.square().sum(0).mean().sqrt()
