"""Rollouts: a forecaster applied to its own forecasts, and the growth of its error."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from gpo.data.dataset import Trajectories
from gpo.data.gaps import fill_gaps
from gpo.data.geometry import Geometry
from gpo.data.splits import TimeSlice, evenly
from gpo.evaluation.references import Climatology
from gpo.forecast.forecaster import Forecaster
from gpo.forecast.rollout import rollout
from gpo.numerics.norms import channel_errors, relative_l2

MAX_ROLLOUTS = 32
"""Rollouts that are made, their starts evenly chosen."""
DIVERGED = 5.0
"""A forecast whose error is this many times the largest of the references has diverged."""


@dataclass(frozen=True)
class Rollouts:
    """Errors of several rollouts, and the fields at the end of each."""

    errors: dict[str, np.ndarray]
    """Relative L2 by rollout and step, of the model and of every reference."""
    scaled: dict[str, np.ndarray]
    """Errors in standard deviations of the training data, likewise: free of units."""
    truth: list[np.ndarray]
    """The true last frame of every rollout, points by variables."""
    forecast: list[np.ndarray]
    """The predicted one."""
    geometries: list[Geometry]
    """The sites of every rollout."""

    @property
    def diverged_at(self) -> list[int]:
        """The first step, counted from 1, of every rollout that left all bounds; for `results`.

        A rollout is bounded by the largest error that a reference makes in it.
        """
        references = [errors for who, errors in self.scaled.items() if who != "model"]
        bound = DIVERGED * np.max(references, axis=(0, 2))
        is_wild = ~(self.scaled["model"] <= bound[:, None])
        return [int(row.argmax()) + 1 for row in is_wild if row.any()]

    def mean_errors(self) -> dict[str, list[float | None]]:
        """Returns the mean after every step; None where a rollout is not finite any more."""
        means = {who: rows.mean(0) for who, rows in self.errors.items()}
        return {
            who: [float(error) if np.isfinite(error) else None for error in mean]
            for who, mean in means.items()
        }


@dataclass(frozen=True)
class Rollout:
    """One rollout beside the truth, step by step, at the sites of the data."""

    frames: range
    """Numbers of the frames that are forecast."""
    start: Float[Tensor, "points variables"]
    """The last frame given; gaps are filled."""
    truth: Float[Tensor, "steps points variables"]
    """NaN where missing."""
    forecast: Float[Tensor, "steps points variables"]
    weights: Float[Tensor, " points"]
    """Quadrature weights; 0 at sites that are missing in some frame."""
    geometry: Geometry

    @property
    def is_known(self) -> np.ndarray:
        """False at sites that are missing in some frame."""
        return self.weights.numpy() > 0

    def errors(self, guess: Float[Tensor, "steps points variables"]) -> list[float]:
        """Returns relative L2 of a guess, such as the forecast, after every step."""
        pairs = zip(guess, self.truth, strict=True)
        return [relative_l2(g[None], u[None], self.weights[None]).item() for g, u in pairs]

    @property
    def persistence(self) -> Float[Tensor, "steps points variables"]:
        """The start, which stays as it is."""
        return self.start.expand_as(self.forecast)


def roll_out(
    forecaster: Forecaster, data: Trajectories, window: TimeSlice, num_steps: int
) -> Rollout | None:
    """Returns a rollout from one start; None where every site is missing in one of the frames."""
    lead, history = forecaster.task.lead, forecaster.task.history
    geometry = data.geometry(window.trajectory)
    stop = window.last + num_steps * lead + 1
    frames = data.frames(window.trajectory, slice(window.first, stop, lead))
    given, truth = np.split(frames.astype(np.float64), [history])
    is_known = np.asarray(np.isfinite(frames).all((0, 2)))
    weights = torch.from_numpy(np.where(is_known, geometry.weights, 0.0))
    if not bool(weights.any()):
        return None
    site_weights = torch.from_numpy(geometry.weights)
    coords = torch.from_numpy(geometry.coords)
    filled = np.where(geometry.is_masked[:, None], 0, fill_gaps(given, geometry))
    start = torch.from_numpy(filled)[None]
    ahead = np.arange(window.first + lead, stop, lead)
    forcings = torch.from_numpy(data.forcing_frames(window.trajectory, ahead))[None].double()
    forecast = rollout(
        forecaster, torch.cat([forcings[:, :history], start], -1), coords, num_steps,
        weights=site_weights, forcings=forcings[:, history:],
    )[0]  # fmt: skip
    numbers = range(window.last + lead, stop, lead)
    return Rollout(numbers, start[0, -1], torch.from_numpy(truth), forecast, weights, geometry)


def last_rollout(
    forecaster: Forecaster, data: Trajectories, windows: Sequence[TimeSlice], num_steps: int
) -> Rollout | None:
    """Returns the rollout from the last start of the test split that has values."""
    num_steps, starts = _starts(data, windows, forecaster.task.lead, num_steps)
    tried = (roll_out(forecaster, data, window, num_steps) for window in reversed(starts))
    return next((found for found in tried if found is not None), None)


def _starts(
    data: Trajectories, windows: Sequence[TimeSlice], lead: int, num_steps: int
) -> tuple[int, list[TimeSlice]]:
    """Returns how far rollouts go, and all starts from which they stay in the test split."""
    end = {number: max(w.target for w in windows if w.trajectory == number)
           for number in {window.trajectory for window in windows}}  # fmt: skip
    reach = max((end[window.trajectory] - window.last) // lead for window in windows)
    # A series split by time is short: half its length, so that there are several starts.
    num_steps = min(num_steps, reach if data.num_trajectories > 2 else max(1, reach // 2))
    return num_steps, [w for w in windows if w.last + num_steps * lead <= end[w.trajectory]]


def make_rollouts(
    forecaster: Forecaster,
    data: Trajectories,
    windows: Sequence[TimeSlice],
    num_steps: int,
    climatology: Climatology | None,
    track: Callable[[Sequence[TimeSlice]], Iterable[TimeSlice]] = lambda starts: starts,
) -> Rollouts:
    """Rolls out from evenly chosen starts; all of them stay in the test split.

    A start is left out where every site is missing in one of the frames.

    Args:
        forecaster: The trained model.
        data: The time series.
        windows: The test split.
        num_steps: How far, where the data reaches that far.
        climatology: A reference beside persistence.
        track: Shows progress over the starts.
    """
    lead = forecaster.task.lead
    num_steps, starts = _starts(data, windows, lead, num_steps)
    rows: dict[str, list[list[float]]] = {}
    scaled: dict[str, list[np.ndarray]] = {}
    rollouts = Rollouts({}, {}, [], [], [])
    std = np.array(forecaster.task.output_std)
    for window in track(evenly(starts, MAX_ROLLOUTS)):
        found = roll_out(forecaster, data, window, num_steps)
        if found is None:
            continue
        guesses = {"model": found.forecast, "persistence": found.persistence}
        if climatology is not None:
            guesses["climatology"] = climatology.at(found.frames)
        for who, guess in guesses.items():
            rows.setdefault(who, []).append(found.errors(guess))
            each = channel_errors(guess, found.truth, found.weights[None]).numpy()
            scaled.setdefault(who, []).append(np.sqrt(np.square(each / std).mean(-1)))
        last = found.truth[-1].numpy()
        rollouts.truth.append(np.where(found.is_known[:, None], last, np.nan))
        rollouts.forecast.append(found.forecast[-1].numpy())
        rollouts.geometries.append(found.geometry)
    rollouts.errors.update({who: np.array(errors) for who, errors in rows.items()})
    rollouts.scaled.update({who: np.array(errors) for who, errors in scaled.items()})
    return rollouts
