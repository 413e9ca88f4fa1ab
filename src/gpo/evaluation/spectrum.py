"""Spectra of fields, and the error of a prediction by scale.

The vorticity on a periodic plane or on the whole sphere has a spectrum of kinetic energy, that of its
flow. All other variables have a spectrum of variance. The scale is the wave number on a box and the
degree on the whole sphere. A spectrum needs a uniform grid without masked sites; elsewhere
`NoSpectrumError` gives the reason.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from jaxtyping import Float

from gpo.data.geometry import Geometry
from gpo.numerics.spectral import (
    degree_spectrum,
    energy_spectrum,
    latitude_rule,
    shell_numbers,
    shell_spectrum,
)

Quantity = Literal["variance", "kinetic energy"]
VORTICITIES = frozenset(("vorticity", "relative_vorticity", "vo"))
"""Names of the vorticity, in lower case."""
TOLERANCE = 1e-3
"""Tolerated distance of a site from a uniform grid, as a fraction of the spacing."""


class NoSpectrumError(ValueError):
    """Raised where these sites have no spectrum; the message is a reason in a few words."""


@dataclass(frozen=True)
class Spectrum:
    """Variance or kinetic energy by scale, averaged over frames."""

    wavenumbers: np.ndarray
    """Integers from zero: wave numbers in units of 2π over the longest side, or degrees."""
    power: np.ndarray
    """Contribution of each wave number to the mean square (the first entry is the squared mean), or to
    the mean kinetic energy per mass; lengths on the sphere are in radii."""
    label: Literal["wave number", "degree"]
    """Kind of the wave numbers."""
    quantity: Quantity = "variance"
    """Quantity of which `power` is the spectrum."""


def spectra(
    fields: Float[np.ndarray, "frames points"], geometry: Geometry, *, is_vorticity: bool = False
) -> Spectrum:
    """Returns the spectrum of a variable, averaged over its frames.

    On a latitude-longitude grid of the whole sphere the spectrum is by degree. On any other grid it is
    by shells of wave number, and non-periodic axes are tapered (see `shell_spectrum`); shells without
    a mode are left out. A region of the sphere is treated as a plane: degrees of longitude are
    shortened by the cosine of the mean latitude, and the longitude is periodic only where it spans the
    globe. A repeated site at the end of a periodic axis is dropped.

    Args:
        fields: Values of one variable at the sites of a grid.
        geometry: The grid.
        is_vorticity: Whether to return the kinetic energy where the vorticity determines the flow: on
            two periodic axes and on the whole sphere. Elsewhere the flow depends on its boundaries,
            too, and the spectrum is that of the variance.

    Raises:
        NoSpectrumError: If the sites are unstructured, a mesh, a curvilinear or non-uniform grid, or
            masked, if axes differ in units, or if a region of the sphere reaches a pole.
    """
    grid = _uniform_grid(geometry)
    if geometry.is_masked.any() or np.isnan(geometry.weights).any() or np.isnan(fields).any():
        raise NoSpectrumError("masked sites")
    if not np.isfinite(fields).all():
        raise NoSpectrumError("infinite values")
    frames = fields.reshape(-1, *geometry.grid_shape)[:, *(slice(size) for size in grid.shape)]
    is_energy = is_vorticity and (grid.is_sphere or grid.periodic == (True, True))
    quantity: Quantity = "kinetic energy" if is_energy else "variance"
    # Frame by frame: a series of volumes in double precision may not fit into memory.
    if grid.is_sphere:
        latitude = geometry.axes[0]
        try:
            power = np.mean([degree_spectrum(frame, latitude) for frame in frames], axis=0)
        except ImportError as error:
            raise NoSpectrumError("degrees need pip install 'gpo[sphere]'") from error
        degree = np.arange(len(power))
        if is_energy:
            # The stream function is the vorticity over l(l+1); degree 0 has no flow.
            power = power / (2 * np.where(degree > 0, degree * (degree + 1.0), np.inf))
        return Spectrum(degree, power, "degree", quantity)

    def frame_spectrum(frame: np.ndarray) -> torch.Tensor:
        values = torch.from_numpy(frame.astype(np.float64))
        if is_energy:
            return energy_spectrum(values, grid.lengths)
        return 2 * shell_spectrum(values, grid.lengths, grid.periodic)

    shells = shell_numbers(grid.shape, grid.lengths).unique()
    power = torch.stack([frame_spectrum(frame) for frame in frames]).mean(0)[shells]
    return Spectrum(shells.numpy(), power.numpy(), "wave number", quantity)


def quantity_of(stored: Mapping[str, Any]) -> str:
    """Returns the quantity of a spectrum in `results.json`; gpo 0.4.0 and older stored half the variance."""
    return stored.get("quantity", "half the variance")


def spectral_errors(
    truth: Float[np.ndarray, "frames points"],
    prediction: Float[np.ndarray, "frames points"],
    geometry: Geometry,
    num_bins: int = 3,
) -> dict[str, float]:
    r"""Returns $(\sum_k P_{\hat u-u}(k)/\sum_k P_u(k))^{1/2}$ over the low, middle and high wave numbers.

    $P$ is the spectrum of the variance, also for the vorticity, so that the errors of all variables are
    comparable. Bins are equally wide in $\log k$ from the smallest $k>0$ to the largest. The errors of
    a prediction that is not finite are NaN.

    Args:
        truth: Values of one variable at the sites of a grid.
        prediction: The prediction of this variable.
        geometry: The grid.
        num_bins: Number of bins: low, high and those in between.

    Raises:
        NoSpectrumError: If `spectra` raises it, or if a bin has no wave number.
    """
    if num_bins < 2:
        raise ValueError(f"`num_bins` must be at least 2, for low and high, got {num_bins}.")
    middle = ["middle"] if num_bins == 3 else [f"middle {n}" for n in range(1, num_bins - 1)]
    names = ["low", *middle, "high"]
    expected = spectra(truth, geometry)
    bins = _logarithmic_bins(expected.wavenumbers[1:], num_bins)
    if not np.isfinite(prediction).all():
        return dict.fromkeys(names, math.nan)
    error = spectra(prediction - truth.astype(np.float64), geometry)
    sums = [np.bincount(bins, part.power[1:]).tolist() for part in (error, expected)]
    tiny = float(np.finfo(np.float64).tiny)
    return {
        name: math.sqrt(error_power / max(true_power, tiny))
        for name, error_power, true_power in zip(names, *sums, strict=True)
    }


def _logarithmic_bins(wavenumbers: np.ndarray, num_bins: int) -> np.ndarray:
    """Returns the bin of each wave number; wave numbers are positive and ascending."""
    if len(wavenumbers) < num_bins:
        raise NoSpectrumError("too few wave numbers")
    position = np.log(wavenumbers / wavenumbers[0]) / np.log(wavenumbers[-1] / wavenumbers[0])
    # A wave number on an edge, up to rounding, belongs to the bin above it.
    bins = np.floor(num_bins * position + 1e-9).astype(int).clip(max=num_bins - 1)
    if len(np.unique(bins)) < num_bins:
        raise NoSpectrumError("too few wave numbers")
    return bins


@dataclass(frozen=True)
class _Grid:
    """A uniform grid on a box or on the whole sphere."""

    shape: tuple[int, ...]
    """Sites along each axis, without repeated ones."""
    lengths: tuple[float, ...] = ()
    """Spacing times number of sites along each axis of a box."""
    periodic: tuple[bool, ...] = ()
    """Whether each axis of a box is periodic."""
    is_sphere: bool = False


def _uniform_grid(geometry: Geometry) -> _Grid:
    """Returns the uniform grid of the sites; raises `NoSpectrumError` where they have none."""
    if not geometry.grid_shape:
        raise NoSpectrumError("unstructured points" if geometry.triangles is None else "mesh")
    if not geometry.axes:
        raise NoSpectrumError("curvilinear grid")
    if geometry.num_points == 1:
        raise NoSpectrumError("a single site")
    if geometry.domain.is_sphere:
        return _sphere_grid(*geometry.axes)
    if len({unit for unit in geometry.axis_units if unit}) > 1:
        raise NoSpectrumError("axes of different units")
    domain = geometry.domain
    shape: list[int] = []
    lengths: list[float] = []
    for axis, low, high, is_periodic in zip(
        geometry.axes, domain.lower, domain.upper, domain.periodic, strict=True
    ):
        count, spacing = len(axis), _spacing(axis)
        if is_periodic and count > 1:
            count = _sites_per_period(axis, spacing, high - low)
        if count is None:
            raise NoSpectrumError("non-uniform axes")
        shape.append(count)
        lengths.append(count * spacing)
    return _Grid(tuple(shape), tuple(lengths), domain.periodic)


def _sphere_grid(latitude: np.ndarray, longitude: np.ndarray) -> _Grid:
    """Returns the whole sphere, or a region of it as a plane in degrees of latitude."""
    longitude = np.unwrap(longitude, period=360)
    up, along = _spacing(latitude), _spacing(longitude)
    count = _sites_per_period(longitude, along, 360.0)
    shape = len(latitude), count or len(longitude)
    if count and latitude_rule(latitude):
        return _Grid(shape, is_sphere=True)
    if np.abs(latitude).max() + up > 90 - TOLERANCE * up:
        raise NoSpectrumError("a region that reaches a pole")
    shortening = math.cos(math.radians(float(latitude.mean())))
    lengths = shape[0] * up, shape[1] * along * shortening
    return _Grid(shape, lengths, (False, count is not None))


def _spacing(axis: np.ndarray) -> float:
    """Returns the spacing of a uniform axis; 1 for a single site."""
    if len(axis) == 1:
        return 1.0
    uniform = np.linspace(axis[0], axis[-1], len(axis))
    spacing = abs(float(uniform[1] - uniform[0]))
    if np.abs(axis - uniform).max() > TOLERANCE * spacing:
        raise NoSpectrumError("non-uniform axes")
    return spacing


def _sites_per_period(axis: np.ndarray, spacing: float, period: float) -> int | None:
    """Returns the number of sites per period; the last site may repeat the first one."""
    for count in (len(axis), len(axis) - 1):
        if abs(count * spacing - period) <= TOLERANCE * spacing:
            return count
    return None
