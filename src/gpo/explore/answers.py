"""Answers about fields: what was given, what followed, what is predicted, and with parts off."""

import time
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from gpo.data.dataset import Trajectories
from gpo.data.splits import TimeSlice
from gpo.evaluation.rollout import roll_out
from gpo.explore.arrays import Packet
from gpo.explore.requests import Asked, AskedPart, AskedPoint, AskedRollout
from gpo.explore.session import Session
from gpo.forecast.examples import Example
from gpo.forecast.forecaster import Forecaster
from gpo.model.ablation import Ablation
from gpo.model.operator import GaussianParticleOperator
from gpo.numerics.norms import relative_l2, rmse

MOST_STEPS = 50
"""Steps of a rollout; the page waits for them."""


def places(session: Session, asked: Asked) -> Packet:
    """Returns where the sites are and how they are drawn."""
    is_known = session.example(asked.example).weights[0].numpy() > 0
    return session.plane(asked.example).packet(is_known)


def frames(session: Session, asked: Asked) -> Packet:
    """Returns what was given, what followed, and what the whole model predicts."""
    example = session.example(asked.example)
    whole = session.prediction(asked.example)
    arrays = {"given": example.fields[0], "truth": example.target[0], "whole": whole}
    return Packet(
        {name: part.numpy() for name, part in arrays.items()},
        {"errors": _errors(whole, example.target[0], example)},
    )


def prediction(session: Session, asked: AskedPart) -> Packet:
    """Returns what is predicted with parts switched off, and how much that changes."""
    example = session.example(asked.example)
    whole = session.prediction(asked.example)
    start = time.perf_counter()
    predicted = session.prediction(asked.example, asked.ablation)
    seconds = time.perf_counter() - start
    facts = {
        "errors": _errors(predicted, example.target[0], example),
        "changes": _errors(predicted, whole, example),
        "seconds": seconds,
    }
    return Packet({"predicted": predicted.numpy()}, facts)


def value(session: Session, asked: AskedPoint) -> Packet:
    """Returns the prediction of all variables at any point."""
    example = session.example(asked.example)
    coords = session.plane(asked.example).coords_of(asked.point)
    query = torch.from_numpy(coords.astype(np.float32))[None]
    with torch.no_grad():
        values = session.forecaster(
            example.frames, example.coords, weights=example.weights, queries=query,
            ablation=_parts_off(asked),
        )[0, 0]  # fmt: skip
    return Packet({}, {"values": values.tolist()})


def dependence(session: Session, asked: AskedPoint) -> Packet:
    """Returns on which regions and which modes the prediction at a point depends."""
    forecaster = session.forecaster
    if asked.variable >= len(forecaster.task.outputs):
        count = len(forecaster.task.outputs)
        raise ValueError(f"`variable` must be from 0 to {count - 1}, got {asked.variable}.")
    example, plane = session.example(asked.example), session.plane(asked.example)
    site = plane.nearest_site(asked.point)
    found = depends_on(forecaster, example, site, asked.variable, asked.ablation)
    arrays = {"regions": found.regions.numpy()}
    if found.modes is not None:
        arrays["modes"] = found.modes.numpy()
    facts = {
        "site": site,
        "place": plane.positions[site].tolist(),
        "truth": float(example.target[0, site, asked.variable]),
        "predicted": float(session.prediction(asked.example, asked.ablation)[site, asked.variable]),
        "attributed": found.attributed,
        "of": "change" if forecaster.task.predict == "increment" else "value",
    }
    return Packet(arrays, facts)


def rollout(session: Session, asked: AskedRollout) -> Packet:
    """Returns forecasts fed with forecasts, beside the truth, as far as the data reaches."""
    if not 1 <= asked.steps <= MOST_STEPS:
        raise ValueError(f"`steps` must be from 1 to {MOST_STEPS}, got {asked.steps}.")
    with session.lock:
        example, truth, times = _series(session, asked)
    with session.rollout_lock:
        forecast = roll_out(
            session.rollout_forecaster, example.frames, example.coords, len(truth),
            weights=example.weights, ablation=_parts_off(asked),
        )[0]  # fmt: skip
    errors = [
        _errors(guess, true, example)
        for guess, true in zip(forecast, torch.from_numpy(truth), strict=True)
    ]
    arrays = {"forecast": forecast.numpy(), "truth": truth}
    return Packet(arrays, {"errors": errors, "times": times})


def _series(session: Session, asked: AskedRollout) -> tuple[Example, np.ndarray, list[float]]:
    """Returns what a rollout starts from, and what follows at which times."""
    example = session.example(asked.example)
    member, data, task = session.members[asked.example], session.data, session.forecaster.task
    if not isinstance(member, TimeSlice) or not isinstance(data, Trajectories) or task.lead == 0:
        raise ValueError("Only a forecast of a time series can be rolled out.")
    ends = [other.target for other in session.members if other.trajectory == member.trajectory]
    num_steps = min(asked.steps, (max(ends) - member.last) // task.lead)
    stop = member.last + num_steps * task.lead + 1
    read = data.frames(member.trajectory, slice(member.first, stop, task.lead))
    times = data.time[member.last + task.lead : stop : task.lead]
    return example, read[task.history :].astype(np.float32), times.astype(float).tolist()


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


def _parts_off(asked: AskedPart) -> Ablation | None:
    """Returns what is switched off; None where nothing is, which any model understands."""
    return None if asked.ablation == Ablation() else asked.ablation


# >>> r"""On what a prediction at one point depends: gradient times input, by one backward pass.
#
# For a region that is $\sum_c\partial u(x)/\partial a_{jc}\cdot a_{jc}$ at every site $j$, with
# inputs counted from their mean; for a mode $\sum_c\partial u(x)/\partial T_{kc}\cdot T_{kc}$, over the
# channels of its token and, where it is complex, over both parts. Both are in the units of the
# output, and tell to first order what would be missing without the site or the mode.
#
# A model of increments adds its output to the last frame. What it adds is attributed there: that
# the frame itself is passed on at the point would hide everything else.
# """


@dataclass(frozen=True)
class Dependence:
    """Shares of sites and modes in one number."""

    attributed: float
    """The number: what the model adds to the last frame, or its deviation from the mean."""
    regions: Float[Tensor, " points"]
    modes: Float[Tensor, "layers modes"] | None
    """None where a model has no modes; in the paper's variant modes count through all heads."""


def depends_on(
    forecaster: Forecaster,
    example: Example,
    site: int,
    output: int,
    ablation: Ablation = Ablation(),
) -> Dependence:
    """Returns on what one output at one site depends.

    Args:
        forecaster: The trained model.
        example: The field that is given; its first sample counts.
        site: Number of the site.
        output: Number of the output.
        ablation: Parts that are switched off.
    """
    model = forecaster.model
    values = forecaster.normalised_input(example.frames).detach().requires_grad_()
    places = {"coords": example.coords, "weights": example.weights}
    tokens: tuple[Tensor, ...] = ()
    other_axes = (0, 3)
    if isinstance(model, GaussianParticleOperator):
        trace = model.trace(values, **places, ablation=ablation)
        answer, tokens = trace.output, trace.tokens
        if trace.waves is not None:
            other_axes = (0, 2, 3)
    else:
        answer = model(values, **places)
    scale = forecaster.output_std[output]
    if forecaster.task.predict == "increment":
        scale = scale * forecaster.increment_std[output]
    asked = answer[0, site, output] * scale
    sources = (values, *tokens)
    slopes = torch.autograd.grad(asked, sources, allow_unused=True)
    by_site, *by_token = (
        torch.zeros_like(source) if slope is None else (slope * source).detach()
        for slope, source in zip(slopes, sources, strict=True)
    )
    shares = [part.sum(other_axes).flatten() for part in by_token]
    # What is known of any time is no matter of regions.
    by_frame = by_site[0].unflatten(-1, (forecaster.task.history, -1))
    regions = by_frame[..., forecaster.task.num_known :].sum((-2, -1))
    return Dependence(asked.item(), regions, torch.stack(shares) if shares else None)
