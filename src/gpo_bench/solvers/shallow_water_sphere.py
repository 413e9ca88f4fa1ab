r"""Forced shallow water on a planet with days and seasons, as in `planetswe` of The Well.

Rotating shallow water with hyperdiffusion and a height forcing that is positive on the day side and
negative on the night side:

$F=F_0\cos(\varphi-\varphi_c)\exp(-(\lambda-\lambda_c)^2/(\pi/2)^2)$ at latitude $\lambda$,
$\varphi_c=2\pi t/\mathrm{day}$, $\lambda_c=0.4\sin(2\pi t/\mathrm{year})$.

The published trajectories start from observed winds over the Earth's topography; these start from
two random jets with random eddies over random topography. During a spin-up, a divergence damping
that decreases to zero removes gravity waves of the initial imbalance.
"""

import math
from collections.abc import Iterable, Iterator
from concurrent.futures import CancelledError, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Event

import numpy as np
import torch

from gpo.data.solvers.base import AbstractSolver, BlowUpError, Portion
from gpo_bench.solvers.rotating_shallow_water import (
    RotatingShallowWater,
    Source,
    State,
    advance,
    coriolis_parameter,
)
from gpo_bench.solvers.spherical_harmonics import Coefficients, Field, SphericalHarmonics
from gpo_bench.solvers.well_files import write_well

HOUR = 3600.0
INITIAL_DEGREE = 42
"""Highest degree of random winds and mountains, independent of `max_degree`."""
EDDY_DEGREE = 6
"""Degree of the eddies' energy maximum, beyond which energy falls with the third power."""
MOUNTAIN_DEGREE = 12
"""Degree scale of the Gaussian filter that smooths mountains."""


@dataclass(frozen=True, kw_only=True)
class ShallowWaterSphere(AbstractSolver):
    """The planet of The Well, recorded at regular times after a spin-up."""

    size: int = 64
    """Number of stored latitudes; there are twice as many longitudes."""
    max_degree: int = 42
    """Highest degree of the spherical harmonics of the solution; below `size`."""
    num_trajectories: int = 24
    """Number of trajectories."""
    num_frames: int = 40
    """Number of frames."""
    hours_per_frame: float = 6.0
    """Time between frames in hours; 1 in The Well."""
    burn_in: float = 144.0
    """Spin-up before the first frame in hours; 504, half a year, in The Well."""
    calming_time: float = 3.0
    """Initial e-folding time of the divergence damping in hours; it ends with `burn_in`."""
    seed: int = 0
    """Random seed of mountains and initial winds."""
    day: float = 24.0
    """Period of the forcing in longitude, in hours; it moves eastwards as in The Well."""
    year: float = 1008.0
    """Period of the forcing in latitude, in hours."""
    forcing: float = 9.0
    """Amplitude of the height forcing in metres per hour."""
    declination: float = 0.4
    """Amplitude of the forcing's latitude in radians."""
    mountains: float = 1500.0
    """Height of the highest mountain in metres; 0 for none."""
    mean_depth: float = 5960.0
    """Mean surface height in metres."""
    jet_speed: float = 30.0
    """Mean speed of the initial jets in m/s."""
    eddy_speed: float = 10.0
    """Root-mean-square speed of the initial eddies in m/s."""
    damping_time: float = 12.0
    """E-folding time of hyperdiffusion at the highest degree in hours; 1.33 at 255 in The Well."""
    radius: float = 6.37122e6
    """Radius of the planet in metres."""
    rotation: float = 7.292e-5
    """Angular velocity of the planet in 1/s."""
    gravity: float = 9.80616
    """Gravitational acceleration in m/s²."""
    courant: float = 2.2
    """Courant number: wavenumber times wave speed times time step; stable up to 2.8."""
    portion_size: int = 2
    """Trajectories solved at a time, each in its own thread."""

    suffix = ""

    def __post_init__(self) -> None:
        """Validates all parameters."""
        if self.size < 8 or self.size % 2:
            raise ValueError(f"`size` must be even and at least 8, got size={self.size}.")
        if not 2 <= self.max_degree < self.size:
            raise ValueError(
                "`max_degree` must be at least 2 and below `size`, "
                f"got max_degree={self.max_degree}, size={self.size}."
            )
        if min(self.num_trajectories, self.num_frames, self.portion_size) < 1:
            raise ValueError(
                "`num_trajectories`, `num_frames` and `portion_size` must be at least 1, got "
                f"{self.num_trajectories}, {self.num_frames} and {self.portion_size}."
            )
        if not 0 < self.courant <= 2.5:
            raise ValueError(f"`courant` must be positive and at most 2.5, got {self.courant}.")
        positive = ("hours_per_frame", "calming_time", "day", "year", "damping_time")
        for name in (*positive, "mean_depth", "radius", "gravity"):
            if not getattr(self, name) > 0:
                raise ValueError(f"`{name}` must be positive, got {getattr(self, name)}.")
        for name in ("seed", "burn_in", "mountains", "jet_speed", "eddy_speed"):
            if getattr(self, name) < 0:
                raise ValueError(f"`{name}` must not be negative, got {getattr(self, name)}.")

    def solve(self, trajectories: range) -> Portion:
        """Returns `height` and `velocity` (trajectories, times, latitudes, longitudes, ...)."""
        planet = self.planet()
        height = np.empty((len(trajectories), self.num_frames, self.size, 2 * self.size), "f4")
        velocity = np.empty((*height.shape, 2), "f4")
        # The transforms release the interpreter lock; each trajectory fills its own slice.
        with ThreadPoolExecutor(torch.get_num_threads()) as threads, _stop_event() as stop:
            list(threads.map(partial(self._fill, planet, stop), trajectories, height, velocity))
        return {"height": height, "velocity": velocity}

    def write(self, path: Path, portions: Iterable[Portion]) -> None:
        """Writes a folder in the layout of The Well, with one file per trajectory."""
        path.mkdir()
        stored = SphericalHarmonics(self.max_degree, "centers", self.size)
        numbers = iter(range(self.num_trajectories))
        for portion in portions:
            for height, velocity in zip(portion["height"], portion["velocity"], strict=True):
                write_well(
                    path / f"planetswe_{next(numbers):03d}.hdf5",
                    name="planetswe",
                    axes={"theta": stored.theta, "phi": stored.phi},
                    periodic=(False, True),
                    time=self.times(),
                    t0={"height": height[None]},
                    t1={"velocity": velocity[None]},
                    units={"height": "m", "velocity": "m s-1", "time": "h"},
                    grid_type="equiangular",
                )

    def times(self) -> np.ndarray:
        """Returns the times of the frames in hours since the start of the spin-up."""
        return self.burn_in + self.hours_per_frame * np.arange(self.num_frames)

    def planet(self) -> RotatingShallowWater:
        """Returns the equations that all trajectories share."""
        harmonics = SphericalHarmonics(self.max_degree)
        return RotatingShallowWater(
            harmonics,
            radius=self.radius,
            gravity=self.gravity,
            mean_depth=self.mean_depth,
            coriolis=coriolis_parameter(harmonics, self.rotation),
            mountains=self.mountain_heights(harmonics),
            damping=1 / (self.damping_time * HOUR),
        )

    def mountain_heights(self, harmonics: SphericalHarmonics) -> Field:
        """Returns random topography, the positive part of a smooth field, from `seed` only."""
        initial = SphericalHarmonics(INITIAL_DEGREE)
        random = np.random.default_rng((self.seed, 0))
        smooth = np.exp(-((initial.degree / MOUNTAIN_DEGREE) ** 2.0))
        field = initial.field(_normal(random, initial) * smooth * (initial.degree > 0))
        ridges = initial.coefficients(np.maximum(field, 0.0) ** 2) * smooth
        scale = self.mountains / initial.field(ridges).max()
        return harmonics.field(harmonics.truncated(ridges)) * scale

    def initial_vorticity(self, number: int) -> Coefficients:
        """Returns a random jet in each hemisphere plus eddies, from `seed` and `number` only."""
        initial = SphericalHarmonics(INITIAL_DEGREE)
        random = np.random.default_rng((self.seed, 1, number))
        latitude = np.rad2deg(math.pi / 2 - initial.theta)
        east = np.zeros_like(latitude)
        for side in (-1, 1):
            middle, width = side * random.uniform(35, 50), random.uniform(12, 18)
            speed = self.jet_speed * random.uniform(0.7, 1.3)
            east += speed * np.exp(-(((latitude - middle) / width) ** 2)) * np.sin(initial.theta)
        wind = np.stack([np.zeros(initial.shape), np.repeat(east[:, None], initial.shape[1], 1)])
        jets, _ = initial.curl_and_divergence(wind)
        ratio = initial.degree / EDDY_DEGREE
        # Energy per degree is mean square vorticity / 2l(l+1), summed over 2l + 1 orders.
        energy = ratio**2 / (1 + ratio**5)
        fraction = energy[: INITIAL_DEGREE + 1] / energy[: INITIAL_DEGREE + 1].sum()
        variance = fraction[initial.degree] * -initial.laplacian / (2 * initial.degree + 1)
        eddies = _normal(random, initial) * np.sqrt(4 * math.pi * variance) * self.eddy_speed
        return (jets + eddies) / self.radius

    def heating(self, harmonics: SphericalHarmonics, time: float) -> Coefficients:
        """Returns the height forcing in m/s at a time in seconds."""
        latitude = math.pi / 2 - harmonics.theta
        noon = self.declination * math.sin(2 * math.pi * time / (self.year * HOUR))
        profile = np.exp(-(((latitude - noon) / (math.pi / 2)) ** 2)) * self.forcing / HOUR
        angle = 2 * math.pi * time / (self.day * HOUR)
        return harmonics.first_order(profile) * complex(math.cos(angle), -math.sin(angle))

    def forcing_tendency(self, harmonics: SphericalHarmonics, time: float, state: State) -> State:
        """Returns the tendency per second of the height forcing and the divergence damping."""
        damping = max(0.0, 1 - time / (self.burn_in * HOUR)) if self.burn_in else 0.0
        rate = np.zeros_like(state)
        rate[1] = state[1] * (-damping / (self.calming_time * HOUR))
        rate[2] = self.heating(harmonics, time)
        return rate

    def _fill(
        self,
        planet: RotatingShallowWater,
        stop: Event,
        number: int,
        height: np.ndarray,
        velocity: np.ndarray,
    ) -> None:
        """Solves a trajectory into `height` and `velocity`, with shorter steps if it blows up."""

        def source(time: float, state: State) -> State:
            if stop.is_set():
                raise CancelledError
            return self.forcing_tendency(planet.harmonics, time, state)

        stored = SphericalHarmonics(self.max_degree, "centers", self.size)
        start = planet.balanced(planet.harmonics.truncated(self.initial_vorticity(number)))
        courants = [self.courant / 2**attempt for attempt in range(4)]
        for courant in courants:
            for frame, state in enumerate(self._states(planet, start, source, courant)):
                if not math.isfinite(planet.fastest_wave(state)):
                    break
                height[frame] = stored.field(state[2])
                velocity[frame] = np.moveaxis(planet.wind(state, stored), 0, -1)
            else:
                return
        raise BlowUpError(
            f"Trajectory {number} blew up even with courant={courants[-1]:g}. "
            "Lower `jet_speed`, `eddy_speed`, `mountains` or `damping_time`."
        )

    def _states(
        self, planet: RotatingShallowWater, state: State, source: Source, courant: float
    ) -> Iterator[State]:
        """Yields the state at each frame."""
        now = 0.0
        for time in self.times() * HOUR:
            state = advance(state, planet, time - now, start=now, source=source, courant=courant)
            now = time
            yield state


PRESETS = {
    "quick": ShallowWaterSphere(),
    "default": ShallowWaterSphere(
        size=256, max_degree=170, damping_time=6.7, num_trajectories=20, num_frames=48
    ),
    "paper": ShallowWaterSphere(
        size=256,
        max_degree=255,
        damping_time=1.33,
        num_trajectories=40,
        num_frames=3024,
        hours_per_frame=1.0,
        burn_in=504.0,
    ),
}
"""Presets of `gpo data make planetswe`."""


@contextmanager
def _stop_event() -> Iterator[Event]:
    """Yields an event that stops the other threads after an error or an interrupt."""
    event = Event()
    try:
        yield event
    except BaseException:
        event.set()
        raise


def _normal(random: np.random.Generator, harmonics: SphericalHarmonics) -> Coefficients:
    """Returns random coefficients of mean square one; those of order 0 are real."""
    real, imaginary = random.standard_normal((2, len(harmonics.degree)))
    return np.where(harmonics.order == 0, real, (real + 1j * imaginary) / math.sqrt(2))
