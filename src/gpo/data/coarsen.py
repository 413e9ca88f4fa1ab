"""Data on a subset of the sites: every n-th site along each axis, or a random fraction."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from gpo.data.dataset import DataError, FieldData
from gpo.data.geometry import Geometry


def coarsen(data: FieldData, factor: int) -> FieldData:
    """Returns the data on every n-th site along each axis.

    Args:
        data: Fields on any sites; unstructured points are thinned by the same ratio.
        factor: 1 keeps all sites, 2 every second site along each axis.
    """
    if factor == 1:
        return data
    try:
        return _restrict([geometry.coarsen(factor) for geometry in data.geometries], data)
    except ValueError as error:
        raise DataError(data.source, "coords", f"{error}.") from error


def sampled(data: FieldData, fraction: float, seed: int = 0) -> FieldData:
    """Returns the data on a random subset of its sites, as unstructured points.

    Args:
        data: Fields on any sites.
        fraction: Fraction of the sites to keep, from 0 to 1.
        seed: Random seed.
    """
    generator = np.random.default_rng(seed)
    parts = []
    for geometry in data.geometries:
        count = max(1, round(fraction * geometry.num_points))
        indices = np.sort(generator.permutation(geometry.num_points)[:count])
        parts.append((geometry.chosen(indices), indices))
    return _restrict(parts, data)


def _restrict(parts: Sequence[tuple[Geometry, np.ndarray]], data: FieldData) -> FieldData:
    """Returns data on a subset of its sites: geometry and site indices of each part."""
    geometries = tuple(geometry for geometry, _ in parts)
    indices = [kept for _, kept in parts]
    forcings = tuple(forcing.on(partial(_select_sites, indices)) for forcing in data.known)
    fetch = partial(_frames_at, data, indices)
    return replace(data, geometries=geometries, fetch=fetch, known=forcings)


def _frames_at(
    data: FieldData, indices: Sequence[np.ndarray], sample: int, times: slice
) -> np.ndarray:
    return _select_sites(indices, sample, data.frames(sample, times))


def _select_sites(indices: Sequence[np.ndarray], sample: int, values: np.ndarray) -> np.ndarray:
    return values[:, indices[sample if len(indices) > 1 else 0]]
