"""Answers about fields: input, truth, prediction, prediction under ablation, rollout."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from gpo.data.dataset import Trajectories
from gpo.data.splits import TimeSlice
from gpo.forecast import rollout as forecasts
from gpo.forecast.examples import Example
from gpo.numerics.norms import relative_l2, rmse
from gpo_explore.arrays import Packet
from gpo_explore.attribution import attribute
from gpo_explore.requests import AblationRequest, ExampleRequest, PointRequest, RolloutRequest
from gpo_explore.session import AbandonedError, Session

MAX_STEPS = 50
"""Steps of a rollout, while the page waits."""
NO_CLIMATOLOGY = (
    "No climatology: sites differ, or training frames are missing or too many to average."
)


def sites(session: Session, request: ExampleRequest) -> Packet:
    """Returns where the sites are and how they are drawn."""
    is_known = session.example(request.example).weights[0].numpy() > 0
    return session.plane(request.example).packet(is_known)


def frames(session: Session, request: ExampleRequest) -> Packet:
    """Returns input, truth and the prediction of the intact model."""
    example = session.example(request.example)
    whole = session.prediction(request.example)
    arrays = {"given": example.fields[0], "truth": example.target[0], "whole": whole}
    return Packet(
        {name: part.numpy() for name, part in arrays.items()},
        {"errors": _errors(whole, example.target[0], example)},
    )


def prediction(session: Session, request: AblationRequest) -> Packet:
    """Returns the prediction under an ablation, its errors, and its change."""
    example = session.example(request.example)
    whole = session.prediction(request.example)
    predicted, seconds = session.timed_prediction(request.example, request.ablation)
    metadata = {
        "errors": _errors(predicted, example.target[0], example),
        "changes": _errors(predicted, whole, example),
        "seconds": seconds,
    }
    return Packet({"predicted": predicted.numpy()}, metadata)


def value(session: Session, request: PointRequest) -> Packet:
    """Returns the prediction of all variables at any point."""
    example = session.example(request.example)
    coords = session.plane(request.example).coords_of(request.point)
    query = torch.from_numpy(coords)[None]
    operator = session.forecaster.operator
    with torch.no_grad(), request.ablation.applied(operator):
        values = session.forecaster(
            example.frames, example.coords, weights=example.site_weights, queries=query
        )[0, 0]
    return Packet({}, {"values": values.tolist()})


def dependence(session: Session, request: PointRequest) -> Packet:
    """Returns the contributions of sites and modes to the prediction at a point."""
    forecaster = session.forecaster
    if request.variable >= len(forecaster.task.outputs):
        count = len(forecaster.task.outputs)
        raise ValueError(f"`variable` must be from 0 to {count - 1}, got {request.variable}.")
    example, plane = session.example(request.example), session.plane(request.example)
    site = plane.nearest_site(request.point)
    found = attribute(forecaster, example, site, request.variable, request.ablation)
    arrays = {"regions": found.regions.numpy()}
    if found.modes is not None:
        arrays["modes"] = found.modes.numpy()
    metadata = {
        "site": site,
        "place": plane.positions[site].tolist(),
        "truth": float(example.target[0, site, request.variable]),
        "predicted": float(
            session.prediction(request.example, request.ablation)[site, request.variable]
        ),
        "attributed": found.attributed,
        "of": "change" if forecaster.task.predict == "increment" else "value",
    }
    return Packet(arrays, metadata)


def rollout(
    session: Session, request: RolloutRequest, is_abandoned: Callable[[], bool] = lambda: False
) -> Packet:
    """Returns a rollout and the truth, as far as the data reaches, and the errors of references.

    Args:
        session: The run.
        request: What is asked for.
        is_abandoned: Whether nobody waits any more; it then ends after the step under way.
    """
    if not 1 <= request.steps <= MAX_STEPS:
        raise ValueError(f"`steps` must be from 1 to {MAX_STEPS}, got {request.steps}.")
    if is_abandoned():
        raise AbandonedError
    with session.lock:
        start = series(session, request)
    example, truth = start.example, start.truth
    steps: list[Tensor] = []
    model = session.rollout_forecaster.model
    with session.rollout_lock, request.ablation.applied(model.operator):
        for step in forecasts.rollout_steps(
            session.rollout_forecaster, example.frames, example.coords, len(truth),
            weights=example.site_weights, forcings=start.forcings,
        ):  # fmt: skip
            if is_abandoned():
                raise AbandonedError
            steps.append(step[0])
        climatology = session.climatology()
    forecast, true_frames = torch.stack(steps), torch.from_numpy(truth)
    references = {"persistence": example.fields[0, -1].expand_as(forecast)}
    if climatology is not None:
        references["climatology"] = climatology.at(start.later)

    def errors(guesses: Tensor) -> list[dict[str, Any]]:
        pairs = zip(guesses, true_frames, strict=True)
        return [_errors(guess, true, example) for guess, true in pairs]

    arrays = {"forecast": forecast.numpy(), "truth": truth}
    metadata = {
        "errors": errors(forecast), "times": start.times, "labels": start.labels,
        "references": {name: errors(guesses) for name, guesses in references.items()},
        "no_climatology": None if climatology is not None else NO_CLIMATOLOGY,
    }  # fmt: skip
    return Packet(arrays, metadata)


@dataclass(frozen=True)
class Start:
    """What a rollout starts from, and what really followed."""

    example: Example
    truth: np.ndarray
    forcings: Tensor
    later: range
    """Numbers of the frames that are forecast."""
    times: list[float]
    labels: list[str]
    """Their dates or times."""


def series(session: Session, request: RolloutRequest) -> Start:
    """Returns what a rollout starts from; the true frames, forcings, times and dates after it."""
    example = session.example(request.example)
    member, data, task = session.members[request.example], session.data, session.forecaster.task
    if not isinstance(member, TimeSlice) or not isinstance(data, Trajectories) or task.lead == 0:
        raise ValueError("Only a forecast of a time series can be rolled out.")
    ends = [other.target for other in session.members if other.trajectory == member.trajectory]
    num_steps = min(request.steps, (max(ends) - member.last) // task.lead)
    stop = member.last + num_steps * task.lead + 1
    read = data.frames(member.trajectory, slice(member.first, stop, task.lead))
    later = range(member.last + task.lead, stop, task.lead)
    times, labels = data.time[list(later)].astype(float).tolist(), data.time_labels(later)
    ahead = np.arange(member.last + 2 * task.lead, stop, task.lead)
    forcings = torch.from_numpy(data.forcing_frames(member.trajectory, ahead))[None]
    truth = read[task.history :].astype(np.float64)
    return Start(example, truth, forcings, later, times, labels)


def _errors(
    guess: Float[Tensor, "points outputs"], truth: Float[Tensor, "points outputs"], example: Example
) -> dict[str, Any]:
    """Returns relative L2 of all variables, and the root mean square of each in its units."""
    weights = example.weights * truth.isfinite().all(-1)
    guess, truth = guess[None], truth.nan_to_num()[None]
    by_variable = [
        rmse(guess[..., n : n + 1], truth[..., n : n + 1], weights).item()
        for n in range(truth.shape[-1])
    ]
    return {"relative_l2": relative_l2(guess, truth, weights).item(), "rms": by_variable}
