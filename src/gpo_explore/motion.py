"""Answers about motion: learned displacements, compared with the true velocity and with controls.

A displacement points from the departure point of a particle to its site. It is compared with the true
velocity of the frame that the step starts from and, as a control, with that of other examples.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from gpo.data.splits import evenly
from gpo.data.units import readable
from gpo.interpretation.attribution import UNKNOWN, particle_rows
from gpo.interpretation.batches import make_batches
from gpo.interpretation.correlations import correlations
from gpo.interpretation.tracers import (
    advect_by_flow,
    carried,
    distance,
    make_advector,
    to_cartesian,
)
from gpo_explore.arrays import Packet
from gpo_explore.motion_rollout import MotionRollout, num_particles
from gpo_explore.plane import Plane
from gpo_explore.requests import ExampleRequest, FlowRequest, TracerRequest
from gpo_explore.session import AbandonedError, Session

MAX_EXAMPLES, MAX_SITES = 8, 2**17
"""Largest number of test examples whose motion is measured, and of their sites; at least two are."""
NO_VELOCITY = f"{UNKNOWN[0].upper()}{UNKNOWN[1:]}."
NO_UNITS = "The units do not determine the displacement per step: the true flow is scaled to the learned motion."  # fmt: skip
WEAK_CORRELATION = 0.5
"""Correlations below explain less than a quarter of the variance."""
ZERO_DISPLACEMENT, MIN_DISPLACEMENT = "This particle has zero displacement here.", 1e-5
"""Message if all displacements are below this fraction of the domain, where only noise is left."""


def motion(
    session: Session, request: ExampleRequest, is_abandoned: Callable[[], bool] = lambda: False
) -> Packet:
    """Returns size, importance and correlation with the velocity of every particle's displacements.

    These are the numbers of `gpo interpret` over some test examples, the same for every request.
    """
    num_particles(session)
    if is_abandoned():
        raise AbandonedError

    def measure() -> Packet:
        with session.lock:
            sites = session.example(request.example).coords.shape[1]
        count = max(2, min(MAX_EXAMPLES, MAX_SITES // sites))
        samples, variables = evenly(session.samples, count), session.flow_variables
        batches = make_batches(session.data, samples, reconstructs=session.reconstructs)
        generator = np.random.default_rng(0)
        rows, null = particle_rows(session.rollout_forecaster, batches, variables, generator)
        flow = variables.on(batches[0].geometry)
        return Packet({}, {
            "rows": rows, "best": max(range(len(rows)), key=lambda n: rows[n]["share"]), **null,
            "num_examples": len(samples), "known_by": None if flow is None else flow.known_by,
            "reason": NO_VELOCITY if flow is None else None,
        })  # fmt: skip

    with session.rollout_lock:
        return session.recent_motion.get("motion", measure)


def flow(
    session: Session, request: FlowRequest, is_abandoned: Callable[[], bool] = lambda: False
) -> Packet:
    """Returns one particle's displacements in a step, the true flow, and their correlation.

    Vectors are along the drawn axes, in lengths per step; on a sphere, in degrees east and north.
    """
    number = _particle(session, request)
    with session.rollout_lock:
        rollout = _rollout(session, request)
        [*_, last] = _displacements(rollout, request.step, number, is_abandoned)
    learned, q = last.numpy(), rollout.quadrature(request.step - 1)
    degrees = _degrees(rollout.plane)
    arrays = {"model": degrees * learned}
    metadata: dict[str, Any] = {
        "num_steps": rollout.num_steps, "labels": rollout.labels[request.step - 1 :][:2],
        "units": _length_units(rollout.plane), "rms": {"model": degrees * _rms(learned, q)},
    }  # fmt: skip
    if rollout.flow is None:
        return Packet(arrays, {**metadata, "reason": NO_VELOCITY})
    true = rollout.velocity(request.step - 1) * rollout.duration(request.step)
    arrays["true"] = degrees * true
    metadata["rms"]["true"] = degrees * _rms(true, q)
    lengths = rollout.plane.geometry.domain.unit_lengths(last)
    is_zero = bool((last / lengths).abs().max() < MIN_DISPLACEMENT)
    own, others = _correlations(learned, true, rollout, q)
    metadata |= {
        "known_by": rollout.flow.known_by, "own": own, "others": others,
        "words": ZERO_DISPLACEMENT if is_zero else describe_correlation(own, others),
        "scaled": None if rollout.has_units else NO_UNITS,
    }  # fmt: skip
    return Packet(arrays, metadata)


def tracers(
    session: Session, request: TracerRequest, is_abandoned: Callable[[], bool] = lambda: False
) -> Packet:
    """Returns the paths of tracers in the learned motion, in the true flow, and in a control.

    The control is the same model with the displacements of another example. Coordinates are the drawn
    ones; they are not wrapped along periodic axes, so that paths have no jumps.
    """
    number = _particle(session, request)
    with session.rollout_lock:
        rollout = _rollout(session, request)
        plane, example, domain = rollout.plane, rollout.example, rollout.plane.geometry.domain
        coords = np.stack([plane.coords_of(point) for point in request.points])
        start = torch.from_numpy(coords)[None]
        has_flow = rollout.flow is not None and rollout.has_units
        advector = make_advector(session.rollout_forecaster, example)
        other = _other_example(session, request.example, rollout.num_steps) if has_flow else None
        rollouts = [rollout]
        if other is not None:
            rollouts.append(_rollout(session, replace(request, example=other)))
        steps = zip(
            *(_displacements(each, rollout.num_steps, number, is_abandoned) for each in rollouts),
            strict=True,
        )
        vectors = [to_cartesian(torch.stack(step), example.coords, domain) for step in steps]
        advected = carried(advector, vectors, start.expand(len(rollouts), -1, -1))
        paths: dict[str, Tensor] = dict(zip(("model", "other"), advected, strict=False))
        if has_flow:
            velocity = [rollout.velocity(frame) for frame in range(rollout.num_steps + 1)]
            velocities = to_cartesian(
                torch.from_numpy(np.nan_to_num(velocity)), example.coords, domain
            )
            times = torch.from_numpy(rollout.times)[None]
            paths["true"] = advect_by_flow(advector, velocities[None], times, start)[0]
    metadata: dict[str, Any] = {"labels": rollout.labels, "units": _length_units(plane)}
    if "true" in paths:
        rows = _separations(paths, plane)
        metadata |= {"separation": rows, "words": describe_tracers(rows, len(coords), plane)}
    drawn = {name: plane.flat(path.numpy()) if domain.is_sphere else path.numpy()
             for name, path in paths.items()}  # fmt: skip
    return Packet(drawn, metadata)


def describe_correlation(own: float, others: Sequence[float]) -> str:
    """Returns a sentence that compares a correlation with those of other examples."""
    start = f"Correlation of the learned displacement with the true velocity: {_signed(own)}"
    if not others:
        return f"{start}. There is no other example on these sites to compare with."
    own, mean, low, high = (
        round(float(value), 2) for value in (own, np.mean(others), min(others), max(others))
    )
    control = f"with the velocity of {_plural(len(others), 'other example')}: mean {_signed(mean)}, range {_signed(low)} to {_signed(high)}"  # fmt: skip
    is_higher, is_lower = own > max(high, 0.0), own < min(low, 0.0)
    comparison = "Higher" if is_higher else "More negative"
    if not is_higher and not is_lower:
        verdict = "There is no evidence that the displacement follows the velocity of this field."
    elif abs(own) < WEAK_CORRELATION:
        verdict = f"{comparison} than for any other example, but weak: most of the displacement is not explained."  # fmt: skip
    else:
        verb = "follows" if is_higher else "opposes"
        verdict = f"{comparison} than for any other example: the displacement {verb} the velocity of this field."  # fmt: skip
    return f"{start}; {control}. {verdict}"


def describe_tracers(rows: Mapping[str, Sequence[float | None]], count: int, plane: Plane) -> str:
    """Returns a sentence on how far tracers are from the true ones at the end, and the controls."""
    last = max(step for step, distance in enumerate(rows["model"]) if distance is not None)
    units = _length_units(plane)
    distances = {name: f"{row[last]:.3g}{'' if units == '°' else ' '}{units}".strip() for name, row in rows.items() if row[last] is not None}  # fmt: skip
    subject = "The model's tracer is" if count == 1 else f"The model's {count} tracers are on average"  # fmt: skip
    controls = {
        "other": "with the displacements of another example", "stay": "with zero displacement",
    }  # fmt: skip
    beside = "; ".join(f"{text}: {distances[name]}" for name, text in controls.items() if name in distances)  # fmt: skip
    return f"{subject} {distances['model']} from the true {'one' if count == 1 else 'ones'} after {_plural(last, 'step')}; {beside}."


def _plural(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _signed(value: float) -> str:
    return f"{value + 0.0:.2f}".replace("-0.00", "0.00").replace("-", "−")


def _particle(session: Session, request: FlowRequest) -> int:
    """Returns the requested particle; raises a `ValueError` if there is no such particle."""
    count = num_particles(session)
    if request.advector >= count:
        raise ValueError(f"`advector` must be from 0 to {count - 1}, got {request.advector}.")
    return request.advector


def _rollout(session: Session, request: FlowRequest) -> MotionRollout:
    key = request.example, request.ablation
    return session.recent_rollouts.get(key, lambda: MotionRollout(session, request))


def _displacements(
    rollout: MotionRollout, num_steps: int, number: int, is_abandoned: Callable[[], bool]
) -> list[Float[Tensor, "points axes"]]:
    """Returns the displacements of one particle in every step."""
    steps = []
    # At least the last step is computed, which raises an error if there is no such step.
    for step in (*range(1, num_steps), num_steps):
        if is_abandoned():
            raise AbandonedError
        steps.append(rollout.displacements(step)[:, number].double())
    return steps


def _other_example(session: Session, number: int, num_steps: int) -> int | None:
    """Returns an example on the same sites with as many steps: half the split away, or the next one."""
    samples, count = session.samples, len(session.samples)
    if len(session.data.geometries) > 1:
        return None
    for offset in range(count):
        other = (number + count // 2 + offset) % count
        sample = samples[other]
        end = max(each.target for each in samples if each.sample == sample.sample)
        if other != number and sample.last + num_steps * sample.lead <= end:
            return other
    return None


def _degrees(plane: Plane) -> float:
    """Returns the factor from domain lengths to drawn lengths."""
    return float(np.rad2deg(1.0)) if plane.geometry.domain.is_sphere else 1.0


def _length_units(plane: Plane) -> str:
    return "°" if plane.geometry.domain.is_sphere else readable([*plane.geometry.axis_units, ""][0])


def _rms(vectors: Float[np.ndarray, "points axes"], q: Float[np.ndarray, " points"]) -> float:
    """Returns the root mean square of the lengths of vectors."""
    return float(np.sqrt(np.nan_to_num(vectors**2).sum(-1) @ q / max(q.sum(), 1e-300)))


def _correlations(
    learned: Float[np.ndarray, "points axes"], true: Float[np.ndarray, "points axes"],
    rollout: MotionRollout, q: Float[np.ndarray, " points"],
) -> tuple[float, list[float]]:  # fmt: skip
    """Returns the correlations of displacements with this example's velocity and with those of others."""
    assert rollout.flow is not None
    flows = np.stack([true, *(rollout.flow(frame) for frame in rollout.other_frames)])
    is_active = np.asarray(np.isfinite(flows).all((0, 2))) & (q > 0)
    flows, learned = (np.where(is_active[:, None], part, 0.0) for part in (flows, learned))
    own, *others = correlations(learned[:, None], flows, np.where(is_active, q, 0.0))[:, 0].tolist()
    return own, others


def _separations(
    paths: Mapping[str, Float[Tensor, "tracers frames dim"]], plane: Plane
) -> dict[str, list[float | None]]:
    """Returns the mean distance of tracers from the true ones by step, over those still inside."""
    true = paths["true"]

    def mean(path: Tensor) -> list[float | None]:
        distances = _degrees(plane) * distance(path, true, plane.geometry.domain)
        rows = [row[row.isfinite()] for row in distances.T]
        return [float(row.mean()) if len(row) else None for row in rows]

    moved = {name: path for name, path in paths.items() if name != "true"}
    return {name: mean(path) for name, path in {**moved, "stay": true[:, :1].expand_as(true)}.items()}  # fmt: skip
