r"""Where a predicted change comes from: transport, gates, and what the decoder makes of the input alone.

With $\hat u_S$ the prediction with the parts $S$ only, lift and decoder included, and $u$ the last
frame, the change is $\hat u-u=(\hat u_\emptyset-u)+(\hat u-\hat u_\emptyset)$: the first is that of the
decoder, the second is what transports and gates do. What each of those does depends on what the
others did before; the mean over every order in which parts may be added is Shapley's, and adds up to
the whole. Particles keep the displacements of the intact model in every order.
"""

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from gpo.forecast.forecaster import Forecaster
from gpo.interpretation.batches import Batch
from gpo.interpretation.correlations import VelocityMatch
from gpo.interpretation.displacements import (
    Controls,
    Read,
    displacements,
    has_moving_particles,
    held_still,
    replaced_by,
    share_of,
    start_of,
    transporting_layers,
)
from gpo.interpretation.flow import FlowVariables
from gpo.model.ablation import Ablation
from gpo.model.particles import Particles
from gpo.numerics.norms import normalised_weights

LAST, MEAN = "the last frame", "the mean of the training data"
STILL = "particles of this model do not move"
UNKNOWN = (
    "no velocity with a component along every axis is known: --velocity U V names its variables"
)
MAX_PARTS = 6
"""Parts of which every order is tried: a prediction for each of 64 sets."""
SPREADING = "particles of this variant have no learned scale: there is no spreading"


def describe_motion(
    forecaster: Forecaster,
    batches: Sequence[Batch],
    variables: FlowVariables,
    generator: np.random.Generator,
) -> dict[str, Any]:
    """Returns what particles that move do to the prediction, for `interpret.json`.

    Args:
        forecaster: A trained gpo.
        batches: The examples.
        variables: Those among which their velocity is looked for.
        generator: Draws the null distributions.
    """
    if not has_moving_particles(forecaster.model):
        return {"reason": STILL}
    controls = Controls.of(forecaster, batches)
    rows, told = particle_rows(forecaster, batches, variables, generator)
    best = max(rows, key=lambda row: row["share"])
    geometry = batches[0].geometry
    flow = variables.on(geometry)
    units = "radii" if geometry.domain.is_sphere else geometry.axis_units[0]
    return {
        "change_from": LAST if forecaster.task.lead > 0 else MEAN,
        "displacement_units": units,
        "velocity": {"reason": UNKNOWN} if flow is None else {"known_by": flow.known_by},
        **told,
        "particles": rows,
        "best": {"layer": best["layer"], "particle": best["particle"]},
        "budget": describe_budget(forecaster, batches, controls.reads),
        "controls": controls.describe(),
    }


def particle_rows(
    forecaster: Forecaster,
    batches: Sequence[Batch],
    variables: FlowVariables,
    generator: np.random.Generator,
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Returns a row for every layer that transports and particle number, and how the null was drawn.

    Args:
        forecaster: A trained gpo whose particles move.
        batches: The examples.
        variables: Those among which their velocity is looked for.
        generator: Draws the null distributions.
    """
    intact = [batch.predicted(forecaster) for batch in batches]
    held = [particles_by_layer(forecaster, batch) for batch in batches]
    rows, told = [], {}
    for number, layer in enumerate(transporting_layers(forecaster.model)):
        found, told = _of_layer(batches, [some[number] for some in held], variables, generator)
        for particle, row in enumerate(found):
            ablation = Ablation(displacing=held_still(layer, particle))
            share = share_of(forecaster, batches, intact, ablation)
            rows.append({"layer": layer, "particle": particle, **row, "share": share})
    return rows, told


def particles_by_layer(forecaster: Forecaster, batch: Batch) -> tuple[Particles, ...]:
    """Returns the particles of every layer that transports."""
    return batch.layer_particles(forecaster)


def best_of(motion: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Returns the row of the particle that carries most; None where none moves."""
    best = motion.get("best")
    if best is None:
        return None
    return next(row for row in motion["particles"] if best == {name: row[name] for name in best})


def _of_layer(
    batches: Sequence[Batch],
    held: Sequence[Particles],
    variables: FlowVariables,
    generator: np.random.Generator,
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Returns size, weight and correlation of every particle of a layer, and how the null was drawn."""
    match, sizes, fractions = VelocityMatch(), [], []
    for batch, particles in zip(batches, held, strict=True):
        domain, example, flow = batch.geometry.domain, batch.example, variables.on(batch.geometry)
        ways = displacements(particles, example.coords, domain).double().numpy()
        for sample, way in enumerate(ways):
            q = example.weights[sample].double().numpy()
            sizes.append(np.einsum("n,nga,nga->g", q, way, way) / q.sum())
            fractions.append(q @ particles.weights[sample].double().numpy() / q.sum())
            if flow is not None:
                raw = example.fields[sample, -1].double().numpy()
                match.add(way, flow(raw), q, batch.geometry)
    rows: list[dict[str, Any]] = [
        {"weight": float(fraction), "rms_displacement": float(size)}
        for fraction, size in zip(np.mean(fractions, 0), np.sqrt(np.mean(sizes, 0)), strict=True)
    ]
    if len(match.ways) < len(sizes):
        missing = dict.fromkeys(("velocity_correlation", "low", "high", "p", "other_examples"))
        return [{**row, **missing} for row in rows], {}
    told, compared = match.describe(generator)
    return [{**row, **more} for row, more in zip(rows, compared, strict=True)], told


def describe_budget(
    forecaster: Forecaster, batches: Sequence[Batch], reads: Sequence[Read]
) -> dict[str, Any]:
    r"""Returns the parts of the predicted change, for `interpret.json`.

    `share` is $\|\hat u-\hat u_{\setminus i}\|/\|\hat u-u\|$, what is lost where a part alone is held still.
    `shapley` is the mean over all orders of what a part adds, by its component along the whole
    change: these add up to one. Variables count in units of their standard deviation.

    Args:
        forecaster: A trained gpo whose particles move.
        batches: The examples.
        reads: The displacements of the intact model in every batch.
    """
    layers = sorted(reads[0])
    named = [("transport" if len(layers) == 1 else f"transport {n + 1}") for n in layers]
    parts = [*named, "gate"]
    shares = {name: [] for name in (*parts, "decoder")}
    means = {name: [] for name in shares}
    for batch, read in zip(batches, reads, strict=True):
        found = _parts_of(forecaster, batch, read, layers)
        for name, (lost, mean) in zip(shares, found, strict=True):
            shares[name] += lost
            means[name] += mean or []
    rows: dict[str, Any] = {}
    for name in shares:
        rows[name] = {"share": _mean(shares[name]), "shapley": _mean(means[name])}
    return {"parts": rows, "spreading": {"reason": SPREADING}}


def _parts_of(
    forecaster: Forecaster, batch: Batch, read: Read, layers: Sequence[int]
) -> list[tuple[list[float], list[float] | None]]:
    """Returns share and Shapley's mean of every part, the decoder last, example by example."""
    numbers = range(len(layers) + 1)
    everything = frozenset(numbers)
    chosen = {frozenset(), everything, *(everything - {number} for number in numbers)}
    has_orders = len(numbers) <= MAX_PARTS
    if has_orders:
        chosen = {frozenset(some) for size in range(len(numbers) + 1) for some in itertools.combinations(numbers, size)}  # fmt: skip
    made = {some: _with_parts(forecaster, batch, read, layers, some) for some in chosen}
    start = start_of(forecaster, batch)
    scale = forecaster.output_std
    change = (made[everything] - start) / scale
    by_decoder = (made[frozenset()] - start) / scale
    weights = normalised_weights(batch.example.weights, change)

    def along(part: Float[Tensor, "batch points outputs"]) -> list[float]:
        return (_inner(part, change, weights) / _inner(change, change, weights)).tolist()

    def size(part: Float[Tensor, "batch points outputs"]) -> list[float]:
        sizes = _inner(part, part, weights) / _inner(change, change, weights)
        return sizes.sqrt().tolist()

    rows = []
    for number in numbers:
        lost = size((made[everything] - made[everything - {number}]) / scale)
        mean = along(shapley(made, number) / scale) if has_orders else None
        rows.append((lost, mean))
    return [*rows, (size(by_decoder), along(by_decoder) if has_orders else None)]


def shapley(made: dict[frozenset[int], Tensor], part: int) -> Float[Tensor, "batch points outputs"]:
    """Returns what a part adds, the mean over every order in which all parts may be added.

    Args:
        made: What comes out with every set of parts.
        part: One of them.
    """
    most = max(map(len, made))
    total = torch.zeros_like(made[frozenset()])
    for some, answer in made.items():
        if part in some:
            before = len(some) - 1
            orders = math.factorial(before) * math.factorial(most - before - 1)
            total += orders / math.factorial(most) * (answer - made[some - {part}])
    return total


def _with_parts(
    forecaster: Forecaster,
    batch: Batch,
    read: Read,
    layers: Sequence[int],
    parts: frozenset[int],
) -> Tensor:
    """Returns the prediction with some transports, and with gates where the last part is among them."""
    used = {
        layer: read[layer] if number in parts else torch.zeros_like(read[layer])
        for number, layer in enumerate(layers)
    }
    gates = (
        frozenset()
        if len(layers) in parts
        else frozenset(range(len(forecaster.operator.applied_layers)))
    )
    ablation = Ablation(gates=gates, displacing=replaced_by(used))
    return batch.predicted(forecaster, ablation).double()


def _inner(first: Tensor, second: Tensor, weights: Tensor) -> Float[Tensor, " batch"]:
    return torch.einsum("bnc,bnc,bn->b", first, second, weights.to(first))


def _mean(numbers: Sequence[float]) -> float | None:
    return sum(numbers) / len(numbers) if numbers else None
