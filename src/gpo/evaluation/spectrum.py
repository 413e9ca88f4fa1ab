"""Spectra of fields, and the error of a prediction by scale.

A vorticity on a periodic plane or on the whole sphere has a spectrum of kinetic energy, that of the
flow it belongs to. Every other variable has a spectrum of variance. The scale is the wave number on a
box and the degree on the whole sphere. A spectrum needs one variable on a uniform grid without masked
sites; `NoSpectrumError` names the reason elsewhere.
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
"""Names of a vorticity, in lower case."""
TOLERANCE = 1e-3
"""Distance of a site from an even grid that is tolerated, as a fraction of the spacing."""


class NoSpectrumError(ValueError):
    """No spectrum can be taken on these sites; the message is a reason of a few words."""


@dataclass(frozen=True)
class Spectrum:
    """Variance or kinetic energy by scale, the mean over frames."""

    wavenumbers: np.ndarray
    """Whole numbers from zero: wave numbers in units of 2π over the longest side, or degrees."""
    power: np.ndarray
    """What each of them carries of the mean square, the first one the squared mean; or of the mean
    kinetic energy per mass, where lengths on the sphere are in radii."""
    label: Literal["wave number", "degree"]
    """What the wavenumbers are."""
    quantity: Quantity = "variance"
    """What the power is of."""


def spectra(
    fields: Float[np.ndarray, "frames points"], geometry: Geometry, *, is_vorticity: bool = False
) -> Spectrum:
    """Returns the spectrum of a variable, the mean over its frames.

    On a latitude-longitude grid of the whole sphere it goes by degree. On any other grid it
    goes by shells of wave number, where open axes are tapered (see `shell_spectrum`); shells
    without a mode are left out. A region of the sphere is taken as a plane: degrees of
    longitude are shortened by the cosine of the mean latitude, and both axes are open,
    except for longitudes all around. A repeated site at the end of a closed axis is dropped.

    Args:
        fields: Values of one variable at the sites of a grid.
        geometry: The grid.
        is_vorticity: Gives kinetic energy where the flow follows from its vorticity: on two periodic
            axes and on the whole sphere. Elsewhere a flow depends on its boundaries too, and the
            spectrum is that of the variance.

    Raises:
        NoSpectrumError: Where sites are scattered, a mesh, curvilinear, uneven or masked,
            where axes differ in units, or a region of the sphere reaches a pole.
    """
    grid = _uniform_grid(geometry)
    if geometry.is_masked.any() or np.isnan(geometry.weights).any() or np.isnan(fields).any():
        raise NoSpectrumError("masked sites")
    if not np.isfinite(fields).all():
        raise NoSpectrumError("infinite values")
    frames = fields.reshape(-1, *geometry.grid_shape)[:, *(slice(size) for size in grid.shape)]
    is_energy = is_vorticity and (grid.is_sphere or grid.periodic == (True, True))
    quantity: Quantity = "kinetic energy" if is_energy else "variance"
    # Frame by frame: a series of volumes in double precision may not fit.
    if grid.is_sphere:
        latitude = geometry.axes[0]
        try:
            power = np.mean([degree_spectrum(frame, latitude) for frame in frames], axis=0)
        except ImportError as error:
            raise NoSpectrumError("degrees need pip install 'gpo[sphere]'") from error
        degree = np.arange(len(power))
        if is_energy:
            # The stream function is the vorticity over l(l+1); degree 0 is no flow.
            power = power / (2 * np.where(degree > 0, degree * (degree + 1.0), np.inf))
        return Spectrum(degree, power, "degree", quantity)

    def of(frame: np.ndarray) -> torch.Tensor:
        values = torch.from_numpy(frame.astype(np.float64))
        if is_energy:
            return energy_spectrum(values, grid.lengths)
        return 2 * shell_spectrum(values, grid.lengths, grid.periodic)

    filled = shell_numbers(grid.shape, grid.lengths).unique()
    power = torch.stack([of(frame) for frame in frames]).mean(0)[filled]
    return Spectrum(filled.numpy(), power.numpy(), "wave number", quantity)


def quantity_of(stored: Mapping[str, Any]) -> str:
    """Returns what a spectrum of `results.json` is of; up to gpo 0.4.0 files have half the variance."""
    return stored.get("quantity", "half the variance")


def spectral_errors(
    truth: Float[np.ndarray, "frames points"],
    prediction: Float[np.ndarray, "frames points"],
    geometry: Geometry,
    num_bins: int = 3,
) -> dict[str, float]:
    r"""Returns $(\sum_k P_{\hat u-u}(k)/\sum_k P_u(k))^{1/2}$ over the low, middle and high wave numbers.

    $P$ is the spectrum of the variance, of a vorticity too, so that errors of all variables mean the
    same. Bins are equally wide in $\log k$ from the smallest $k>0$ to the largest. A prediction
    that is not finite errs by NaN.

    Args:
        truth: Values of one variable at the sites of a grid.
        prediction: Its forecast.
        geometry: The grid.
        num_bins: How many bins: low, high and those in between.

    Raises:
        NoSpectrumError: Where `spectra` raises it, or a bin holds no wave number.
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
        name: math.sqrt(wrong / max(right, tiny))
        for name, wrong, right in zip(names, *sums, strict=True)
    }


def _logarithmic_bins(wavenumbers: np.ndarray, num_bins: int) -> np.ndarray:
    """Returns the bin of every wave number, all of them above zero and ascending."""
    if len(wavenumbers) < num_bins:
        raise NoSpectrumError("too few wave numbers")
    place = np.log(wavenumbers / wavenumbers[0]) / np.log(wavenumbers[-1] / wavenumbers[0])
    # A wave number on an edge, give or take rounding, belongs to the bin above it.
    bins = np.floor(num_bins * place + 1e-9).astype(int).clip(max=num_bins - 1)
    if len(np.unique(bins)) < num_bins:
        raise NoSpectrumError("too few wave numbers")
    return bins


@dataclass(frozen=True)
class _Grid:
    """A uniform grid of a box, or of the whole sphere."""

    shape: tuple[int, ...]
    """Sites along every axis, without repeated ones."""
    lengths: tuple[float, ...] = ()
    """Spacing times sites along every axis of a box."""
    periodic: tuple[bool, ...] = ()
    """Which axes of a box close on themselves."""
    is_sphere: bool = False


def _uniform_grid(geometry: Geometry) -> _Grid:
    """Returns the grid that the sites are; else says why they are none."""
    if not geometry.grid_shape:
        raise NoSpectrumError("scattered points" if geometry.triangles is None else "mesh")
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
            raise NoSpectrumError("uneven axes")
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
    """Returns the distance of neighbours, one where there are none; refuses uneven axes."""
    if len(axis) == 1:
        return 1.0
    even = np.linspace(axis[0], axis[-1], len(axis))
    spacing = abs(float(even[1] - even[0]))
    if np.abs(axis - even).max() > TOLERANCE * spacing:
        raise NoSpectrumError("uneven axes")
    return spacing


def _sites_per_period(axis: np.ndarray, spacing: float, period: float) -> int | None:
    """Returns how many sites fill a period, be the last one the first again or not."""
    for count in (len(axis), len(axis) - 1):
        if abs(count * spacing - period) <= TOLERANCE * spacing:
            return count
    return None
