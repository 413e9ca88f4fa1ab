r"""Shallow water on a rotating sphere, in vorticity-divergence form.

With the depth $D=H+h-b$ over topography $b$, the absolute vorticity $\eta=\zeta+f$ and the energy
$E=gh+\tfrac12|u|^2$ (Williamson et al. 1992, section 2):

$\partial_t\zeta=-\nabla\cdot(\eta u)$,
$\partial_t\delta=k\cdot\nabla\times(\eta u)-\Delta E$,
$\partial_t h=-\nabla\cdot(Du)+F$, each with $-\nu\Delta^2$ on the right.

Products are formed on Gaussian latitudes, where their projection is exact. The time integration is
Runge-Kutta of fourth order with an integrating factor for the damping.
"""

import math
from collections.abc import Callable

import numpy as np
from jaxtyping import Complex

from gpo_bench.solvers.spherical_harmonics import Coefficients, Field, SphericalHarmonics, Vector

State = Complex[np.ndarray, "3 modes"]
"""Vorticity, divergence (both 1/s) and the deviation of the surface height from its mean (m)."""
Source = Callable[[float, State], State]
"""Returns a further tendency of the state per second from the time in seconds and the state."""
STEPS_PER_SPEED_CHECK = 8
"""Number of steps between computations of the largest wave speed."""
MAX_SPEED_RATIO = 100
"""Speed, in units of gravity waves at rest, above which a flow counts as blown up."""


class RotatingShallowWater:
    """The equations of one planet, with all constants of the tendency.

    Args:
        harmonics: Transforms on Gaussian latitudes.
        radius: Radius in metres.
        gravity: Gravitational acceleration in m/s².
        mean_depth: Mean surface height H above b = 0, in metres.
        coriolis: Coriolis parameter f on the grid, in 1/s.
        mountains: Topography b on the grid, in metres; None for b = 0.
        damping: Damping rate of the highest degree in 1/s; it scales with $l^2(l+1)^2$.
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
        topography = np.zeros(harmonics.shape) if mountains is None else mountains
        self.depth_at_rest = mean_depth - topography
        relative = harmonics.laplacian / harmonics.laplacian[harmonics.max_degree]
        self.damping = damping * relative**2

    def wind(self, state: State, harmonics: SphericalHarmonics | None = None) -> Vector:
        """Returns southward and eastward velocity in m/s, on this grid or on another one."""
        return (harmonics or self.harmonics).vector(state[0], state[1]) * self.radius

    def tendency(self, state: State) -> State:
        """Returns the rate of change of the state without damping and sources."""
        wind = self.wind(state)
        divergence, curl, energy = self._momentum(state[0], wind)
        energy += self.gravity * state[2]
        flux = wind * (self.depth_at_rest + self.harmonics.field(state[2]))
        outflow = self.harmonics.curl_and_divergence(flux)[1] / self.radius
        laplacian = self.harmonics.laplacian / self.radius**2
        return np.stack([-divergence, curl - laplacian * energy, -outflow])

    def balanced(self, vorticity: Coefficients) -> State:
        """Returns the state of this vorticity whose divergence and divergence tendency are zero."""
        zeros = np.zeros_like(vorticity)
        wind = self.wind(np.stack([vorticity, zeros, zeros]))
        _, curl, energy = self._momentum(vorticity, wind)
        height, has_gradient = zeros.copy(), self.harmonics.degree > 0
        laplacian = self.harmonics.laplacian[has_gradient] / self.radius**2
        height[has_gradient] = (
            curl[has_gradient] / laplacian - energy[has_gradient]
        ) / self.gravity
        return np.stack([vorticity, zeros, height])

    def fastest_wave(self, state: State) -> float:
        """Returns the largest sum of wind and gravity wave speed; NaN if the flow has blown up."""
        depth = self.depth_at_rest + self.harmonics.field(state[2])
        if not depth.min() > 0:
            return math.nan
        south, east = self.wind(state)
        fastest = float((np.sqrt(self.gravity * depth) + np.hypot(south, east)).max())
        at_rest = math.sqrt(self.gravity * self.depth_at_rest.max())
        return fastest if fastest < MAX_SPEED_RATIO * at_rest else math.nan

    def _momentum(
        self, vorticity: Coefficients, wind: Vector
    ) -> tuple[Coefficients, Coefficients, Coefficients]:
        """Returns divergence and curl of the absolute vorticity flux, and kinetic energy."""
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
    """Returns the state after `duration` seconds; NaN if the flow blows up.

    Args:
        state: Initial state.
        flow: The equations.
        duration: Time to integrate, in seconds.
        start: Initial time in seconds, for `source`.
        source: Further tendency; None for none.
        courant: Largest wavenumber times largest wave speed times time step; stable up to 2.8.
        step: Fixed time step in seconds, which overrides `courant`.
    """
    wavenumber = math.sqrt(-flow.harmonics.laplacian.min()) / flow.radius
    remaining = duration
    while remaining > 1e-9 * duration:
        longest = step or courant / (wavenumber * flow.fastest_wave(state))
        if not math.isfinite(longest):
            return state * math.nan
        count = max(1, math.ceil(remaining / longest - 1e-9))
        for _ in range(min(count, STEPS_PER_SPEED_CHECK)):
            time = start + duration - remaining
            # The next speed check detects an overflow.
            with np.errstate(over="ignore", invalid="ignore"):
                state = runge_kutta_step(state, remaining / count, flow, time, source)
            remaining -= remaining / count
            count -= 1
    return state


def runge_kutta_step(
    state: State, step: float, flow: RotatingShallowWater, time: float, source: Source | None
) -> State:
    """Returns the state after one step; the integrating factor makes damping exact."""
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
    r"""Returns $f=2\Omega\cos\theta'$, where $\theta'$ is the angle from the axis of rotation.

    Args:
        harmonics: The grid.
        rotation: Angular velocity in 1/s.
        tilt: Angle between the axis of rotation and the grid's pole, towards longitude π.
    """
    theta, phi = harmonics.theta[:, None], harmonics.phi
    cosine = np.cos(theta) * math.cos(tilt) - np.sin(theta) * np.cos(phi) * math.sin(tilt)
    return 2 * rotation * cosine
