"""Chooses the reference forecast to which a model adds its increment.

Candidates continue each point from its own past: persistence, trend, climatology, damped anomaly
persistence. They are judged on held-out training data, by fits to the examples before; validation and
test data have no part in it. Those with a climatology are for data with dates, such as weather: a mean
over simulations that start from different states errs from point to point, which a model of the state
cannot correct (`benchmarks/study/README.md`).
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from gpo.data.dataset import FieldData
from gpo.data.splits import evenly
from gpo.evaluation.verdict import compare, series_of
from gpo.forecast.blend_fit import MAX_EXAMPLES, scaled_errors
from gpo.forecast.forecaster import Forecaster
from gpo.forecast.references import (
    AbstractContinuation,
    ReferenceInputs,
    Trend,
    fit_references,
)
from gpo.forecast.registry import REFERENCES
from gpo.forecast.statistics import MIN_CHANGE
from gpo.forecast.task import OWN_BASES

MARGIN = 0.9
"""A base with a climatology must multiply the error of the last frame and its trend by less than this."""


def with_base(
    forecaster: Forecaster,
    data: FieldData,
    samples: Sequence[Any],
    *,
    uses_climatology: bool = True,
) -> Forecaster:
    """Returns an untrained forecaster that adds increments to the best reference.

    With one input frame this is persistence and with more the trend, unless another one is better by a
    margin and by an interval.

    Args:
        forecaster: The untrained forecaster, whose base is persistence.
        data: The training data.
        samples: The training split.
        uses_climatology: Whether references with a climatology are candidates, where data have dates.
    """
    inputs = forecaster.reference_inputs(data, samples)
    if forecaster.task.predict == "state" or not inputs.is_forecast:
        return forecaster
    names = [name for name, kind in REFERENCES.items() if issubclass(kind, AbstractContinuation)]
    has_climatology = uses_climatology and data.origin is not None
    bases = fit_references(inputs, names if has_climatology else OWN_BASES)
    name = best_base(inputs, list(bases))
    base = bases[name]
    if name == "persistence" or not isinstance(base, AbstractContinuation):
        return forecaster
    factor = base.trend.tolist() if isinstance(base, Trend) and base.trend is not None else ()
    task = replace(
        forecaster.task, base=name, trend=tuple(factor), remainder=_remainder(inputs, base)
    )
    stored = {} if factor else {name: replace(base, task=task)}
    means = forecaster.pointwise if task.is_per_site else None
    return Forecaster(forecaster.model, task, means, stored)


def best_base(inputs: ReferenceInputs, names: Sequence[str]) -> str:
    """Returns the name of the best of some references on held-out training data."""
    simple = "trend" if "trend" in names else "persistence"
    others = [name for name in names if name not in ("trend", "persistence")]
    if not others:
        return simple
    fitted = fit_references(inputs.earlier(), names)
    if inputs.num_held_out < 1 or simple not in fitted:
        return simple
    samples = evenly(inputs.samples[-inputs.num_held_out :], MAX_EXAMPLES)
    errors = scaled_errors(fitted, inputs.task, inputs.data, samples)
    series = series_of(samples)
    if len(samples) != len(errors[simple]):
        # Examples without values were left out.
        series = [np.arange(len(errors[simple]))]
    better = [
        name
        for name in others
        if name in fitted
        and compare(errors[name], errors[simple], series).outcome == "better"
        and errors[name].mean() < MARGIN * errors[simple].mean()
    ]
    return min(better, key=lambda name: errors[name].mean(), default=simple)


def _remainder(inputs: ReferenceInputs, base: AbstractContinuation) -> tuple[float, ...]:
    """Returns the residual of a base on training data, as a fraction of the change."""
    squares = mass = torch.zeros(len(inputs.task.outputs), dtype=torch.double)
    for example in inputs.examples():
        weights = example.weights[..., None]
        predicted = base(example.frames, example.coords, seasons=example.seasons)
        squares = squares + (weights * (predicted - example.target).square()).sum((0, 1))
        mass = mass + weights.sum()
    residual = (squares / mass).sqrt() / torch.tensor(inputs.task.output_std, dtype=torch.double)
    size = torch.tensor(inputs.task.increment_std, dtype=torch.double)
    return tuple((residual.clamp(min=MIN_CHANGE) / size).tolist())
