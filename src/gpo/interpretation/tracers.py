"""Tracers: points carried through a rollout by a particle's displacements, beside those in the true flow.

How far both come apart is told in units of how far a tracer that stays is from the true one. As a
control, the model also carries tracers by the displacements that it has in another example.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from gpo.data.dataset import StaticMaps, Trajectories
from gpo.data.splits import TimeSlice, evenly, owner
from gpo.forecast.examples import Example, WindowExamples, followed
from gpo.forecast.forecaster import Forecaster
from gpo.inspect.tracers import KINDS, Tracers
from gpo.interpretation.batches import Batch, grouped
from gpo.interpretation.carrier import Carrier
from gpo.interpretation.flow import FlowVariables
from gpo.interpretation.motion import displacements
from gpo.interpretation.motion_numbers import transporting_layers
from gpo.model.ablation import Ablation
from gpo.model.particles import Particles
from gpo.numerics.domain import Domain
from gpo.numerics.footprints import tangent_frame

MAX_TRACERS = 200
"""Sites of an example where a tracer starts, evenly chosen."""
MAX_STEPS = 10
"""Steps of the rollout, fewer where the series of a split are shorter."""


def follow_tracers(
    forecaster: Forecaster,
    data: Trajectories | StaticMaps,
    members: Sequence[Any],
    variables: FlowVariables,
    best: Mapping[str, int],
    *,
    num_examples: int = 8,
) -> tuple[dict[str, Any], Tracers | None]:
    """Returns how far tracers of the model and of the true flow come apart, and all their ways.

    Args:
        forecaster: A trained gpo whose particles move.
        data: The data set.
        members: Its split.
        variables: Those among which the velocity is looked for.
        best: Layer and number of the particle whose displacements carry tracers.
        num_examples: How many examples are followed, evenly chosen.
    """
    if isinstance(data, StaticMaps):
        return {"reason": "static maps have no time to follow tracers in"}, None
    flow = variables.on(data.geometry())
    if flow is None:
        return {"reason": "no velocity is known to follow tracers in"}, None
    per_time = flow.lengths_per_time(data.time_units)
    if per_time is None:
        units = f"velocity {flow.units or 'none'}, time {data.time_units or 'none'}"
        return {"reason": f"units do not tell how far the flow goes in a step: {units}"}, None
    num_steps = _longest(members)
    examples = WindowExamples(data, members, num_steps=num_steps)
    chosen = evenly(range(len(examples)), num_examples)
    slices = [examples.windows[number] for number in chosen]
    batches = grouped([(data.geometry(owner(one)), examples[n]) for n, one in zip(chosen, slices, strict=True)])  # fmt: skip
    kinds = KINDS if all(len(batch.example.frames) > 1 for batch in batches) else KINDS[:2]
    parts, done = [], 0
    for batch in batches:
        count = len(batch.example.frames)
        times = _times(data, slices[done : done + count], num_steps)
        speed = per_time * _velocities(batch, variables)
        paths = _followed(forecaster, batch, speed, times, best)
        parts += [_row(paths[kind], kind, times[0], done, batch, data.time_units) for kind in kinds]
        done += count
    tracers = Tracers.joined(parts)
    return {**best, **_compared(tracers), "num_examples": len(chosen)}, tracers


def _longest(members: Sequence[TimeSlice]) -> int:
    """Returns the most steps that can be followed within a split."""
    for num_steps in range(MAX_STEPS, 1, -1):
        try:
            followed(members, num_steps)
        except ValueError:
            continue
        return num_steps
    return 1


def _velocities(
    batch: Batch, variables: FlowVariables
) -> Float[Tensor, "batch frames points axes"]:
    """Returns the velocity in the last frame that is given and in all that follow."""
    flow = variables.on(batch.geometry)
    assert flow is not None
    frames = torch.cat([batch.example.fields[:, -1:], batch.example.targets], 1).double()
    return torch.from_numpy(np.array([[flow(one.numpy()) for one in some] for some in frames]))


def _times(data: Trajectories, slices: Sequence[TimeSlice], num_steps: int) -> Tensor:
    """Returns the times of all frames since the first, examples by frames."""
    rows = [data.time[one.last + one.lead * np.arange(num_steps + 1)] for one in slices]
    times = np.array(rows, dtype=float)
    return torch.from_numpy(times - times[:, :1])


def _followed(
    forecaster: Forecaster,
    batch: Batch,
    speed: Float[Tensor, "batch frames points axes"],
    times: Float[Tensor, "batch frames"],
    best: Mapping[str, int],
) -> dict[str, Float[Tensor, "batch tracers frames dim"]]:
    """Returns the ways of tracers in the examples of a batch, by who carries them."""
    example, domain = batch.example, batch.geometry.domain
    counted = (example.weights > 0).all(0).nonzero().flatten()
    starts = counted[torch.linspace(0, len(counted) - 1, min(MAX_TRACERS, len(counted))).long()]
    start = example.coords[:1, starts].double().expand(len(example.frames), -1, -1)
    carrier = carrier_of(forecaster, example)
    ways = _displacements(forecaster, batch, best, speed.shape[1] - 1)
    others = [way.roll(max(1, len(way) // 2), dims=0) for way in ways]
    moving = in_space(speed, example.coords[:1, None].double(), domain)
    return {
        "model": carried(carrier, ways, start),
        "true_flow": carried_by_flow(carrier, moving, times, start),
        "other_example": carried(carrier, others, start),
    }


def carrier_of(forecaster: Forecaster, example: Example) -> Carrier:
    """Returns what moves points between the sites of examples, all of which are the same."""
    operator, values = forecaster.operator, forecaster.normalised_input(example.frames)[:1]
    sites = operator.sites(values, example.coords[:1], example.site_weights[:1], is_whole=True)
    return Carrier(operator, sites)


def carried(
    carrier: Carrier,
    ways: Iterable[Float[Tensor, "batch points dim"]],
    start: Float[Tensor, "batch tracers dim"],
) -> Float[Tensor, "batch tracers frames dim"]:
    """Returns the ways of tracers along the displacements of every step, vectors of space."""
    places = [start]
    for way in ways:
        places.append(carrier.carry(way, places[-1]))
    return torch.stack(places, 2)


def carried_by_flow(
    carrier: Carrier,
    speed: Float[Tensor, "batch frames points dim"],
    times: Float[Tensor, "batch frames"],
    start: Float[Tensor, "batch tracers dim"],
) -> Float[Tensor, "batch tracers frames dim"]:
    """Returns the ways of tracers in a velocity; they end, with NaN, where they leave the domain.

    Args:
        carrier: Moves them.
        speed: In every frame, vectors of space, lengths per time.
        times: Of the frames.
        start: Where tracers are in the first.
    """
    places = [start]
    for step in range(speed.shape[1] - 1):
        durations = times[:, step + 1] - times[:, step]
        before, after = speed[:, step], speed[:, step + 1]
        places.append(carrier.flow(before, after, durations, places[-1]))
    path = torch.stack(places, 2)
    return torch.where(_is_inside(path, carrier.domain)[..., None], path, torch.nan)


def _row(
    path: Float[Tensor, "batch tracers frames dim"],
    kind: str,
    times: Float[Tensor, " frames"],
    first: int,
    batch: Batch,
    time_units: str,
) -> Tracers:
    """Returns tracers of one kind."""
    batch_size, count = path.shape[:2]
    examples = torch.arange(first, first + batch_size).repeat_interleave(count)
    kinds = torch.full_like(examples, KINDS.index(kind))
    return Tracers(path.flatten(0, 1), times, kinds, examples, batch.geometry.domain, time_units)


def _displacements(
    forecaster: Forecaster, batch: Batch, best: Mapping[str, int], num_steps: int
) -> list[Float[Tensor, "batch points dim"]]:
    """Returns the displacements of one particle in every step of a rollout, as vectors of space."""
    coords, domain = batch.example.coords, batch.geometry.domain
    number = list(transporting_layers(forecaster.model)).index(best["layer"])
    found = []
    for held in rollout_particles(forecaster, batch.example, num_steps):
        ways = displacements(held[number], coords, domain)[:, :, best["particle"]]
        found.append(in_space(ways.double(), coords.double(), domain))
    return found


def rollout_particles(
    forecaster: Forecaster, example: Example, num_steps: int, ablation: Ablation = Ablation()
) -> Iterator[tuple[Particles, ...]]:
    """Yields the particles of every layer that transports, step by step of a rollout.

    It ends before a step whose input is not finite any more.

    Args:
        forecaster: A trained gpo.
        example: Where it starts, with the forcings of the steps after the first.
        num_steps: How often it is applied.
        ablation: Components that are switched off in every step.
    """
    operator, frames = forecaster.operator, example.frames
    for step in range(num_steps):
        if not bool(frames.isfinite().all()):
            return
        values = forecaster.normalised_input(frames)
        with torch.no_grad(), ablation.applied(operator):
            trace = operator.trace(values, example.coords, weights=example.site_weights)
        yield trace.gaussians
        if step + 1 < num_steps:
            forecast = forecaster.denormalised(forecaster.apply_increment(trace.output, values))
            forcings = None if example.forcings is None else example.forcings[:, step]
            frames = forecaster.advance(frames, forecast, forcings)


def in_space(
    vectors: Float[Tensor, "*#batch points axes"],
    coords: Float[Tensor, "*#batch points dim"],
    domain: Domain,
) -> Float[Tensor, "*batch points dim"]:
    """Returns vectors along the axes of space, of components to the east and north on the sphere."""
    if not domain.is_sphere:
        return vectors
    return (vectors.unsqueeze(-2) @ tangent_frame(coords)).squeeze(-2)


def _is_inside(
    path: Float[Tensor, "batch tracers times dim"], domain: Domain
) -> Bool[Tensor, "batch tracers times"]:
    """Returns whether tracers have not left the domain across an open end."""
    slack = 1e-6 * domain.unit_lengths(path)
    is_inside = (path >= path.new_tensor(domain.lower) - slack) & (path <= path.new_tensor(domain.upper) + slack)  # fmt: skip
    is_free = torch.tensor([closes and not domain.is_sphere for closes in domain.periodic])
    return (is_inside | is_free).all(-1).cumprod(-1).bool()


def _compared(tracers: Tracers) -> dict[str, Any]:
    """Returns the mean distance from the true tracers by step, over that of tracers that stay."""
    true = tracers.of_kind("true_flow")
    stays = distance(true[:, :1].expand_as(true), true, tracers.domain)
    rows: dict[str, Any] = {"other_example": None}
    for name, kind in (("separation", "model"), ("other_example", "other_example")):
        carried = tracers.of_kind(kind)
        if len(carried) == 0:
            continue
        apart = distance(carried, true, tracers.domain)
        is_there = apart.isfinite()
        apart, staying = (torch.where(is_there, one, 0.0).sum(0)[1:] for one in (apart, stays))
        rows[name] = (apart / staying).tolist()
    is_there = stays.isfinite()
    spread = (torch.where(is_there, stays, 0.0).sum(0) / is_there.sum(0).clamp_min(1))[1:]
    return {
        **rows,
        "stay": [1.0] * len(spread),
        "spread": spread.tolist(),
        "times": tracers.times[1:].tolist(),
        "time_units": tracers.time_units,
        "num_steps": len(spread),
        "num_tracers": len(true),
        "fraction_left": 1 - float(is_there[:, -1].double().mean()),
    }


def distance(
    first: Float[Tensor, "*#places dim"], second: Float[Tensor, "*#places dim"], domain: Domain
) -> Float[Tensor, "*places"]:
    """Returns how far places are apart, on the sphere in radii."""
    chord = (first - second).norm(dim=-1)
    return 2 * (chord / 2).clamp(max=1).asin() if domain.is_sphere else chord
