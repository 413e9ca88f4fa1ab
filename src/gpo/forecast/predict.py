"""Forecasts from all series of a data set, or of all its static maps, made one after another.

No more is in memory than the frames a step starts from, its answer at the sites and a block of
answers elsewhere.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from jaxtyping import Float
from scipy.spatial import KDTree
from torch import Tensor

from gpo.data.dataset import DataError, StaticMaps, Trajectories
from gpo.data.gaps import carry_known, fill_gaps
from gpo.data.geometry import Geometry
from gpo.data.query_points import Block, QueryPoints
from gpo.data.steps import MONTH, even_steps, later_times, spell_step
from gpo.data.writers.layout import AbstractForecastWriter, ForecastLayout
from gpo.execution.memory import memory_problem
from gpo.forecast.compatibility import check_time
from gpo.forecast.forecaster import Forecaster
from gpo.forecast.queries import QueryForecast


@dataclass(frozen=True)
class Start:
    """What a forecast starts from, as a model takes it; masked sites have weight zero."""

    frames: Float[Tensor, "history points inputs"]
    coords: Float[Tensor, "points dim"]
    weights: Float[Tensor, " points"]

    @classmethod
    def of(cls, frames: np.ndarray, geometry: Geometry) -> "Start":
        """Returns the last frames, gaps in them filled; refuses where every site is missing."""
        is_known = np.isfinite(frames).all((0, 2)) & ~geometry.is_masked
        if not is_known.any():
            raise ValueError(
                "every site of the last frames is missing: there is nothing to start from."
            )
        given = np.where(geometry.is_masked[:, None], 0, fill_gaps(carry_known(frames), geometry))
        parts = given, geometry.coords, geometry.weights
        return cls(*(torch.from_numpy(part.astype(np.float64)) for part in parts))


@dataclass(frozen=True)
class Forecasts:
    """Which forecasts there are, and how they are made."""

    forecaster: Forecaster
    data: Trajectories | StaticMaps
    num_steps: int = 1
    """Forecasts of every series, each a lead after the one before; one for static maps."""
    places: QueryPoints | None = None
    """Where; at the sites when not given. A place whose nearest site is masked is NaN."""
    start: int = -1
    """Number of the last frame that a forecast starts from."""

    def __post_init__(self) -> None:
        """Refuses data that the forecaster cannot start from."""
        task, data = self.forecaster.task, self.data
        if isinstance(data, StaticMaps):
            if task.lead > 0:
                raise DataError(data.source, "file", "holds static maps, not a time series.")
            names = tuple(variable.name for variable in data.inputs)
            if names != task.inputs:
                problem = f"must be {', '.join(task.inputs)}, got {', '.join(names)}."
                raise DataError(data.source, "inputs", problem)
        elif self._last + 1 < self._num_needed:
            problem = f"must have at least {self._num_needed} frames to start from, got"
            raise DataError(data.source, "time", f"{problem} {self._last + 1}.")
        else:
            self._check_gaps(data)
            self._check_forcings(data)
        self._check_memory()
        counts = {geometry.num_points for geometry in data.geometries}
        if self.places is None and len(counts) > 1:
            problem = "differ from sample to sample: ask at --queries or on a --grid."
            raise DataError(data.source, "coords", problem)

    def _check_memory(self) -> None:
        """Refuses more sites than fit into memory, before anything is taken."""
        operator = self.forecaster.model.operator
        if operator is None:
            return
        largest = max(self.data.geometries, key=lambda geometry: geometry.num_points)
        is_grid, count = bool(largest.grid_shape), largest.num_points
        needed = operator.execution.needed_bytes(count, 1, is_grid=is_grid, trains=False)
        problem = memory_problem(needed, count, "Give fewer sites, such as every second one")
        if problem is not None:
            raise DataError(self.data.source, "coords", problem)

    def _check_gaps(self, data: Trajectories) -> None:
        """Refuses to start from frames with a gap in time between them."""
        first = self._last + 1 - self._num_needed
        is_even = even_steps(data.time, data.origin)[first : self._last]
        if is_even.all():
            return
        gap = first + int(np.argmin(is_even))
        before, after = data.time_labels([gap, gap + 1])
        step = spell_step(data.time_step, data.time_units)
        raise DataError(
            data.source,
            "time",
            f"must advance by {step} a frame over the {self._num_needed} frames that a forecast "
            f"starts from, got a step from {before} to {after}. Choose another --start.",
        )

    def _check_forcings(self, data: Trajectories) -> None:
        """Refuses other forcings than those of training, and those that end too early."""
        task, names = self.forecaster.task, tuple(variable.name for variable in data.forcings)
        if names != task.forcings:
            wanted = ", ".join(task.forcings) or "none"
            problem = f"must be those of training, {wanted}; got {', '.join(names) or 'none'}."
            raise DataError(data.source, "forcings", problem)
        if names:
            check_time(data, task.trained_on)
            data.forcing_frames(0, self._last + task.lead * np.arange(1, self.num_steps + 1))

    @property
    def layout(self) -> ForecastLayout:
        """What a file of these forecasts holds."""
        data, places = self.data, self.places or QueryPoints.of(self.data.geometry())
        task = self.forecaster.task
        number_type = "f8" if data.number_type == np.float64 else "f4"
        if isinstance(data, StaticMaps):
            return ForecastLayout(places, data.outputs, data.num_samples, number_type=number_type)
        # A single frame does not tell its step, and two may be 31 days apart and yet a month.
        step = task.trained_on.step or 1.0
        if len(data.time) > 1 and step != MONTH:
            step = data.time_step
        ahead = task.lead * np.arange(1, self.num_steps + 1)
        times = later_times(data.time[self._last], ahead, step, data.origin)
        return ForecastLayout(
            places, data.variables, data.num_trajectories, times,
            data.time_units, data.origin, data.levels, number_type,
        )  # fmt: skip

    def write(
        self, writer: AbstractForecastWriter, blocks: Sequence[Block]
    ) -> Iterator[tuple[int, int, Block]]:
        """Makes all forecasts that the writer does not have yet; yields what it wrote just now.

        Args:
            writer: Takes them, and remembers what it has.
            blocks: Parts in which places are answered.
        """
        layout, per_case = self.layout, self.num_steps * len(blocks)
        kept = writer.kept()
        for case in range(writer.num_done // per_case, layout.num_cases):
            start = self._start(case)
            is_masked = nearest_is_masked(start, self.data.geometry(case))
            frames, first = start.frames, 0
            if kept is not None and kept[0] == case:
                first, frames = kept[1], torch.from_numpy(kept[2])
            for step in range(first, self.num_steps):
                answers = QueryForecast(self.forecaster, frames, start.coords, start.weights)
                for number, block in enumerate(blocks):
                    if case * per_case + step * len(blocks) + number >= writer.num_done:
                        values = self._answer(answers, block, layout.points, is_masked)
                        writer.write(layout.index(case, step, block), values)
                        yield case, step, block
                if step + 1 < self.num_steps:
                    found = answers.at_sites.masked_fill((start.weights == 0)[:, None], 0.0)
                    following = self._forcings(case, step + 2)
                    frames = self.forecaster.advance(frames[None], found[None], following)[0]
                    writer.keep(case, step + 1, frames.numpy())

    def _answer(
        self,
        answers: QueryForecast,
        block: Block,
        places: QueryPoints,
        is_masked: Callable[[np.ndarray], np.ndarray],
    ) -> np.ndarray:
        """Returns a block of the grid of places by variables; NaN where the nearest site is masked."""
        num_outputs = len(self.forecaster.task.outputs)
        if self.places is None:
            return answers.at_sites.reshape(*places.shape, num_outputs)[block].numpy()
        coords = places.coords(block)
        found = answers.at(torch.from_numpy(coords)).numpy()
        found[is_masked(coords)] = np.nan
        shape = [part.stop - part.start for part in block]
        return found.reshape(*shape, num_outputs)

    def _start(self, case: int) -> Start:
        geometry = self.data.geometry(case)
        if isinstance(self.data, StaticMaps):
            return Start.of(self.data.sample(case)[0][None], geometry)
        lead, last = self.forecaster.task.lead, self._last
        times = slice(last + 1 - self._num_needed, last + 1, lead)
        return Start.of(self.data.input_frames(case, times, lead), geometry)

    def _forcings(self, case: int, step: int) -> Float[Tensor, "1 points forcings"] | None:
        """Returns the forcings of the time after so many steps."""
        if isinstance(self.data, StaticMaps):
            return None
        number = self._last + step * self.forecaster.task.lead
        return torch.from_numpy(self.data.forcing_frames(case, np.array([number])))

    @cached_property
    def _last(self) -> int:
        """Number of the last frame that a forecast starts from, counted from the first.

        Where forcings are prescribed, frames without a state may follow the last one, in which
        they alone are known.
        """
        assert isinstance(self.data, Trajectories)
        last = range(len(self.data.time))[self.start]
        if self.start != -1 or all(forcing.num_frames() is None for forcing in self.data.known):
            return last
        while last > 0 and not np.isfinite(self.data.frames(0, slice(last, last + 1))).any():
            last -= 1
        if last + 1 < self._num_needed:
            problem = f"must have {self._num_needed} frames with a state to start from, got"
            raise DataError(self.data.source, "time", f"{problem} {last + 1}.")
        return last

    @property
    def _num_needed(self) -> int:
        task = self.forecaster.task
        return (task.history - 1) * task.lead + 1


def nearest_is_masked(start: Start, geometry: Geometry) -> Callable[[np.ndarray], np.ndarray]:
    """Returns a function that tells of points whether the nearest of all sites is masked.

    Args:
        start: Which sites are known.
        geometry: The sites.
    """
    is_masked = (start.weights == 0).numpy()
    if not is_masked.any():
        return lambda coords: np.zeros(len(coords), dtype=bool)
    domain = geometry.domain
    lower, wraps = np.array(domain.lower), np.array(domain.periodic)
    sides = np.where(wraps, np.array(domain.upper) - lower, 0.0)

    def moved(coords: np.ndarray) -> np.ndarray:
        # A tree of a periodic box wants coordinates within one period.
        offset = coords - lower
        return np.where(wraps, np.mod(offset, np.where(wraps, sides, 1.0)), offset)

    tree = KDTree(moved(geometry.coords), boxsize=sides if wraps.any() else None)
    return lambda coords: is_masked[tree.query(moved(coords))[1]]
