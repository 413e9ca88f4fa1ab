"""Scores of a trained model on its test split, beside references without a model."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import torch
from rich.progress import track

from gpo.data.dataset import DataError, StaticMaps, Trajectories
from gpo.data.geometry import Geometry
from gpo.data.splits import Split, evenly
from gpo.evaluation.reasons import TrainingCurve, change_correlation, explain
from gpo.evaluation.references import Climatology, training_mean
from gpo.evaluation.results import Results, Scope
from gpo.evaluation.rollout import Rollouts, make_rollouts
from gpo.evaluation.spectrum import VORTICITIES, NoSpectrumError, spectra, spectral_errors
from gpo.evaluation.tally import Contender, Tally, tally_members
from gpo.evaluation.transfer import between_sites, resolution_transfer
from gpo.evaluation.verdict import Comparison, lost_after, verdict
from gpo.forecast.forecaster import Forecaster

MIN_TRAINING = 16
"""Training examples that are scored at least, where a reference is not beaten."""


@torch.no_grad()
def evaluate(
    forecaster: Forecaster,
    data: Trajectories | StaticMaps,
    split: Split[Any],
    *,
    num_steps: int = 20,
    batch_size: int = 8,
    finer: Trajectories | StaticMaps | None = None,
    scope: Scope = "all",
    is_quiet: bool = True,
    trained_on: Trajectories | StaticMaps | None = None,
    curve: TrainingCurve | None = None,
) -> Results:
    """Returns errors over the whole test split, and how they depend on step, scale and sites.

    Args:
        forecaster: The trained model.
        data: The data set.
        split: Its splits; of training data only means are used, as a reference.
        num_steps: How far to roll out, where the test data reaches that far.
        batch_size: Examples at a time, fewer where sites are many; no influence on the numbers.
        finer: The same data at double resolution, where there is such.
        scope: Whether anything is scored beside one step.
        is_quiet: Without progress bars.
        trained_on: The data of the training split, where the test split is of other data.
        curve: How training went, which may say why a reference is not beaten.
    """
    forecaster.eval()
    source = data if trained_on is None else trained_on

    def tracked(items: Sequence[Any], what: str) -> Iterable[Any]:
        return items if is_quiet else track(items, what, transient=True)

    reconstructs = isinstance(data, Trajectories) and forecaster.task.lead == 0
    climatology = _climatology(data, source, split)
    contenders = _contenders(forecaster, data, source, split, climatology)

    def tallied(members: Sequence[Any], what: str) -> Tally:
        return tally_members(
            forecaster, data, members, contenders, batch_size, lambda b: tracked(b, what)
        )

    tally = tallied(split.test, "scoring one step")
    if not tally.members:
        raise DataError(data.source, "values", "of all test examples are missing.")
    tally.check_references(data.source)
    comparisons = tally.comparisons()
    results: dict[str, Any] = {
        "num_examples": len(tally.members),
        "num_unknown": len(split.test) - len(tally.members),
        "one_step": tally.mean_errors(),
        "per_variable": tally.relative(),
        "variables": tally.scores(),
        "units": dict(zip(forecaster.task.outputs, forecaster.task.units, strict=True)),
        "comparisons": {name: _described(found) for name, found in comparisons.items()},
        "verdict": verdict(comparisons, len(tally.members), num_wild=tally.num_wild),
        "model": {
            "name": type(forecaster.model).__name__,
            "parameters": forecaster.num_parameters,
        },
        "scope": scope,
    }
    if scope == "one-step":
        return Results(**results)
    if trained_on is None:
        results |= _beside_the_test_split(tally, data, split, tallied, curve)
    rollouts = None
    if isinstance(data, Trajectories) and not reconstructs:
        rollouts = make_rollouts(
            forecaster, data, split.test, num_steps, climatology,
            lambda chosen: tracked(chosen, "rolling out"),
        )  # fmt: skip
        if rollouts.truth:
            results["rollout"] = rollouts.mean_errors()
            results["num_rollouts"] = len(rollouts.truth)
            results["diverged_at"] = rollouts.diverged_at
            results |= _lost(rollouts, comparisons, tally)
        results["resolution"] = resolution_transfer(forecaster, data, split.test, finer)
    if isinstance(data, Trajectories):
        results["between_sites"] = between_sites(forecaster, data, split.test)
    results["spectrum"] = _spectra(tally, data.geometry(), forecaster.task.outputs, rollouts)
    return Results(**results)


def _climatology(
    data: Trajectories | StaticMaps, source: Trajectories | StaticMaps, split: Split[Any]
) -> Climatology | None:
    """Returns the means of the training data for the frames of the scored ones, where they match."""
    if not isinstance(data, Trajectories) or not isinstance(source, Trajectories):
        return None
    climatology = Climatology.of(source, split.training)
    if climatology is not None and source is not data:
        return climatology.for_data(source, data)
    return climatology


def _contenders(
    forecaster: Forecaster,
    data: Trajectories | StaticMaps,
    source: Trajectories | StaticMaps,
    split: Split[Any],
    climatology: Climatology | None,
) -> dict[str, Contender]:
    """Returns the model and its references by name."""
    reconstructs = isinstance(data, Trajectories) and forecaster.task.lead == 0
    contenders: dict[str, Contender] = {
        "model": lambda batch, _: forecaster(batch.frames, batch.coords, weights=batch.site_weights)
    }
    if isinstance(source, StaticMaps):
        mean = training_mean(source, split.training, forecaster.output_mean)
        if mean.ndim > 1 and len(mean) != data.geometry().num_points:
            mean = mean.mean(0)
        contenders["training mean"] = lambda batch, _: mean.expand_as(batch.target)
    elif not reconstructs:
        contenders["persistence"] = lambda batch, _: batch.fields[:, -1]
        if forecaster.task.trend:
            contenders["trend"] = lambda batch, _: forecaster.denormalised(
                forecaster.continued(forecaster.normalised_input(batch.frames))
            )
    if climatology is not None:
        contenders["climatology"] = lambda _, windows: climatology.at(
            [window.last if reconstructs else window.target for window in windows]
        )
    return contenders


def _beside_the_test_split(
    test: Tally,
    data: Trajectories | StaticMaps,
    split: Split[Any],
    tallied: Callable[[Sequence[Any], str], Tally],
    curve: TrainingCurve | None,
) -> dict[str, Any]:
    """Returns the verdict on validation data, and why references are not beaten."""
    results: dict[str, Any] = {}
    splits = {"test": test.evidence()}
    validation = tallied(split.validation, "scoring validation data")
    if validation.members:
        splits["validation"] = evidence = validation.evidence()
        count, wild = evidence.num_examples, validation.num_wild
        told = verdict(evidence.comparisons, count, split="validation", num_wild=wild)
        results["validation"] = {
            "num_examples": count,
            "comparisons": {
                name: _described(found) for name, found in evidence.comparisons.items()
            },
            "verdict": told,
        }
    is_beaten = all(
        found.outcome == "better" for one in splits.values() for found in one.comparisons.values()
    )
    if is_beaten:
        return results
    chosen = evenly(split.training, max(MIN_TRAINING, len(split.test)))
    fitted = tallied(chosen, "scoring training data").comparisons()
    correlation = None
    if isinstance(data, Trajectories) and "persistence" in fitted:
        correlation = change_correlation(data, split.training)
    told = {
        name: explain(name, splits, fitted.get(name), len(split.training), curve, correlation)
        for name in splits["test"].comparisons
    }
    results["reasons"] = {name: sentence for name, sentence in told.items() if sentence}
    return results


def _described(found: Comparison) -> dict[str, Any]:
    interval = None if found.interval is None else list(found.interval)
    return {"ratio": found.ratio, "interval": interval, "outcome": found.outcome}


def _lost(rollouts: Rollouts, comparisons: dict[str, Comparison], tally: Tally) -> dict[str, Any]:
    """Returns which references a rollout loses to and when, and the verdict that says so."""
    losses: dict[str, int] = {}
    errors = rollouts.scaled
    for name in errors.keys() - {"model"}:
        last = lost_after(errors["model"], errors[name])
        if last is not None:
            losses[name] = last
    losses = dict(sorted(losses.items(), key=lambda item: -item[1]))
    count, num_steps = len(tally.members), errors["model"].shape[1]
    told = verdict(comparisons, count, num_wild=tally.num_wild, losses=losses, num_steps=num_steps)
    return {"lost_after": losses, "verdict": told}


def _spectra(
    tally: Tally, geometry: Geometry, variables: tuple[str, ...], rollouts: Rollouts | None
) -> dict[str, dict[str, Any]]:
    """Returns the spectrum of every variable, or the reason why there is none."""
    if len({len(truth) for truth, _ in tally.fields}) > 1:
        return {name: {"reason": "samples differ in their sites"} for name in variables}
    pairs = {"truth": [t for t, _ in tally.fields], "model": [p for _, p in tally.fields]}
    if rollouts is not None and rollouts.truth:
        pairs |= {"truth at the end": rollouts.truth, "model at the end": rollouts.forecast}
    stacked = {name: np.stack(frames) for name, frames in pairs.items()}
    return {
        name: _spectrum(
            {who: frames[..., channel] for who, frames in stacked.items()},
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
        for who, fields in frames.items():
            if not np.isfinite(fields).all():
                continue
            found = spectra(fields, geometry, is_vorticity=is_vorticity)
            entry["label"], entry["wavenumbers"] = found.label, found.wavenumbers.tolist()
            entry["quantity"] = found.quantity
            entry[who] = found.power.tolist()
        entry["errors"] = spectral_errors(frames["truth"], frames["model"], geometry)
    except NoSpectrumError as error:
        return {"reason": str(error)}
    return entry
