r"""A shallow layer of fluid on a rotating sphere, in vorticity-divergence form.

With the depth $D=H+h-b$ over mountains $b$, the absolute vorticity $\eta=\zeta+f$ and the
energy $E=gh+\tfrac12|u|^2$ (Williamson et al. 1992, section 2):

$\partial_t\zeta=-\nabla\cdot(\eta u)$,
$\partial_t\delta=k\cdot\nabla\times(\eta u)-\Delta E$,
$\partial_t h=-\nabla\cdot(Du)+F$, each with $-\nu\Delta^2$ on the right.

Products are formed on Gaussian latitudes, where their projection is exact; time goes on by
Runge-Kutta of fourth order, with the integrating factor of the damping.
"""

import math
from collections.abc import Callable

import numpy as np
from jaxtyping import Complex

from gpo_bench.solvers.spherical_harmonics import Coefficients, Field, SphericalHarmonics, Vector

State = Complex[np.ndarray, "3 modes"]
"""Vorticity, divergence (both 1/s) and the height of the surface over its mean (m)."""
Source = Callable[[float, State], State]
"""Further tendency of the state per second, as a function of the time in seconds and the state."""
STEPS_PER_LOOK = 8
"""Steps after which the fastest wave is looked up again."""
BEYOND_REASON = 100
"""How many times faster than waves at rest no flow is."""


class RotatingShallowWater:
    """One planet: everything that the tendency needs, computed once.

    Args:
        harmonics: The transforms, on Gaussian latitudes.
        radius: In metres.
        gravity: In m/s².
        mean_depth: Mean height H of the surface over the plain, in metres.
        coriolis: Coriolis parameter f on the grid, in 1/s.
        mountains: Height b of the ground on the grid, in metres; a plain when not given.
        damping: Rate at which the highest degree is damped, in 1/s; lower ones by $l^2(l+1)^2$.
    """

    def __init__(
        self,
        harmonics: SphericalHarmonics,
        *,
        radius: float,
        gravity: float,
        mean_depth: float,
        coriolis: Field,
        mountains: Field | None = None,
        damping: float = 0.0,
    ) -> None:
        self.harmonics = harmonics
        self.radius = radius
        self.gravity = gravity
        self.coriolis = coriolis
        ground = np.zeros(harmonics.shape) if mountains is None else mountains
        self.depth_at_rest = mean_depth - ground
        relative = harmonics.laplacian / harmonics.laplacian[harmonics.max_degree]
        self.damping = damping * relative**2

    def wind(self, state: State, harmonics: SphericalHarmonics | None = None) -> Vector:
        """Returns southward and eastward velocity in m/s, on the own grid or on another one."""
        return (harmonics or self.harmonics).vector(state[0], state[1]) * self.radius

    def tendency(self, state: State) -> State:
        """Returns the rate of change without damping and sources."""
        wind = self.wind(state)
        swirl, compression, energy = self._momentum(state[0], wind)
        energy += self.gravity * state[2]
        flux = wind * (self.depth_at_rest + self.harmonics.field(state[2]))
        outflow = self.harmonics.curl_and_divergence(flux)[1] / self.radius
        laplacian = self.harmonics.laplacian / self.radius**2
        return np.stack([-swirl, compression - laplacian * energy, -outflow])

    def balanced(self, vorticity: Coefficients) -> State:
        """Returns the flow without divergence, nor any in the making, with this vorticity."""
        still = np.zeros_like(vorticity)
        wind = self.wind(np.stack([vorticity, still, still]))
        _, compression, energy = self._momentum(vorticity, wind)
        height, inner = still.copy(), self.harmonics.degree > 0
        laplacian = self.harmonics.laplacian[inner] / self.radius**2
        height[inner] = (compression[inner] / laplacian - energy[inner]) / self.gravity
        return np.stack([vorticity, still, height])

    def fastest_wave(self, state: State) -> float:
        """Returns the largest speed of wind plus gravity waves; NaN where the flow has blown up."""
        depth = self.depth_at_rest + self.harmonics.field(state[2])
        if not depth.min() > 0:
            return math.nan
        south, east = self.wind(state)
        fastest = float((np.sqrt(self.gravity * depth) + np.hypot(south, east)).max())
        at_rest = math.sqrt(self.gravity * self.depth_at_rest.max())
        return fastest if fastest < BEYOND_REASON * at_rest else math.nan

    def _momentum(
        self, vorticity: Coefficients, wind: Vector
    ) -> tuple[Coefficients, Coefficients, Coefficients]:
        """Returns divergence and curl of the flux of absolute vorticity, and kinetic energy."""
        absolute = self.harmonics.field(vorticity) + self.coriolis
        curl, divergence = self.harmonics.curl_and_divergence(wind * absolute)
        kinetic = self.harmonics.coefficients((wind[0] ** 2 + wind[1] ** 2) / 2)
        return divergence / self.radius, curl / self.radius, kinetic


def advance(
    state: State,
    flow: RotatingShallowWater,
    duration: float,
    *,
    start: float = 0.0,
    source: Source | None = None,
    courant: float = 1.5,
    step: float | None = None,
) -> State:
    """Returns the state after `duration` seconds; NaN where the flow blows up.

    Args:
        state: The state now.
        flow: The planet.
        duration: How long to go on.
        start: What time it is now, for the source.
        source: What changes the state from outside; nothing when not given.
        courant: Highest wavenumber times fastest wave times step; stability ends at 2.8.
        step: A fixed step instead, for measuring the order of convergence.
    """
    wavenumber = math.sqrt(-flow.harmonics.laplacian.min()) / flow.radius
    remaining = duration
    while remaining > 1e-9 * duration:
        longest = step or courant / (wavenumber * flow.fastest_wave(state))
        if not math.isfinite(longest):
            return state * math.nan
        count = max(1, math.ceil(remaining / longest - 1e-9))
        for _ in range(min(count, STEPS_PER_LOOK)):
            time = start + duration - remaining
            # What overflows is seen at the next look.
            with np.errstate(over="ignore", invalid="ignore"):
                state = runge_kutta_step(state, remaining / count, flow, time, source)
            remaining -= remaining / count
            count -= 1
    return state


def runge_kutta_step(
    state: State, step: float, flow: RotatingShallowWater, time: float, source: Source | None
) -> State:
    """Advances by one step; damping is exact through the integrating factor."""
    half = np.exp(-flow.damping * (step / 2))

    def tendency(state: State, time: float) -> State:
        rate = flow.tendency(state)
        return rate if source is None else rate + source(time, state)

    middle = time + step / 2
    decayed = half * state
    first = half * tendency(state, time)
    second = tendency(decayed + (step / 2) * first, middle)
    third = tendency(decayed + (step / 2) * second, middle)
    fourth = tendency(half * (decayed + step * third), time + step)
    return half * (decayed + step / 6 * (first + 2 * (second + third))) + step / 6 * fourth


def coriolis_parameter(harmonics: SphericalHarmonics, rotation: float, tilt: float = 0.0) -> Field:
    r"""Returns $f=2\Omega\cos\theta'$ with the angle $\theta'$ from the axis of rotation.

    Args:
        harmonics: The grid.
        rotation: Angular velocity, in 1/s.
        tilt: Angle of the axis of rotation from the grid's pole, towards longitude π.
    """
    theta, phi = harmonics.theta[:, None], harmonics.phi
    along = np.cos(theta) * math.cos(tilt) - np.sin(theta) * np.cos(phi) * math.sin(tilt)
    return 2 * rotation * along
