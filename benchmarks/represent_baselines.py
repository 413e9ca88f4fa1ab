"""Baseline representations of a field with few numbers: lattice, Fourier, wavelets, POD.

Each takes a field and a number of values to store, and returns the reconstruction at the sites.
Values that do not depend on the field, such as the nodes of a lattice, are not counted; of every
wavelet the value and the index are.
"""

import itertools
import math
from collections.abc import Callable

import numpy as np
import torch
from numpy.polynomial import Polynomial
from scipy.special import sph_harm_y

from gpo import Domain, Geometry
from gpo_mixture.lattice import fit_lattice
from gpo_mixture.projection import RIDGE

MOMENTS = 4
"""Vanishing moments of the wavelets."""

Compression = Callable[[np.ndarray, Geometry, int], np.ndarray]


def lattice(values: np.ndarray, geometry: Geometry, numbers: int) -> np.ndarray:
    """Reconstructs a field from isotropic Gaussians on a lattice; only amplitudes are stored."""
    count = max(1, numbers // values.shape[1] - 1)
    is_active = ~geometry.is_masked
    coords, weights = torch.from_numpy(geometry.coords), torch.from_numpy(geometry.weights)
    filled = torch.from_numpy(np.where(is_active[:, None], values, 0.0))
    mixture = fit_lattice(filled, coords, weights, count, geometry.domain)
    result = np.full_like(values, np.nan)
    result[is_active] = mixture(coords[torch.from_numpy(is_active)]).numpy()
    return result


def fourier(values: np.ndarray, geometry: Geometry, numbers: int) -> np.ndarray:
    """Reconstructs a field from its longest waves by weighted least squares.

    The basis is sines and cosines along periodic axes, cosines along others, and spherical
    harmonics on the whole sphere. A patch of the sphere is a box of longitude and latitude.
    """
    count = max(1, numbers // values.shape[1])
    basis = _harmonics(geometry, count) if _is_globe(geometry) else _waves(geometry, count)
    is_active = ~geometry.is_masked
    weights = geometry.weights[is_active][:, None]
    columns = basis[is_active]
    gram = columns.T @ (weights * columns) + RIDGE * np.eye(columns.shape[1])
    return basis @ np.linalg.solve(gram, columns.T @ (weights * values[is_active]))


def _is_globe(geometry: Geometry) -> bool:
    return geometry.domain == Domain.sphere()


def _harmonics(geometry: Geometry, count: int) -> np.ndarray:
    x, y, z = geometry.coords.T
    colatitude, longitude = np.arccos(z.clip(-1, 1)), np.arctan2(y, x)
    columns: list[np.ndarray] = []
    for degree in range(math.isqrt(count) + 1):
        for order in range(degree + 1):
            wave = np.asarray(sph_harm_y(degree, order, colatitude, longitude))
            columns += [wave.real] if order == 0 else [wave.real, wave.imag]
    return np.stack(columns[:count], -1)


def _waves(geometry: Geometry, count: int) -> np.ndarray:
    domain = geometry.domain
    coords, periodic = geometry.coords, domain.periodic
    if domain.is_sphere:
        z = coords[:, 2].clip(-1, 1)
        coords = np.stack([np.arcsin(z), np.arctan2(coords[:, 1], coords[:, 0])], -1)
        periodic = (False, False)
    low, high = coords.min(0), coords.max(0)
    if not domain.is_sphere:
        low, high = np.array(domain.lower), np.array(domain.upper)
    unit, lengths = (coords - low) / (high - low), high - low
    most = math.ceil(2 * count ** (1 / coords.shape[1])) + 2
    candidates: list[tuple[float, np.ndarray]] = []
    for waves in itertools.product(range(most), repeat=coords.shape[1]):
        # Cosines have half-integer wave numbers; on periodic axes each wave number has two waves.
        pairs = zip(waves, periodic, strict=True)
        numbers = [(n + 1) // 2 if is_periodic else n / 2 for n, is_periodic in pairs]
        size = float(np.linalg.norm(np.array(numbers) / lengths * lengths.max()))
        candidates.append((size, np.array(waves)))
    candidates.sort(key=lambda candidate: candidate[0])
    columns = []
    for _, waves in candidates[:count]:
        column = np.ones(len(unit))
        for x, n, is_periodic in zip(unit.T, waves, periodic, strict=True):
            angle = 2 * np.pi * ((n + 1) // 2) * x if is_periodic else np.pi * n * x
            column = column * (np.sin(angle) if is_periodic and n % 2 else np.cos(angle))
        columns.append(column)
    return np.stack(columns, -1)


def wavelets(values: np.ndarray, geometry: Geometry, numbers: int) -> np.ndarray:
    """Reconstructs a field on a grid from its largest wavelets; each stores a value and its index."""
    count = max(1, numbers // (2 * values.shape[1]))
    shape = geometry.grid_shape
    levels = 4
    pads = [(0, -n % 2**levels) for n in shape]
    result = np.empty_like(values)
    for channel, column in enumerate(values.T):
        mean = column.mean()
        block = np.pad(column.reshape(shape) - mean, pads, mode="symmetric")
        coefficients = _analyse(block, levels)
        threshold = np.partition(np.abs(coefficients).ravel(), -count)[-count]
        kept = np.where(np.abs(coefficients) >= threshold, coefficients, 0.0)
        padded = _synthesise(kept, levels)
        result[:, channel] = padded[tuple(slice(n) for n in shape)].ravel() + mean
    return result


def daubechies(moments: int) -> np.ndarray:
    """Returns the Daubechies low-pass filter with this number of vanishing moments."""
    inner = Polynomial([0.0])
    # P(y) in terms of z: y = (2 - z - 1/z) / 4, so that z^(p-1) P is a polynomial in z.
    for n in range(moments):
        y = Polynomial([-0.25, 0.5, -0.25]) ** n
        inner = inner + math.comb(moments - 1 + n, n) * y * Polynomial([0, 1]) ** (moments - 1 - n)
    inside = [root for root in inner.roots() if abs(root) < 1]
    taps = (Polynomial([1, 1]) ** moments * Polynomial.fromroots(inside)).coef.real
    return taps / taps.sum() * math.sqrt(2)


def _analyse(block: np.ndarray, levels: int) -> np.ndarray:
    block = block.copy()
    for level in range(levels):
        part = tuple(slice(n >> level) for n in block.shape)
        for axis in range(block.ndim):
            block[part] = _split(block[part], axis)
    return block


def _synthesise(block: np.ndarray, levels: int) -> np.ndarray:
    block = block.copy()
    for level in reversed(range(levels)):
        part = tuple(slice(n >> level) for n in block.shape)
        for axis in reversed(range(block.ndim)):
            block[part] = _merge(block[part], axis)
    return block


def _filters() -> tuple[np.ndarray, np.ndarray]:
    low = daubechies(MOMENTS)
    return low, low[::-1] * (-1.0) ** np.arange(len(low))


def _split(block: np.ndarray, axis: int) -> np.ndarray:
    """Returns low-pass and high-pass halves along a periodic axis."""
    parts = []
    for taps in _filters():
        total = sum(tap * np.roll(block, -n, axis) for n, tap in enumerate(taps))
        parts.append(np.take(total, np.arange(0, block.shape[axis], 2), axis))
    return np.concatenate(parts, axis)


def _merge(block: np.ndarray, axis: int) -> np.ndarray:
    half = block.shape[axis] // 2
    total = np.zeros_like(block)
    for taps, start in zip(_filters(), (0, half), strict=True):
        part = np.take(block, np.arange(start, start + half), axis)
        spread = np.zeros_like(block)
        index = [slice(None)] * block.ndim
        index[axis] = slice(0, None, 2)
        spread[tuple(index)] = part
        total += sum(tap * np.roll(spread, n, axis) for n, tap in enumerate(taps))
    return total


def pod(frames: np.ndarray, geometry: Geometry) -> Compression:
    """Returns a projection onto the POD modes of other frames; the modes are not counted."""
    is_active = ~geometry.is_masked
    root = np.sqrt(geometry.weights[is_active])[:, None]
    mean = frames[:, is_active].mean(0)
    rows = ((frames[:, is_active] - mean) * root).reshape(len(frames), -1)
    _, sizes, modes = np.linalg.svd(rows, full_matrices=False)
    modes = modes[sizes > 1e-10 * sizes[0]]

    def compress(values: np.ndarray, geometry: Geometry, numbers: int) -> np.ndarray:
        basis = modes[:numbers]
        anomaly = ((values[is_active] - mean) * root).ravel()
        result = np.full_like(values, np.nan)
        result[is_active] = (basis.T @ (basis @ anomaly)).reshape(len(mean), -1) / root + mean
        return result

    return compress
