"""Data on a subset of its sites: every n-th one along each axis, or a random fraction."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from gpo.data.dataset import DataError, StaticMaps, Trajectories
from gpo.data.geometry import Geometry


def coarsen(data: Trajectories | StaticMaps, factor: int) -> Trajectories | StaticMaps:
    """Returns the data on every n-th site along each axis.

    Args:
        data: Fields on a structured grid.
        factor: 1 keeps all sites, 2 every second one.
    """
    if factor == 1:
        return data
    try:
        return _restrict([geometry.coarsen(factor) for geometry in data.geometries], data)
    except ValueError as error:
        raise DataError(data.source, "coords", f"{error}.") from error


def sampled(
    data: Trajectories | StaticMaps, fraction: float, seed: int = 0
) -> Trajectories | StaticMaps:
    """Returns the data on a random subset of its sites, as scattered points.

    Args:
        data: Fields on any sites.
        fraction: Fraction of the sites that is kept, from 0 to 1.
        seed: Seed of the choice.
    """
    generator = np.random.default_rng(seed)
    parts = []
    for geometry in data.geometries:
        count = max(1, round(fraction * geometry.num_points))
        numbers = np.sort(generator.permutation(geometry.num_points)[:count])
        parts.append((geometry.chosen(numbers), numbers))
    return _restrict(parts, data)


def _restrict(
    parts: Sequence[tuple[Geometry, np.ndarray]], data: Trajectories | StaticMaps
) -> Trajectories | StaticMaps:
    """Returns data on a subset of its sites, given as a geometry and site numbers each."""
    geometries = tuple(geometry for geometry, _ in parts)
    numbers = [kept for _, kept in parts]
    if isinstance(data, StaticMaps):
        return replace(data, geometries=geometries, fetch=partial(_map_at, data, numbers))
    known = tuple(forcing.on(partial(_chosen_sites, numbers)) for forcing in data.known)
    fetch = partial(_frames_at, data, numbers)
    return replace(data, geometries=geometries, fetch=fetch, known=known)


def _map_at(
    data: StaticMaps, numbers: Sequence[np.ndarray], sample: int
) -> tuple[np.ndarray, np.ndarray]:
    kept = numbers[sample if len(numbers) > 1 else 0]
    given, wanted = data.sample(sample)
    return given[kept], wanted[kept]


def _frames_at(
    data: Trajectories, numbers: Sequence[np.ndarray], trajectory: int, times: slice
) -> np.ndarray:
    kept = numbers[trajectory if len(numbers) > 1 else 0]
    return data.frames(trajectory, times)[:, kept]


def _chosen_sites(numbers: Sequence[np.ndarray], trajectory: int, values: np.ndarray) -> np.ndarray:
    return values[:, numbers[trajectory if len(numbers) > 1 else 0]]
