"""Sites of named arrays with coordinates of arbitrary names, such as `elem_xy`."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from gpo.data.dataset import DataError
from gpo.data.readers.array_files import Stored
from gpo.data.readers.axis_order import (
    MAX_COMPONENTS,
    SMALLEST_GRID,
    Sites,
    from_zero,
    points_sites,
)
from gpo.data.readers.base import check_latitudes, choose_variables
from gpo.data.readers.coordinate_names import (
    column_groups,
    in_degrees,
    is_cells,
    is_in_degrees,
    is_table,
    is_upwards,
    words,
)
from gpo.data.readers.lazy import DEGREES, SITES, mesh_variables, point_coordinates
from gpo.data.readers.sites import check_cells, check_points

Arrays = Mapping[str, Stored]


def stated_sites(path: Path, arrays: Arrays, names: Sequence[str]) -> Sites:
    """Returns the sites with the coordinates that the user names: one 2D array, or 1D arrays."""
    choose_variables(path, names, list(arrays))
    if len(names) > 1 or arrays[names[0]].is_vector:
        lengths = {arrays[name].size for name in names}
        if len(lengths) > 1 or not all(arrays[name].is_vector for name in names):
            shapes = ", ".join(f"{name} {arrays[name].shape}" for name in names)
            problem = f"must have one value per site, as all of --coords, got {shapes}."
            raise DataError(path, names[0], problem)
    return _sites(path, arrays, tuple(names))


def recognised_sites(path: Path, arrays: Arrays) -> Sites | None:
    """Returns sites with coordinates of recognised names that fit other arrays; None if none."""
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
    """Raises a `DataError` for an array that may be coordinates but has no recognised name."""
    for name, stored in arrays.items():
        shape = stored.shape
        if len(shape) != 2 or not _is_table(stored):
            continue
        count = max(shape)
        others = [other for key, other in arrays.items() if key != name and not _is_table(other)]
        if any(len(other.shape) == 2 and _may_be_field(other, count) for other in others):
            problem = (
                f"has shape {shape} and may be the coordinates of {count} sites. If so: "
                f"`--coords {name}`; otherwise name the variables to read with --var."
            )
            raise DataError(path, name, problem)


def possible_coordinates(arrays: Arrays, count: int, fields: Sequence[str]) -> list[str]:
    """Returns names of arrays whose shapes may be those of coordinates of `count` sites."""
    others = {name: stored for name, stored in arrays.items() if name not in fields}
    tables = [
        name
        for name, stored in others.items()
        if len(stored.shape) == 2 and sorted(stored.shape) in ([2, count], [3, count])
    ]
    columns = [name for name, stored in others.items() if stored.is_vector and stored.size == count]
    return tables[:1] or (columns[:3] if len(columns) > 1 else [])


def _candidates(arrays: Arrays) -> Iterator[tuple[str, ...]]:
    """Yields groups of names that may be coordinates, 2D arrays first."""
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
    """Returns whether an array has `count` sites along one axis and may be a time series."""
    shape = stored.shape
    # An array with this length along two axes is a grid.
    if not 2 <= len(shape) <= 4 or shape.count(count) != 1:
        return False
    if len(shape) == 2:
        return min(shape) > 3
    # A first axis is more likely that of samples, unless components follow.
    others = [length for length in shape if length != count]
    return shape[0] != count or (len(shape) == 3 and min(others) <= MAX_COMPONENTS)


def _count(arrays: Arrays, names: tuple[str, ...]) -> int:
    return max(arrays[names[0]].shape)


def _sites(path: Path, arrays: Arrays, names: tuple[str, ...]) -> Sites:
    coords, labels = _coords(path, arrays, names)
    cells = [name for name in arrays if is_cells(name) and len(arrays[name].shape) == 2]
    cells = [name for name in cells if min(arrays[name].shape) in (3, 4)]
    sites, used = None, names
    if cells:
        corners = _corners(path, arrays, cells[0])
        used = (*names, cells[0])
        sites = _in_elements(path, arrays, points_sites(coords, None, used, labels), corners)
        if sites is None and corners.max() <= len(coords):
            corners = from_zero(path, cells[0], corners, len(coords))
            corners = check_cells(path, cells[0], corners, coords)
            sites = points_sites(coords, corners, used, labels)
    sites = sites or points_sites(coords, None, used, labels)
    others = tuple(name for group in _candidates(arrays) for name in group if name not in used)
    return replace(sites, used=(*used, *others))


def _in_elements(path: Path, arrays: Arrays, sites: Sites, corners: np.ndarray) -> Sites | None:
    """Returns sites at the centres of elements, weighted by their areas; None without nodes."""
    if len(corners) != sites.lengths["points"]:
        return None
    for names in _candidates(arrays):
        # The largest index of one-based elements is the number of nodes.
        start = int(corners.min() >= 1 and corners.max() == _count(arrays, names))
        if not set(names) & set(sites.used) and _count(arrays, names) > corners.max() - start:
            nodes, labels = _coords(path, arrays, names)
            labels = [f"node_{label}" for label in labels]
            coords = point_coordinates(("nodes",), nodes, labels)
            for name, part in zip(labels, coords.values(), strict=False):
                if name.endswith(DEGREES):
                    part.attrs = {"standard_name": name.removeprefix("node_")}
            mesh = mesh_variables(
                tuple(coords), corners.astype(np.int64) - start, ("points", "corner"),
                faces=tuple(sites.coords),
            )  # fmt: skip
            return replace(sites, coords={**sites.coords, **coords, **mesh})
    return None


def _corners(path: Path, arrays: Arrays, name: str) -> np.ndarray:
    values = arrays[name].values()
    values = values.T if values.shape[0] in (3, 4) and values.shape[1] > 4 else values
    if not np.array_equal(values, np.rint(values)):
        raise DataError(path, name, "must be integers, the indices of sites from zero.")
    return values


def _coords(
    path: Path, arrays: Arrays, names: tuple[str, ...]
) -> tuple[np.ndarray, tuple[str, ...]]:
    """Returns coordinates, (points, dim), and their names, which say whether they are degrees."""
    first = names[0]
    columns = [np.ravel(arrays[name].values()).astype(np.float64) for name in names]
    if len(names) == 1 and not arrays[first].is_vector:
        table = arrays[first].values().astype(np.float64)
        table = table.T if table.shape[0] in (2, 3) and table.shape[1] > 3 else table
        kinds = words(first)
        if "lonlat" not in kinds and "latlon" not in kinds:
            return check_points(path, first, table), SITES
        columns = list(table.T[:: -1 if "latlon" in kinds else 1])
    elif len(names) < 2 or not is_in_degrees(names[:2]):
        return check_points(path, first, np.stack(columns, -1)), SITES
    elif is_upwards(first):
        columns = columns[::-1]
    longitude, latitude = check_points(path, first, np.stack(columns[:2], -1)).T
    longitude, latitude = in_degrees(longitude, latitude, arrays[first].units, first)
    check_latitudes(path, names[-1], latitude)
    return np.stack([longitude, latitude], -1), DEGREES
