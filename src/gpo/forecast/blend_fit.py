r"""Fits the weights of a blended forecast on validation data.

For each step and variable the weights $w$ minimise $w^\top G w$ on the simplex, where $G$ sums the
products of the forecasts' errors over validation examples. They are shrunk towards weights $r$ of
references alone, $\lambda w + (1-\lambda) r$, where $\lambda$ is the smallest that is worse than the
best one by at most two standard errors on blocks of the later half, with weights fitted to the examples
before each: few examples have large standard errors. These $r$ are the best reference, or the weights
that minimise $r^\top G r$ where they are better by one percent on the same blocks. A forecast whose
error grows with time, there or for references in held-out training data, so that it will lose, has no
weight.

With fewer than four examples all weight is on the reference with the smallest error on them and on
held-out training data, where references were fitted to the examples before them. Later steps of a rollout
with fewer than four starts keep the weights of the step before, unless that reference is better.
"""

from collections.abc import Mapping, Sequence
from itertools import islice, pairwise
from typing import Any

import numpy as np
import torch
from jaxtyping import Bool, Float
from scipy.optimize import nnls

from gpo.data.dataset import FieldData
from gpo.data.splits import evenly
from gpo.forecast.blend import MIN_EXAMPLES, MIN_WEIGHT, MODEL
from gpo.forecast.examples import TimeSliceExamples, collate, rollout_starts
from gpo.forecast.forecaster import Forecaster
from gpo.forecast.references import ReferenceInputs, fit_references
from gpo.forecast.rollout import AbstractForecast, rollout_steps
from gpo.forecast.task import BlendWeights, Task

MAX_EXAMPLES = 64
"""Maximum number of examples of one step; they are evenly spaced."""
MAX_ROLLOUTS = 8
"""Maximum number of rollouts; their starts are evenly spaced."""
STEPS = (2, 5, 10, 20)
"""Numbers of steps of rollouts."""
BATCH_SIZE = 8
MAX_SITES = 2**18
"""Maximum number of sites, over all examples, that are predicted at a time."""
MAX_BLOCKS = 8
"""Maximum number of blocks of cross-validation."""
MAX_ERRORS = 2.0
"""Number of standard errors by which shrunk weights may be worse than the best ones."""
MIN_GAIN = 0.01
"""Smallest gain with which references are combined, as a fraction of the error of the best one."""
RIDGE = 1e-6
"""What is added to correlations of one, so that equal forecasts have equal weights."""
MAX_GROWTH = 2.0
"""Largest growth of an error, from the first half of the examples to the later one, relative to the
median of the forecasts, with which a forecast that will lose has any weight."""
OVERFLOW = 1e200
"""What stands for the product of errors that are not finite."""
SHRINKAGE = (0.0, 0.25, 0.5, 0.75, 1.0)
"""Values of $\\lambda$."""

Products = Float[np.ndarray, "examples outputs forecasts forecasts"]
"""Mean products of the errors of two forecasts over the points."""


def fit_blend(
    forecaster: Forecaster,
    data: FieldData,
    training: Sequence[Any],
    validation: Sequence[Any],
) -> Forecaster:
    """Returns the forecaster with the weights of model and references.

    Args:
        forecaster: The trained model.
        data: The data.
        training: The training split, to which references are fitted.
        validation: The validation split, to which weights are fitted.
    """
    model, inputs = forecaster.alone, forecaster.reference_inputs(data, training)
    references = fit_references(inputs)
    if not references or model.reconstructs or inputs.reconstructs:
        return model
    forecasts = {MODEL: model, **references}
    found = products_by_step(forecasts, model.task, data, validation)
    if not found:
        return model
    is_enough, none = len(found[0]) >= MIN_EXAMPLES, found[0][:0]
    held_out = held_out_products(inputs, list(references))
    weights: list[np.ndarray] = []
    num_steps = len(found) if is_enough else max(len(found), len(held_out))
    found += [none] * (num_steps - len(found))
    for step, products in enumerate(found):
        others = held_out[step] if step < len(held_out) else none[..., 1:, 1:]
        if len(products) >= MIN_EXAMPLES:
            pairs = zip(products.swapaxes(0, 1), steady_references(others), strict=True)
            weights.append(np.stack([fitted_weights(*pair) for pair in pairs]))
            continue
        best = np.eye(len(forecasts))[1 + best_references(others, products)]
        weights.append(_kept(weights[-1], best, products) if is_enough else best)
    counts = [len(products) for products in found]
    return forecaster.blended(_used(list(forecasts), weights, counts), references)


def _kept(previous: np.ndarray, best: np.ndarray, products: Products) -> np.ndarray:
    """Returns the weights of the step before, or the best reference of outputs where it is better."""
    finite = np.where(np.isfinite(products), products, OVERFLOW)
    errors = [
        _root(np.einsum("vi,nvij,vj->nv", rows, finite, rows)).mean(0) for rows in (previous, best)
    ]
    return np.where((errors[0] <= errors[1])[:, None], previous, best)


def _used(names: list[str], weights: list[np.ndarray], counts: list[int]) -> BlendWeights:
    """Returns the weights without references that have none."""
    table = np.array(weights)
    kept = [0, *(n for n in range(1, len(names)) if (table[..., n] > 0).any())]
    return BlendWeights(
        tuple(names[n] for n in kept), tuple(table[..., kept].tolist()), tuple(counts)
    )


def products_by_step(
    forecasts: Mapping[str, AbstractForecast],
    task: Task,
    data: FieldData,
    samples: Sequence[Any],
) -> list[Products]:
    """Returns the products of errors of all forecasts, by step of rollouts.

    The products of the first step are of more examples than those of later ones.
    """
    steps = _products(forecasts, data, samples, MAX_EXAMPLES)
    if task.lead == 0:
        return steps
    counts = [len(rollout_starts(samples, num_steps)) for num_steps in STEPS]
    for num_steps, count, longer in zip(STEPS, counts, (*counts[1:], 0), strict=True):
        # A longer rollout has the steps of a shorter one, where it has enough starts.
        if count and longer < MAX_ROLLOUTS:
            found = _products(forecasts, data, samples, MAX_ROLLOUTS, num_steps)
            steps += found[len(steps) :]
    return steps


def scaled_errors(
    forecasts: Mapping[str, AbstractForecast],
    task: Task,
    data: FieldData,
    samples: Sequence[Any],
) -> dict[str, Float[np.ndarray, " examples"]]:
    """Returns the error of each forecast, in standard deviations over all variables.

    At most `MAX_EXAMPLES` evenly spaced examples are scored.
    """
    products = _products(forecasts, data, samples, MAX_EXAMPLES)[0]
    scaled = np.diagonal(products, axis1=2, axis2=3) / np.square(task.output_std)[:, None]
    return dict(zip(forecasts, np.sqrt(scaled.mean(1)).T, strict=True))


def held_out_products(inputs: ReferenceInputs, names: Sequence[str]) -> list[Products]:
    """Returns the products of errors of references on training data that they were not fitted to.

    A reference that does not apply to the part of the training data is never the best.
    """
    if inputs.num_held_out < 1:
        return []
    fitted = fit_references(inputs.earlier(), names)
    if not fitted:
        return []
    samples = inputs.samples[-inputs.num_held_out :]
    found = products_by_step(fitted, inputs.task, inputs.data, samples)
    index = [list(names).index(name) for name in fitted]
    result = []
    for products in found:
        whole = np.full((*products.shape[:2], len(names), len(names)), np.inf)
        whole[:, :, np.array(index)[:, None], index] = products
        result.append(whole)
    return result


def best_references(
    held_out: Float[np.ndarray, "examples outputs references references"],
    products: Float[np.ndarray, "more outputs forecasts forecasts"],
) -> np.ndarray:
    """Returns the index of the best reference for each output.

    Args:
        held_out: Products of the errors of references on training data.
        products: Those of model and references on validation data.
    """
    squares = np.concatenate([held_out, products[..., 1:, 1:]])
    total = np.diagonal(squares, axis1=2, axis2=3).sum(0)
    is_usable = np.isfinite(total) & steady_references(held_out)
    return np.where(is_usable, total, np.inf).argmin(-1)


def steady_references(
    held_out: Float[np.ndarray, "examples outputs references references"],
) -> Bool[np.ndarray, "outputs references"]:
    """Returns which references are steady on held-out training data; all if it is too short."""
    result = np.ones(held_out.shape[1:3], dtype=bool)
    for row, products in zip(result, held_out.swapaxes(0, 1), strict=True):
        is_finite = np.isfinite(np.diagonal(products, axis1=1, axis2=2)).all(0)
        if len(products) >= MIN_EXAMPLES and is_finite.any():
            row[is_finite] = is_steady(products[:, is_finite][:, :, is_finite])
    return result


def is_steady(
    products: Float[np.ndarray, "examples forecasts forecasts"],
) -> Bool[np.ndarray, " forecasts"]:
    """Returns False for forecasts whose error grows more than that of others, so that they will lose.

    The growth from the first half of the examples to the later one is expected to go on. Halves are
    compared by medians: a burst of errors is not growth.
    """
    sizes = np.sqrt(np.diagonal(products, axis1=1, axis2=2))
    half = len(sizes) // 2
    first, last = np.median(sizes[:half], axis=0), np.median(sizes[half:], axis=0)
    growth = last / np.maximum(first, 1e-300)
    return ~(
        (growth > MAX_GROWTH * np.nanmedian(growth)) & (last * growth > np.nanmin(last * growth))
    )


def fitted_weights(
    products: Float[np.ndarray, "examples forecasts forecasts"],
    usable: Bool[np.ndarray, " references"] | None = None,
) -> Float[np.ndarray, " forecasts"]:
    """Returns the weights of one output in one step, from at least four examples.

    Args:
        products: Products of errors on validation data.
        usable: References that may have a weight (None: all).
    """
    count = len(products)
    used = np.asarray(np.isfinite(np.diagonal(products, axis1=1, axis2=2)).all(0))
    if usable is not None and used[1:][usable].any():
        used[1:] &= usable
    used[used] = is_steady(products[:, used][:, :, used])
    is_reference = used.copy()
    is_reference[0] = False
    if not is_reference.any():
        return np.eye(len(used))[0]
    edges = np.linspace(0, count, min(MAX_BLOCKS, count) + 1).round().astype(int)
    means = []
    for start, stop in list(pairwise(edges.tolist()))[(len(edges) - 1) // 2 :]:
        rows = _candidates(products[:start].sum(0), used, is_reference)
        part = np.where(np.isfinite(products[start:stop]), products[start:stop], OVERFLOW)
        means.append(_root(np.einsum("tsi,nij,tsj->nts", rows, part, rows)).mean(0))
    best, combined = np.mean(means, axis=0)[:, 0]
    is_combined = int(combined < (1 - MIN_GAIN) * best)
    by_block = np.array(means)[:, is_combined]
    excess = by_block - by_block[:, by_block.mean(0).argmin(), None]
    is_close = excess.mean(0) <= MAX_ERRORS * excess.std(0) / len(excess) ** 0.5
    share = int(is_close.argmax())
    weights = _candidates(products.sum(0), used, is_reference)[is_combined, share]
    weights[weights < MIN_WEIGHT] = 0.0
    return weights / weights.sum()


def _candidates(
    products: Float[np.ndarray, "forecasts forecasts"], used: np.ndarray, is_reference: np.ndarray
) -> Float[np.ndarray, "2 shrinkages forecasts"]:
    """Returns weights shrunk towards the best reference, and towards a combination of references.

    Args:
        products: Sum of the products of errors.
        used: Forecasts that may have a weight.
        is_reference: Which of these are references.
    """
    whole, best, combined = np.zeros((3, len(used)))
    whole[used] = on_simplex(products[np.ix_(used, used)])
    best[np.where(is_reference, np.diagonal(products), np.inf).argmin()] = 1.0
    combined[is_reference] = on_simplex(products[np.ix_(is_reference, is_reference)])
    shares = np.array(SHRINKAGE)[:, None]
    return np.stack([shares * whole + (1 - shares) * rest for rest in (best, combined)])


def on_simplex(
    products: Float[np.ndarray, "forecasts forecasts"],
) -> Float[np.ndarray, " forecasts"]:
    """Returns the weights, not negative and with sum one, that minimise a quadratic form."""
    sizes = np.sqrt(np.diagonal(products))
    if not sizes.all():
        return (sizes == 0) / (sizes == 0).sum()
    # With u >= 0 and w = u / sum(u), this is the minimum of u G u - 2 sum(u). Errors differ by orders
    # of magnitude, so that it is solved for v = u * sizes, with correlations in place of G.
    correlations = products / np.outer(sizes, sizes) + RIDGE * np.eye(len(sizes))
    lower = np.linalg.cholesky(correlations)
    scaled, _ = nnls(lower.T, np.linalg.solve(lower, sizes.min() / sizes))
    weights = scaled / sizes
    return weights / weights.sum()


def _root(squares: np.ndarray) -> np.ndarray:
    return np.sqrt(np.maximum(squares, 0))


@torch.no_grad()
def _products(
    forecasts: Mapping[str, AbstractForecast],
    data: FieldData,
    samples: Sequence[Any],
    most: int,
    num_steps: int = 1,
) -> list[Products]:
    """Returns the products of errors after each step of rollouts from at most so many starts."""
    examples = TimeSliceExamples(data, samples, num_steps=num_steps)
    chosen = map(examples.__getitem__, evenly(range(len(examples)), most))
    known = (example for example in chosen if bool(example.weights.any()))
    size = max(1, min(BATCH_SIZE, MAX_SITES // data.geometry().num_points))
    rows: list[list[np.ndarray]] = [[] for _ in range(num_steps)]
    while part := list(islice(known, size)):
        batch = collate(part)
        weights = (batch.weights / batch.weights.sum(1, keepdim=True))[..., None]
        rollouts = [
            rollout_steps(
                forecast, batch.frames, batch.coords, num_steps,
                weights=batch.site_weights, forcings=batch.forcings, seasons=batch.seasons,
            )
            for forecast in forecasts.values()
        ]  # fmt: skip
        for step, predictions in enumerate(zip(*rollouts, strict=True)):
            errors = torch.stack([part.double() for part in predictions]) - batch.targets[:, step]
            errors = torch.where(weights > 0, errors, 0.0)
            products = torch.einsum("ibpv,jbpv->bvij", weights * errors, errors)
            rows[step].append(products.numpy())
    return [np.concatenate(row) for row in rows if row]
