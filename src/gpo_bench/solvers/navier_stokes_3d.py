r"""Compressible flow with friction in a periodic cube, as PDEBench's family has it.

$\partial_t\rho+\nabla\cdot(\rho v)=0$,
$\rho(\partial_tv+v\cdot\nabla v)=-\nabla p+\eta\Delta v+(\zeta+\eta/3)\nabla\nabla\cdot v$,
$\partial_tE+\nabla\cdot((E+p)v-\sigma v)=0$ with $E=\frac p{\gamma-1}+\frac12\rho v^2$ and
$\gamma=5/3$; heat is not conducted. Mean density and mean pressure are one, so that sound has
speed $\sqrt\gamma$; the cube has side one.
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

from gpo.data.readers.pdebench import FLOW, write_pdebench
from gpo.data.solvers.base import AbstractSolver, Portion, stacked
from gpo_bench.solvers.finite_volume import Flow, Viscosity
from gpo_bench.solvers.runge_kutta import advance, solve_with_retries

GAMMA = 5 / 3
"""Ratio of specific heats of a gas of single atoms."""
DRAWN = 16
"""Points per side of the grid on which waves are drawn, whatever grid they are solved on."""


@dataclass(frozen=True, kw_only=True)
class NavierStokes3D(AbstractSolver):
    """Decaying turbulence, or a random field that steepens into sound and shocks."""

    start: Literal["turbulent", "random"] = "turbulent"
    """turbulent: eddies without divergence in a level gas; random: all five fields random."""
    mach: float = 1.0
    """Root mean square of the initial velocity over the speed of sound, 0.1 to 1."""
    shear_viscosity: float = 1e-8
    """Dynamic viscosity eta."""
    bulk_viscosity: float = 1e-8
    """Dynamic viscosity zeta against compression."""
    size: int = 64
    """Cells along each side."""
    num_trajectories: int = 100
    """Trajectories to make."""
    num_frames: int = 21
    """Frames to record, the first at t = 0."""
    frame_step: float = 0.05
    """Time between frames; sound crosses the cube in 0.77."""
    contrast: float = 0.2
    """Root mean square of the logarithms of density and pressure where they start random."""
    largest_wavenumber: int = 4
    """Shortest initial wave: this many of them fit the cube."""
    decay: float = 1.0
    """Initial amplitudes fall with this power of the wavenumber."""
    seed: int = 0
    """Seed of the initial fields."""
    courant: float = 0.8
    """Cells that the fastest wave may cross in a step, summed over axes."""
    portion_size: int = 1
    """Trajectories solved side by side, each with its own time steps."""

    suffix = ".hdf5"

    def __post_init__(self) -> None:
        """Refuses numbers that no flow has."""
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
            not 1 <= self.largest_wavenumber < DRAWN // 2
            or self.size <= 2 * self.largest_wavenumber
        ):
            raise ValueError(
                f"`largest_wavenumber` must be 1 to {DRAWN // 2 - 1} and below half of `size`, got "
                f"largest_wavenumber={self.largest_wavenumber}, size={self.size}."
            )
        if self.frame_step <= 0 or not 0 < self.courant <= 1:
            raise ValueError(
                "`frame_step` must be positive and `courant` between 0 and 1, "
                f"got frame_step={self.frame_step}, courant={self.courant}."
            )
        if self.num_trajectories < 1 or self.num_frames < 1:
            raise ValueError(
                "`num_trajectories` and `num_frames` must be at least 1, "
                f"got {self.num_trajectories} and {self.num_frames}."
            )

    @property
    def flow(self) -> Flow:
        """The gas and its cube."""
        friction = Viscosity(self.shear_viscosity, self.bulk_viscosity)
        has_friction = self.shear_viscosity > 0 or self.bulk_viscosity > 0
        return Flow(
            spacing=(1 / self.size,) * 3,
            periodic=(True,) * 3,
            gamma=GAMMA,
            viscosity=friction if has_friction else None,
        )

    def solve(self, trajectories: range) -> Portion:
        """Returns density, pressure, Vx, Vy, Vz (trajectories, times, x, y, z)."""
        frames = solve_with_retries(self._record, trajectories, self.courant).cpu().numpy()
        channels = dict(zip(("density", "Vx", "Vy", "Vz", "pressure"), range(5), strict=True))
        return {name: np.ascontiguousarray(frames[:, :, channels[name]]) for name in FLOW}

    def write(self, path: Path, portions: Iterable[Portion]) -> None:
        """Writes PDEBench's file."""
        centres = (np.arange(self.size) + 0.5) / self.size
        constants = {"eta": self.shear_viscosity, "zeta": self.bulk_viscosity, "M": self.mach}
        with stacked(path, self.num_trajectories, portions) as fields:
            write_pdebench(
                path,
                axes=(centres,) * 3,
                time=np.arange(self.num_frames) * self.frame_step,
                fields=fields,
                parameters=constants,
            )

    def initial_fields(self, number: int) -> Float[Tensor, "5 size size size"]:
        """Draws density, velocity and pressure of one trajectory by its number alone."""
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + number)
        waves = self._draw_waves(5, generator)
        if self.start == "turbulent":
            waves[1:4] = _without_divergence(waves[1:4])
        fields = _on_grid(waves, self.size)
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
        flow = self.flow
        starts = torch.stack([self.initial_fields(number) for number in numbers], 1)
        state = flow.conserved(starts.float().to(torch.get_default_device()))
        frames = [flow.primitive(state).movedim(1, 0)]
        for _ in range(self.num_frames - 1):
            state, _ = advance(flow, state, self.frame_step, courant)
            frames.append(flow.primitive(state).movedim(1, 0))
        return torch.stack(frames, 1)

    def _draw_waves(
        self, count: int, generator: torch.Generator
    ) -> Complex[Tensor, "count drawn drawn half"]:
        """Draws spectra on the small grid; power falls as the square of the amplitudes."""
        noise = torch.randn(
            count, DRAWN, DRAWN, DRAWN, dtype=torch.float64, generator=generator, device="cpu"
        )
        squared = torch.stack(_wavenumbers()).square().sum(0)
        is_drawn = (squared > 0) & (squared <= self.largest_wavenumber**2)
        factor = torch.where(is_drawn, squared.clamp(min=1) ** (-self.decay / 2), 0.0)
        return torch.fft.rfftn(noise, dim=(1, 2, 3), norm="forward") * factor


PRESETS = {
    "quick": NavierStokes3D(
        size=32, num_trajectories=20, shear_viscosity=1e-3, bulk_viscosity=1e-3
    ),
    "default": NavierStokes3D(num_trajectories=32),
    "paper": NavierStokes3D(num_trajectories=100),
}
"""Sizes of `gpo data make ns3d`."""


def _wavenumbers() -> tuple[Tensor, ...]:
    whole = torch.fft.fftfreq(DRAWN, 1 / DRAWN, dtype=torch.float64, device="cpu")
    half = torch.fft.rfftfreq(DRAWN, 1 / DRAWN, dtype=torch.float64, device="cpu")
    return torch.meshgrid(whole, whole, half, indexing="ij")


def _without_divergence(waves: Complex[Tensor, "3 x y half"]) -> Complex[Tensor, "3 x y half"]:
    r"""Returns the part of a vector field across its wavenumbers, $\hat v-k(k\cdot\hat v)/k^2$."""
    along = torch.stack(_wavenumbers())
    squared = along.square().sum(0).clamp(min=1)
    return waves - along * ((along * waves).sum(0) / squared)


def _on_grid(waves: Complex[Tensor, "count x y half"], size: int) -> Float[Tensor, "count ..."]:
    """Evaluates waves at the centres of cells of a grid of this size."""
    half_a_cell = torch.stack(_wavenumbers()).sum(0) * (math.pi / size)
    waves = waves * torch.exp(1j * half_a_cell)
    spectrum = waves.new_zeros(len(waves), size, size, size // 2 + 1)
    kept = min(DRAWN, size) // 2 - 1
    low, high = slice(0, kept + 1), slice(-kept, None)
    for along_x in (low, high):
        for along_y in (low, high):
            spectrum[:, along_x, along_y, low] = waves[:, along_x, along_y, low]
    return torch.fft.irfftn(spectrum, s=(size,) * 3, dim=(1, 2, 3), norm="forward")


def _root_mean_square(vectors: Float[Tensor, "components ..."]) -> Float[Tensor, ""]:
    return vectors.square().sum(0).mean().sqrt()
