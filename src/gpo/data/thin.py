"""Data on every n-th site of its grid: a coarser resolution of the same fields."""

from dataclasses import replace

from gpo.data.errors import DataError
from gpo.data.trajectories import Pairs, Trajectories


def thinned(data: Trajectories | Pairs, factor: int) -> Trajectories | Pairs:
    """Returns the same data on every n-th site along each axis.

    Args:
        data: Fields on a structured grid.
        factor: Which site is kept: 1 for all, 2 for every second one.
    """
    if factor == 1:
        return data
    try:
        parts = [geometry.thinned(factor) for geometry in data.geometries]
    except ValueError as error:
        raise DataError(data.source, "coords", f"{error}.") from error
    geometries = tuple(geometry for geometry, _ in parts)
    numbers = [kept for _, kept in parts]

    def kept_of(sample: int):  # noqa: ANN202
        return numbers[sample if len(numbers) > 1 else 0]

    if isinstance(data, Pairs):
        maps = data
        return replace(
            data,
            geometries=geometries,
            fetch=lambda sample: tuple(part[kept_of(sample)] for part in maps.sample(sample)),
        )
    series = data
    return replace(
        data,
        geometries=geometries,
        fetch=lambda number, times: series.frames(number, times)[:, kept_of(number)],
    )
