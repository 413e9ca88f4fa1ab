"""Other ways to store a field in few numbers, beside Gaussians: lattice, waves, wavelets, POD.

Each takes a field and how many numbers it may store, and returns what it makes of it at the sites.
What every variable of a field shares, such as the places of a lattice, is not counted; the value and
the place of every wavelet are.
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
    """Returns a field as round Gaussians on an even lattice; only amplitudes are stored."""
    count = max(1, numbers // values.shape[1] - 1)
    known = ~geometry.is_masked
    coords, weights = torch.from_numpy(geometry.coords), torch.from_numpy(geometry.weights)
    filled = torch.from_numpy(np.where(known[:, None], values, 0.0))
    found = fit_lattice(filled, coords, weights, count, geometry.domain)
    made = np.full_like(values, np.nan)
    made[known] = found(coords[torch.from_numpy(known)]).numpy()
    return made


def fourier(values: np.ndarray, geometry: Geometry, numbers: int) -> np.ndarray:
    """Returns a field as its longest waves, by weighted least squares.

    Waves along periodic axes, cosines along open ones, spherical harmonics on the whole sphere. A
    patch of the sphere counts as a box of longitude and latitude.
    """
    count = max(1, numbers // values.shape[1])
    basis = _harmonics(geometry, count) if _is_globe(geometry) else _waves(geometry, count)
    known = ~geometry.is_masked
    q = geometry.weights[known][:, None]
    columns = basis[known]
    gram = columns.T @ (q * columns) + RIDGE * np.eye(columns.shape[1])
    found = np.linalg.solve(gram, columns.T @ (q * values[known]))
    return basis @ found


def _is_globe(geometry: Geometry) -> bool:
    return geometry.domain == Domain.sphere()


def _harmonics(geometry: Geometry, count: int) -> np.ndarray:
    x, y, z = geometry.coords.T
    down, around = np.arccos(z.clip(-1, 1)), np.arctan2(y, x)
    columns: list[np.ndarray] = []
    for degree in range(math.isqrt(count) + 1):
        for order in range(degree + 1):
            wave = np.asarray(sph_harm_y(degree, order, down, around))
            columns += [wave.real] if order == 0 else [wave.real, wave.imag]
    return np.stack(columns[:count], -1)


def _waves(geometry: Geometry, count: int) -> np.ndarray:
    domain = geometry.domain
    coords, wraps = geometry.coords, domain.periodic
    if domain.is_sphere:
        z = coords[:, 2].clip(-1, 1)
        coords = np.stack([np.arcsin(z), np.arctan2(coords[:, 1], coords[:, 0])], -1)
        wraps = (False, False)
    low, high = coords.min(0), coords.max(0)
    if not domain.is_sphere:
        low, high = np.array(domain.lower), np.array(domain.upper)
    unit, lengths = (coords - low) / (high - low), high - low
    most = math.ceil(2 * count ** (1 / coords.shape[1])) + 2
    found: list[tuple[float, np.ndarray]] = []
    for waves in itertools.product(range(most), repeat=coords.shape[1]):
        # A cosine has half waves, a periodic axis whole ones, of which there are two each.
        steps = [n / 2 if not wrap else (n + 1) // 2 for n, wrap in zip(waves, wraps, strict=True)]
        size = float(np.linalg.norm(np.array(steps) / lengths * lengths.max()))
        found.append((size, np.array(waves)))
    found.sort(key=lambda one: one[0])
    columns = []
    for _, waves in found[:count]:
        column = np.ones(len(unit))
        for along, n, wrap in zip(unit.T, waves, wraps, strict=True):
            angle = 2 * np.pi * ((n + 1) // 2) * along
            column = column * (
                np.cos(np.pi * n * along) if not wrap else np.sin(angle) if n % 2 else np.cos(angle)
            )
        columns.append(column)
    return np.stack(columns, -1)


def wavelets(values: np.ndarray, geometry: Geometry, numbers: int) -> np.ndarray:
    """Returns a field on a whole grid as its largest wavelets; each stores a value and its place."""
    count = max(1, numbers // (2 * values.shape[1]))
    shape = geometry.grid_shape
    levels = 4
    pads = [(0, -n % 2**levels) for n in shape]
    made = np.empty_like(values)
    for channel, column in enumerate(values.T):
        mean = column.mean()
        block = np.pad(column.reshape(shape) - mean, pads, mode="symmetric")
        detail = _analyse(block, levels)
        least = np.partition(np.abs(detail).ravel(), -count)[-count]
        kept = np.where(np.abs(detail) >= least, detail, 0.0)
        whole = _synthesise(kept, levels)
        made[:, channel] = whole[tuple(slice(n) for n in shape)].ravel() + mean
    return made


def daubechies(moments: int) -> np.ndarray:
    """Returns the orthogonal low-pass filter with so many vanishing moments."""
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
    """Returns smooth and rough halves along an axis that closes on itself."""
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
    """Returns a compression onto the modes of other frames, which are not counted."""
    known = ~geometry.is_masked
    root = np.sqrt(geometry.weights[known])[:, None]
    mean = frames[:, known].mean(0)
    rows = ((frames[:, known] - mean) * root).reshape(len(frames), -1)
    _, sizes, modes = np.linalg.svd(rows, full_matrices=False)
    modes = modes[sizes > 1e-10 * sizes[0]]

    def compress(values: np.ndarray, geometry: Geometry, numbers: int) -> np.ndarray:
        some = modes[:numbers]
        wanted = ((values[known] - mean) * root).ravel()
        made = np.full_like(values, np.nan)
        made[known] = (some.T @ (some @ wanted)).reshape(len(mean), -1) / root + mean
        return made

    return compress
