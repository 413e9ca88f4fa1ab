"""The content of a forecast file in any format, and the interface of its writers."""

import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

import numpy as np

from gpo.data.dataset import Variable
from gpo.data.dates import TimeOrigin
from gpo.data.geometry import UPWARDS
from gpo.data.query_points import Block, QueryPoints
from gpo.data.readers.names import AREAS

MAX_LETTERS = 60
"""Number of letters of the name of a variable; NetCDF allows 256 bytes."""
ATTRIBUTES = {"Conventions": "CF-1.8 UGRID-1.0"}
DEGREES = {
    "degrees_north": {"standard_name": "latitude", "long_name": "latitude", "axis": "Y"},
    "degrees_east": {"standard_name": "longitude", "long_name": "longitude", "axis": "X"},
}
"""Attributes of geographic coordinates by their units."""
GRID_MAPPING = "rotated_pole"
"""Grid mapping variable of a rotated grid."""
MESH, CELLS = "mesh", "mesh_face_nodes"
"""UGRID variables of the mesh topology and of the cells."""


@dataclass(frozen=True)
class ForecastLayout:
    """Dimensions, coordinates and attributes of a forecast file."""

    points: QueryPoints
    variables: tuple[Variable, ...]
    num_cases: int
    """Number of trajectories, or of samples of static maps."""
    times: np.ndarray | None = None
    """Times of the forecasts; None for static maps."""
    time_units: str = ""
    origin: TimeOrigin | None = None
    """Date of time zero if forecasts have dates; times are then in hours."""
    levels: Mapping[str, str] = field(default_factory=dict)
    """Level of the variables by name of the vertical axis."""
    number_type: Literal["f4", "f8"] = "f4"
    """Precision of the forecasts: double if the data are in double precision."""
    case_dim: str = ""
    """Name of the dimension of trajectories or samples; empty for a single case without one."""
    time_dim: str = "time"
    """Name of the time dimension."""

    def __post_init__(self) -> None:
        """Renames axes that have the name of a variable, which files with named axes refuse."""
        taken = {variable.name for variable in self.variables}
        names = tuple(f"axis_{name}" if name in taken else name for name in self.points.names)
        object.__setattr__(self, "points", replace(self.points, names=names))

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the variables in NetCDF and Zarr, where some letters are not allowed."""
        taken = {*self.dims, *(name for name, *_ in (*self.coordinates(), *self.auxiliaries()))}
        names: list[str] = []
        for variable in self.variables:
            name = re.sub(r"[/\x00-\x1f\x7f]", "_", variable.name).strip()[:MAX_LETTERS]
            name = name if re.match(r"\w", name) else f"_{name}"
            while name in taken:
                name += "_"
            taken.add(name)
            names.append(name)
        return tuple(names)

    @property
    def num_steps(self) -> int:
        """Number of forecast times of each case."""
        return 1 if self.times is None else len(self.times)

    @property
    def dims(self) -> tuple[str, ...]:
        """Names of the dimensions of each variable."""
        before = () if self.times is None else (self.time_dim,)
        return (*((self.case_dim,) if self.case_dim else ()), *before, *self.points.dims)

    @property
    def shape(self) -> tuple[int, ...]:
        """Lengths of the dimensions."""
        before = () if self.times is None else (self.num_steps,)
        return (*((self.num_cases,) if self.case_dim else ()), *before, *self.points.shape)

    def index(self, case: int, step: int, block: Block) -> tuple[int | slice, ...]:
        """Returns the index of a block of one forecast along all dimensions."""
        before = () if self.times is None else (step,)
        return (*((case,) if self.case_dim else ()), *before, *block)

    def coordinates(self) -> Iterator[tuple[str, tuple[str, ...], np.ndarray, dict[str, str]]]:
        """Yields name, dimensions, values and CF attributes of each coordinate."""
        points = self.points
        for number, (name, units) in enumerate(zip(points.names, points.units, strict=True)):
            attributes = {"units": units} if units else {}
            attributes |= DEGREES.get(units, {})
            attributes |= dict(points.attributes[number]) if points.attributes else {}
            axis = points.dims[number if points.is_grid else 0]
            yield name, (axis,), points.numbers[number], attributes | self._direction(name)
        for name, value in self.levels.items():
            yield name, (), np.array(float(value)), {"axis": "Z"}
        if self.times is not None:
            yield self.time_dim, (self.time_dim,), *self._times()

    def _times(self) -> tuple[np.ndarray, dict[str, str]]:
        """Returns times and their attributes; dates that are not whole hours count in seconds.

        A third of an hour has no exact number, and would not be the same date as in other files.
        """
        assert self.times is not None
        if self.origin is None:
            names = {"long_name": f"time in {self.time_units or 'frames'}", "axis": "T"}
            return self.times, names | ({"units": self.time_units} if self.time_units else {})
        times, units = self.times, self.origin.units
        seconds = np.round(3600 * times)
        if np.any(times % 1) and np.allclose(3600 * times, seconds, rtol=0, atol=1e-3):
            times, units = seconds.astype(np.int64), units.replace("hours", "seconds", 1)
        names = {"standard_name": "time", "long_name": "time", "axis": "T"}
        return times, {**names, "units": units, "calendar": self.origin.calendar}

    def auxiliaries(self) -> Iterator[tuple[str, tuple[str, ...], np.ndarray, dict[str, Any]]]:
        """Yields name, dimensions, values and attributes of meshes, areas, lon/lat and poles."""
        points = self.points
        if points.cells is not None:
            dimension, kind = (2, "face") if points.cells.shape[1] == 3 else (3, "volume")
            topology = {
                "cf_role": "mesh_topology", "topology_dimension": dimension,
                "node_coordinates": " ".join(points.names), f"{kind}_node_connectivity": CELLS,
            }  # fmt: skip
            yield MESH, (), np.array(0, np.int32), topology
            yield CELLS, ("cell", "corner"), points.cells.astype(np.int32), {"start_index": 0}
        if points.areas is not None:
            attributes = {"long_name": "area of the cell of a point, as a fraction of all"}
            yield AREAS, points.dims, points.areas, {**attributes, "units": "1"}
        if not points.is_grid:
            return
        if points.geographic_degrees is not None:
            for name, units, degrees in zip(
                ("longitude", "latitude"), ("degrees_east", "degrees_north"),
                points.geographic_degrees.T, strict=True,
            ):  # fmt: skip
                attributes = {"units": units, "standard_name": name}
                yield name, points.dims, degrees.reshape(points.shape), attributes
        if points.pole is not None:
            mapping = {"grid_mapping_name": "rotated_latitude_longitude", **asdict(points.pole)}
            yield GRID_MAPPING, (), np.array(0, np.int32), mapping

    def _direction(self, name: str) -> dict[str, str]:
        """Returns the CF standard name of an axis of a rotated or projected grid."""
        points, is_up = self.points, name.lower().startswith(UPWARDS)
        if points.pole is not None and points.is_grid:
            return {"standard_name": "grid_latitude" if is_up else "grid_longitude"}
        if points.geographic_degrees is None or points.placed is not None:
            return {}
        return {"standard_name": f"projection_{'y' if is_up else 'x'}_coordinate"}

    def attributes(self, variable: Variable) -> dict[str, str]:
        """Returns the CF attributes of a variable, with its coordinates and grid mapping."""
        attributes, points = dict(variable.attributes), self.points
        if variable.name not in self.names:
            attributes.setdefault("long_name", variable.name)
        auxiliary = [name for name, dims, *_ in self.auxiliaries() if dims == points.dims]
        names = [*(auxiliary if points.is_grid else points.names), *self.levels]
        if names:
            attributes["coordinates"] = " ".join(names)
        if points.cells is not None:
            attributes |= {"mesh": MESH, "location": "node"}
        if points.areas is not None:
            attributes["cell_measures"] = f"area: {AREAS}"
        if points.pole and points.is_grid:
            attributes["grid_mapping"] = GRID_MAPPING
        return attributes


class AbstractForecastWriter(ABC):
    """Writes forecasts in order, one block of points at a time."""

    num_done: int = 0
    """Number of blocks that an interrupted process has already written."""

    @abstractmethod
    def write(self, index: tuple[int | slice, ...], values: np.ndarray) -> None:
        """Writes a block of values, (grid, variables), at an index along the dimensions."""

    def keep(self, case: int, step: int, frames: np.ndarray) -> None:  # noqa: B027
        """Saves the input frames of a step, so that a killed process can be resumed."""

    def kept(self) -> tuple[int, int, np.ndarray] | None:
        """Returns case, step and frames that were saved last."""
        return None
