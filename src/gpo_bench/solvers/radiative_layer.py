r"""A turbulent radiative mixing layer between hot and cold gas, as in The Well.

$\partial_t\rho+\nabla\cdot(\rho v)=0$, $\partial_t(\rho v)+\nabla\cdot(\rho vv+p)=0$,
$\partial_tE+\nabla\cdot((E+p)v)=-\frac p{\gamma-1}\frac{\Lambda(p/\rho)}{t_{cool}}$, $\gamma=5/3$.
Neither gas cools, $\Lambda=0$; their mixture does, with $\Lambda$ up to one halfway between
(`RadiativeCooling`). The domain is periodic along x and open along y. Hot gas has density, pressure
and temperature one.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from gpo.data.solvers.base import AbstractSolver, Portion, stacked
from gpo_bench.solvers.finite_volume import AbstractCooling, Flow
from gpo_bench.solvers.runge_kutta import check_recording, record_frames, solve_with_retries
from gpo_bench.solvers.well_files import write_well

GAMMA = 5 / 3
"""Ratio of specific heats of a monatomic gas."""
BOTTOM = -1.0
"""Lower end of the domain along y, whose height is 3; along x it extends from -1/2 to 1/2."""
MAX_COOLING_TEMPERATURE = 0.5
"""Temperature above which gas does not cool, in units of that of hot gas."""


@dataclass(frozen=True)
class RadiativeCooling(AbstractCooling):
    r"""Cooling of mixed gas, $\Lambda=\max(0,1-s^2)^2$ where $s$ is linear in $\ln T$.

    $\Lambda$ rises from zero ($s=-1$) at the temperature of cold gas to one, and falls to zero
    ($s=1$) at half the temperature of hot gas. Hot gas that merely expands must not cool, because
    inflow through an open boundary would carry the lower temperature into the domain.
    """

    times: Float[Tensor, " batch"]
    """Cooling time of mixed gas in each trajectory."""
    contrast: float
    """Ratio of the temperatures of hot gas, which is one, and cold gas."""
    gamma: float = GAMMA
    """Ratio of specific heats."""

    def loss(
        self, density: Float[Tensor, " batch *grid"], pressure: Float[Tensor, " batch *grid"]
    ) -> Float[Tensor, " batch *grid"]:
        """Returns the energy loss per volume and time."""
        coldest, hottest = -math.log(self.contrast), math.log(MAX_COOLING_TEMPERATURE)
        middle, half_width = (hottest + coldest) / 2, (hottest - coldest) / 2
        position = (pressure / density).log_().sub_(middle).div_(half_width)
        strength = position.square_().neg_().add_(1).clamp_(min=0).square_()
        factors = 1 / ((self.gamma - 1) * self.times).to(pressure.dtype)
        return strength.mul_(pressure).mul_(factors.view(-1, *[1] * (pressure.ndim - 1)))

    def max_rate(self) -> Float[Tensor, " batch"]:
        """Returns the largest cooling rate."""
        return 1 / self.times


@dataclass(frozen=True, kw_only=True)
class RadiativeLayer(AbstractSolver):
    """A shear layer with Kelvin-Helmholtz waves, for several cooling times."""

    size: int = 128
    """Number of cells along x; there are three times as many along y."""
    cooling_times: tuple[float, ...] = (0.03, 0.06, 0.1, 0.18, 0.32, 0.56, 1.0, 1.78, 3.16)
    """Cooling times of mixed gas; trajectories use them in turn."""
    contrast: float = 100.0
    """Density ratio of cold and hot gas."""
    shear: float = 0.1
    """Speed of hot gas relative to cold gas; the speed of sound in hot gas is 1.29."""
    thickness: float = 0.02
    """Half the thickness of the initial shear layer."""
    noise: float = 0.1
    """Root-mean-square initial velocity along y at the layer, in units of `shear`."""
    num_waves: int = 12
    """Number of waves along x in the initial noise, from the longest on."""
    sinking: float = 0.0013
    """Factor c of the initial velocity -c t_cool^-0.6 of both gases along y. Cooling gas contracts
    and draws in cold gas; without it the layer would leave the domain where cooling is fast."""
    num_trajectories: int = 90
    """Number of trajectories."""
    num_frames: int = 101
    """Number of frames; the first is at t = 0."""
    frame_step: float = 1.597033
    """Time between frames."""
    seed: int = 0
    """Random seed of the initial noise."""
    courant: float = 0.8
    """Courant number: cells that the fastest wave crosses in a step, summed over axes."""
    portion_size: int = 1
    """Trajectories solved in one batch, each with its own time steps."""

    suffix = ".hdf5"

    def __post_init__(self) -> None:
        """Validates all parameters."""
        times = self.cooling_times
        if not times or not all(isinstance(time, float) and time > 0 for time in times):
            raise ValueError(f"`cooling_times` must be positive numbers, got {times}.")
        if self.contrast <= 1 / MAX_COOLING_TEMPERATURE:
            raise ValueError(f"`contrast` must be above 2, got {self.contrast}.")
        if self.size < 2 * self.num_waves or self.num_waves < 1:
            raise ValueError(
                "`num_waves` must be at least 1 and at most half of `size`, "
                f"got num_waves={self.num_waves}, size={self.size}."
            )
        if min(self.shear, self.noise) < 0 or self.thickness <= 0:
            raise ValueError(
                "`shear` and `noise` must not be negative and `thickness` must be positive, "
                f"got {self.shear}, {self.noise} and {self.thickness}."
            )
        check_recording(self.num_trajectories, self.num_frames, self.frame_step, self.courant)

    @property
    def axes(self) -> dict[str, np.ndarray]:
        """Cell centers along x and y."""
        along_x = (np.arange(self.size) + 0.5) / self.size - 0.5
        along_y = BOTTOM + (np.arange(3 * self.size) + 0.5) / self.size
        return {"x": along_x, "y": along_y}

    def cooling_time(self, number: int) -> float:
        """Returns the cooling time of a trajectory."""
        return self.cooling_times[number % len(self.cooling_times)]

    def flow(self, numbers: Sequence[int]) -> Flow:
        """Returns the spatial discretisation of some trajectories."""
        times = [self.cooling_time(number) for number in numbers]
        return Flow(
            spacing=(1 / self.size,) * 2,
            periodic=(True, False),
            gamma=GAMMA,
            cooling=RadiativeCooling(torch.tensor(times, dtype=torch.float64), self.contrast),
        )

    def solve(self, trajectories: range) -> Portion:
        """Returns `density`, `pressure`, `velocity` (trajectories, times, x, y, ...), `tcool`."""
        frames = solve_with_retries(self._record, trajectories, self.courant).cpu().numpy()
        return {
            "density": frames[:, :, 0],
            "pressure": frames[:, :, 3],
            "velocity": np.moveaxis(frames[:, :, 1:3], 2, -1),
            "tcool": np.array([self.cooling_time(number) for number in trajectories]),
        }

    def write(self, path: Path, portions: Iterable[Portion]) -> None:
        """Writes a file in the layout of The Well."""
        with stacked(path, self.num_trajectories, portions) as arrays:
            write_well(
                path,
                name="turbulent_radiative_layer_2D",
                axes=self.axes,
                periodic=(True, False),
                time=np.arange(self.num_frames) * self.frame_step,
                t0={name: arrays[name] for name in ("density", "pressure")},
                t1={"velocity": arrays["velocity"]},
                parameters={"tcool": np.array(arrays["tcool"])},
            )

    def initial_fields(self, number: int) -> Float[Tensor, "4 x y"]:
        """Returns initial density, velocity and pressure; noise depends on seed and number only."""
        x, y = (torch.from_numpy(axis) for axis in self.axes.values())
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + number)
        draws = x.new_empty(2, self.num_waves).normal_(generator=generator)
        angles = 2 * math.pi * torch.arange(1, self.num_waves + 1, device="cpu") * x[:, None]
        noise = (draws[0] * angles.cos() + draws[1] * angles.sin()).sum(1)
        noise *= self.noise * self.shear * math.sqrt(2) / draws.square().sum().sqrt()
        hot_fraction = (1 + torch.tanh(y / self.thickness)) / 2
        fields = x.new_ones(4, len(x), len(y))
        fields[0] = self.contrast ** (1 - hot_fraction)
        fields[1] = self.shear * (hot_fraction - 0.5)
        fields[2] = noise[:, None] * torch.exp(-((y / (4 * self.thickness)) ** 2))
        fields[2] -= self.sinking * self.cooling_time(number) ** -0.6
        return fields

    def _record(self, numbers: Sequence[int], courant: float) -> Float[Tensor, "batch times ..."]:
        initial = torch.stack([self.initial_fields(number) for number in numbers], 1)
        return record_frames(self.flow(numbers), initial, self.num_frames, self.frame_step, courant)


PRESETS = {
    "quick": RadiativeLayer(
        size=64,
        cooling_times=(3.16, 0.03, 0.32),
        shear=0.2,
        noise=0.3,
        num_trajectories=12,
        num_frames=21,
        frame_step=0.8,
        portion_size=4,
    ),
    "default": RadiativeLayer(
        shear=0.2, noise=0.3, num_trajectories=18, num_frames=51, frame_step=0.8
    ),
    "paper": RadiativeLayer(),
}
"""Presets of `gpo data make turbulent`."""
