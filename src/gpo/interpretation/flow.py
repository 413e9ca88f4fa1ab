"""The velocity of an input field and its vorticity, where variables tell which they are.

A velocity is asked for by name (`--velocity`), known by its names, known by its CF standard names, or
the flow that a vorticity has, on a torus or the whole sphere (`stream.py`).
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from gpo.data.forcings import Variable
from gpo.data.geometry import UPWARDS, Geometry
from gpo.data.units import canonical, conversion
from gpo.interpretation.derivatives import LocalFits

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
"""What may stand before _x, _y and _z in the names of the components of a velocity."""
VORTICITIES = ("vorticity", "relative_vorticity", "atmosphere_relative_vorticity", "ocean_relative_vorticity")  # fmt: skip
"""Names of a vorticity, the latter two in the CF conventions."""
EARTH_RADIUS = 6_371_000.0
"""Of a sphere whose velocities are given in metres per second."""
EVEN = 1e-3
"""How much, relatively, the gaps between evenly spaced sites may differ."""
RESOLVED = 0.6
"""Highest degree of a harmonic, in numbers of latitudes: more would not be told apart."""


@dataclass(frozen=True)
class Flow:
    """How the velocity is found in an input."""

    geometry: Geometry
    channels: tuple[int, ...]
    """Variables it is made of: the components along the axes, or a vorticity alone."""
    signs: tuple[int, ...]
    """Of the components; empty for a vorticity."""
    known_by: str
    """In words."""
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
        """Returns what turns it into lengths of the domain, on the sphere radii, per unit of time.

        None where units do not tell. Where neither sites nor velocity nor time have units, they
        are taken to belong together.
        """
        time = canonical(time_units)
        if not self.signs:
            rate = canonical(self.units).removesuffix("-1")
            found = conversion(time, rate) if time and rate else (1.0, 0.0)
            return None if found is None else found[0]
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
    """The variables of an input, among which the velocity is looked for."""

    variables: tuple[Variable, ...]
    chosen: tuple[str, ...] = ()
    """Names of the components that a user says are the velocity."""

    @classmethod
    def named(cls, names: Sequence[str]) -> "FlowVariables":
        """Takes variables of which nothing but the names is known."""
        return cls(tuple(Variable(name) for name in names))

    def on(self, geometry: Geometry) -> Flow | None:
        """Returns how the velocity is found on these sites; None where no variables tell."""
        return find_flow(geometry, self.variables, self.chosen)


def find_flow(
    geometry: Geometry, variables: Sequence[Variable], chosen: Sequence[str] = ()
) -> Flow | None:
    """Returns how the velocity is found; None where no variables tell.

    Args:
        geometry: The sites.
        variables: Those of the input, in their order.
        chosen: Names of the components along x, y, z, or to the east and north; found where none
            are given.
    """
    num_axes = geometry.domain.dim - geometry.domain.is_sphere
    names = [variable.name for variable in variables]
    lower = [name.lower() for name in names]
    if chosen:
        strange = [name for name in chosen if name not in names]
        if strange or len(chosen) != num_axes:
            raise ValueError(
                f"--velocity must name {num_axes} of the variables that a model is given, one along "
                f"every axis, got {' '.join(chosen)}. There are {', '.join(names)}."
            )
        return _of_components(geometry, variables, [names.index(name) for name in chosen], "--velocity")  # fmt: skip
    if num_axes > 1:
        components = _by_name(lower, num_axes)
        if components is not None:
            return _of_components(geometry, variables, components, "name")
        components = _by_standard_name([one.standard_name for one in variables], num_axes)
        if components is not None:
            return _of_components(geometry, variables, components, "CF standard name")
    if geometry.domain.is_sphere and {"velocity_theta", "velocity_phi"} <= {*lower}:
        # Theta is the colatitude, which grows to the south.
        east, south = lower.index("velocity_phi"), lower.index("velocity_theta")
        known = f"{names[east]}, {names[south]} (name)"
        return Flow(geometry, (east, south), (1, -1), known, variables[east].units)
    for number, variable in enumerate(variables):
        if {lower[number], variable.standard_name} & {*VORTICITIES}:
            known = f"{variable.name} (flow of the vorticity)"
            if has_stream_function(geometry):
                return Flow(geometry, (number,), (), known, variable.units)
    return None


def velocity(
    geometry: Geometry, raw: Float[np.ndarray, "points variables"], names: Sequence[str]
) -> Float[np.ndarray, "points axes"] | None:
    """Returns the velocity along the axes, east and north on the sphere; None where none is known.

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
    """Returns the size of the vorticity, given or of a known velocity; None where neither is."""
    for number, name in enumerate(names):
        if name.lower() in VORTICITIES:
            return np.abs(raw[:, number])
    if flow is None:
        return None
    if not flow.signs:
        return np.abs(raw[:, flow.channels[0]])
    # As a vector of space, so that on the sphere its direction may turn from site to site.
    moved = np.einsum("nad,na->nd", fits.directions, flow(raw))
    gradient = np.einsum("nad,nbd->nab", fits.gradient(moved), fits.directions)
    return np.linalg.norm(gradient - np.swapaxes(gradient, 1, 2), axis=(1, 2)) / np.sqrt(2)


def _of_components(
    geometry: Geometry, variables: Sequence[Variable], components: Sequence[int], how: str
) -> Flow:
    """Returns the flow of components along x, y and z, in the order of the axes of the sites."""
    names = ", ".join(variables[number].name for number in components)
    order = list(range(len(components)))
    if not geometry.domain.is_sphere:
        letters = [_letter(name) for name in geometry.axis_names]
        order = letters if sorted(letters) == order else order
    channels = tuple(components[number] for number in order)
    return Flow(geometry, channels, (1,) * len(channels), f"{names} ({how})", variables[components[0]].units)  # fmt: skip


def _letter(axis_name: str) -> int:
    """Returns 0 for an axis x, 1 for y, 2 for z, -1 where its name does not tell."""
    name = axis_name.lower()
    if name.startswith(UPWARDS):
        return 1
    return 0 if name.startswith(("x", "lon", "east")) else 2 if name.startswith("z") else -1


def _by_name(lower: Sequence[str], num_axes: int) -> list[int] | None:
    for components in VELOCITIES:
        if all(name and name in lower for name in components[:num_axes]):
            return [lower.index(name) for name in components[:num_axes]]
    for name in lower:
        stem = name.removesuffix("_x")
        rest = [f"{stem}_{axis}" for axis in "xyz"[:num_axes]]
        if stem != name and STEMS.fullmatch(stem) and all(one in lower for one in rest):
            return [lower.index(one) for one in rest]
    return None


def _by_standard_name(standard: Sequence[str], num_axes: int) -> list[int] | None:
    """Returns the components of a wind or a current by their names in the CF conventions."""
    for number, name in enumerate(standard):
        if "wind" not in name and "velocity" not in name:
            continue
        for east, north in (("eastward", "northward"), ("x_", "y_")):
            other = name.replace(east, north)
            if other == name or other not in standard:
                continue
            found = [number, standard.index(other)]
            upward = [k for k, one in enumerate(standard) if one.startswith("upward") and "velocity" in one]  # fmt: skip
            found += upward[: num_axes - 2]
            if len(found) == num_axes:
                return found
    return None


def has_stream_function(geometry: Geometry) -> bool:
    """Returns whether a vorticity on these sites is enough: a whole even torus, or a whole globe."""
    if len(geometry.axes) != 2 or geometry.is_masked.any():
        return False
    if geometry.domain.is_sphere:
        return geometry.wraps()[1] and _reaches_poles(geometry.axes[0])
    return all(geometry.domain.periodic) and _is_even(geometry)


def flow_of_vorticity(
    vorticity: Float[np.ndarray, " points"], geometry: Geometry
) -> Float[np.ndarray, "points 2"]:
    """Returns the velocity along the axes, lengths per time; on the sphere east and north, in radii.

    It has no divergence and, on the torus, no mean. Turned axes, y before x, are told by their names.
    """
    if geometry.domain.is_sphere:
        return _on_sphere(vorticity.reshape(geometry.grid_shape), *geometry.axes)
    sign = 1.0 if geometry.drawn_axes == (0, 1) else -1.0
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
    """Returns the flow at the sites; none at a pole itself, where east has no meaning."""
    turns = np.fft.rfft(values, axis=1)
    num_latitudes, num_longitudes = values.shape
    highest = min(int(RESOLVED * num_latitudes), (num_longitudes - 1) // 2)
    sine, cosine = np.sin(np.deg2rad(latitude)), np.cos(np.deg2rad(latitude))
    area = np.sqrt(np.maximum(cosine, 1e-6))[:, None]
    # Longitudes may run westwards.
    heading = float(np.sign(longitude[1] - longitude[0]))
    east, north = np.zeros_like(turns), np.zeros_like(turns)
    for order in range(highest + 1):
        harmonics, slopes = _legendre(order, highest, sine)
        degrees = np.arange(order, highest + 1)
        found = np.linalg.lstsq(area * harmonics, area * turns[:, order, None], rcond=None)[0][:, 0]
        # Vorticity is the Laplacian of this stream function, so that its sign is turned.
        stream = found * np.where(degrees > 0, -1.0 / np.maximum(degrees * (degrees + 1), 1), 0.0)
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


def _reaches_poles(latitude: np.ndarray) -> bool:
    gap = np.abs(np.diff(latitude)).max()
    return bool(latitude.min() < -90 + 1.1 * gap and latitude.max() > 90 - 1.1 * gap)


def _is_even(geometry: Geometry) -> bool:
    lengths = np.subtract(geometry.domain.upper, geometry.domain.lower)
    gaps = [np.diff(axis, append=axis[0] + length) for axis, length in zip(geometry.axes, lengths, strict=True)]  # fmt: skip
    return all(np.ptp(gap) < EVEN * abs(gap.mean()) for gap in gaps)
