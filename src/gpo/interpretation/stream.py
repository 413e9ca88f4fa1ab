r"""The flow without divergence that has a given vorticity: on a torus, and on the whole sphere.

$u=\partial_y\psi$, $v=-\partial_x\psi$ with $\Delta\psi=-\omega$. On the sphere $\psi$ is a sum of
spherical harmonics, fitted by least squares along every meridian, so that any latitudes will do.
"""

import numpy as np
from jaxtyping import Float

from gpo.data.geometry import Geometry

EVEN = 1e-3
"""How much, relatively, the gaps between evenly spaced sites may differ."""
RESOLVED = 0.6
"""Highest degree of a harmonic, in numbers of latitudes: more would not be told apart."""


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
