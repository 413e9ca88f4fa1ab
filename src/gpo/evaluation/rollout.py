"""Rollouts: a forecaster applied to its own forecasts, and the growth of its error."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from gpo.data.dataset import FieldData
from gpo.data.gaps import fill_gaps
from gpo.data.geometry import Geometry
from gpo.data.seasons import seasons_of
from gpo.data.splits import TimeSlice, evenly
from gpo.evaluation.accumulator import BLEND, OWN
from gpo.forecast.blend import MODEL
from gpo.forecast.forecaster import Forecaster
from gpo.forecast.references import AbstractReference, Persistence
from gpo.forecast.rollout import rollout
from gpo.numerics.norms import channel_errors, relative_l2

MAX_ROLLOUTS = 32
"""Maximum number of rollouts; their starts are evenly spaced."""
DIVERGENCE_FACTOR = 5.0
"""A forecast has diverged where its error exceeds this many times the largest error of a reference."""


@dataclass(frozen=True)
class Rollouts:
    """Errors of several rollouts, and the last frame of each."""

    errors: dict[str, np.ndarray]
    """Relative L2 of each forecast: rollouts by steps."""
    scaled: dict[str, np.ndarray]
    """The same errors in standard deviations of the training data, which have no units."""
    truth: list[np.ndarray]
    """The true last frame of each rollout: points by variables."""
    forecast: list[np.ndarray]
    """The predicted last frame."""

    @property
    def written(self) -> str:
        """Name of the forecast that is written."""
        return BLEND if BLEND in self.scaled else MODEL

    @property
    def diverged_at(self) -> list[int]:
        """The first diverged step, counted from 1, of each rollout that diverged.

        The bound of a rollout is a multiple of the largest error that a reference makes in it.
        """
        references = [errors for name, errors in self.scaled.items() if name not in OWN]
        bound = DIVERGENCE_FACTOR * np.max(references, axis=(0, 2))
        # NaN is not below the bound, either.
        has_diverged = ~(self.scaled[self.written] <= bound[:, None])
        return [int(row.argmax()) + 1 for row in has_diverged if row.any()]

    def mean_errors(self) -> dict[str, list[float | None]]:
        """Returns the mean error after each step; None once a rollout is not finite."""
        means = {name: rows.mean(0) for name, rows in self.errors.items()}
        return {
            name: [float(error) if np.isfinite(error) else None for error in mean]
            for name, mean in means.items()
        }


@dataclass(frozen=True)
class Rollout:
    """One rollout and the truth, at the sites of the data."""

    frames: range
    """Indices of the predicted frames."""
    truth: Float[Tensor, "steps points variables"]
    """NaN where values are missing."""
    forecasts: dict[str, Float[Tensor, "steps points variables"]]
    """Forecasts by name: the model, its blend, references."""
    weights: Float[Tensor, " points"]
    """Quadrature weights; 0 at sites that are missing in any frame."""
    geometry: Geometry

    @property
    def is_known(self) -> np.ndarray:
        """False at sites that are missing in any frame."""
        return self.weights.numpy() > 0

    def errors(self, prediction: Float[Tensor, "steps points variables"]) -> list[float]:
        """Returns the relative L2 error of a prediction after each step."""
        pairs = zip(prediction, self.truth, strict=True)
        return [relative_l2(p[None], u[None], self.weights[None]).item() for p, u in pairs]

    @property
    def forecast(self) -> Float[Tensor, "steps points variables"]:
        """The forecast that is written."""
        return self.forecasts.get(BLEND, self.forecasts[MODEL])


def roll_out(
    forecaster: Forecaster,
    data: FieldData,
    time_slice: TimeSlice,
    num_steps: int,
    references: Mapping[str, AbstractReference] | None = None,
) -> Rollout | None:
    """Returns the rollouts from one start; None where no site has values in all frames.

    Args:
        forecaster: The trained model.
        data: The time series.
        time_slice: The input frames.
        num_steps: Number of steps.
        references: Reference forecasts by name; persistence alone when not given.
    """
    task = forecaster.task
    lead, history = task.lead, task.history
    geometry = data.geometry(time_slice.sample)
    stop = time_slice.last + num_steps * lead + 1
    frames = data.frames(time_slice.sample, slice(time_slice.first, stop, lead))
    inputs, truth = np.split(frames.astype(np.float64), [history])
    is_known = np.asarray(np.isfinite(frames).all((0, 2)))
    weights = torch.from_numpy(np.where(is_known, geometry.weights, 0.0))
    if not bool(weights.any()):
        return None
    coords, site_weights = (torch.from_numpy(a) for a in (geometry.coords, geometry.weights))
    filled = np.where(geometry.is_masked[:, None], 0, fill_gaps(inputs, geometry))
    start = torch.from_numpy(filled)[None]
    times = np.arange(time_slice.first, stop, lead)
    forcings = torch.from_numpy(data.forcing_frames(time_slice.sample, times[1:]))[None].double()
    options = {
        "weights": site_weights,
        "forcings": forcings[:, history:],
        "seasons": torch.from_numpy(seasons_of(data, times))[None],
    }
    first = torch.cat([forcings[:, :history], start], -1)
    forecasts = {MODEL: rollout(forecaster.alone, first, coords, num_steps, **options)[0]}
    if forecaster.blend is not None:
        rest = forecaster.blend.contributions(first, coords, num_steps, **options)
        steps = zip(forecasts[MODEL], rest, strict=True)
        forecasts[BLEND] = torch.cat([part.added_to(step[None]) for step, part in steps])
    if references is None:
        references = {"persistence": Persistence(task)}
    for name, reference in references.items():
        forecasts[name] = rollout(reference, first, coords, num_steps, **options)[0]
    numbers = range(time_slice.last + lead, stop, lead)
    return Rollout(numbers, torch.from_numpy(truth), forecasts, weights, geometry)


def last_rollout(
    forecaster: Forecaster, data: FieldData, time_slices: Sequence[TimeSlice], num_steps: int
) -> Rollout | None:
    """Returns the rollout from the last start of the test split that has values."""
    num_steps, starts = _starts(data, time_slices, forecaster.task.lead, num_steps)
    rollouts = (roll_out(forecaster, data, start, num_steps) for start in reversed(starts))
    return next((result for result in rollouts if result is not None), None)


def _starts(
    data: FieldData, time_slices: Sequence[TimeSlice], lead: int, num_steps: int
) -> tuple[int, list[TimeSlice]]:
    """Returns the number of steps, and all starts from which a rollout stays in the test split."""
    ends: dict[int, int] = {}
    for time_slice in time_slices:
        number = time_slice.sample
        ends[number] = max(ends.get(number, 0), time_slice.target)
    longest = max((ends[part.sample] - part.last) // lead for part in time_slices)
    # A series split by time is short: rollouts of half its length leave room for several starts.
    num_steps = min(num_steps, longest if data.num_samples > 2 else max(1, longest // 2))
    reach = num_steps * lead
    return num_steps, [p for p in time_slices if p.last + reach <= ends[p.sample]]


def make_rollouts(
    forecaster: Forecaster,
    data: FieldData,
    time_slices: Sequence[TimeSlice],
    num_steps: int,
    references: Mapping[str, AbstractReference] | None = None,
    track: Callable[[Sequence[TimeSlice]], Iterable[TimeSlice]] = lambda starts: starts,
) -> Rollouts:
    """Rolls out from evenly spaced starts, all within the test split.

    A start is left out where no site has values in all frames.

    Args:
        forecaster: The trained model.
        data: The time series.
        time_slices: The test split.
        num_steps: Maximum number of steps; fewer where the data end before.
        references: Reference forecasts by name; persistence alone when not given.
        track: Shows progress over the starts.
    """
    num_steps, starts = _starts(data, time_slices, forecaster.task.lead, num_steps)
    errors: dict[str, list[list[float]]] = defaultdict(list)
    scaled: dict[str, list[np.ndarray]] = defaultdict(list)
    truth, forecasts = [], []
    std = np.array(forecaster.task.output_std)
    for start in track(evenly(starts, MAX_ROLLOUTS)):
        result = roll_out(forecaster, data, start, num_steps, references)
        if result is None:
            continue
        for name, prediction in result.forecasts.items():
            errors[name].append(result.errors(prediction))
            by_variable = channel_errors(prediction, result.truth, result.weights[None]).numpy()
            scaled[name].append(np.sqrt(np.square(by_variable / std).mean(-1)))
        truth.append(np.where(result.is_known[:, None], result.truth[-1].numpy(), np.nan))
        forecasts.append(result.forecast[-1].numpy())
    return Rollouts(
        {name: np.array(rows) for name, rows in errors.items()},
        {name: np.array(rows) for name, rows in scaled.items()},
        truth,
        forecasts,
    )
