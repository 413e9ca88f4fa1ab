"""Answers about motion: where a model moves what it is given, beside the true flow and a control.

A displacement leads from where what arrives at a site came from to the site. It is compared with the
true velocity of the frame that the model should have been given, and with that of other examples.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from gpo.data.dataset import Trajectories
from gpo.data.splits import evenly
from gpo.data.units import readable
from gpo.interpretation.attribution import UNKNOWN, particle_rows
from gpo.interpretation.batches import make_batches
from gpo.interpretation.correlations import correlations
from gpo.interpretation.tracers import carried, carried_by_flow, carrier_of, distance, in_space
from gpo_explore.arrays import Packet
from gpo_explore.motion_rollout import MotionRollout, flow_variables, num_carriers
from gpo_explore.plane import Plane
from gpo_explore.requests import ExampleRequest, FlowRequest, TracerRequest
from gpo_explore.session import AbandonedError, Session

NUM_EXAMPLES, MEASURED_SITES = 8, 2**17
"""Test examples whose motion is measured; fewer on many sites, but two at least."""
REASON = f"{UNKNOWN[0].upper()}{UNKNOWN[1:]}."
SCALED = "Units do not tell how far the flow goes in a step: it is drawn as fast as the learned motion."  # fmt: skip


WEAK = 0.5
"""Correlations below explain less than a quarter of a motion."""
STILL, LEAST = "This particle stands still here.", 1e-5
"""Said where no displacement is longer than this part of the domain: it would be compared as noise."""


def motion(
    session: Session, request: ExampleRequest, is_abandoned: Callable[[], bool] = lambda: False
) -> Packet:
    """Returns how far every particle moves, what that is worth, and whether it is the velocity.

    These are the numbers of `gpo interpret` over some test examples, the same for every request.
    """
    num_carriers(session)
    if is_abandoned():
        raise AbandonedError

    def measure() -> Packet:
        with session.lock:
            sites = session.example(request.example).coords.shape[1]
        count = max(2, min(NUM_EXAMPLES, MEASURED_SITES // sites))
        reconstructs = isinstance(session.data, Trajectories) and session.forecaster.task.lead == 0
        chosen, variables = evenly(session.members, count), flow_variables(session)
        batches = make_batches(session.data, chosen, reconstructs=reconstructs)
        generator = np.random.default_rng(0)
        rows, told = particle_rows(session.rollout_forecaster, batches, variables, generator)
        flow = variables.on(batches[0].geometry)
        return Packet({}, {
            "rows": rows, "best": max(range(len(rows)), key=lambda n: rows[n]["share"]), **told,
            "num_examples": len(chosen), "known_by": None if flow is None else flow.known_by,
            "reason": REASON if flow is None else None,
        })  # fmt: skip

    with session.rollout_lock:
        return session.recent_motion.get("motion", measure)


def flow(
    session: Session, request: FlowRequest, is_abandoned: Callable[[], bool] = lambda: False
) -> Packet:
    """Returns one particle's displacements in a step, the true flow, and how well both agree.

    Vectors are along the drawn axes in lengths per step, degrees to the east and north on a sphere.
    """
    number = _checked(session, request)
    with session.rollout_lock:
        rollout = _rollout(session, request)
        [*_, way] = _ways(rollout, request.step, number, is_abandoned)
    way, q = way.numpy(), rollout.quadrature(request.step - 1)
    degrees = _degrees(rollout.plane)
    arrays = {"model": degrees * way}
    metadata: dict[str, Any] = {
        "num_steps": rollout.num_steps, "labels": rollout.labels[request.step - 1 :][:2],
        "units": _length_units(rollout.plane), "rms": {"model": degrees * _size(way, q)},
    }  # fmt: skip
    if rollout.flow is None:
        return Packet(arrays, {**metadata, "reason": REASON})
    true = rollout.velocity(request.step - 1) * rollout.duration(request.step)
    arrays["true"] = degrees * true
    metadata["rms"]["true"] = degrees * _size(true, q)
    lengths = rollout.plane.geometry.domain.unit_lengths(torch.from_numpy(way))
    is_still = bool((torch.from_numpy(way) / lengths).abs().max() < LEAST)
    own, others = _agreement(way, true, rollout, q)
    metadata |= {
        "known_by": rollout.flow.known_by, "own": own, "others": others,
        "words": STILL if is_still else velocity_in_words(own, others), "scaled": None if rollout.is_told else SCALED,
    }  # fmt: skip
    return Packet(arrays, metadata)


def tracers(
    session: Session, request: TracerRequest, is_abandoned: Callable[[], bool] = lambda: False
) -> Packet:
    """Returns where points are taken, step by step: by the model, by the true flow, by a control.

    The control is the same model with the displacements that it has in another example. Places are
    those that are drawn; around periodic axes they are not wrapped, so that a way has no jumps.
    """
    number = _checked(session, request)
    with session.rollout_lock:
        rollout = _rollout(session, request)
        plane, example, domain = rollout.plane, rollout.example, rollout.plane.geometry.domain
        places = np.stack([plane.coords_of(point) for point in request.points])
        start, has_flow = (
            torch.from_numpy(places)[None],
            rollout.flow is not None and rollout.is_told,
        )
        carrier = carrier_of(session.rollout_forecaster, example)
        other = _another(session, request.example, rollout.num_steps) if has_flow else None
        both = [rollout]
        if other is not None:
            both.append(_rollout(session, replace(request, example=other)))
        ways = [_ways(one, rollout.num_steps, number, is_abandoned) for one in both]
        moving = [
            in_space(torch.stack(step), example.coords, domain) for step in zip(*ways, strict=True)
        ]
        carried_each = carried(carrier, moving, start.expand(len(both), -1, -1))
        paths: dict[str, Tensor] = dict(zip(("model", "other"), carried_each, strict=False))
        if has_flow:
            speed = [rollout.velocity(frame) for frame in range(rollout.num_steps + 1)]
            speeds = in_space(torch.from_numpy(np.nan_to_num(speed)), example.coords, domain)
            times = torch.from_numpy(rollout.times)[None]
            paths["true"] = carried_by_flow(carrier, speeds[None], times, start)[0]
    metadata: dict[str, Any] = {"labels": rollout.labels, "units": _length_units(plane)}
    if "true" in paths:
        rows = _separations(paths, plane)
        metadata |= {"separation": rows, "words": tracers_in_words(rows, len(places), plane)}
    drawn = {name: plane.flat(path.numpy()) if domain.is_sphere else path.numpy()
             for name, path in paths.items()}  # fmt: skip
    return Packet(drawn, metadata)


def velocity_in_words(own: float, others: Sequence[float]) -> str:
    """Returns whether a displacement is the motion of this field, beside the control."""
    start = f"Correlation of the learned motion with the true velocity: {_signed(own)}"
    if not others:
        return f"{start}. There is no other example on these sites to compare it with."
    own, mean, low, high = (
        round(float(one), 2) for one in (own, np.mean(others), min(others), max(others))
    )
    control = f"with that of {_counted(len(others), 'other example')}: {_signed(mean)} on average, {_signed(low)} to {_signed(high)}"  # fmt: skip
    is_more, is_less = own > max(high, 0.0), own < min(low, 0.0)
    if (is_more or is_less) and abs(own) < WEAK:
        side = "with" if is_more else "against"
        verdict = f"It goes {side} this field more than {side} any other of them, but weakly: most of it is something else."  # fmt: skip
    elif is_more:
        verdict = "It moves with this field, more than with any other of them."
    elif is_less:
        verdict = "It moves against this field, more than against any other of them."
    else:
        verdict = "Nothing says that it is the motion of this field."
    return f"{start}; {control}. {verdict}"


def tracers_in_words(rows: Mapping[str, Sequence[float | None]], count: int, plane: Plane) -> str:
    """Returns how far tracers are from the true ones at the end, beside the controls."""
    last = max(step for step, apart in enumerate(rows["model"]) if apart is not None)
    units = _length_units(plane)
    told = {name: f"{row[last]:.3g}{'' if units == '°' else ' '}{units}".strip() for name, row in rows.items() if row[last] is not None}  # fmt: skip
    subject = "The model's tracer is" if count == 1 else f"The model's {count} tracers are on average"  # fmt: skip
    controls = {
        "other": "with the displacements of another example", "stay": "staying where they started",
    }  # fmt: skip
    beside = "; ".join(f"{words}: {told[name]}" for name, words in controls.items() if name in told)
    return f"{subject} {told['model']} from the true {'one' if count == 1 else 'ones'} after {_counted(last, 'step')}; {beside}."


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _signed(value: float) -> str:
    return f"{value + 0.0:.2f}".replace("-0.00", "0.00").replace("-", "−")


def _checked(session: Session, request: FlowRequest) -> int:
    count = num_carriers(session)
    if request.carrier >= count:
        raise ValueError(f"`carrier` must be from 0 to {count - 1}, got {request.carrier}.")
    return request.carrier


def _rollout(session: Session, request: FlowRequest) -> MotionRollout:
    key = request.example, request.ablation
    return session.recent_rollouts.get(key, lambda: MotionRollout(session, request))


def _ways(
    rollout: MotionRollout, num_steps: int, number: int, is_abandoned: Callable[[], bool]
) -> list[Float[Tensor, "points axes"]]:
    """Returns the displacements of one particle in every step."""
    found = []
    for step in (*range(1, num_steps), num_steps):
        if is_abandoned():
            raise AbandonedError
        found.append(rollout.ways(step)[:, number].double())
    return found


def _another(session: Session, number: int, num_steps: int) -> int | None:
    """Returns an example on the same sites that lasts as long: half the list away, or the next such."""
    members, count = session.members, len(session.members)
    if len(session.data.geometries) > 1:
        return None
    for ahead in range(count):
        other = (number + count // 2 + ahead) % count
        mine = members[other]
        end = max(one.target for one in members if one.trajectory == mine.trajectory)
        if other != number and mine.last + num_steps * mine.lead <= end:
            return other
    return None


def _degrees(plane: Plane) -> float:
    """Returns what makes drawn lengths of lengths of the domain."""
    return float(np.rad2deg(1.0)) if plane.geometry.domain.is_sphere else 1.0


def _length_units(plane: Plane) -> str:
    return "°" if plane.geometry.domain.is_sphere else readable([*plane.geometry.axis_units, ""][0])


def _size(vectors: Float[np.ndarray, "points axes"], q: Float[np.ndarray, " points"]) -> float:
    """Returns the root mean square of the length of vectors."""
    return float(np.sqrt(np.nan_to_num(vectors**2).sum(-1) @ q / max(q.sum(), 1e-300)))


def _agreement(
    way: Float[np.ndarray, "points axes"], true: Float[np.ndarray, "points axes"],
    rollout: MotionRollout, q: Float[np.ndarray, " points"],
) -> tuple[float, list[float]]:  # fmt: skip
    """Returns the correlation with this example's velocity, and those with the velocity of others."""
    assert rollout.flow is not None
    flows = np.stack([true, *(rollout.flow(frame) for frame in rollout.others)])
    is_known = np.asarray(np.isfinite(flows).all((0, 2))) & (q > 0)
    flows, way = (np.where(is_known[:, None], part, 0.0) for part in (flows, way))
    own, *rest = correlations(way[:, None], flows, np.where(is_known, q, 0.0))[:, 0].tolist()
    return own, rest


def _separations(
    paths: Mapping[str, Float[Tensor, "tracers frames dim"]], plane: Plane
) -> dict[str, list[float | None]]:
    """Returns how far tracers are from the true ones by step, on average over those still inside."""
    true = paths["true"]

    def mean(path: Tensor) -> list[float | None]:
        apart = _degrees(plane) * distance(path, true, plane.geometry.domain)
        rows = [row[row.isfinite()] for row in apart.T]
        return [float(row.mean()) if len(row) else None for row in rows]

    moved = {name: path for name, path in paths.items() if name != "true"}
    return {name: mean(path) for name, path in {**moved, "stay": true[:, :1].expand_as(true)}.items()}  # fmt: skip
