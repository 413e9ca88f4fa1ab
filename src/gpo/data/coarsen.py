"""Data on some of its sites: every n-th one of a grid, or a random part of them."""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from gpo.data.dataset import StaticMaps, Trajectories
from gpo.data.errors import DataError
from gpo.data.geometry import Geometry


def coarsened(data: Trajectories | StaticMaps, factor: int) -> Trajectories | StaticMaps:
    """Returns the same data on every n-th site along each axis.

    Args:
        data: Fields on a structured grid.
        factor: Which site is kept: 1 for all, 2 for every second one.
    """
    if factor == 1:
        return data
    try:
        return _on([geometry.coarsened(factor) for geometry in data.geometries], data)
    except ValueError as error:
        raise DataError(data.source, "coords", f"{error}.") from error


def sampled(
    data: Trajectories | StaticMaps, share: float, seed: int = 0
) -> Trajectories | StaticMaps:
    """Returns the same data on a random part of its sites, as scattered points.

    Args:
        data: Fields on any sites.
        share: The part that is kept, from 0 to 1.
        seed: Which sites.
    """
    generator = np.random.default_rng(seed)
    parts = []
    for geometry in data.geometries:
        count = max(1, round(share * geometry.num_points))
        numbers = np.sort(generator.permutation(geometry.num_points)[:count])
        parts.append((geometry.chosen(numbers), numbers))
    return _on(parts, data)


def _on(
    parts: Sequence[tuple[Geometry, np.ndarray]], data: Trajectories | StaticMaps
) -> Trajectories | StaticMaps:
    """Returns data on some of its sites: their geometries and numbers."""
    geometries = tuple(geometry for geometry, _ in parts)
    numbers = [kept for _, kept in parts]
    if isinstance(data, StaticMaps):
        return replace(data, geometries=geometries, fetch=partial(_some_of_map, data, numbers))
    return replace(data, geometries=geometries, fetch=partial(_some_of_frames, data, numbers))


def _some_of_map(
    data: StaticMaps, numbers: Sequence[np.ndarray], sample: int
) -> tuple[np.ndarray, np.ndarray]:
    kept = numbers[sample if len(numbers) > 1 else 0]
    given, wanted = data.sample(sample)
    return given[kept], wanted[kept]


def _some_of_frames(
    data: Trajectories, numbers: Sequence[np.ndarray], trajectory: int, times: slice
) -> np.ndarray:
    kept = numbers[trajectory if len(numbers) > 1 else 0]
    return data.frames(trajectory, times)[:, kept]
