r"""Velocity and vorticity of an input field.

A velocity is chosen by the user (`--velocity`), or identified by the names or CF standard names of
variables. Otherwise it is computed from a vorticity $\omega$ on a torus or the whole sphere, as the flow
without divergence $u=\partial_y\psi$, $v=-\partial_x\psi$ with $\Delta\psi=-\omega$. On the sphere $\psi$ is a sum of
spherical harmonics, fitted by least squares along every meridian, so any latitudes are allowed.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from gpo.data.dataset import FieldData, Variable
from gpo.data.geometry import UPWARDS, Geometry
from gpo.data.units import canonical, conversion
from gpo.evaluation.derivatives import LocalFits

VELOCITIES = (
    ("u", "v", "w"),
    ("vx", "vy", "vz"),
    ("ux", "uy", "uz"),
    ("u10", "v10", ""),
    ("u100", "v100", ""),
    ("10u", "10v", ""),
    ("100u", "100v", ""),
    ("ugos", "vgos", ""),
    ("uo", "vo", "wo"),
    ("ua", "va", ""),
    ("10m_u_component_of_wind", "10m_v_component_of_wind", ""),
    ("u_component_of_wind", "v_component_of_wind", ""),
)
"""Names of the components of a velocity, in lower case."""
STEMS = re.compile(r"(u|v|vel|velocity|wind|flow|current)(_?star)?")
"""Stems of names of velocity components that end in _x, _y and _z."""
VORTICITIES = ("vorticity", "relative_vorticity", "atmosphere_relative_vorticity", "ocean_relative_vorticity")  # fmt: skip
"""Names of a vorticity, the last two in the CF conventions."""
EARTH_RADIUS = 6_371_000.0
"""In metres, for spheres with velocities in metres per second."""
SPACING_TOLERANCE = 1e-3
"""Largest relative difference between the gaps of an evenly spaced axis."""
DEGREES_PER_LATITUDE = 0.6
"""Highest degree of a spherical harmonic over the number of latitudes, so that fits are well-posed."""


@dataclass(frozen=True)
class Flow:
    """Computes the velocity of an input from its variables."""

    geometry: Geometry
    channels: tuple[int, ...]
    """Numbers of the variables: the components along the axes, or a vorticity alone."""
    signs: tuple[int, ...]
    """Of the components; empty for a vorticity."""
    known_by: str
    """How it was identified, for `interpret.json`."""
    units: str
    """Of these variables."""

    def __call__(
        self, raw: Float[np.ndarray, "points variables"]
    ) -> Float[np.ndarray, "points axes"]:
        """Returns the velocity along the axes, east and north on the sphere."""
        if not self.signs:
            return flow_of_vorticity(raw[:, self.channels[0]], self.geometry)
        return raw[:, list(self.channels)] * np.array(self.signs)

    def lengths_per_time(self, time_units: str) -> float | None:
        """Returns the factor to lengths of the domain, on the sphere radii, per unit of time.

        None if the units are not known. If neither sites nor velocity nor time have units, they are
        assumed to be consistent.
        """
        time = canonical(time_units)
        if not self.signs:
            rate = canonical(self.units).removesuffix("-1")
            factors = conversion(time, rate) if time and rate else (1.0, 0.0)
            return None if factors is None else factors[0]
        is_sphere = self.geometry.domain.is_sphere
        lengths = {"m"} if is_sphere else {canonical(unit) for unit in self.geometry.axis_units}
        if not is_sphere and not {*lengths, self.units, time_units} - {"", "1"}:
            return 1.0
        speed, second = conversion(self.units, "m s-1"), conversion(time, "s")
        metre = conversion(lengths.pop(), "m") if len(lengths) == 1 else None
        if speed is None or second is None or metre is None:
            return None
        return speed[0] * second[0] / (EARTH_RADIUS if is_sphere else metre[0])


@dataclass(frozen=True)
class FlowVariables:
    """The variables of an input, which may include a velocity or a vorticity."""

    variables: tuple[Variable, ...]
    velocity: tuple[str, ...] = ()
    """Names of the components along x, y, z, or eastward and northward; identified if empty."""

    @classmethod
    def of(cls, data: FieldData, velocity: Sequence[str] = ()) -> "FlowVariables":
        """Returns the input variables of data, with the names of the velocity if they are known."""
        return cls(data.inputs, tuple(velocity))

    @classmethod
    def named(cls, names: Sequence[str]) -> "FlowVariables":
        """Makes variables that have nothing but names."""
        return cls(tuple(Variable(name) for name in names))

    def on(self, geometry: Geometry) -> Flow | None:
        """Returns the flow on these sites; None if no variables are identified as one."""
        num_axes = geometry.domain.dim - geometry.domain.is_sphere
        variables = self.variables
        names = [variable.name for variable in variables]
        lower = [name.lower() for name in names]
        if self.velocity:
            if len(self.velocity) != num_axes or not {*self.velocity} <= {*names}:
                raise ValueError(
                    f"--velocity must name {num_axes} of the input variables, one along every axis, "
                    f"got {' '.join(self.velocity)}. There are {', '.join(names)}."
                )
            return self._along_axes(geometry, [names.index(n) for n in self.velocity], "--velocity")
        if num_axes > 1:
            components = _by_name(lower, num_axes)
            if components is not None:
                return self._along_axes(geometry, components, "name")
            components = _by_standard_name([v.standard_name for v in variables], num_axes)
            if components is not None:
                return self._along_axes(geometry, components, "CF standard name")
        if geometry.domain.is_sphere and {"velocity_theta", "velocity_phi"} <= {*lower}:
            # Theta is the colatitude, which grows southwards.
            east, south = lower.index("velocity_phi"), lower.index("velocity_theta")
            known_by = f"{names[east]}, {names[south]} (name)"
            return Flow(geometry, (east, south), (1, -1), known_by, variables[east].units)
        for number, variable in enumerate(variables):
            is_vorticity = bool({lower[number], variable.standard_name} & {*VORTICITIES})
            if is_vorticity and has_stream_function(geometry):
                known_by = f"{variable.name} (flow of the vorticity)"
                return Flow(geometry, (number,), (), known_by, variable.units)
        return None

    def _along_axes(self, geometry: Geometry, components: Sequence[int], how: str) -> Flow:
        """Returns the flow of components along x, y and z, in the order of the axes of the sites."""
        names = ", ".join(self.variables[number].name for number in components)
        order = list(range(len(components)))
        if not geometry.domain.is_sphere:
            axes = [_axis_number(name) for name in geometry.axis_names]
            order = axes if sorted(axes) == order else order
        channels = tuple(components[number] for number in order)
        units = self.variables[components[0]].units
        return Flow(geometry, channels, (1,) * len(channels), f"{names} ({how})", units)


def velocity(
    geometry: Geometry, raw: Float[np.ndarray, "points variables"], names: Sequence[str]
) -> Float[np.ndarray, "points axes"] | None:
    """Returns the velocity along the axes, east and north on the sphere; None if it is unknown.

    Args:
        geometry: The sites.
        raw: The input in its units.
        names: Names of the variables.
    """
    flow = FlowVariables.named(names).on(geometry)
    return None if flow is None else flow(raw)


def vorticity(
    fits: LocalFits,
    flow: Flow | None,
    raw: Float[np.ndarray, "points variables"],
    names: Sequence[str],
) -> Float[np.ndarray, " points"] | None:
    """Returns the magnitude of the vorticity, a variable or computed; None if it is unknown."""
    for number, name in enumerate(names):
        if name.lower() in VORTICITIES:
            return np.abs(raw[:, number])
    if flow is None:
        return None
    if not flow.signs:
        return np.abs(raw[:, flow.channels[0]])
    # Cartesian, because east and north change from site to site on the sphere.
    vectors = np.einsum("nad,na->nd", fits.directions, flow(raw))
    gradient = np.einsum("nad,nbd->nab", fits.gradient(vectors), fits.directions)
    return np.linalg.norm(gradient - np.swapaxes(gradient, 1, 2), axis=(1, 2)) / np.sqrt(2)


def _axis_number(axis_name: str) -> int:
    """Returns 0 for an axis x, 1 for y, 2 for z, -1 for other names."""
    name = axis_name.lower()
    if name.startswith(UPWARDS):
        return 1
    return 0 if name.startswith(("x", "lon", "east")) else 2 if name.startswith("z") else -1


def _by_name(lower: Sequence[str], num_axes: int) -> list[int] | None:
    candidates = [names[:num_axes] for names in VELOCITIES]
    for name in lower:
        stem = name.removesuffix("_x")
        if stem != name and STEMS.fullmatch(stem):
            candidates.append(tuple(f"{stem}_{axis}" for axis in "xyz"[:num_axes]))
    for names in candidates:
        if all(name and name in lower for name in names):
            return [lower.index(name) for name in names]
    return None


def _by_standard_name(standard: Sequence[str], num_axes: int) -> list[int] | None:
    """Returns the components of a wind or a current by their CF standard names."""
    upward = [n for n, name in enumerate(standard) if name.startswith("upward") and "velocity" in name]  # fmt: skip
    for number, name in enumerate(standard):
        if "wind" not in name and "velocity" not in name:
            continue
        for east, north in (("eastward", "northward"), ("x_", "y_")):
            other = name.replace(east, north)
            if other == name or other not in standard:
                continue
            components = [number, standard.index(other), *upward[: num_axes - 2]]
            if len(components) == num_axes:
                return components
    return None


def has_stream_function(geometry: Geometry) -> bool:
    """Returns whether a vorticity determines the flow: on an even torus or a complete globe."""
    if len(geometry.axes) != 2 or geometry.is_masked.any():
        return False
    if geometry.domain.is_sphere:
        latitude = geometry.axes[0]
        gap = np.abs(np.diff(latitude)).max()
        reaches_poles = latitude.min() < -90 + 1.1 * gap and latitude.max() > 90 - 1.1 * gap
        return bool(geometry.wraps()[1] and reaches_poles)
    lengths = np.subtract(geometry.domain.upper, geometry.domain.lower)
    pairs = zip(geometry.axes, lengths, strict=True)
    gaps = [np.diff(axis, append=axis[0] + length) for axis, length in pairs]
    is_even = all(np.ptp(gap) < SPACING_TOLERANCE * abs(gap.mean()) for gap in gaps)
    return all(geometry.domain.periodic) and is_even


def flow_of_vorticity(
    vorticity: Float[np.ndarray, " points"], geometry: Geometry
) -> Float[np.ndarray, "points 2"]:
    """Returns the velocity along the axes, lengths per time; on the sphere east and north, in radii.

    It has no divergence and, on the torus, no mean. The names of the axes tell if y comes before x.
    """
    if geometry.domain.is_sphere:
        return _on_sphere(vorticity.reshape(geometry.grid_shape), *geometry.axes)
    sign = 1.0 if geometry.plot_axes == (0, 1) else -1.0
    return sign * _on_torus(vorticity.reshape(geometry.grid_shape), geometry)


def _on_torus(values: np.ndarray, geometry: Geometry) -> np.ndarray:
    lengths = np.subtract(geometry.domain.upper, geometry.domain.lower)
    numbers = [2 * np.pi * np.fft.fftfreq(n, length / n) for n, length in zip(values.shape, lengths, strict=True)]  # fmt: skip
    along_x, along_y = np.meshgrid(*numbers, indexing="ij")
    squared = along_x**2 + along_y**2
    stream = np.fft.fft2(values) / np.where(squared > 0, squared, np.inf)
    parts = np.fft.ifft2(1j * along_y * stream), np.fft.ifft2(-1j * along_x * stream)
    return np.stack([part.real.ravel() for part in parts], -1)


def _on_sphere(values: np.ndarray, latitude: np.ndarray, longitude: np.ndarray) -> np.ndarray:
    """Returns the flow at the sites; zero at a pole, where east is undefined."""
    spectrum = np.fft.rfft(values, axis=1)
    num_latitudes, num_longitudes = values.shape
    highest = min(int(DEGREES_PER_LATITUDE * num_latitudes), (num_longitudes - 1) // 2)
    sine, cosine = np.sin(np.deg2rad(latitude)), np.cos(np.deg2rad(latitude))
    area = np.sqrt(np.maximum(cosine, 1e-6))[:, None]
    # Longitudes may decrease.
    heading = float(np.sign(longitude[1] - longitude[0]))
    east, north = np.zeros_like(spectrum), np.zeros_like(spectrum)
    for order in range(highest + 1):
        harmonics, slopes = _legendre(order, highest, sine)
        degrees = np.arange(order, highest + 1)
        target = area * spectrum[:, order, None]
        coefficients = np.linalg.lstsq(area * harmonics, target, rcond=None)[0][:, 0]
        # On the sphere the vorticity is the Laplacian of the stream function, of opposite sign.
        inverse = np.where(degrees > 0, -1.0 / np.maximum(degrees * (degrees + 1), 1), 0.0)
        stream = coefficients * inverse
        east[:, order] = -slopes @ stream
        north[:, order] = 1j * heading * order * (harmonics @ stream)
    is_pole = cosine < 1e-9
    inverse = np.where(is_pole, 0.0, 1 / np.where(is_pole, 1.0, cosine))[:, None]
    parts = [np.fft.irfft(part * inverse, num_longitudes, axis=1) for part in (east, north)]
    return np.stack([part.ravel() for part in parts], -1)


def _legendre(order: int, highest: int, sine: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    r"""Returns normalised $P_l^m(x)$ and $(1-x^2)\,\partial_xP_l^m$ for $l=m,\dots$, latitudes first."""
    start = np.ones_like(sine) * np.sqrt(0.5)
    for number in range(1, order + 1):
        start = start * np.sqrt((2 * number + 1) / (2 * number) * (1 - sine**2))
    rows, before = [start], np.zeros_like(sine)
    for degree in range(order + 1, highest + 1):
        ratio = np.sqrt((4 * degree**2 - 1) / (degree**2 - order**2))
        lower = (degree - 1) ** 2
        past = np.sqrt((lower - order**2) / (4 * lower - 1)) if degree > order + 1 else 0.0
        rows.append(ratio * (sine * rows[-1] - past * before))
        before = rows[-2]
    slopes = [-order * sine * start]
    for degree, row, lower in zip(range(order + 1, highest + 1), rows[1:], rows, strict=False):
        factor = np.sqrt((2 * degree + 1) / (2 * degree - 1) * (degree**2 - order**2))
        slopes.append(-degree * sine * row + factor * lower)
    return np.stack(rows, -1), np.stack(slopes, -1)
