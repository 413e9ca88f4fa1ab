"""What a file of forecasts holds, whatever its format, and how it is filled block by block."""

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
        """Names of the axes of every variable."""
        before = ("sample",) if self.times is None else ("trajectory", "time")
        return (*before, *self.points.dims)

    @property
    def shape(self) -> tuple[int, ...]:
        """Lengths of these axes."""
        before = (self.num_cases,) if self.times is None else (self.num_cases, self.num_steps)
        return (*before, *self.points.shape)

    def index(self, case: int, step: int, block: Block) -> tuple[int | slice, ...]:
        """Returns where a block of one forecast is along these axes."""
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
    """Takes forecasts in their order, a block of one forecast at a time."""

    num_done: int = 0
    """Blocks that are there already, from an earlier start."""

    @abstractmethod
    def write(self, index: tuple[int | slice, ...], values: np.ndarray) -> None:
        """Takes a block: its place along the axes, and its grid by variables."""

    def keep(self, case: int, step: int, frames: np.ndarray) -> None:  # noqa: B027
        """Remembers the frames from which a step starts, to go on from there after a kill."""

    def kept(self) -> tuple[int, int, np.ndarray] | None:
        """Returns case, step and frames that were remembered last."""
        return None
