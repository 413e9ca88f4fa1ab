"""Scores of a trained model and of reference forecasts on a test split."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from rich.progress import track

from gpo.data.dataset import DataError, FieldData
from gpo.data.geometry import Geometry
from gpo.data.splits import Split, evenly
from gpo.evaluation.accumulator import MODEL, OWN, ScoreAccumulator, accumulate_scores
from gpo.evaluation.diagnosis import TrainingCurve, change_correlation, explain
from gpo.evaluation.results import Results, Scope
from gpo.evaluation.rollout import Rollouts, make_rollouts
from gpo.evaluation.spectrum import VORTICITIES, NoSpectrumError, spectra, spectral_errors
from gpo.evaluation.transfer import between_sites, resolution_transfer
from gpo.evaluation.verdict import Comparison, last_good_step, verdict
from gpo.forecast.blend import sentence
from gpo.forecast.forecaster import Forecaster
from gpo.forecast.references import fit_references

LOSS = 1.02
"""Ratio of errors from which on rollouts are called worse than those of a reference."""
MIN_TRAINING_EXAMPLES = 16
"""Minimum number of training examples that are scored where the model does not beat a reference."""


@torch.no_grad()
def evaluate(
    forecaster: Forecaster,
    data: FieldData,
    split: Split,
    *,
    num_steps: int = 20,
    batch_size: int = 8,
    finer: FieldData | None = None,
    scope: Scope = "all",
    is_quiet: bool = True,
    trained_on: FieldData | None = None,
    curve: TrainingCurve | None = None,
) -> Results:
    """Returns errors on the test split, by step, scale and resolution.

    Args:
        forecaster: The trained model.
        data: The data set.
        split: Its splits. Reference forecasts use the training split.
        num_steps: Maximum number of rollout steps; fewer where the test data end before.
        batch_size: Maximum number of examples per batch; it does not change the scores.
        finer: The same data at double resolution, where available.
        scope: `"one-step"` leaves out rollouts, spectra and transfer to other sites.
        is_quiet: Whether to hide progress bars.
        trained_on: The data of the training split, where `data` is another data set.
        curve: The training curve, used to explain why a reference is not beaten.
    """
    forecaster.eval()
    trained = data if trained_on is None else trained_on
    references = fit_references(forecaster.reference_inputs(trained, split.training))
    counts = {geometry.num_points for geometry in data.geometries}
    references = {name: one for name, one in references.items() if all(map(one.applies_to, counts))}

    def tracked(items: Sequence[Any], label: str) -> Iterable[Any]:
        return items if is_quiet else track(items, label, transient=True)

    def score(samples: Sequence[Any], label: str) -> ScoreAccumulator:
        return accumulate_scores(
            forecaster, data, samples, references, batch_size, lambda b: tracked(b, label)
        )

    scores = score(split.test, "scoring one step")
    if not scores.samples:
        raise DataError(data.source, "values", "of all test examples are missing.")
    scores.check_references(data.source)
    comparisons = scores.comparisons()
    num_nonfinite, is_blended = scores.num_nonfinite, forecaster.blend is not None
    results: dict[str, Any] = {
        "num_examples": len(scores.samples),
        "num_unknown": len(split.test) - len(scores.samples),
        "one_step": scores.mean_errors(),
        "per_variable": scores.relative_l2(),
        "variables": scores.scores(),
        "units": dict(zip(forecaster.task.outputs, forecaster.task.units, strict=True)),
        "comparisons": _as_json(comparisons),
        "comparisons_alone": _as_json(scores.comparisons(MODEL)) if is_blended else {},
        "blend": sentence(forecaster.task),
        "verdict": verdict(
            comparisons,
            len(scores.samples),
            num_nonfinite=num_nonfinite,
            by_variable=scores.comparisons_by_variable(),
        ),
        "model": {
            "name": type(forecaster.model).__name__,
            "parameters": forecaster.num_parameters,
        },
        "scope": scope,
    }
    if scope == "one-step":
        return Results(**results)
    if trained_on is None:
        results |= _validation_and_reasons(scores, data, split, score, curve)
    rollouts = None
    if forecaster.task.lead > 0:
        rollouts = make_rollouts(
            forecaster, data, split.test, num_steps, references,
            lambda starts: tracked(starts, "rolling out"),
        )  # fmt: skip
        if rollouts.truth:
            results["rollout"] = rollouts.mean_errors()
            results["num_rollouts"] = len(rollouts.truth)
            results["diverged_at"] = rollouts.diverged_at
            results |= _rollout_losses(rollouts, comparisons, scores)
        results["resolution"] = resolution_transfer(forecaster, data, split.test, finer)
    if split.test[0].lead > 0:
        results["between_sites"] = between_sites(forecaster, data, split.test)
    results["spectrum"] = _spectra(scores, data.geometry(), forecaster.task.outputs, rollouts)
    return Results(**results)


def _validation_and_reasons(
    test: ScoreAccumulator,
    data: FieldData,
    split: Split,
    score: Callable[[Sequence[Any], str], ScoreAccumulator],
    curve: TrainingCurve | None,
) -> dict[str, Any]:
    """Returns the verdict on validation data, and why references are not beaten."""
    results: dict[str, Any] = {}
    splits = {"test": test.diagnostics()}
    validation = score(split.validation, "scoring validation data")
    if validation.samples:
        splits["validation"] = diagnostics = validation.diagnostics()
        comparisons, count = diagnostics.comparisons, diagnostics.num_examples
        results["validation"] = {
            "num_examples": count,
            "comparisons": _as_json(comparisons),
            "verdict": verdict(
                comparisons,
                count,
                split="validation",
                num_nonfinite=validation.num_nonfinite,
                by_variable=validation.comparisons_by_variable(),
            ),
        }
    comparisons = [c for part in splits.values() for c in part.comparisons.values()]
    if all(comparison.outcome == "better" for comparison in comparisons):
        return results
    samples = evenly(split.training, max(MIN_TRAINING_EXAMPLES, len(split.test)))
    training = score(samples, "scoring training data").comparisons()
    correlation = None
    if "persistence" in training:
        correlation = change_correlation(data, split.training)
    reasons = {
        name: explain(name, splits, training.get(name), len(split.training), curve, correlation)
        for name in splits["test"].comparisons
    }
    results["reasons"] = {name: reason for name, reason in reasons.items() if reason}
    return results


def _as_json(comparisons: Mapping[str, Comparison]) -> dict[str, dict[str, Any]]:
    return {
        name: {
            "ratio": comparison.ratio,
            "interval": None if comparison.interval is None else list(comparison.interval),
            "outcome": comparison.outcome,
        }
        for name, comparison in comparisons.items()
    }


def _rollout_losses(
    rollouts: Rollouts, comparisons: Mapping[str, Comparison], scores: ScoreAccumulator
) -> dict[str, Any]:
    """Returns the step from which on rollouts are worse than a reference, and the verdict with it."""
    model = rollouts.scaled[rollouts.written]
    errors = {name: rows for name, rows in rollouts.scaled.items() if name not in OWN}
    steps = {name: last_good_step(model, LOSS * rows) for name, rows in errors.items()}
    losses = {name: step for name, step in steps.items() if step is not None}
    losses = dict(sorted(losses.items(), key=lambda item: -item[1]))
    text = verdict(
        comparisons, len(scores.samples), num_nonfinite=scores.num_nonfinite, losses=losses,
        num_steps=model.shape[1], by_variable=scores.comparisons_by_variable(),
    )  # fmt: skip
    return {"lost_after": losses, "verdict": text}


def _spectra(
    scores: ScoreAccumulator,
    geometry: Geometry,
    variables: tuple[str, ...],
    rollouts: Rollouts | None,
) -> dict[str, dict[str, Any]]:
    """Returns the spectrum of each variable, or the reason why there is none."""
    if len({len(truth) for truth, _ in scores.fields}) > 1:
        return {name: {"reason": "samples differ in their sites"} for name in variables}
    frames = {"truth": [t for t, _ in scores.fields], "model": [p for _, p in scores.fields]}
    if rollouts is not None and rollouts.truth:
        frames |= {"truth at the end": rollouts.truth, "model at the end": rollouts.forecast}
    stacked = {name: np.stack(fields) for name, fields in frames.items()}
    return {
        name: _spectrum(
            {source: fields[..., channel] for source, fields in stacked.items()},
            geometry,
            is_vorticity=name.lower() in VORTICITIES,
        )
        for channel, name in enumerate(variables)
    }


def _spectrum(
    frames: dict[str, np.ndarray], geometry: Geometry, *, is_vorticity: bool
) -> dict[str, Any]:
    entry: dict[str, Any] = {}
    try:
        for source, fields in frames.items():
            if not np.isfinite(fields).all():
                continue
            spectrum = spectra(fields, geometry, is_vorticity=is_vorticity)
            entry["label"], entry["wavenumbers"] = spectrum.label, spectrum.wavenumbers.tolist()
            entry["quantity"] = spectrum.quantity
            entry[source] = spectrum.power.tolist()
        entry["errors"] = spectral_errors(frames["truth"], frames["model"], geometry)
    except NoSpectrumError as error:
        return {"reason": str(error)}
    return entry
