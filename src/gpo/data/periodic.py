"""Axes that close on themselves although their file does not say so."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from gpo.data.dataset import DataError, StaticMaps, Trajectories
from gpo.data.geometry import Geometry

MAX_FRAMES = 8
"""Frames that are looked at, evenly spaced."""
SEAM = 2.0
"""A seam is smooth where the step across it is at most this many times a usual step."""


def close_named_axes(
    data: Trajectories | StaticMaps, names: Sequence[str]
) -> Trajectories | StaticMaps:
    """Returns the data with some axes of their grids made periodic.

    The period is the length of the axis where its last site is the first one again, else one
    spacing more.

    Args:
        data: Fields on rectilinear grids.
        names: Names of the axes.
    """
    if not names:
        return data
    for geometry in data.geometries:
        known = () if geometry.domain.is_sphere or not geometry.axes else geometry.axis_names
        for name in names:
            if name not in known:
                listed = ", ".join(known) or "none, since it is no grid in a box"
                problem = f"names {name!r}, but the axes that may close are {listed}."
                raise DataError(data.source, "periodic", problem)
    lines = _lines(data)
    repeats = [bool(np.allclose(line[0], line[-1], rtol=0, atol=1e-6)) for line in lines]
    closed = tuple(_closed(geometry, names, repeats) for geometry in data.geometries)
    return replace(data, geometries=closed)


def looks_periodic(data: Trajectories | StaticMaps) -> list[str]:
    """Returns names of open, even axes across whose ends fields go on without a jump or kink."""
    geometry = data.geometry()
    if geometry.domain.is_sphere or not geometry.axes or geometry.is_masked.any():
        return []
    found = []
    for number, line in enumerate(_lines(data)):
        axis = geometry.axes[number]
        is_even = len(axis) > 8 and np.ptp(np.diff(axis)) < 1e-3 * abs(float(np.diff(axis).mean()))
        if geometry.domain.periodic[number] or not is_even:
            continue
        if np.allclose(line[0], line[-1], rtol=0, atol=1e-6):
            line = line[:-1]
        steps = np.diff(np.concatenate([line, line[:2]]), axis=0)
        sizes = np.sqrt((steps**2).mean(axis=tuple(range(1, steps.ndim))))
        bends = np.sqrt((np.diff(steps, axis=0) ** 2).mean(axis=tuple(range(1, steps.ndim))))
        # A field that is flat at both ends, as between walls, says nothing about its ends.
        is_alive = sizes[-2:].mean() > 0.02 * sizes[:-2].mean()
        is_smooth = sizes[-2:].max() <= SEAM * np.quantile(sizes[:-2], 0.9)
        has_kink = bends[-2:].max() > SEAM * np.quantile(bends[:-2], 0.9)
        if is_alive and is_smooth and not has_kink:
            found.append(geometry.axis_names[number])
    return found


def _lines(data: Trajectories | StaticMaps) -> list[np.ndarray]:
    """Returns some frames in units of their spread, once for every axis, which comes first."""
    geometry = data.geometry()
    if isinstance(data, StaticMaps):
        numbers = np.unique(np.linspace(0, data.num_samples - 1, MAX_FRAMES).astype(int))
        frames = [np.concatenate(data.sample(int(number)), -1) for number in numbers]
    else:
        numbers = np.unique(np.linspace(0, len(data.time) - 1, MAX_FRAMES).astype(int))
        frames = [data.frames(0, slice(int(n), int(n) + 1))[0] for n in numbers]
    values = np.nan_to_num(np.stack(frames).astype(np.float64))
    spread = values.std(axis=(0, 1))
    values = values / np.where(spread > 0, spread, 1.0)
    grid = values.reshape(len(values), *geometry.grid_shape, -1)
    return [np.moveaxis(grid, number + 1, 0) for number in range(len(geometry.axes))]


def _closed(geometry: Geometry, names: Sequence[str], repeats: Sequence[bool]) -> Geometry:
    domain = geometry.domain
    is_closed = [
        name in names or was for name, was in zip(geometry.axis_names, domain.periodic, strict=True)
    ]
    bounds = []
    for number, axis in enumerate(geometry.axes):
        low, high = domain.lower[number], domain.upper[number]
        if geometry.axis_names[number] in names and not domain.periodic[number]:
            spacing = float(np.abs(np.diff(axis)).mean())
            low, high = float(axis.min()), float(axis.max()) + (0 if repeats[number] else spacing)
        bounds.append((low, high))
    found = Geometry.rectilinear(
        geometry.axes, periodic=is_closed, bounds=bounds,
        names=geometry.axis_names, units=geometry.axis_units,
    )  # fmt: skip
    kept = replace(geometry, coords=found.coords, weights=found.weights, domain=found.domain)
    return kept.masked(geometry.is_masked)
