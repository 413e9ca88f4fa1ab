"""Time series on meshes as HDF5, after MeshGraphNets: one group per trajectory, or the root group.

A group contains `mesh_pos` or `pos` (points, dim), `cells` (cells, 3 or 4) and fields such as
`density` (T, points, 1) or `velocity` (T, points, 2). Positions and cells may have a leading time
axis along which they are constant; the first, middle and last frame are compared. `time` (T,) is
optional, `node_type` is ignored, and scalars are parameters. Groups and fields are sorted by name in
natural order.
"""

import re
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np

from gpo.data.dataset import DataError, FieldData, RowReader, Variable
from gpo.data.geometry import Geometry
from gpo.data.readers.base import AbstractReader, ReadOptions, check_axis
from gpo.data.readers.hdf5 import array, dataset, is_hdf5, open_hdf5, text_attribute
from gpo.data.readers.sites import (
    Column,
    check_cells,
    check_points,
    choose_columns,
    component_names,
    mask_missing,
    portions,
    unstructured,
)
from gpo.numerics.domain import Domain

POSITIONS = ("mesh_pos", "pos")
NO_FIELDS = (*POSITIONS, "cells", "node_type", "time")


class MeshSeriesReader(AbstractReader):
    """Trajectories on one common mesh or one mesh each, in one domain."""

    name = "mesh-series"
    layout = "HDF5 with mesh_pos or pos, cells and fields (T, points, components)"

    def recognises(self, path: Path) -> bool:
        """Returns whether the root or its first group has positions and cells."""
        if not is_hdf5(path):
            return False
        with h5py.File(path) as file:
            return any("cells" in group for group in _groups(file)[:1])

    def read(self, path: Path, options: ReadOptions) -> FieldData:
        """Returns the fields; vectors are split into components such as velocity_x and velocity_y."""
        with open_hdf5(path) as file:
            groups = _groups(file)
            if not groups:
                content = ", ".join(file) or "nothing"
                raise DataError(path, "mesh_pos", f"is missing, and `pos` too; / has {content}.")
            series = [_series(path, group) for group in groups]
        first = series[0]
        for other in series[1:]:
            _check_compatible(path, first, other)
        columns = choose_columns(path, options.variables, first.components)
        groups = tuple(part.group for part in series)
        fetch = RowReader(_FrameReader(path, groups, tuple(columns)))
        return FieldData(
            layout=self.name,
            source=path,
            variables=tuple(Variable(part.variable, first.units[part.array]) for part in columns),
            geometries=_geometries(path, series, columns, fetch),
            time=first.time,
            time_units=first.units["time"],
            num_samples=len(series),
            fetch=fetch,
            parameters={
                name: np.array([part.constants[name] for part in series])
                for name in first.constants
            },
        )


@dataclass(frozen=True)
class _Series:
    """A group without the values of its fields."""

    group: str
    coords: np.ndarray
    cells: np.ndarray
    time: np.ndarray
    components: dict[str, list[str]]
    constants: dict[str, float]
    units: dict[str, str]


@dataclass(frozen=True)
class _FrameReader:
    """Reads frames at a range of sites; the file is opened for each call."""

    path: Path
    groups: tuple[str, ...]
    columns: tuple[Column, ...]

    def __call__(self, trajectory: int, times: slice, sites: slice) -> np.ndarray:
        key = (times, sites)
        with open_hdf5(self.path) as file:
            prefix = self.groups[trajectory]
            names = dict.fromkeys(column.array for column in self.columns)
            parts = {name: array(self.path, file, f"{prefix}/{name}", key) for name in names}
        parts = {name: part if part.ndim == 3 else part[..., None] for name, part in parts.items()}
        return np.stack([parts[col.array][..., col.component] for col in self.columns], -1)


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
    components: dict[str, list[str]] = {}
    constants: dict[str, float] = {}
    units = {"time": text_attribute(group["time"], "units") if "time" in group else ""}
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
        components[name] = component_names(name, count, coords.shape[1])
        units[name] = text_attribute(item, "units")
    if num_times is None:
        raise DataError(path, f"{label}/", f"holds no field; it has {', '.join(group)}.")
    time = _time(path, group, num_times)
    return _Series(label, coords, cells, time, components, constants, units)


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
        fields = ", ".join([*first.components, *first.constants])
        problem = f"must have the fields of {first.group}, which are {fields}."
        raise DataError(path, other.group, problem)
    if not np.array_equal(other.time, first.time):
        problem = f"must be the same as in {first.group}: all trajectories share their times."
        raise DataError(path, f"{other.group}/time", problem)


def _geometries(
    path: Path, series: list[_Series], columns: list[Column], fetch: RowReader
) -> tuple[Geometry, ...]:
    """Returns one geometry if all trajectories share it, otherwise one per trajectory."""
    corners = [corner for part in series for corner in (part.coords.min(0), part.coords.max(0))]
    if len({len(corner) for corner in corners}) > 1:
        raise DataError(path, "mesh_pos", "must have the same dim in all trajectories.")
    lower, upper = np.min(corners, 0), np.max(corners, 0)
    domain = Domain.box(lower.tolist(), np.where(upper > lower, upper, lower + 1).tolist())
    geometries: list[Geometry] = []
    for trajectory, part in enumerate(series):
        names = [f"{part.group}/{column.variable}" for column in columns]
        geometry = unstructured(path, part.coords, part.cells, domain)
        frames = portions(fetch, [trajectory], len(part.time))
        geometries.append(mask_missing(path, names, geometry, frames))
    is_shared = all(_is_same(geometries[0], geometry) for geometry in geometries[1:])
    return tuple(geometries[:1] if is_shared else geometries)


def _is_same(first: Geometry, second: Geometry) -> bool:
    return all(
        np.array_equal(getattr(first, part), getattr(second, part))
        for part in ("coords", "weights", "triangles")
    )
