"""Time series on meshes as HDF5, after MeshGraphNets: one group per trajectory, or the root group.

A group contains `mesh_pos` or `pos` (points, dim), `cells` (cells, 3 or 4) and fields such as
`density` (T, points, 1) or `velocity` (T, points, 2). Positions and cells may have a leading time
axis along which they are constant; the first, middle and last frame are compared. `time` (T,) is
optional, `node_type` is ignored, and scalars are parameters. Groups and fields are sorted by name in
natural order.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import h5py
import numpy as np
import xarray as xr

from gpo.data.dataset import DataError
from gpo.data.readers.base import ReadOptions, check_axis
from gpo.data.readers.build import Reader
from gpo.data.readers.hdf5 import array, dataset, is_hdf5, open_hdf5, stored_array, text_attribute
from gpo.data.readers.lazy import (
    PART_OF,
    SITE_DIMS,
    TIME_UNITS,
    TRAJECTORY,
    Key,
    Stored,
    joined,
    mesh_variables,
    named_dataset,
    point_coordinates,
)
from gpo.data.readers.sites import check_cells, check_points, component_names
from gpo.data.readers.ugrid import NO_CORNER

POSITIONS = ("mesh_pos", "pos")
DIMS = (TRAJECTORY, "time", "points")
NO_FIELDS = (*POSITIONS, "cells", "node_type", "time")


def _recognises(path: Path) -> bool:
    """Returns whether the root or its first group has positions and cells."""
    if not is_hdf5(path):
        return False
    with h5py.File(path) as file:
        return any("cells" in group for group in _groups(file)[:1])


def open_mesh_series(path: Path, options: ReadOptions) -> xr.Dataset:
    """Returns trajectories on one common mesh or one mesh each, padded to the largest.

    Vectors are split into components such as velocity_x and velocity_y.
    """
    with open_hdf5(path) as file:
        groups = _groups(file)
        if not groups:
            content = ", ".join(file) or "nothing"
            raise DataError(path, "mesh_pos", f"is missing, and `pos` too; / has {content}.")
        series = [_series(path, group) for group in groups]
    first = series[0]
    for other in series[1:]:
        _check_compatible(path, first, other)
    count = max(len(part.coords) for part in series)
    fields: dict[str, xr.Variable] = {}
    for name, array_name in first.components.items():
        parts = [_with_points(part.fields[name], count) for part in series]
        fields[name] = joined(parts).variable(DIMS)
        fields[name].attrs[PART_OF] = array_name
    coords = point_coordinates(
        (TRAJECTORY, "points"),
        _padded([part.coords for part in series], np.nan),
    )
    cells = _padded([part.cells for part in series], NO_CORNER)
    is_volume = cells.shape[2] == 4 and first.coords.shape[1] == 3
    mesh = mesh_variables(tuple(coords), cells, (TRAJECTORY, "cell", "corner"), is_volume=is_volume)
    coords["time"] = xr.Variable("time", first.time, {TIME_UNITS: first.time_units})
    parameters = {
        name: xr.Variable(TRAJECTORY, [part.constants[name] for part in series])
        for name in first.constants
    }
    return named_dataset({**fields, **mesh}, coords, {SITE_DIMS: ("points",)}, parameters)


def _padded(tables: Sequence[np.ndarray], fill: float | int) -> np.ndarray:
    """Stacks tables of different lengths, filled to the length of the longest."""
    if len({table.shape[1] for table in tables}) > 1:
        raise ValueError("the trajectories have meshes of different dim")
    length = max(len(table) for table in tables)
    result = np.full((len(tables), length, tables[0].shape[1]), fill, tables[0].dtype)
    for number, table in enumerate(tables):
        result[number, : len(table)] = table
    return result


def _with_points(part: Stored, count: int) -> Stored:
    """Returns fields with points of NaN behind the last one, so that there are `count`."""
    shape, dtype = (*part.shape[:2], count), np.result_type(part.dtype, np.float32)
    if shape == part.shape:
        return part
    return replace(part, shape=shape, dtype=dtype, read=partial(_read_padded, part, count))


def _read_padded(part: Stored, count: int, key: Key) -> np.ndarray:
    values = part.read((*key[:2], slice(None)))
    values = values.astype(np.result_type(values, np.float32))
    padding = [*[(0, 0)] * (values.ndim - 1), (0, count - part.shape[2])]
    return np.pad(values, padding, constant_values=np.nan)[..., key[2]]


@dataclass(frozen=True)
class _Series:
    """A group without the values of its fields."""

    group: str
    coords: np.ndarray
    cells: np.ndarray
    time: np.ndarray
    time_units: str
    components: dict[str, str]
    """Name of the data set of each component."""
    fields: dict[str, Stored]
    constants: dict[str, float]


def _groups(file: h5py.File) -> list[h5py.Group]:
    """Returns the groups with positions: the root, or groups in it."""
    if any(name in file for name in POSITIONS):
        return [file]
    items = [item for item in file.values() if isinstance(item, h5py.Group)]
    groups = [group for group in items if any(name in group for name in POSITIONS)]
    return sorted(groups, key=lambda group: _natural(str(group.name)))


def _natural(name: str) -> list[tuple[int, str]]:
    """Returns the key of natural order, in which 10 follows 9."""
    parts = re.split(r"(\d+)", name)
    return [(int(part), "") if part.isdigit() else (-1, part) for part in parts]


def _series(path: Path, group: h5py.Group) -> _Series:
    label = str(group.name).rstrip("/")
    position = next(name for name in POSITIONS if name in group)
    coords = check_points(path, f"{label}/{position}", _constant(path, group, position))
    cells = check_cells(path, f"{label}/cells", _constant(path, group, "cells"), coords)
    components: dict[str, str] = {}
    fields: dict[str, Stored] = {}
    constants: dict[str, float] = {}
    units = text_attribute(group["time"], "units") if "time" in group else ""
    num_times = None
    for name, item in group.items():
        if name in NO_FIELDS or not isinstance(item, h5py.Dataset) or item.dtype.kind not in "fiub":
            continue
        if item.ndim == 0:
            constants[name] = float(array(path, group, name))
            continue
        num_times = num_times if num_times is not None else item.shape[0]
        if item.ndim not in (2, 3) or item.shape[:2] != (num_times, len(coords)) or 0 in item.shape:
            expected = f"(T, {len(coords)}, components), T the same for all fields and not zero"
            problem = f"must have shape {expected}, got {item.shape}."
            raise DataError(path, f"{label}/{name}", problem)
        count = item.shape[2] if item.ndim == 3 else 1
        order = ("time", "points", "component")[: item.ndim]
        for number, component in enumerate(component_names(name, count, coords.shape[1])):
            part = stored_array(path, item).arranged(order, DIMS, {"component": number})
            components[component], fields[component] = name, part
    if num_times is None:
        raise DataError(path, f"{label}/", f"holds no field; it has {', '.join(group)}.")
    time = _time(path, group, num_times)
    return _Series(label, coords, cells, time, units, components, fields, constants)


def _constant(path: Path, group: h5py.Group, name: str) -> np.ndarray:
    """Returns positions or cells, which must not change along a time axis."""
    item = dataset(path, group, name)
    if item.ndim != 3:
        return array(path, group, name)
    if item.shape[0] == 0:
        raise DataError(path, f"{group.name}/{name}", f"must not be empty, got {item.shape}.")
    values = array(path, group, name, 0)
    for frame in (item.shape[0] // 2, item.shape[0] - 1):
        if not np.array_equal(values, array(path, group, name, frame)):
            problem = "must not change in time: moving meshes are not supported."
            raise DataError(path, f"{group.name}/{name}", problem)
    return values


def _time(path: Path, group: h5py.Group, num_times: int) -> np.ndarray:
    """Returns the times of the frames, or their indices if the file has no times."""
    if "time" not in group:
        return np.arange(num_times, dtype=np.float64)
    time = np.ravel(array(path, group, "time"))
    if len(time) != num_times:
        problem = f"must have {num_times} times as the fields have, got {len(time)}."
        raise DataError(path, f"{group.name}/time", problem)
    return check_axis(path, "time", time)


def _check_compatible(path: Path, first: _Series, other: _Series) -> None:
    """Raises a `DataError` if trajectories differ in more than their mesh."""
    if other.components != first.components or other.constants.keys() != first.constants.keys():
        fields = ", ".join(dict.fromkeys([*first.components.values(), *first.constants]))
        problem = f"must have the fields of {first.group}, which are {fields}."
        raise DataError(path, other.group, problem)
    if not np.array_equal(other.time, first.time):
        problem = f"must be the same as in {first.group}: all trajectories share their times."
        raise DataError(path, f"{other.group}/time", problem)


READER = Reader(
    name="mesh-series",
    layout="HDF5 with mesh_pos or pos, cells and fields (T, points, components)",
    recognises=_recognises,
    open=open_mesh_series,
)
