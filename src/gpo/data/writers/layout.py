"""The content of a file of forecasts in any format, and the interface that writes it by blocks."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np

from gpo.data.dataset import Variable
from gpo.data.dates import TimeOrigin
from gpo.data.query_points import Block, QueryPoints

ATTRIBUTES = {"Conventions": "CF-1.8"}
DEGREES = {
    "latitude": {"standard_name": "latitude", "long_name": "latitude", "axis": "Y"},
    "longitude": {"standard_name": "longitude", "long_name": "longitude", "axis": "X"},
}
"""Attributes of the coordinates on the sphere."""
MESH, CELLS = "mesh", "mesh_face_nodes"
"""Names of the variables that describe a mesh: UGRID 1.0."""


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
    cells: np.ndarray | None = None
    """Corners of the triangles of a mesh, whose nodes the points are."""

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
            attributes |= DEGREES.get(name, {}) if points.domain.is_sphere else {}
            attributes |= dict(points.attributes[number]) if points.attributes else {}
            if points.is_grid:
                yield name, (points.dims[number],), points.numbers[number], attributes
            else:
                numbers = points.numbers[number]
                shape = points.curvilinear_shape
                yield name, points.dims, numbers.reshape(shape) if shape else numbers, attributes
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

    def attributes(self, variable: Variable) -> dict[str, str]:
        """Returns the CF attributes of a variable."""
        given = dict(variable.attributes)
        names = [*(() if self.points.is_grid else self.points.names), *self.levels]
        if names:
            given["coordinates"] = " ".join(names)
        if self.cells is not None:
            given |= {"mesh": MESH, "location": "node"}
        return given

    def mesh_attributes(self) -> dict[str, str | int]:
        """Returns the attributes of the variable that describes a mesh, as UGRID names them."""
        return {
            "cf_role": "mesh_topology",
            "topology_dimension": 2,
            "node_coordinates": " ".join(self.points.names),
            "face_node_connectivity": CELLS,
        }


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
