r"""Hot gas that glides over cold gas, mixes with it and cools: The Well's radiative layer.

$\partial_t\rho+\nabla\cdot(\rho v)=0$, $\partial_t(\rho v)+\nabla\cdot(\rho vv+p)=0$,
$\partial_tE+\nabla\cdot((E+p)v)=-\frac p{\gamma-1}\frac{\Lambda(p/\rho)}{t_{cool}}$, $\gamma=5/3$.
Both gases are in equilibrium, $\Lambda=0$; what is mixed from them is not, with $\Lambda$ up to one
halfway between (`RadiativeCooling`). The box is periodic along x and open along y. Hot gas has
density, pressure and temperature one.
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
from gpo.data.writers.well import write_well
from gpo_bench.solvers.finite_volume import AbstractCooling, Flow
from gpo_bench.solvers.runge_kutta import advance, solve_with_retries

GAMMA = 5 / 3
"""Ratio of specific heats of a gas of single atoms."""
BOTTOM, TOP = -1.0, 2.0
"""Ends of the box along y; along x it reaches from -1/2 to 1/2."""
HOTTEST = 0.5
"""Temperature below which gas cools, in units of that of hot gas."""


@dataclass(frozen=True)
class RadiativeCooling(AbstractCooling):
    r"""Cooling of mixed gas, $\Lambda=\max(0,1-s^2)^2$ where $s$ is linear in $\ln T$.

    It rises from zero, $s=-1$, at the temperature of cold gas to one and falls to zero again,
    $s=1$, at half the temperature of hot gas. Hot gas that merely expands must not cool: what
    flows in through an open end has no memory of how hot it once was.
    """

    times: Float[Tensor, " batch"]
    """Cooling times of mixed gas."""
    contrast: float
    """Temperature of hot gas, which is one, over that of cold gas."""
    gamma: float = GAMMA
    """Ratio of specific heats."""

    def loss(
        self, density: Float[Tensor, " batch *grid"], pressure: Float[Tensor, " batch *grid"]
    ) -> Float[Tensor, " batch *grid"]:
        """Returns energy lost per volume and time."""
        coldest, hottest = -math.log(self.contrast), math.log(HOTTEST)
        middle, reach = (hottest + coldest) / 2, (hottest - coldest) / 2
        position = (pressure / density).log_().sub_(middle).div_(reach)
        strength = position.square_().neg_().add_(1).clamp_(min=0).square_()
        factors = 1 / ((self.gamma - 1) * self.times).to(pressure.dtype)
        return strength.mul_(pressure).mul_(factors.view(-1, *[1] * (pressure.ndim - 1)))

    def fastest(self) -> Float[Tensor, " batch"]:
        """Returns the largest rate at which anything cools."""
        return 1 / self.times


@dataclass(frozen=True, kw_only=True)
class RadiativeLayer(AbstractSolver):
    """A shear layer with Kelvin-Helmholtz waves; cooling times take turns."""

    size: int = 128
    """Cells along x; three times as many along y."""
    cooling_times: tuple[float, ...] = (0.03, 0.06, 0.1, 0.18, 0.32, 0.56, 1.0, 1.78, 3.16)
    """Cooling times of mixed gas; trajectory n has the n-th, counted round and round."""
    contrast: float = 100.0
    """Density of cold gas over that of hot gas."""
    shear: float = 0.1
    """Speed of hot gas relative to cold gas; sound in hot gas has 1.29."""
    thickness: float = 0.02
    """Half the thickness of the initial layer between them."""
    noise: float = 0.1
    """Root mean square of the initial velocity along y at the layer, in units of `shear`."""
    num_waves: int = 12
    """Longest waves along x that the noise is made of."""
    sinking: float = 0.0013
    """Velocity along -y that both gases start with, times the cooling time to the power -0.6.
    Mixed gas shrinks and draws in cold gas too; in any other frame the layer would rise out of
    the box where cooling is fast."""
    num_trajectories: int = 90
    """Trajectories to make."""
    num_frames: int = 101
    """Frames to record, the first at t = 0."""
    frame_step: float = 1.597033
    """Time between frames."""
    seed: int = 0
    """Seed of the initial noise."""
    courant: float = 0.8
    """Cells that the fastest wave may cross in a step, summed over axes."""
    portion_size: int = 1
    """Trajectories solved side by side, each with its own time steps."""

    suffix = ".hdf5"

    def __post_init__(self) -> None:
        """Refuses numbers that no layer has."""
        times = self.cooling_times
        if not times or not all(isinstance(time, float) and time > 0 for time in times):
            raise ValueError(f"`cooling_times` must be positive numbers, got {times}.")
        if self.contrast <= 1 / HOTTEST:
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
    def axes(self) -> dict[str, np.ndarray]:
        """Centres of cells along x and y."""
        along_x = (np.arange(self.size) + 0.5) / self.size - 0.5
        along_y = BOTTOM + (np.arange(3 * self.size) + 0.5) / self.size
        return {"x": along_x, "y": along_y}

    def cooling_time(self, number: int) -> float:
        """Returns the cooling time of one trajectory."""
        return self.cooling_times[number % len(self.cooling_times)]

    def flow(self, numbers: Sequence[int]) -> Flow:
        """Returns the gas and its box for some trajectories."""
        times = [self.cooling_time(number) for number in numbers]
        return Flow(
            spacing=(1 / self.size,) * 2,
            periodic=(True, False),
            gamma=GAMMA,
            cooling=RadiativeCooling(torch.tensor(times, dtype=torch.float64), self.contrast),
        )

    def solve(self, trajectories: range) -> Portion:
        """Returns density, pressure, velocity (trajectories, times, x, y, components), tcool."""
        frames = solve_with_retries(self._record, trajectories, self.courant).cpu().numpy()
        return {
            "density": frames[..., 0],
            "pressure": frames[..., 3],
            "velocity": frames[..., 1:3],
            "tcool": np.array([self.cooling_time(number) for number in trajectories]),
        }

    def write(self, path: Path, portions: Iterable[Portion]) -> None:
        """Writes The Well's file."""
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
        """Returns density, velocity and pressure at the start; noise depends on the number alone."""
        x, y = (torch.from_numpy(axis) for axis in self.axes.values())
        generator = torch.Generator().manual_seed(self.seed * 1_000_003 + number)
        draws = x.new_empty(2, self.num_waves).normal_(generator=generator)
        angles = 2 * math.pi * torch.arange(1, self.num_waves + 1, device="cpu") * x[:, None]
        noise = (draws[0] * angles.cos() + draws[1] * angles.sin()).sum(1)
        noise *= self.noise * self.shear * math.sqrt(2) / draws.square().sum().sqrt()
        heat = (1 + torch.tanh(y / self.thickness)) / 2
        fields = x.new_ones(4, len(x), len(y))
        fields[0] = self.contrast ** (1 - heat)
        fields[1] = self.shear * (heat - 0.5)
        fields[2] = noise[:, None] * torch.exp(-((y / (4 * self.thickness)) ** 2))
        fields[2] -= self.sinking * self.cooling_time(number) ** -0.6
        return fields

    def _record(self, numbers: Sequence[int], courant: float) -> Float[Tensor, "batch times ..."]:
        flow = self.flow(numbers)
        starts = torch.stack([self.initial_fields(number) for number in numbers], 1)
        state = flow.conserved(starts.float().to(torch.get_default_device()))
        frames = [flow.primitive(state).movedim(0, -1)]
        for _ in range(self.num_frames - 1):
            state, _ = advance(flow, state, self.frame_step, courant)
            frames.append(flow.primitive(state).movedim(0, -1))
        return torch.stack(frames, 1)


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
"""Sizes of `gpo data make turbulent`."""
