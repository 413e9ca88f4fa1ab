"""The content of a file of forecasts in any format, and the interface that writes it by blocks."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from gpo.data.dataset import Variable
from gpo.data.query_points import Block, QueryPoints

ATTRIBUTES = {"Conventions": "CF-1.8"}


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

    def coordinates(self) -> Iterator[tuple[str, str, np.ndarray, dict[str, str]]]:
        """Yields name, axis, numbers and attributes of every coordinate."""
        points = self.points
        for number, (name, units) in enumerate(zip(points.names, points.units, strict=True)):
            axis = points.dims[number if points.is_grid else 0]
            yield name, axis, points.numbers[number], {"units": units} if units else {}
        if self.times is not None:
            long_name = f"time in {self.time_units or 'frames'}"
            yield "time", "time", self.times, {"long_name": long_name}


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
