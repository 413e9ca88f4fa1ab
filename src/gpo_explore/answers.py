"""Answers about fields: input, truth, prediction with and without ablations, attribution, rollout."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from gpo.data.seasons import seasons_of
from gpo.forecast.examples import Example
from gpo.forecast.rollout import rollout as roll_out
from gpo.forecast.rollout import rollout_steps
from gpo.model.ablation import Ablation
from gpo.numerics.norms import relative_l2, rmse
from gpo_explore.arrays import Packet
from gpo_explore.attribution import attribute
from gpo_explore.requests import AblationRequest, ExampleRequest, PointRequest, RolloutRequest
from gpo_explore.session import AbandonedError, Session

MAX_STEPS = 50
"""Largest number of rollout steps."""
NO_REFERENCES = (
    "Persistence only: there are no training frames, or too many to fit other references to them."
)


def sites(session: Session, request: ExampleRequest) -> Packet:
    """Returns the coordinates of the sites and how to draw them."""
    is_active = session.example(request.example).weights[0].numpy() > 0
    return session.plane(request.example).packet(is_active)


def frames(session: Session, request: ExampleRequest) -> Packet:
    """Returns input, truth and the prediction of the full model."""
    example = session.example(request.example)
    whole = session.prediction(request.example)
    arrays = {"given": example.fields[0], "truth": example.target[0], "whole": whole}
    return Packet(
        {name: frames.numpy() for name, frames in arrays.items()},
        {"errors": _errors(whole, example.target[0], example)},
    )


def prediction(session: Session, request: AblationRequest) -> Packet:
    """Returns the ablated prediction, its errors, and its difference from the full model's."""
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
    """Returns the prediction of all variables at an arbitrary point."""
    example = session.example(request.example)
    coords = session.plane(request.example).coords_of(request.point)
    query = torch.from_numpy(coords)[None]
    operator = session.forecaster.operator
    with torch.no_grad(), request.ablation.applied(operator):
        values = session.forecaster(
            example.frames,
            example.coords,
            weights=example.site_weights,
            queries=query,
            seasons=example.seasons,
        )[0, 0]
    return Packet({}, {"values": values.tolist()})


def dependence(session: Session, request: PointRequest) -> Packet:
    """Returns the contributions of sites and modes to the prediction at a point."""
    forecaster = session.forecaster
    request.check(len(forecaster.task.outputs))
    example, plane = session.example(request.example), session.plane(request.example)
    site = plane.nearest_site(request.point)
    attribution = attribute(forecaster, example, site, request.variable, request.ablation)
    arrays = {"regions": attribution.regions.numpy()}
    if attribution.modes is not None:
        arrays["modes"] = attribution.modes.numpy()
    metadata = {
        "site": site,
        "place": plane.positions[site].tolist(),
        "truth": float(example.target[0, site, request.variable]),
        "predicted": float(
            session.prediction(request.example, request.ablation)[site, request.variable]
        ),
        "attributed": attribution.attributed,
        "of": "change" if forecaster.task.predict == "increment" else "value",
    }
    return Packet(arrays, metadata)


def rollout(
    session: Session, request: RolloutRequest, is_abandoned: Callable[[], bool] = lambda: False
) -> Packet:
    """Returns a rollout and the truth, as far as there is data, and the errors of reference forecasts.

    Args:
        session: The run.
        request: Example, number of steps and ablation.
        is_abandoned: Checked before every step; the rollout is aborted if it returns True.
    """
    if not 1 <= request.steps <= MAX_STEPS:
        raise ValueError(f"`steps` must be from 1 to {MAX_STEPS}, got {request.steps}.")
    if is_abandoned():
        raise AbandonedError
    with session.lock:
        start = rollout_start(session, request)
    example, truth = start.example, start.truth
    steps: list[Tensor] = []
    model = session.rollout_forecaster.model
    options = {
        "weights": example.site_weights, "forcings": start.forcings, "seasons": example.seasons,
    }  # fmt: skip
    with session.rollout_lock, request.ablation.applied(model.operator):
        for step in rollout_steps(
            session.rollout_forecaster, example.frames, example.coords, len(truth), **options
        ):
            if is_abandoned():
                raise AbandonedError
            steps.append(step[0])
        references = {
            name: roll_out(reference, example.frames, example.coords, len(truth), **options)[0]
            for name, reference in session.references().items()
        }
    forecast, true_frames = torch.stack(steps), torch.from_numpy(truth)
    if session.blend is not None and request.ablation == Ablation():
        rest = session.blend.contributions(example.frames, example.coords, len(truth), **options)
        blended = [part.added_to(step[None])[0] for step, part in zip(steps, rest, strict=True)]
        references["blend"] = torch.stack(blended)

    def errors(forecasts: Tensor) -> list[dict[str, Any]]:
        pairs = zip(forecasts, true_frames, strict=True)
        return [_errors(predicted, true, example) for predicted, true in pairs]

    arrays = {"forecast": forecast.numpy(), "truth": truth}
    metadata = {
        "errors": errors(forecast), "times": start.times, "labels": start.labels,
        "references": {name: errors(reference) for name, reference in references.items()},
        "no_references": None if session.fits_references else NO_REFERENCES,
    }  # fmt: skip
    return Packet(arrays, metadata)


@dataclass(frozen=True)
class RolloutStart:
    """The input of a rollout, and the true frames to compare it with."""

    example: Example
    truth: np.ndarray
    forcings: Tensor
    frames: range
    """Indices of the forecast frames."""
    times: list[float]
    labels: list[str]
    """Their dates or times."""


def rollout_start(session: Session, request: RolloutRequest) -> RolloutStart:
    """Returns the input of a rollout, and the true frames, forcings, times and dates after it."""
    example = session.example(request.example)
    sample, data, task = session.samples[request.example], session.data, session.forecaster.task
    if task.lead == 0:
        raise ValueError("A rollout needs a model that forecasts a time series.")
    ends = [other.target for other in session.samples if other.sample == sample.sample]
    num_steps = min(request.steps, (max(ends) - sample.last) // task.lead)
    stop = sample.last + num_steps * task.lead + 1
    values = data.frames(sample.sample, slice(sample.first, stop, task.lead))
    frames = range(sample.last + task.lead, stop, task.lead)
    times, labels = data.time[list(frames)].astype(float).tolist(), data.time_labels(frames)
    later = np.arange(sample.last + 2 * task.lead, stop, task.lead)
    forcings = torch.from_numpy(data.forcing_frames(sample.sample, later))[None]
    truth = values[task.history :].astype(np.float64)
    seasons = torch.from_numpy(seasons_of(data, np.arange(sample.first, stop, task.lead)))
    example = replace(example, seasons=seasons[None])
    return RolloutStart(example, truth, forcings, frames, times, labels)


def _errors(
    predicted: Float[Tensor, "points outputs"],
    truth: Float[Tensor, "points outputs"],
    example: Example,
) -> dict[str, Any]:
    """Returns the relative L2 error over all variables, and the RMS error of each in its units."""
    weights = example.weights * truth.isfinite().all(-1)
    predicted, truth = predicted[None], truth.nan_to_num()[None]
    by_variable = [
        rmse(predicted[..., n : n + 1], truth[..., n : n + 1], weights).item()
        for n in range(truth.shape[-1])
    ]
    return {"relative_l2": relative_l2(predicted, truth, weights).item(), "rms": by_variable}
