r"""Attribution of the predicted change to particles, transports, gates and decoder: `motion` in `interpret.json`.

For every transport layer and particle number: the displacement, the importance, the correlation with
the velocity beside its null, and the diffusion (`diffusion.py`). Then the attribution to parts. With $\hat u_S$ the prediction with the
parts $S$ only and $u$ the last frame, the change is
$\hat u-u=(\hat u_\emptyset-u)+(\hat u-\hat u_\emptyset)$: the first term is due to the decoder, the second
to transports and gates. Their contributions depend on the order in which they are added, so the Shapley
value, the mean over all orders, is given: it adds up to the whole. Particles keep the displacements of
the intact model in every order.
"""

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from gpo.data.dataset import FieldData
from gpo.evaluation.flow import FlowVariables
from gpo.forecast.forecaster import Forecaster
from gpo.interpretation.batches import Batch
from gpo.interpretation.controls import Controls
from gpo.interpretation.correlations import VelocityMatch
from gpo.interpretation.diffusion import (
    Scales,
    Viscosity,
    describe_diffusion,
    learned_scales,
    replaced_scales,
    scales_at_floor,
)
from gpo.interpretation.displacements import (
    Displacements,
    displacements,
    has_moving_particles,
    importance,
    initial_state,
    replaced_by,
    without_displacement,
)
from gpo.model.ablation import Ablation
from gpo.model.particles import Particles
from gpo.numerics.norms import normalised_weights

LAST_FRAME, TRAINING_MEAN = "the last frame", "the mean of the training data"
NO_MOTION = "particles of this model do not move"
UNKNOWN = (
    "no velocity with a component along every axis is known: --velocity U V names its variables"
)
MAX_PARTS = 6
"""Parts up to which Shapley values are computed: a prediction for each of 64 subsets."""


def describe_motion(
    forecaster: Forecaster,
    data: FieldData,
    batches: Sequence[Batch],
    variables: FlowVariables,
    generator: np.random.Generator,
    *,
    viscosity: Viscosity | None = None,
    other_scales: Scales | None = None,
) -> dict[str, Any]:
    """Returns how moving particles contribute to the prediction, for `interpret.json`.

    Args:
        forecaster: A trained gpo.
        data: The data set.
        batches: The examples.
        variables: The input variables, which may include a velocity.
        generator: Draws the null distributions.
        viscosity: The true one, where it is known.
        other_scales: Those of another model, as a control.
    """
    if not has_moving_particles(forecaster.model):
        return {"reason": NO_MOTION}
    controls = Controls.of(forecaster, batches, other_scales)
    rows, null = particle_rows(forecaster, batches, variables, generator)
    rows, diffusion = describe_diffusion(forecaster, data, batches, rows, viscosity)
    best = max(rows, key=lambda row: row["share"])
    geometry = batches[0].geometry
    flow = variables.on(geometry)
    return {
        "change_from": LAST_FRAME if forecaster.task.lead > 0 else TRAINING_MEAN,
        "displacement_units": "radii" if geometry.domain.is_sphere else geometry.axis_units[0],
        "velocity": {"reason": UNKNOWN} if flow is None else {"known_by": flow.known_by},
        **null,
        "particles": rows,
        "best": {"layer": best["layer"], "particle": best["particle"]},
        "diffusion": diffusion,
        "budget": attribute_change(forecaster, batches, controls.displacements),
        "controls": controls.describe(),
    }


def particle_rows(
    forecaster: Forecaster,
    batches: Sequence[Batch],
    variables: FlowVariables,
    generator: np.random.Generator,
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Returns a row for every transport layer and particle number, and how the null was drawn.

    Args:
        forecaster: A trained gpo whose particles move.
        batches: The examples.
        variables: The input variables, which may include a velocity.
        generator: Draws the null distributions.
    """
    intact = [batch.predicted(forecaster) for batch in batches]
    by_batch = [batch.layer_particles(forecaster) for batch in batches]
    rows, null = [], {}
    for layer, particles in zip(
        forecaster.operator.transports, zip(*by_batch, strict=True), strict=True
    ):
        statistics, null = _layer_rows(batches, particles, variables, generator)
        for particle, row in enumerate(statistics):
            ablation = Ablation(displacing=without_displacement(layer, particle))
            lost = importance(forecaster, batches, intact, ablation)
            rows.append({"layer": layer, "particle": particle, **row, "share": lost})
    return rows, null


def _layer_rows(
    batches: Sequence[Batch],
    by_batch: Sequence[Particles],
    variables: FlowVariables,
    generator: np.random.Generator,
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Returns displacement, weight and correlation of every particle of a layer, and the null."""
    match, squares, weights = VelocityMatch(), [], []
    for batch, particles in zip(batches, by_batch, strict=True):
        domain, example, flow = batch.geometry.domain, batch.example, variables.on(batch.geometry)
        vectors = displacements(particles, example.coords, domain).double().numpy()
        for sample, displacement in enumerate(vectors):
            q = example.weights[sample].double().numpy()
            squares.append(np.einsum("n,nga,nga->g", q, displacement, displacement) / q.sum())
            weights.append(q @ particles.weights[sample].double().numpy() / q.sum())
            if flow is not None:
                raw = example.fields[sample, -1].double().numpy()
                match.add(displacement, flow(raw), q, batch.geometry)
    rows: list[dict[str, Any]] = [
        {"weight": float(weight), "rms_displacement": float(rms)}
        for weight, rms in zip(np.mean(weights, 0), np.sqrt(np.mean(squares, 0)), strict=True)
    ]
    if len(match.displacements) < len(squares):
        missing = dict.fromkeys(("velocity_correlation", "low", "high", "p", "other_examples"))
        return [{**row, **missing} for row in rows], {}
    null, comparisons = match.describe(generator)
    return [{**row, **more} for row, more in zip(rows, comparisons, strict=True)], null


def attribute_change(
    forecaster: Forecaster, batches: Sequence[Batch], by_batch: Sequence[Displacements]
) -> dict[str, Any]:
    r"""Returns the contribution of every part to the predicted change, for `interpret.json`.

    `share` is the importance $\|\hat u-\hat u_{\setminus i}\|/\|\hat u-u\|$: what is lost without this part
    alone. `shapley` is the mean over all orders of what a part adds, by its component along the whole
    change: these add up to one. Variables are in units of their standard deviation.

    Args:
        forecaster: A trained gpo whose particles move.
        batches: The examples.
        by_batch: The displacements of the intact model in every batch.
    """
    layers = sorted(by_batch[0])
    names = [*_transport_names(layers), "gate", "decoder"]
    importances: dict[str, list[float]] = {name: [] for name in names}
    values: dict[str, list[float]] = {name: [] for name in names}
    for batch, by_layer in zip(batches, by_batch, strict=True):
        parts = _attribute_batch(forecaster, batch, by_layer, layers)
        for name, (fraction, value) in zip(names, parts, strict=True):
            importances[name] += fraction
            values[name] += value
    rows = {n: {"share": _mean(importances[n]), "shapley": _mean(values[n])} for n in names}
    return {"parts": rows, "spreading": attribute_spreading(forecaster, batches)}


def attribute_spreading(
    forecaster: Forecaster, batches: Sequence[Batch]
) -> dict[str, dict[str, float]]:
    """Returns what is lost where the scales of a transport are at the floor of the lattice.

    Args:
        forecaster: A trained gpo whose particles move.
        batches: The examples.
    """
    intact = [batch.predicted(forecaster) for batch in batches]
    floor = scales_at_floor(learned_scales(forecaster))
    rows = {}
    for name, layer in zip(_transport_names([*floor]), floor, strict=True):
        ablation = Ablation(scaling=replaced_scales({layer: floor[layer]}))
        rows[name] = {"share": importance(forecaster, batches, intact, ablation)}
    return rows


def _transport_names(layers: Sequence[int]) -> list[str]:
    return ["transport"] if len(layers) == 1 else [f"transport {n + 1}" for n in layers]


def _attribute_batch(
    forecaster: Forecaster, batch: Batch, by_layer: Displacements, layers: Sequence[int]
) -> list[tuple[list[float], list[float]]]:
    """Returns importance and Shapley value of every part, the decoder last, for every example.

    Shapley values are empty if there are more than `MAX_PARTS` parts.
    """
    parts = range(len(layers) + 1)
    whole, empty = frozenset(parts), frozenset[int]()
    subsets = {empty, whole, *(whole - {part} for part in parts)}
    has_shapley = len(parts) <= MAX_PARTS
    if has_shapley:
        sizes = range(len(parts) + 1)
        subsets = {frozenset(s) for size in sizes for s in itertools.combinations(parts, size)}
    predictions = {s: _predict_with(forecaster, batch, by_layer, layers, s) for s in subsets}
    start, scale = initial_state(forecaster, batch), forecaster.output_std
    change = (predictions[whole] - start) / scale
    weights = normalised_weights(batch.example.weights, change)
    total = _inner(change, change, weights)

    def fraction_along(part: Float[Tensor, "batch points outputs"]) -> list[float]:
        return (_inner(part, change, weights) / total).tolist() if has_shapley else []

    def fraction(part: Float[Tensor, "batch points outputs"]) -> list[float]:
        return (_inner(part, part, weights) / total).sqrt().tolist()

    rows = []
    for part in parts:
        lost = (predictions[whole] - predictions[whole - {part}]) / scale
        value = shapley(predictions, part) / scale if has_shapley else lost
        rows.append((fraction(lost), fraction_along(value)))
    decoded = (predictions[empty] - start) / scale
    return [*rows, (fraction(decoded), fraction_along(decoded))]


def shapley(
    predictions: dict[frozenset[int], Tensor], part: int
) -> Float[Tensor, "batch points outputs"]:
    """Returns the Shapley value of a part: what it adds, averaged over all orders of the parts.

    Args:
        predictions: The prediction with every subset of the parts.
        part: One of them.
    """
    num_parts = max(map(len, predictions))
    total = torch.zeros_like(predictions[frozenset()])
    for subset, prediction in predictions.items():
        if part in subset:
            before = len(subset) - 1
            orders = math.factorial(before) * math.factorial(num_parts - before - 1)
            added = prediction - predictions[subset - {part}]
            total += orders / math.factorial(num_parts) * added
    return total


def _predict_with(
    forecaster: Forecaster,
    batch: Batch,
    by_layer: Displacements,
    layers: Sequence[int],
    parts: frozenset[int],
) -> Tensor:
    """Returns the prediction with some transports, and with gates if the last part is included."""
    used = {
        layer: by_layer[layer] if part in parts else torch.zeros_like(by_layer[layer])
        for part, layer in enumerate(layers)
    }
    num_gates = 0 if len(layers) in parts else len(forecaster.operator.applied_layers)
    ablation = Ablation(gates=frozenset(range(num_gates)), displacing=replaced_by(used))
    return batch.predicted(forecaster, ablation).double()


def _inner(first: Tensor, second: Tensor, weights: Tensor) -> Float[Tensor, " batch"]:
    return torch.einsum("bnc,bnc,bn->b", first, second, weights.to(first))


def _mean(numbers: Sequence[float]) -> float | None:
    return sum(numbers) / len(numbers) if numbers else None
