"""Scores of a trained model on its test split, beside references without a model."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from rich.progress import track
from torch import Tensor

from gpo.data.dataset import StaticMaps, Trajectories
from gpo.data.geometry import Geometry
from gpo.data.splits import Split
from gpo.evaluation.references import Climatology, training_mean
from gpo.evaluation.results import Results, Scope
from gpo.evaluation.rollout import Rollouts, make_rollouts
from gpo.evaluation.spectrum import NoSpectrumError, spectra, spectral_errors
from gpo.evaluation.transfer import between_sites, resolution_transfer
from gpo.forecast.examples import Example, collate, make_examples
from gpo.forecast.forecaster import Forecaster
from gpo.numerics.norms import linf, nrmse, relative_l2, rmse, vrmse

METRICS = {norm.__name__: norm for norm in (relative_l2, rmse, nrmse, vrmse, linf)}

MAX_SPECTRA = 128
"""Most one-step predictions whose spectra are averaged."""
MAX_KEPT = 2**26
"""Most numbers of these predictions in memory; the first prediction is always kept."""
MAX_SITES = 2**18
"""Sites of all examples that are predicted at a time."""

Contender = Callable[[Example, Sequence[Any]], Tensor]
"""Predicts a batch, given the members of the split that it holds."""


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
    """
    forecaster.eval()

    def tracked(items: Sequence[Any], what: str) -> Iterable[Any]:
        return items if is_quiet else track(items, what, transient=True)

    reconstructs = isinstance(data, Trajectories) and forecaster.task.lead == 0
    climatology = None
    contenders: dict[str, Contender] = {
        "model": lambda batch, _: forecaster(batch.frames, batch.coords, weights=batch.site_weights)
    }
    if isinstance(data, StaticMaps):
        mean = training_mean(data, split.training, forecaster.output_mean)
        contenders["training mean"] = lambda batch, _: mean.expand_as(batch.target)
    else:
        climatology = Climatology.of(data, split.training)
        if not reconstructs:
            contenders["persistence"] = lambda batch, _: batch.fields[:, -1]
        if climatology is not None:
            means = climatology
            contenders["climatology"] = lambda _, windows: means.at(
                [window.last if reconstructs else window.target for window in windows]
            )
    tally = Tally(forecaster.task.outputs)
    examples = make_examples(data, split.test, reconstructs=reconstructs)
    batch_size = max(1, min(batch_size, MAX_SITES // data.geometry().num_points))
    starts = range(0, len(split.test), batch_size)
    for start in tracked(starts, "scoring one step"):
        members = split.test[start : start + batch_size]
        batch = collate([examples[start + offset] for offset in range(len(members))])
        for who, predict in contenders.items():
            tally.add(who, predict(batch, members), batch, len(members) / len(split.test))
    results: dict[str, Any] = {
        "num_examples": len(split.test),
        "one_step": tally.errors,
        "per_variable": tally.by_variable,
        "model": {
            "name": type(forecaster.model).__name__,
            "parameters": forecaster.num_parameters,
        },
        "scope": scope,
    }
    if scope == "one-step":
        return Results(**results)
    rollouts = None
    if isinstance(data, Trajectories) and not reconstructs:
        rollouts = make_rollouts(
            forecaster, data, split.test, num_steps, climatology,
            lambda chosen: tracked(chosen, "rolling out"),
        )  # fmt: skip
        results["rollout"] = rollouts.mean_errors()
        results["num_rollouts"] = len(rollouts.truth)
        results["diverged_at"] = rollouts.diverged_at
        results["resolution"] = resolution_transfer(forecaster, data, split.test, finer)
        results["between_sites"] = between_sites(forecaster, data, split.test)
    results["spectrum"] = _spectra(tally, data.geometry(), forecaster.task.outputs, rollouts)
    return Results(**results)


@dataclass
class Tally:
    """Running sums of errors over batches, and some of the fields for their spectra."""

    variables: tuple[str, ...]
    errors: dict[str, dict[str, float]] = field(default_factory=dict)
    by_variable: dict[str, dict[str, float]] = field(default_factory=dict)
    fields: list[tuple[np.ndarray, np.ndarray]] = field(default_factory=list)
    """Truth and prediction of the first examples, points by variables."""

    def add(self, who: str, prediction: Tensor, batch: Example, fraction: float) -> None:
        """Adds the errors of a batch that is this fraction of the test split."""
        errors = self.errors.setdefault(who, dict.fromkeys(METRICS, 0.0))
        for metric, norm in METRICS.items():
            errors[metric] += fraction * norm(prediction, batch.target, batch.weights).item()
        by_variable = self.by_variable.setdefault(who, dict.fromkeys(self.variables, 0.0))
        for channel, name in enumerate(self.variables):
            part = slice(channel, channel + 1)
            pair = prediction[..., part], batch.target[..., part]
            by_variable[name] += fraction * relative_l2(*pair, batch.weights).item()
        if who == "model":
            pairs = zip(batch.target.numpy(), prediction.numpy(), strict=True)
            most = min(MAX_SPECTRA, max(1, MAX_KEPT // (2 * batch.target[0].numel())))
            self.fields += list(pairs)[: most - len(self.fields)]


def _spectra(
    tally: Tally, geometry: Geometry, variables: tuple[str, ...], rollouts: Rollouts | None
) -> dict[str, dict[str, Any]]:
    """Returns energy by scale of every variable, or the reason why there is none."""
    if len({len(truth) for truth, _ in tally.fields}) > 1:
        return {name: {"reason": "samples differ in their sites"} for name in variables}
    pairs = {"truth": [t for t, _ in tally.fields], "model": [p for _, p in tally.fields]}
    if rollouts is not None:
        pairs |= {"truth at the end": rollouts.truth, "model at the end": rollouts.forecast}
    stacked = {name: np.stack(frames) for name, frames in pairs.items()}
    return {
        name: _spectrum({who: frames[..., channel] for who, frames in stacked.items()}, geometry)
        for channel, name in enumerate(variables)
    }


def _spectrum(frames: dict[str, np.ndarray], geometry: Geometry) -> dict[str, Any]:
    entry: dict[str, Any] = {}
    try:
        for who, fields in frames.items():
            if not np.isfinite(fields).all():
                continue
            found = spectra(fields, geometry)
            entry["label"], entry["wavenumbers"] = found.label, found.wavenumbers.tolist()
            entry[who] = found.energy.tolist()
        entry["errors"] = spectral_errors(frames["truth"], frames["model"], geometry)
    except NoSpectrumError as error:
        return {"reason": str(error)}
    return entry
