"""The velocity of an input field and its vorticity, where names tell which variables they are."""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Float

from gpo.data.geometry import Geometry
from gpo.interpretation.derivatives import LocalFits

VELOCITIES = (
    ("u", "v", "w"),
    ("vx", "vy", "vz"),
    ("ux", "uy", "uz"),
    ("velocity_x", "velocity_y", "velocity_z"),
    ("u10", "v10", ""),
    ("10u", "10v", ""),
    ("10m_u_component_of_wind", "10m_v_component_of_wind", ""),
    ("u_component_of_wind", "v_component_of_wind", ""),
)
"""Names of the components of a velocity, in lower case."""
EVEN = 1e-3
"""How much, relatively, the gaps between evenly spaced sites may differ."""


def velocity(
    geometry: Geometry, raw: Float[np.ndarray, "points variables"], names: Sequence[str]
) -> Float[np.ndarray, "points axes"] | None:
    """Returns the velocity along the axes, east and north on the sphere; None where none is known.

    On an even grid of two periodic axes a vorticity is enough: the flow without mean and without
    divergence that has it.

    Args:
        geometry: The sites.
        raw: The input in its units.
        names: Names of the variables.
    """
    known = {name.lower(): channel for channel, name in enumerate(names)}
    num_axes = geometry.domain.dim - geometry.domain.is_sphere
    for components in VELOCITIES:
        channels = [known[name] for name in components[:num_axes] if name in known]
        if num_axes > 1 and len(channels) == num_axes:
            return raw[:, channels]
    if geometry.domain.is_sphere and {"velocity_theta", "velocity_phi"} <= known.keys():
        # Theta is the colatitude, which grows to the south.
        south, east = (raw[:, known[f"velocity_{angle}"]] for angle in ("theta", "phi"))
        return np.stack([east, -south], axis=-1)
    if "vorticity" in known and _is_even_torus(geometry):
        return _from_vorticity(raw[:, known["vorticity"]], geometry)
    return None


def vorticity(
    fits: LocalFits,
    geometry: Geometry,
    raw: Float[np.ndarray, "points variables"],
    names: Sequence[str],
) -> Float[np.ndarray, " points"] | None:
    """Returns the size of the vorticity, given or of a known velocity; None where neither is."""
    known = {name.lower(): channel for channel, name in enumerate(names)}
    if "vorticity" in known:
        return np.abs(raw[:, known["vorticity"]])
    components = velocity(geometry, raw, names)
    if components is None:
        return None
    # As a vector of space, so that on the sphere its direction may turn from site to site.
    flow = np.einsum("nad,na->nd", fits.directions, components)
    gradient = np.einsum("nad,nbd->nab", fits.gradient(flow), fits.directions)
    return np.linalg.norm(gradient - np.swapaxes(gradient, 1, 2), axis=(1, 2)) / np.sqrt(2)


def _from_vorticity(values: np.ndarray, geometry: Geometry) -> np.ndarray:
    r"""Returns $u=\partial_y\psi$, $v=-\partial_x\psi$ with $\Delta\psi=-\omega$."""
    domain, shape = geometry.domain, geometry.grid_shape
    lengths = np.subtract(domain.upper, domain.lower)
    numbers = [2 * np.pi * np.fft.fftfreq(n, length / n) for n, length in zip(shape, lengths, strict=True)]  # fmt: skip
    along_x, along_y = np.meshgrid(*numbers, indexing="ij")
    squared = along_x**2 + along_y**2
    stream = np.fft.fft2(values.reshape(shape)) / np.where(squared > 0, squared, np.inf)
    parts = np.fft.ifft2(1j * along_y * stream), np.fft.ifft2(-1j * along_x * stream)
    return np.stack([part.real.ravel() for part in parts], -1)


def _is_even_torus(geometry: Geometry) -> bool:
    """Returns whether the sites are a whole even grid of two periodic axes."""
    domain = geometry.domain
    if domain.dim != 2 or not all(domain.periodic) or len(geometry.axes) != 2:
        return False
    lengths = np.subtract(domain.upper, domain.lower)
    gaps = [np.diff(axis, append=axis[0] + length) for axis, length in zip(geometry.axes, lengths, strict=True)]  # fmt: skip
    is_even = all(np.ptp(gap) < EVEN * abs(gap.mean()) for gap in gaps)
    return is_even and not geometry.is_masked.any()
