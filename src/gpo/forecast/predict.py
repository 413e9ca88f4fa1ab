"""Forecasts of all samples of a data set, in sequence.

Only the input frames of a step, its prediction at the input points and a block of predictions at
query points are in memory.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice, repeat

import numpy as np
import torch
from jaxtyping import Float
from scipy.spatial import KDTree
from torch import Tensor

from gpo.data.dataset import DataError, FieldData
from gpo.data.gaps import fill_gaps, fill_in_time
from gpo.data.geometry import Geometry
from gpo.data.query_points import Block, QueryPoints
from gpo.data.seasons import seasons_of
from gpo.data.steps import MONTH, even_steps, format_step, later_times
from gpo.data.writers.layout import AbstractForecastWriter, ForecastLayout
from gpo.execution.memory import memory_problem
from gpo.forecast.blend import Contribution
from gpo.forecast.compatibility import check_time
from gpo.forecast.forecaster import Forecaster
from gpo.forecast.queries import QueryForecast
from gpo.forecast.rollout import rollout_results


@dataclass(frozen=True)
class Start:
    """Initial condition of a forecast; masked points have weight zero."""

    frames: Float[Tensor, "history points inputs"]
    coords: Float[Tensor, "points dim"]
    weights: Float[Tensor, " points"]

    @classmethod
    def of(cls, frames: np.ndarray, geometry: Geometry) -> "Start":
        """Returns frames with gaps filled; raises an error if no point has values."""
        is_known = np.isfinite(frames).all((0, 2)) & ~geometry.is_masked
        if not is_known.any():
            raise ValueError("the last frames must have a value at one point at least, got none.")
        filled = np.where(geometry.is_masked[:, None], 0, fill_gaps(fill_in_time(frames), geometry))
        parts = filled, geometry.coords, geometry.weights
        return cls(*(torch.from_numpy(part.astype(np.float64)) for part in parts))


@dataclass(frozen=True)
class Forecasts:
    """Computes the forecasts of a data set."""

    forecaster: Forecaster
    data: FieldData
    num_steps: int = 1
    """Number of autoregressive steps per series; 1 for static maps."""
    places: QueryPoints | None = None
    """Query points (None: the input points). NaN where the nearest input point is masked."""
    start: int = -1
    """Index of the last input frame."""

    def __post_init__(self) -> None:
        """Checks that the data have the input of the forecaster."""
        task, data = self.forecaster.task, self.data
        for side, variables, expected in (
            ("inputs", data.inputs, task.fields), ("outputs", data.outputs, task.outputs),
        ):  # fmt: skip
            names = tuple(variable.name for variable in variables)
            if names != expected:
                problem = f"must be {', '.join(expected)}, got {', '.join(names)}."
                raise DataError(data.source, side, problem)
        if self._last + 1 < self._num_needed:
            problem = f"must have at least {self._num_needed} frames to start from, got"
            raise DataError(data.source, "time", f"{problem} {self._last + 1}.")
        self._check_gaps(data)
        self._check_forcings(data)
        self._check_memory()
        counts = {geometry.num_points for geometry in data.geometries}
        if self.places is None and len(counts) > 1:
            problem = "differ from sample to sample: set --queries or --grid."
            raise DataError(data.source, "coords", problem)

    def _check_memory(self) -> None:
        """Raises an error if the points do not fit into memory."""
        operator = self.forecaster.model.operator
        if operator is None:
            return
        largest = max(self.data.geometries, key=lambda geometry: geometry.num_points)
        is_grid, count = bool(largest.grid_shape), largest.num_points
        needed = operator.execution.needed_bytes(count, 1, is_grid=is_grid, trains=False)
        problem = memory_problem(needed, count, "Use fewer points, such as every second one")
        if problem is not None:
            raise DataError(self.data.source, "coords", problem)

    def _check_gaps(self, data: FieldData) -> None:
        """Raises an error if the input frames are not evenly spaced in time."""
        first = self._last + 1 - self._num_needed
        is_even = even_steps(data.time, data.origin)[first : self._last]
        if is_even.all():
            return
        gap = first + int(np.argmin(is_even))
        before, after = data.time_labels([gap, gap + 1])
        step = format_step(data.time_step, data.time_units)
        raise DataError(
            data.source,
            "time",
            f"must have a step of {step} over the {self._num_needed} input frames, got a step from "
            f"{before} to {after}. {self._usable_start(data)}",
        )

    def _usable_start(self, data: FieldData) -> str:
        """Returns the latest start before this one whose input frames are evenly spaced."""
        needed, is_even = self._num_needed, even_steps(data.time, data.origin)
        for last in range(self._last - 1, needed - 2, -1):
            if is_even[last + 1 - needed : last].all():
                time = data.time[last : last + 1]
                text = f"{time[0]:.15g}" if data.origin is None else data.origin.texts(time)[0]
                return f"The latest usable start before it: --start {text}"
        return "No earlier frame has enough even steps before it."

    def _check_forcings(self, data: FieldData) -> None:
        """Raises an error if forcings differ from training or end before the forecast."""
        task, names = self.forecaster.task, tuple(variable.name for variable in data.forcings)
        if names != task.forcings:
            expected = ", ".join(task.forcings) or "none"
            problem = f"must be {expected}, as in training, got {', '.join(names) or 'none'}."
            raise DataError(data.source, "forcings", problem)
        if names:
            check_time(data, task.trained_on)
            data.forcing_frames(0, self._last + task.lead * np.arange(1, self.num_steps + 1))

    @property
    def layout(self) -> ForecastLayout:
        """Layout of the file of these forecasts."""
        data, places = self.data, self.places or QueryPoints.of(self.data.geometry())
        task = self.forecaster.task
        number_type = "f8" if data.number_type == np.float64 else "f4"
        if task.lead == 0:
            return ForecastLayout(
                places, data.outputs, data.num_samples, number_type=number_type, case_dim="sample"
            )
        # A single frame has no step, and two monthly frames may be 31 days apart.
        step = task.trained_on.step or 1.0
        if len(data.time) > 1 and step != MONTH:
            step = data.time_step
        ahead = task.lead * np.arange(1, self.num_steps + 1)
        times = later_times(data.time[self._last], ahead, step, data.origin)
        return ForecastLayout(
            places, data.outputs, data.num_samples, times,
            data.time_units or task.trained_on.time_units, data.origin, data.levels, number_type,
            data.case_dim or ("trajectory" if data.num_samples > 1 else ""), data.time_dim,
        )  # fmt: skip

    def write(
        self, writer: AbstractForecastWriter, blocks: Sequence[Block]
    ) -> Iterator[tuple[int, int, Block]]:
        """Computes and writes all missing forecasts; yields after every block.

        Args:
            writer: Writes blocks and knows which are finished.
            blocks: Blocks of query points.
        """
        layout, per_case = self.layout, self.num_steps * len(blocks)
        kept = writer.kept()
        for case in range(writer.num_done // per_case, layout.num_cases):
            start = self._start(case)
            is_masked = nearest_is_masked(start, self.data.geometry(case))
            frames, first = start.frames, 0
            if kept is not None and kept[0] == case:
                first, frames = kept[1], torch.from_numpy(kept[2])
            forecasts = self._rollout(case, start, frames, range(first, self.num_steps), writer)
            for step, forecast in forecasts:
                for number, block in enumerate(blocks):
                    if case * per_case + step * len(blocks) + number >= writer.num_done:
                        values = self._block(forecast, block, layout.points, is_masked)
                        if step == 0:
                            _check_finite(values, self._is_missing(start, block, layout, is_masked))
                        writer.write(layout.index(case, step, block), values)
                        yield case, step, block

    def _rollout(
        self, case: int, start: Start, frames: Tensor, steps: range, writer: AbstractForecastWriter
    ) -> Iterator[tuple[int, QueryForecast]]:
        """Yields number and forecast of each step; the writer keeps the input of each later step."""
        seasons = self._seasons()
        contributions = islice(self._contributions(case, start, seasons), steps.start, None)

        def predict(step: int, frames: Tensor) -> tuple[int, QueryForecast]:
            if step > steps.start:
                writer.keep(case, step, frames[0].numpy())
            times = seasons[step : step + frames.shape[1] + 1]
            return step, QueryForecast(
                self.forecaster.alone, frames[0], start.coords, start.weights, times,
                next(contributions),
            )  # fmt: skip

        def advance(step: int, frames: Tensor, result: tuple[int, QueryForecast]) -> Tensor:
            state = result[1].model_at_sites.masked_fill((start.weights == 0)[:, None], 0.0)
            return self.forecaster.task.advance(frames, state[None], self._forcings(case, step + 2))

        return rollout_results(frames[None], steps, predict, advance)

    def _seasons(self) -> Float[Tensor, "times 2"]:
        """Returns time of day and month of the input frames and of each step."""
        task = self.forecaster.task
        steps = np.arange(1 - task.history, self.num_steps + 1)
        return torch.from_numpy(seasons_of(self.data, self._last + task.lead * steps))

    def _contributions(
        self, case: int, start: Start, seasons: Float[Tensor, "times 2"]
    ) -> Iterator[Contribution | None]:
        """Yields the contribution of references to each step."""
        blend = self.forecaster.blend
        if blend is None:
            yield from repeat(None, self.num_steps)
            return
        forcings, task = None, self.forecaster.task
        if task.num_forcings and self.num_steps > 1:
            steps = range(2, self.num_steps + 1)
            shape = 1, len(steps), len(start.coords), task.num_forcings
            forcings = start.frames.new_zeros(()).expand(shape)
            if any(reference.uses_forcings for reference in blend.references.values()):
                parts = [self._forcings(case, step) for step in steps]
                forcings = torch.stack([part for part in parts if part is not None], 1)
        yield from blend.contributions(
            start.frames[None],
            start.coords,
            self.num_steps,
            weights=start.weights,
            forcings=forcings,
            seasons=seasons[None],
        )

    def _block(
        self,
        forecast: QueryForecast,
        block: Block,
        points: QueryPoints,
        is_masked: Callable[[np.ndarray], np.ndarray],
    ) -> np.ndarray:
        """Returns a block of the forecast; NaN where the nearest input point is masked."""
        num_outputs = len(self.forecaster.task.outputs)
        if self.places is None:
            return forecast.at_sites.reshape(*points.shape, num_outputs)[block].numpy()
        coords = points.coords(block)
        values = forecast.at(torch.from_numpy(coords)).numpy()
        values[is_masked(coords)] = np.nan
        shape = [part.stop - part.start for part in block]
        return values.reshape(*shape, num_outputs)

    def _is_missing(
        self,
        start: Start,
        block: Block,
        layout: ForecastLayout,
        is_masked: Callable[[np.ndarray], np.ndarray],
    ) -> np.ndarray:
        """Returns which points of a block have no values because the input has none there."""
        if self.places is None:
            return (start.weights == 0).numpy().reshape(layout.points.shape)[block]
        shape = [part.stop - part.start for part in block]
        return is_masked(layout.points.coords(block)).reshape(shape)

    def _start(self, case: int) -> Start:
        geometry = self.data.geometry(case)
        lead, last = self.forecaster.task.lead, self._last
        times = slice(last + 1 - self._num_needed, last + 1, max(lead, 1))
        return Start.of(self.data.input_frames(case, times, lead), geometry)

    def _forcings(self, case: int, step: int) -> Float[Tensor, "1 points forcings"]:
        """Returns the forcings at the time of a step."""
        number = self._last + step * self.forecaster.task.lead
        return torch.from_numpy(self.data.forcing_frames(case, np.array([number])))

    @cached_property
    def _last(self) -> int:
        """Index of the last input frame, counted from the first frame.

        Frames that hold only forcings may follow it.
        """
        last = range(len(self.data.time))[self.start]
        if self.start != -1 or all(forcing.num_frames() is None for forcing in self.data.known):
            return last
        while last > 0 and not np.isfinite(self.data.frames(0, slice(last, last + 1))).any():
            last -= 1
        if last + 1 < self._num_needed:
            problem = f"must have {self._num_needed} frames with values of the state, got"
            raise DataError(self.data.source, "time", f"{problem} {last + 1}.")
        return last

    @property
    def _num_needed(self) -> int:
        task = self.forecaster.task
        return (task.history - 1) * task.lead + 1


def _check_finite(values: np.ndarray, is_missing: np.ndarray) -> None:
    """Raises an error if the first step of a forecast has no values where the input has some."""
    num_wrong = int((~np.isfinite(values[~is_missing]).all(-1)).sum())
    if num_wrong:
        raise ValueError(
            f"The forecast must be finite, but is not at {num_wrong:,} of {(~is_missing).sum():,} "
            "points in its first step: the model is damaged, or the input lies far from the training "
            "data. Compare both with gpo data info, or train the run again."
        )


def nearest_is_masked(start: Start, geometry: Geometry) -> Callable[[np.ndarray], np.ndarray]:
    """Returns a function that tests for every point whether its nearest input point is masked.

    Args:
        start: The initial condition.
        geometry: The input points.
    """
    is_masked = (start.weights == 0).numpy()
    if not is_masked.any():
        return lambda coords: np.zeros(len(coords), dtype=bool)
    domain = geometry.domain
    lower, wraps = np.array(domain.lower), np.array(domain.periodic)
    sides = np.where(wraps, np.array(domain.upper) - lower, 0.0)

    def moved(coords: np.ndarray) -> np.ndarray:
        # A periodic tree needs coordinates within one period.
        offset = coords - lower
        return np.where(wraps, np.mod(offset, np.where(wraps, sides, 1.0)), offset)

    tree = KDTree(moved(geometry.coords), boxsize=sides if wraps.any() else None)
    return lambda coords: is_masked[tree.query(moved(coords))[1]]
