r"""Tracers: points advected through a rollout by a particle's displacements, and by the true velocity.

A site samples the field at the center of its particle, so a tracer at $X$ moves to the $X'$ whose center
is $X$: $X'-\delta(X')=X$, solved by iteration. In the true flow, whose velocity is interpolated linearly
between frames, tracers are integrated with the classical Runge-Kutta method. The distance between both
is given in units of the distance of a tracer that stays at its start. As a control, tracers are also
advected by the displacements that the model has in another example.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from torch import Tensor

from gpo.data.dataset import FieldData
from gpo.data.splits import TimeSlice, evenly
from gpo.evaluation.flow import FlowVariables
from gpo.execution.points import Sites
from gpo.forecast.examples import Example, TimeSliceExamples, followed
from gpo.forecast.forecaster import Forecaster
from gpo.forecast.rollout import rollout_results
from gpo.inspect.tracers import KINDS, Tracers
from gpo.interpretation.batches import Batch, grouped
from gpo.interpretation.displacements import displacements
from gpo.model.ablation import Ablation
from gpo.model.operator import GaussianParticleOperator
from gpo.model.particles import Particles
from gpo.model.trace import Trace
from gpo.numerics.domain import Domain
from gpo.numerics.footprints import tangent_frame
from gpo.transforms.lattice import LatticePoints

NUM_ITERATIONS = 12
"""Fixed-point iterations for the arrival point."""
NUM_SUBSTEPS = 8
"""Runge-Kutta steps between two frames."""
MAX_TRACERS = 200
"""Tracers of an example, at evenly chosen sites."""
MAX_STEPS = 10
"""Steps of the rollout, fewer if the series of a split are shorter."""


@dataclass(frozen=True)
class Advector:
    """Advects points by vectors at sites, interpolated on the lattice of a model."""

    model: GaussianParticleOperator
    sites: Sites
    """Of one sample; all samples have the same sites."""

    @property
    def domain(self) -> Domain:
        """The domain of the model."""
        return self.model.problem.domain

    def interpolate(
        self,
        vectors: Float[Tensor, "batch points dim"],
        positions: Float[Tensor, "batch tracers dim"],
    ) -> Float[Tensor, "batch tracers dim"]:
        """Returns the vectors at tracers by multilinear interpolation; tangent on the sphere."""
        batch, tracers, dim = positions.shape
        wrapped = self.domain.wrap(positions.reshape(1, -1, dim))
        points = self._located(self.domain.to_local(wrapped).to(self.model.dtype))
        source = vectors.transpose(0, 1).to(self.model.dtype).contiguous()
        nodes = points.lattice.interpolate(source)
        shift = source.new_zeros(batch * tracers, 1, 1, len(points.cells))
        corners, weights = points.corners(shift)
        sample = torch.arange(batch).repeat_interleave(tracers)[:, None]
        values = nodes[corners[:, 0, 0].long(), sample]
        result = (weights[:, 0, 0, :, None] * values).sum(1).view(batch, tracers, -1).double()
        if self.domain.is_sphere:
            result = result - (result * positions).sum(-1, keepdim=True) * positions
        return result

    def _located(self, coords: Float[Tensor, "1 points dim"]) -> LatticePoints:
        """Returns points on the lattice of the sites; on a mesh they are located by its nodes."""
        cache, geometry = self.sites.cache, self.sites.geometry
        if self.model.problem.is_fitted:
            points = cache.at_queries(coords, geometry).on_lattice
        else:
            assert cache.waves is not None
            assert geometry.on_lattice is not None
            points = geometry.on_lattice.lattice.locate(cache.waves.positions(coords), coords)
        assert points is not None
        return points

    def displace(
        self,
        vectors: Float[Tensor, "batch points dim"],
        positions: Float[Tensor, "batch tracers dim"],
    ) -> Float[Tensor, "batch tracers dim"]:
        """Returns the points whose departure points are the present positions.

        Args:
            vectors: Displacements, from a center to its site.
            positions: Of the tracers.
        """
        arrival = positions
        for _ in range(NUM_ITERATIONS):
            departure = self._moved(arrival, -self.interpolate(vectors, arrival))
            arrival = arrival + positions - departure
            if self.domain.is_sphere:
                arrival = self.domain.wrap(arrival)
        return arrival

    def integrate(
        self,
        before: Float[Tensor, "batch points dim"],
        after: Float[Tensor, "batch points dim"],
        duration: Float[Tensor, " batch"],
        positions: Float[Tensor, "batch tracers dim"],
    ) -> Float[Tensor, "batch tracers dim"]:
        """Returns the positions of tracers in the next frame of a flow.

        Args:
            before: The velocity in the present frame, in lengths per time.
            after: In the next frame.
            duration: Time between both.
            positions: Of the tracers in the present frame.
        """
        step = duration.double().view(-1, 1, 1) / NUM_SUBSTEPS

        def velocity(positions: Tensor, time: float) -> Tensor:
            return self.interpolate((1 - time) * before + time * after, positions)

        for number in range(NUM_SUBSTEPS):
            start, middle, end = (NUM_SUBSTEPS**-1 * (number + part) for part in (0.0, 0.5, 1.0))
            first = velocity(positions, start)
            second = velocity(self._moved(positions, step / 2 * first), middle)
            third = velocity(self._moved(positions, step / 2 * second), middle)
            fourth = velocity(self._moved(positions, step * third), end)
            mean = step / 6 * (first + 2 * second + 2 * third + fourth)
            positions = self._moved(positions, mean)
        return positions

    def _moved(self, positions: Tensor, vectors: Tensor) -> Tensor:
        """Returns positions moved by vectors: straight, on the sphere along a great circle."""
        if not self.domain.is_sphere:
            return positions + vectors
        length = vectors.norm(dim=-1, keepdim=True)
        direction = vectors / length.clamp_min(torch.finfo(length.dtype).tiny)
        return self.domain.wrap(length.cos() * positions + length.sin() * direction)


def follow_tracers(
    forecaster: Forecaster,
    data: FieldData,
    samples: Sequence[TimeSlice],
    variables: FlowVariables,
    best: Mapping[str, int],
    *,
    num_examples: int = 8,
) -> tuple[dict[str, Any], Tracers | None]:
    """Returns the distance between tracers of the model and of the true flow, and all trajectories.

    Args:
        forecaster: A trained gpo whose particles move.
        data: The data set.
        samples: Samples of its split.
        variables: The variables, which may include a velocity.
        best: Layer and number of the particle whose displacements advect tracers.
        num_examples: Number of examples, evenly chosen.
    """
    if samples[0].lead == 0:
        return {"reason": "static maps have no time to follow tracers in"}, None
    flow = variables.on(data.geometry())
    if flow is None:
        return {"reason": "no velocity is known to follow tracers in"}, None
    per_time = flow.lengths_per_time(data.time_units)
    if per_time is None:
        units = f"velocity {flow.units or 'none'}, time {data.time_units or 'none'}"
        return {"reason": f"units do not tell how far the flow goes in a step: {units}"}, None
    num_steps = _max_steps(samples)
    examples = TimeSliceExamples(data, samples, num_steps=num_steps)
    chosen = evenly(range(len(examples)), num_examples)
    slices = [examples.windows[number] for number in chosen]
    pairs = zip(chosen, slices, strict=True)
    batches = grouped([(data.geometry(part.sample), examples[n]) for n, part in pairs])
    kinds = KINDS if all(len(batch.example.frames) > 1 for batch in batches) else KINDS[:2]
    parts, first = [], 0
    for batch in batches:
        count = len(batch.example.frames)
        rows = [data.time[s.last + s.lead * np.arange(num_steps + 1)] for s in slices[first : first + count]]  # fmt: skip
        times = torch.from_numpy(np.array(rows, dtype=float))
        times = times - times[:, :1]
        velocity = per_time * _velocities(batch, variables)
        paths = _paths(forecaster, batch, velocity, times, best)
        for kind in kinds:
            numbers = torch.arange(first, first + count).repeat_interleave(paths[kind].shape[1])
            codes = torch.full_like(numbers, KINDS.index(kind))
            positions, domain = paths[kind].flatten(0, 1), batch.geometry.domain
            parts.append(Tracers(positions, times[0], codes, numbers, domain, data.time_units))
        first += count
    tracers = Tracers.joined(parts)
    return {**best, **_compared(tracers), "num_examples": len(chosen)}, tracers


def _max_steps(samples: Sequence[TimeSlice]) -> int:
    """Returns the largest number of steps, up to `MAX_STEPS`, that a series of the split has."""
    for num_steps in range(MAX_STEPS, 1, -1):
        try:
            followed(samples, num_steps)
        except ValueError:
            continue
        return num_steps
    return 1


def _velocities(
    batch: Batch, variables: FlowVariables
) -> Float[Tensor, "batch frames points axes"]:
    """Returns the velocity in the last input frame and in all targets."""
    flow = variables.on(batch.geometry)
    assert flow is not None
    frames = torch.cat([batch.example.fields[:, -1:], batch.example.targets], 1).double().numpy()
    return torch.from_numpy(np.array([[flow(frame) for frame in series] for series in frames]))


def _paths(
    forecaster: Forecaster,
    batch: Batch,
    velocity: Float[Tensor, "batch frames points axes"],
    times: Float[Tensor, "batch frames"],
    best: Mapping[str, int],
) -> dict[str, Float[Tensor, "batch tracers frames dim"]]:
    """Returns the paths of tracers in the examples of a batch, by what advects them."""
    example, domain = batch.example, batch.geometry.domain
    known = (example.weights > 0).all(0).nonzero().flatten()
    starts = known[torch.linspace(0, len(known) - 1, min(MAX_TRACERS, len(known))).long()]
    start = example.coords[:1, starts].double().expand(len(example.frames), -1, -1)
    advector = make_advector(forecaster, example)
    steps = _displacements(forecaster, batch, best, velocity.shape[1] - 1)
    others = [vectors.roll(max(1, len(vectors) // 2), dims=0) for vectors in steps]
    vectors = to_cartesian(velocity, example.coords[:1, None].double(), domain)
    return {
        "model": carried(advector, steps, start),
        "true_flow": advect_by_flow(advector, vectors, times, start),
        "other_example": carried(advector, others, start),
    }


def make_advector(forecaster: Forecaster, example: Example) -> Advector:
    """Returns the advector of examples that share their sites."""
    operator, values = forecaster.operator, forecaster.normalised_input(example.frames)[:1]
    sites = operator.sites(values, example.coords[:1], example.site_weights[:1], is_whole=True)
    return Advector(operator, sites)


def carried(
    advector: Advector,
    steps: Iterable[Float[Tensor, "batch points dim"]],
    start: Float[Tensor, "batch tracers dim"],
) -> Float[Tensor, "batch tracers frames dim"]:
    """Returns the paths of tracers along the Cartesian displacements of every step."""
    positions = [start]
    for vectors in steps:
        positions.append(advector.displace(vectors, positions[-1]))
    return torch.stack(positions, 2)


def advect_by_flow(
    advector: Advector,
    velocity: Float[Tensor, "batch frames points dim"],
    times: Float[Tensor, "batch frames"],
    start: Float[Tensor, "batch tracers dim"],
) -> Float[Tensor, "batch tracers frames dim"]:
    """Returns the paths of tracers in a velocity; NaN after they have left the domain.

    Args:
        advector: Advects them.
        velocity: Cartesian, in every frame, in lengths per time.
        times: Of the frames.
        start: Positions of the tracers in the first frame.
    """
    positions, durations = [start], times.diff(dim=1)
    for step in range(velocity.shape[1] - 1):
        before, after = velocity[:, step], velocity[:, step + 1]
        positions.append(advector.integrate(before, after, durations[:, step], positions[-1]))
    path = torch.stack(positions, 2)
    return torch.where(_is_inside(path, advector.domain)[..., None], path, torch.nan)


def _displacements(
    forecaster: Forecaster, batch: Batch, best: Mapping[str, int], num_steps: int
) -> list[Float[Tensor, "batch points dim"]]:
    """Returns the Cartesian displacements of one particle in every step of a rollout."""
    coords, domain = batch.example.coords, batch.geometry.domain
    number = forecaster.operator.transports.index(best["layer"])
    steps = []
    for particles in rollout_particles(forecaster, batch.example, num_steps):
        vectors = displacements(particles[number], coords, domain)[:, :, best["particle"]]
        steps.append(to_cartesian(vectors.double(), coords.double(), domain))
    return steps


def rollout_particles(
    forecaster: Forecaster, example: Example, num_steps: int, ablation: Ablation = Ablation()
) -> Iterator[tuple[Particles, ...]]:
    """Yields the particles of every transport layer for each step of a rollout.

    It stops before a step with non-finite input.

    Args:
        forecaster: A trained gpo.
        example: The initial frames, with forcings and seasons of the steps after the first.
        num_steps: Number of steps.
        ablation: Components that are switched off in every step.
    """
    operator = forecaster.operator

    def predict(step: int, frames: Tensor) -> tuple[Tensor | None, Trace] | None:
        if not bool(frames.isfinite().all()):
            return None
        values = forecaster.normalised_input(frames)
        with torch.no_grad(), ablation.applied(operator):
            trace = operator.trace(values, example.coords, weights=example.site_weights)
            seasons = example.seasons_of_step(step)
            return forecaster.continued(values, example.coords, seasons), trace

    def advance(step: int, frames: Tensor, result: tuple[Tensor | None, Trace] | None) -> Tensor:
        assert result is not None
        base, trace = result
        predicted = forecaster.denormalised(forecaster.apply_increment(trace.output, base))
        forcings = None if example.forcings is None else example.forcings[:, step]
        return forecaster.task.advance(frames, predicted, forcings)

    for result in rollout_results(example.frames, range(num_steps), predict, advance):
        if result is None:
            return
        yield result[1].gaussians


def to_cartesian(
    vectors: Float[Tensor, "*#batch points axes"],
    coords: Float[Tensor, "*#batch points dim"],
    domain: Domain,
) -> Float[Tensor, "*batch points dim"]:
    """Returns Cartesian vectors, from east and north components on the sphere."""
    if not domain.is_sphere:
        return vectors
    return (vectors.unsqueeze(-2) @ tangent_frame(coords)).squeeze(-2)


def _is_inside(
    path: Float[Tensor, "batch tracers times dim"], domain: Domain
) -> Bool[Tensor, "batch tracers times"]:
    """Returns whether tracers have not yet left the domain across an open end."""
    slack = 1e-6 * domain.unit_lengths(path)
    is_inside = (path >= path.new_tensor(domain.lower) - slack) & (path <= path.new_tensor(domain.upper) + slack)  # fmt: skip
    is_endless = torch.tensor([wraps and not domain.is_sphere for wraps in domain.periodic])
    return (is_inside | is_endless).all(-1).cumprod(-1).bool()


def _compared(tracers: Tracers) -> dict[str, Any]:
    """Returns the mean distance from the true tracers by step, over that of tracers at rest."""
    true = tracers.of_kind("true_flow")
    unmoved = distance(true[:, :1].expand_as(true), true, tracers.domain)
    rows: dict[str, Any] = {"other_example": None}
    for name, kind in (("separation", "model"), ("other_example", "other_example")):
        paths = tracers.of_kind(kind)
        if len(paths) == 0:
            continue
        apart = distance(paths, true, tracers.domain)
        is_known = apart.isfinite()
        sums = (torch.where(is_known, part, 0.0).sum(0)[1:] for part in (apart, unmoved))
        rows[name] = torch.div(*sums).tolist()
    is_known = unmoved.isfinite()
    spread = (torch.where(is_known, unmoved, 0.0).sum(0) / is_known.sum(0).clamp_min(1))[1:]
    return {
        **rows,
        "stay": [1.0] * len(spread),
        "spread": spread.tolist(),
        "times": tracers.times[1:].tolist(),
        "time_units": tracers.time_units,
        "num_steps": len(spread),
        "num_tracers": len(true),
        "fraction_left": 1 - float(is_known[:, -1].double().mean()),
    }


def distance(
    first: Float[Tensor, "*#points dim"], second: Float[Tensor, "*#points dim"], domain: Domain
) -> Float[Tensor, "*points"]:
    """Returns the distance between points, on the sphere in radii."""
    chord = (first - second).norm(dim=-1)
    return 2 * (chord / 2).clamp(max=1).asin() if domain.is_sphere else chord
