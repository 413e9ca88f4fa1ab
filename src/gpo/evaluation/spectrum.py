"""Energy spectra of fields, and the error of a prediction by scale.

The scale is the wave number on a box and the degree on the whole sphere. A spectrum needs one
variable on a uniform grid without masked sites; `NoSpectrumError` names the reason elsewhere.
"""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from jaxtyping import Float

from gpo.data.geometry import Geometry
from gpo.numerics.spectral import degree_spectrum, latitude_rule, shell_numbers, shell_spectrum

TOLERANCE = 1e-3
"""Distance of a site from an even grid that is tolerated, as a fraction of the spacing."""


class NoSpectrumError(ValueError):
    """No spectrum can be taken on these sites; the message is a reason of a few words."""


@dataclass(frozen=True)
class Spectrum:
    """Energy by scale, the mean over frames."""

    wavenumbers: np.ndarray
    """Whole numbers from zero: wave numbers in units of 2π over the longest side, or degrees."""
    energy: np.ndarray
    """Half the mean square that each of them carries."""
    label: Literal["wave number", "degree"]
    """What the wavenumbers are."""


def spectra(fields: Float[np.ndarray, "frames points"], geometry: Geometry) -> Spectrum:
    """Returns the spectrum of a variable, the mean over its frames.

    On a latitude-longitude grid of the whole sphere it goes by degree. On any other grid it
    goes by shells of wave number, where open axes are tapered (see `shell_spectrum`); shells
    without a mode are left out. A region of the sphere is taken as a plane: degrees of
    longitude are shortened by the cosine of the mean latitude, and both axes are open,
    except for longitudes all around. A repeated site at the end of a closed axis is dropped.

    Args:
        fields: Values of one variable at the sites of a grid.
        geometry: The grid.

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
    # Frame by frame: a series of volumes in double precision may not fit.
    if grid.is_sphere:
        latitude = geometry.axes[0]
        try:
            energy = np.mean([degree_spectrum(frame, latitude) / 2 for frame in frames], axis=0)
        except ImportError as error:
            raise NoSpectrumError("degrees need pip install 'gpo[sphere]'") from error
        return Spectrum(np.arange(len(energy)), energy, "degree")
    energies = [
        shell_spectrum(torch.from_numpy(frame.astype(np.float64)), grid.lengths, grid.periodic)
        for frame in frames
    ]
    filled = shell_numbers(grid.shape, grid.lengths).unique()
    energy = torch.stack(energies).mean(0)[filled]
    return Spectrum(filled.numpy(), energy.numpy(), "wave number")


def spectral_errors(
    truth: Float[np.ndarray, "frames points"],
    prediction: Float[np.ndarray, "frames points"],
    geometry: Geometry,
    num_bins: int = 3,
) -> dict[str, float]:
    r"""Returns $(\sum_k E_{\hat u-u}(k)/\sum_k E_u(k))^{1/2}$ over the low, middle and high wave numbers.

    Bins are equally wide in $\log k$ from the smallest $k>0$ to the largest. A prediction
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
    sums = [np.bincount(bins, part.energy[1:]).tolist() for part in (error, expected)]
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
