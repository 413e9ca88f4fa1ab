"""Grids of files without coordinates, whose axes are the numbers of sites from zero."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from gpo.data.geometry import Geometry


def index_grid(counts: Sequence[int], names: Sequence[str] = ()) -> Geometry:
    """Returns a grid whose axes are the numbers of its sites.

    Args:
        counts: Sites along each axis.
        names: Names of the axes; x, y, z when empty.
    """
    axes = [np.arange(count) for count in counts]
    bounds = [(0.0, float(max(count - 1, 1))) for count in counts]
    return replace(Geometry.rectilinear(axes, names=names, bounds=bounds), has_indices=True)


def scaled_to(geometry: Geometry, counts: Sequence[int]) -> Geometry:
    """Returns a grid in the numbers of another grid of the same region.

    Both begin and end at the same places; periodic axes have the same period.

    Args:
        geometry: A grid of numbers.
        counts: Sites along each axis of the other grid.
    """
    lower, upper = np.array(geometry.domain.lower), np.array(geometry.domain.upper)
    is_periodic = np.array(geometry.domain.periodic)
    # A periodic axis may repeat its first site.
    repeated = np.where(is_periodic, np.array(geometry.grid_shape) - (upper - lower), 1)
    factors = (np.array(counts) - repeated) / (upper - lower)
    scaled = Geometry.rectilinear(
        [axis * factor for axis, factor in zip(geometry.axes, factors, strict=True)],
        periodic=is_periodic.tolist(),
        bounds=list(zip(lower, upper * factors, strict=True)),
    )
    return replace(geometry, coords=scaled.coords, domain=scaled.domain, axes=scaled.axes)
