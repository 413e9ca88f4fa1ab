"""Periodic axes of grids whose files do not state the boundary conditions."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from gpo.data.dataset import DataError, FieldData
from gpo.data.geometry import Geometry
from gpo.data.summary import spaced_frames

MAX_FRAMES = 8
"""Number of evenly spaced frames to inspect."""
SEAM = 2.0
"""Maximum ratio of a step across the ends to a typical step for a smooth transition."""


def make_axes_periodic(data: FieldData, names: Sequence[str]) -> FieldData:
    """Returns the data with the named grid axes made periodic.

    The period is the length of the axis if its last site repeats the first one, otherwise one
    spacing more.

    Args:
        data: Fields on rectilinear grids.
        names: Names of the periodic axes.
    """
    if not names:
        return data
    for geometry in data.geometries:
        axes = () if geometry.domain.is_sphere or not geometry.axes else geometry.axis_names
        for name in names:
            if name not in axes:
                listed = f"one of {', '.join(axes)}" if axes else "an axis of a rectilinear grid"
                raise DataError(data.source, "periodic", f"must be {listed}, got {name!r}.")
    lines = _lines(data)
    repeats = [bool(np.allclose(line[0], line[-1], rtol=0, atol=1e-6)) for line in lines]
    geometries = tuple(_make_periodic(geometry, names, repeats) for geometry in data.geometries)
    return replace(data, geometries=geometries)


def looks_periodic(data: FieldData) -> list[str]:
    """Returns the non-periodic, evenly spaced axes across whose ends the fields are smooth."""
    geometry = data.geometry()
    if geometry.domain.is_sphere or not geometry.axes or geometry.is_masked.any():
        return []
    result = []
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
        # A field that is constant at both ends, as at walls, gives no evidence.
        is_varying = sizes[-2:].mean() > 0.02 * sizes[:-2].mean()
        is_smooth = sizes[-2:].max() <= SEAM * np.quantile(sizes[:-2], 0.9)
        has_kink = bends[-2:].max() > SEAM * np.quantile(bends[:-2], 0.9)
        if is_varying and is_smooth and not has_kink:
            result.append(geometry.axis_names[number])
    return result


def _lines(data: FieldData) -> list[np.ndarray]:
    """Returns some standardised frames for each axis, moved to the front."""
    geometry = data.geometry()
    frames = [*spaced_frames(data, MAX_FRAMES)]
    values = np.nan_to_num(np.stack(frames).astype(np.float64))
    spread = values.std(axis=(0, 1))
    values = values / np.where(spread > 0, spread, 1.0)
    grid = values.reshape(len(values), *geometry.grid_shape, -1)
    return [np.moveaxis(grid, number + 1, 0) for number in range(len(geometry.axes))]


def _make_periodic(geometry: Geometry, names: Sequence[str], repeats: Sequence[bool]) -> Geometry:
    domain = geometry.domain
    is_periodic = [
        name in names or was for name, was in zip(geometry.axis_names, domain.periodic, strict=True)
    ]
    bounds = []
    for number, axis in enumerate(geometry.axes):
        low, high = domain.lower[number], domain.upper[number]
        if geometry.axis_names[number] in names and not domain.periodic[number]:
            spacing = float(np.abs(np.diff(axis)).mean())
            low, high = float(axis.min()), float(axis.max()) + (0 if repeats[number] else spacing)
        bounds.append((low, high))
    grid = Geometry.rectilinear(
        geometry.axes, periodic=is_periodic, bounds=bounds,
        names=geometry.axis_names, units=geometry.axis_units,
    )  # fmt: skip
    result = replace(geometry, coords=grid.coords, weights=grid.weights, domain=grid.domain)
    return result.masked(geometry.is_masked)
