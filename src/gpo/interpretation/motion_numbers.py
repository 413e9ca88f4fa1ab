"""Motion in numbers, the key `motion` of `interpret.json`: how far, how much of the change, along what.

For every layer that transports and every particle number: how far it reaches, what is lost where it
is held still, and whether it is the velocity, beside its null. Then the budget of the predicted change
(`budget.py`), controls (`displacing.py`) and tracers (`tracers.py`).
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from gpo.forecast.forecaster import Forecaster
from gpo.interpretation.batches import Batch
from gpo.interpretation.budget import describe_budget
from gpo.interpretation.displacing import Controls, held_still, share_of
from gpo.interpretation.flow import FlowVariables
from gpo.interpretation.motion import displacements, has_moving_particles
from gpo.interpretation.velocity_match import VelocityMatch
from gpo.model.ablation import Ablation
from gpo.model.model import AbstractModel
from gpo.model.particles import Particles

LAST, MEAN = "the last frame", "the mean of the training data"
STILL = "particles of this model do not move"
UNKNOWN = (
    "no velocity with a component along every axis is known: --velocity U V names its variables"
)


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


def transporting_layers(model: AbstractModel) -> list[int]:
    """Returns the numbers of the layers with transport."""
    return [] if model.operator is None else model.operator.transports


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
