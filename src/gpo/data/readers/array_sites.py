"""Sites of named arrays whose coordinates have names of the user's own, such as `elem_xy`."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import torch

from gpo.data.dataset import DataError
from gpo.data.geometry import Geometry, sphere_domain
from gpo.data.readers.array_files import Stored
from gpo.data.readers.axis_order import MOST_COMPONENTS, SMALLEST_GRID, Sites, from_zero
from gpo.data.readers.coordinate_names import (
    column_groups,
    in_degrees,
    is_cells,
    is_in_degrees,
    is_table,
    is_upwards,
    words,
)
from gpo.data.readers.faces import face_areas
from gpo.data.readers.sites import check_cells, check_points, scattered
from gpo.numerics.domain import unit_vectors

Arrays = Mapping[str, Stored]


def stated_sites(path: Path, arrays: Arrays, names: Sequence[str]) -> Sites:
    """Returns the sites whose coordinates the user names: one array, or one for every axis."""
    for name in names:
        if name not in arrays:
            there = ", ".join(arrays)
            raise DataError(path, name, f"is not in the file, which has {there}.")
    if len(names) > 1 or arrays[names[0]].is_vector:
        lengths = {arrays[name].size for name in names}
        if len(lengths) > 1 or not all(arrays[name].is_vector for name in names):
            shapes = ", ".join(f"{name} {arrays[name].shape}" for name in names)
            problem = f"must be one number per site in each of --coords, got {shapes}."
            raise DataError(path, names[0], problem)
    return _sites(path, arrays, tuple(names))


def recognised_sites(path: Path, arrays: Arrays) -> Sites | None:
    """Returns sites whose coordinates have telling names and fit other arrays; nothing else."""
    for names in _candidates(arrays):
        count = _count(arrays, names)
        fields = [
            stored
            for name, stored in arrays.items()
            if name not in names and not stored.is_vector and not is_table(name)
        ]
        if any(_may_be_field(stored, count) for stored in fields):
            return _sites(path, arrays, names)
    return None


def check_no_coordinates(path: Path, arrays: Arrays) -> None:
    """Refuses arrays that look like coordinates of another's sites, but have names that say nothing."""
    for name, stored in arrays.items():
        shape = stored.shape
        if len(shape) != 2 or not _is_table(stored):
            continue
        count = max(shape)
        others = [other for key, other in arrays.items() if key != name and not _is_table(other)]
        if any(len(other.shape) == 2 and _may_be_field(other, count) for other in others):
            problem = (
                f"has shape {shape}, as if it were the coordinates of {count} sites. Say so: "
                f"`--coords {name}`; or leave it out by naming the variables with --var."
            )
            raise DataError(path, name, problem)


def possible_coordinates(arrays: Arrays, count: int, fields: Sequence[str]) -> list[str]:
    """Returns names of arrays that may be coordinates of so many sites, whatever they are called."""
    others = {name: stored for name, stored in arrays.items() if name not in fields}
    tables = [
        name
        for name, stored in others.items()
        if len(stored.shape) == 2 and sorted(stored.shape) in ([2, count], [3, count])
    ]
    columns = [name for name, stored in others.items() if stored.is_vector and stored.size == count]
    return tables[:1] or (columns[:3] if len(columns) > 1 else [])


def _candidates(arrays: Arrays) -> Iterator[tuple[str, ...]]:
    """Yields names of arrays that may be coordinates together, those of elements first."""
    tables = [name for name, stored in arrays.items() if is_table(name) and _is_table(stored)]
    vectors = [name for name, stored in arrays.items() if stored.is_vector and stored.size > 1]
    groups = [
        group
        for group in column_groups(vectors)
        if len({arrays[name].size for name in group}) == 1
        and arrays[group[0]].size >= SMALLEST_GRID
    ]
    yield from ((name,) for name in tables)
    yield from groups


def _is_table(stored: Stored) -> bool:
    shape = stored.shape
    return len(shape) == 2 and min(shape) in (2, 3) and max(shape) >= SMALLEST_GRID


def _may_be_field(stored: Stored, count: int) -> bool:
    """Returns whether an array has these sites along one axis, and no more than a series has."""
    shape = stored.shape
    # An array with as many sites along two axes is a grid.
    if not 2 <= len(shape) <= 4 or shape.count(count) != 1:
        return False
    if len(shape) == 2:
        return min(shape) > 3
    # Sites that come first are more likely samples, but where components follow.
    others = [length for length in shape if length != count]
    return shape[0] != count or (len(shape) == 3 and min(others) <= MOST_COMPONENTS)


def _count(arrays: Arrays, names: tuple[str, ...]) -> int:
    return max(arrays[names[0]].shape)


def _sites(path: Path, arrays: Arrays, names: tuple[str, ...]) -> Sites:
    coords, is_sphere = _coords(path, arrays, names)
    cells = [name for name in arrays if is_cells(name) and len(arrays[name].shape) == 2]
    cells = [name for name in cells if min(arrays[name].shape) in (3, 4)]
    geometry, used = None, names
    domain = sphere_domain(coords) if is_sphere else None
    if cells:
        corners = _corners(path, arrays, cells[0])
        used = (*names, cells[0])
        geometry = _in_elements(path, arrays, coords, corners, used)
        if geometry is None and corners.max() <= len(coords):
            corners = from_zero(path, cells[0], corners, len(coords))
            corners = check_cells(path, cells[0], corners, coords)
            geometry = scattered(path, coords, corners, domain)
    if geometry is None:
        geometry = scattered(path, coords, None, domain)
    found = geometry
    others = tuple(name for group in _candidates(arrays) for name in group if name not in used)
    return Sites((("points",),), {"points": len(coords)}, (*used, *others), lambda counts: found)


def _in_elements(
    path: Path, arrays: Arrays, coords: np.ndarray, corners: np.ndarray, used: tuple[str, ...]
) -> Geometry | None:
    """Returns sites in the middle of elements, weighted by their areas; nothing without nodes."""
    if len(corners) != len(coords):
        return None
    for names in _candidates(arrays):
        # Elements that count from one name as many nodes as there are, not one less.
        start = int(corners.min() >= 1 and corners.max() == _count(arrays, names))
        if not set(names) & set(used) and _count(arrays, names) > corners.max() - start:
            nodes, is_sphere = _coords(path, arrays, names)
            geometry = scattered(path, coords, None, sphere_domain(coords) if is_sphere else None)
            areas = face_areas(corners.astype(np.int64) - start, nodes)
            return geometry.with_weights(areas) if areas.any() else geometry
    return None


def _corners(path: Path, arrays: Arrays, name: str) -> np.ndarray:
    values = arrays[name].values()
    values = values.T if values.shape[0] in (3, 4) and values.shape[1] > 4 else values
    if not np.array_equal(values, np.rint(values)):
        raise DataError(path, name, "must hold whole numbers, which count sites from zero.")
    return values


def _coords(path: Path, arrays: Arrays, names: tuple[str, ...]) -> tuple[np.ndarray, bool]:
    """Returns points by dim, and whether they are unit vectors from longitude and latitude."""
    first = names[0]
    columns = [np.ravel(arrays[name].values()).astype(np.float64) for name in names]
    if len(names) == 1 and not arrays[first].is_vector:
        table = arrays[first].values().astype(np.float64)
        table = table.T if table.shape[0] in (2, 3) and table.shape[1] > 3 else table
        kinds = words(first)
        if "lonlat" not in kinds and "latlon" not in kinds:
            return check_points(path, first, table), False
        columns = list(table.T[:: -1 if "latlon" in kinds else 1])
    elif len(names) < 2 or not is_in_degrees(names[:2]):
        return check_points(path, first, np.stack(columns, -1)), False
    elif is_upwards(first):
        columns = columns[::-1]
    longitude, latitude = check_points(path, first, np.stack(columns[:2], -1)).T
    longitude, latitude = in_degrees(longitude, latitude, arrays[first].units, first)
    if np.abs(latitude).max() > 90.001:
        problem = f"must lie within -90 and 90 degrees, got {np.abs(latitude).max():g}."
        raise DataError(path, names[-1], problem)
    pair = torch.from_numpy(longitude), torch.from_numpy(latitude)
    return unit_vectors(*pair).numpy(), True
