"""The content of a file of forecasts in any format, and the interface that writes it by blocks."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import numpy as np

from gpo.data.dataset import Variable
from gpo.data.dates import TimeOrigin
from gpo.data.geometry import UPWARDS
from gpo.data.query_points import Block, QueryPoints
from gpo.data.readers.coordinate_names import AREAS

ATTRIBUTES = {"Conventions": "CF-1.8 UGRID-1.0"}
DEGREES = {
    "latitude": {"standard_name": "latitude", "long_name": "latitude", "axis": "Y"},
    "longitude": {"standard_name": "longitude", "long_name": "longitude", "axis": "X"},
}
"""Attributes of the coordinates on the sphere."""
GRID_MAPPING = "rotated_pole"
"""Variable that says where the pole of a rotated grid is."""
MESH, CELLS = "mesh", "mesh_face_nodes"
"""Variables that say what the mesh is, and what its cells are."""


@dataclass(frozen=True)
class ForecastLayout:
    """Variables by trajectory, time and point; by sample and point for static maps."""

    points: QueryPoints
    variables: tuple[Variable, ...]
    num_cases: int
    """Trajectories, or samples of static maps."""
    times: np.ndarray | None = None
    """Times of the forecasts; none for static maps."""
    time_units: str = ""
    origin: TimeOrigin | None = None
    """The date of time zero, where forecasts have dates; times are hours then."""
    levels: Mapping[str, str] = field(default_factory=dict)
    """The level on which variables are, by name of the vertical axis."""
    number_type: Literal["f4", "f8"] = "f4"
    """In which forecasts are written: double precision where the data are in it."""

    @property
    def num_steps(self) -> int:
        """Forecasts of every case."""
        return 1 if self.times is None else len(self.times)

    @property
    def dims(self) -> tuple[str, ...]:
        """Names of the dimensions of every variable."""
        before = ("sample",) if self.times is None else ("trajectory", "time")
        return (*before, *self.points.dims)

    @property
    def shape(self) -> tuple[int, ...]:
        """Lengths of these dimensions."""
        before = (self.num_cases,) if self.times is None else (self.num_cases, self.num_steps)
        return (*before, *self.points.shape)

    def index(self, case: int, step: int, block: Block) -> tuple[int | slice, ...]:
        """Returns the index of a block of one forecast along these dimensions."""
        return (case, *block) if self.times is None else (case, step, *block)

    def coordinates(self) -> Iterator[tuple[str, tuple[str, ...], np.ndarray, dict[str, str]]]:
        """Yields name, dimensions, numbers and CF attributes of every coordinate."""
        points = self.points
        for number, (name, units) in enumerate(zip(points.names, points.units, strict=True)):
            attributes = {"units": units} if units else {}
            attributes |= DEGREES.get(name, {}) if self._has_degrees else {}
            attributes |= dict(points.attributes[number]) if points.attributes else {}
            axis = points.dims[number if points.is_grid else 0]
            yield name, (axis,), points.numbers[number], attributes | self._direction(name)
        for name, value in self.levels.items():
            yield name, (), np.array(float(value)), {"axis": "Z"}
        if self.times is not None:
            yield "time", ("time",), self.times, self._time_attributes()

    def _time_attributes(self) -> dict[str, str]:
        if self.origin is not None:
            names = {"standard_name": "time", "long_name": "time", "axis": "T"}
            return {**names, "units": self.origin.units, "calendar": self.origin.calendar}
        named = {"long_name": f"time in {self.time_units or 'frames'}", "axis": "T"}
        return named | ({"units": self.time_units} if self.time_units else {})

    @property
    def _has_degrees(self) -> bool:
        """Whether coordinates are true longitudes and latitudes."""
        points = self.points
        return points.domain.is_sphere and (points.pole is None or not points.is_grid)

    def auxiliaries(self) -> Iterator[tuple[str, tuple[str, ...], np.ndarray, dict[str, Any]]]:
        """Yields name, dimensions, numbers and attributes of true places, poles, meshes and areas."""
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
            named = {"long_name": "area that a point stands for, as a fraction of all"}
            yield AREAS, points.dims, points.areas, {**named, "units": "1"}
        if not points.is_grid:
            return
        if points.true_degrees is not None:
            for name, units, degrees in zip(
                ("longitude", "latitude"), ("degrees_east", "degrees_north"),
                points.true_degrees.T, strict=True,
            ):  # fmt: skip
                attributes = {"units": units, "standard_name": name}
                yield name, points.dims, degrees.reshape(points.shape), attributes
        if points.pole is not None:
            mapping = {"grid_mapping_name": "rotated_latitude_longitude", **asdict(points.pole)}
            yield GRID_MAPPING, (), np.array(0, np.int32), mapping

    def _direction(self, name: str) -> dict[str, str]:
        """Returns attributes that tell the axes of a rotated or projected grid apart."""
        points, is_up = self.points, name.lower().startswith(UPWARDS)
        if points.pole is not None and points.is_grid:
            return {"standard_name": "grid_latitude" if is_up else "grid_longitude"}
        if points.true_degrees is None or points.placed is not None:
            return {}
        return {"standard_name": f"projection_{'y' if is_up else 'x'}_coordinate"}

    def attributes(self, variable: Variable) -> dict[str, str]:
        """Returns the CF attributes of a variable, and where its grid lies."""
        given, points = dict(variable.attributes), self.points
        true = [name for name, dims, *_ in self.auxiliaries() if dims == points.dims]
        names = [*(true if points.is_grid else points.names), *self.levels]
        if names:
            given["coordinates"] = " ".join(names)
        if points.cells is not None:
            given |= {"mesh": MESH, "location": "node"}
        if points.areas is not None:
            given["cell_measures"] = f"area: {AREAS}"
        return given | ({"grid_mapping": GRID_MAPPING} if points.pole and points.is_grid else {})


class AbstractForecastWriter(ABC):
    """Writes forecasts in their order, one block of points at a time."""

    num_done: int = 0
    """Blocks that an earlier, interrupted process has written."""

    @abstractmethod
    def write(self, index: tuple[int | slice, ...], values: np.ndarray) -> None:
        """Writes a block: its index along the dimensions, and its values, grid by variables."""

    def keep(self, case: int, step: int, frames: np.ndarray) -> None:  # noqa: B027
        """Stores the frames from which a step starts, so that a killed process can be resumed."""

    def kept(self) -> tuple[int, int, np.ndarray] | None:
        """Returns case, step and frames that were stored last."""
        return None
