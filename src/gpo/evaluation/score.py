"""Scores of a trained model on its test split, beside references without a model."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from rich.progress import track
from torch import Tensor

from gpo.data.dataset import DataError, StaticMaps, Trajectories
from gpo.data.geometry import Geometry
from gpo.data.splits import Split
from gpo.evaluation.references import Climatology, training_mean
from gpo.evaluation.results import Results, Scope
from gpo.evaluation.rollout import Rollouts, make_rollouts
from gpo.evaluation.spectrum import NoSpectrumError, spectra, spectral_errors
from gpo.evaluation.transfer import between_sites, resolution_transfer
from gpo.evaluation.verdict import Comparison, compare, lost_after, series_of, verdict
from gpo.forecast.examples import Example, collate, make_examples
from gpo.forecast.forecaster import Forecaster
from gpo.numerics.norms import channel_errors, linf, nrmse, relative_l2, rmse, vrmse

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
    trained_on: Trajectories | StaticMaps | None = None,
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
    """
    forecaster.eval()
    source = data if trained_on is None else trained_on

    def tracked(items: Sequence[Any], what: str) -> Iterable[Any]:
        return items if is_quiet else track(items, what, transient=True)

    reconstructs = isinstance(data, Trajectories) and forecaster.task.lead == 0
    climatology = None
    contenders: dict[str, Contender] = {
        "model": lambda batch, _: forecaster(batch.frames, batch.coords, weights=batch.site_weights)
    }
    if isinstance(source, StaticMaps):
        mean = training_mean(source, split.training, forecaster.output_mean)
        if mean.ndim > 1 and len(mean) != data.geometry().num_points:
            mean = mean.mean(0)
        contenders["training mean"] = lambda batch, _: mean.expand_as(batch.target)
    elif isinstance(data, Trajectories):
        climatology = Climatology.of(source, split.training)
        if climatology is not None and source is not data:
            climatology = climatology.for_data(source, data)
        if not reconstructs:
            contenders["persistence"] = lambda batch, _: batch.fields[:, -1]
        if climatology is not None:
            means = climatology
            contenders["climatology"] = lambda _, windows: means.at(
                [window.last if reconstructs else window.target for window in windows]
            )
    tally = Tally(forecaster.task.outputs, np.array(forecaster.task.output_std))
    examples = make_examples(data, split.test, reconstructs=reconstructs)
    batch_size = max(1, min(batch_size, MAX_SITES // data.geometry().num_points))
    starts = range(0, len(split.test), batch_size)
    for start in tracked(starts, "scoring one step"):
        numbers = range(start, min(start + batch_size, len(split.test)))
        read = {number: examples[number] for number in numbers}
        known = [number for number in numbers if bool(read[number].weights.any())]
        if not known:
            continue
        batch, members = collate([read[n] for n in known]), [split.test[n] for n in known]
        tally.members += members
        for who, predict in contenders.items():
            tally.add(who, predict(batch, members), batch)
    if not tally.members:
        raise DataError(data.source, "values", "of all test examples are missing.")
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
        results["between_sites"] = between_sites(forecaster, data, split.test)
    results["spectrum"] = _spectra(tally, data.geometry(), forecaster.task.outputs, rollouts)
    return Results(**results)


@dataclass
class Tally:
    """Errors of all test examples, and some of the fields for their spectra."""

    variables: tuple[str, ...]
    std: np.ndarray
    """Standard deviation of every variable in the training data."""
    members: list[Any] = field(default_factory=list)
    """Members of the split that were scored."""
    sums: dict[str, dict[str, float]] = field(default_factory=dict)
    """Sums of every metric over the examples, by who."""
    rows: dict[str, list[np.ndarray]] = field(default_factory=dict)
    """Root mean square errors by who: examples by variables, batch after batch."""
    relative_rows: dict[str, list[np.ndarray]] = field(default_factory=dict)
    """Relative L2 of every variable, likewise."""
    fields: list[tuple[np.ndarray, np.ndarray]] = field(default_factory=list)
    """Truth and prediction of the first examples, points by variables."""

    def add(self, who: str, prediction: Tensor, batch: Example) -> None:
        """Adds the errors of a batch."""
        sums = self.sums.setdefault(who, dict.fromkeys(METRICS, 0.0))
        for metric, norm in METRICS.items():
            errors = norm(prediction, batch.target, batch.weights)
            sums[metric] += len(batch.target) * errors.item()
        errors = channel_errors(prediction, batch.target, batch.weights)
        self.rows.setdefault(who, []).append(errors.numpy())
        sizes = channel_errors(torch.zeros_like(batch.target), batch.target, batch.weights)
        relative = errors / sizes.clamp_min(torch.finfo(torch.float32).tiny)
        self.relative_rows.setdefault(who, []).append(relative.numpy())
        if who == "model":
            pairs = zip(batch.target.numpy(), prediction.numpy(), strict=True)
            most = min(MAX_SPECTRA, max(1, MAX_KEPT // (2 * batch.target[0].numel())))
            self.fields += list(pairs)[: most - len(self.fields)]

    @property
    def num_wild(self) -> int:
        """Examples whose prediction is not finite."""
        return int((~np.isfinite(np.concatenate(self.rows["model"]))).any(-1).sum())

    def mean_errors(self) -> dict[str, dict[str, float]]:
        """Returns the mean of every metric over the examples, by who."""
        count = len(self.members)
        return {
            who: {metric: total / count for metric, total in sums.items()}
            for who, sums in self.sums.items()
        }

    def relative(self) -> dict[str, dict[str, float]]:
        """Returns relative L2 of every variable alone, by who."""
        return {who: self._named(rows) for who, rows in self.relative_rows.items()}

    def scores(self) -> dict[str, dict[str, dict[str, float]]]:
        """Returns errors in units, in standard deviations, and skill, by variable and who."""
        rmse, relative = (
            {who: self._named(rows) for who, rows in self.rows.items()},
            self.relative(),
        )
        found: dict[str, dict[str, dict[str, float]]] = {}
        for name, std in zip(self.variables, self.std.tolist(), strict=True):
            found[name] = {
                who: {
                    "relative_l2": relative[who][name],
                    "rmse": rmse[who][name],
                    "rmse_over_std": rmse[who][name] / std,
                }
                for who in rmse
            }
            for who in rmse:
                if who != "model" and rmse[who][name] > 0:
                    skill = 1 - rmse["model"][name] / rmse[who][name]
                    found[name]["model"][f"skill_{who}"] = skill
        return found

    def comparisons(self) -> dict[str, Comparison]:
        """Returns how the model compares with every reference; nothing where it is not finite."""
        if self.num_wild:
            return {}
        size = {who: self._sizes(np.concatenate(rows)) for who, rows in self.rows.items()}
        series = series_of(self.members)
        return {
            who: compare(size["model"], errors, series)
            for who, errors in size.items() if who != "model"
        }  # fmt: skip

    def _sizes(self, rows: np.ndarray) -> np.ndarray:
        """Returns one error per example, free of units."""
        return np.sqrt(np.square(rows / self.std).mean(-1))

    def _named(self, rows: list[np.ndarray]) -> dict[str, float]:
        means = np.concatenate(rows).mean(0).tolist()
        return dict(zip(self.variables, means, strict=True))


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
    """Returns energy by scale of every variable, or the reason why there is none."""
    if len({len(truth) for truth, _ in tally.fields}) > 1:
        return {name: {"reason": "samples differ in their sites"} for name in variables}
    pairs = {"truth": [t for t, _ in tally.fields], "model": [p for _, p in tally.fields]}
    if rollouts is not None and rollouts.truth:
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
