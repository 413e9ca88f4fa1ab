"""Errors of a model and its references over the examples of a split."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gpo.data.dataset import DataError, StaticMaps, Trajectories
from gpo.evaluation.reasons import SplitEvidence
from gpo.evaluation.verdict import Comparison, compare, series_of
from gpo.forecast.examples import Example, collate, make_examples
from gpo.forecast.forecaster import Forecaster, Task
from gpo.numerics.norms import (
    channel_errors,
    linf,
    normalised_weights,
    nrmse,
    relative_l2,
    rmse,
    vrmse,
)

METRICS = {norm.__name__: norm for norm in (relative_l2, rmse, nrmse, vrmse, linf)}

MAX_SPECTRA = 128
"""Most one-step predictions whose spectra are averaged."""
MAX_KEPT = 2**26
"""Most numbers of these predictions in memory; the first prediction is always kept."""
MAX_SITES = 2**18
"""Sites of all examples that are predicted at a time."""

Contender = Callable[[Example, Sequence[Any]], Tensor]
"""Predicts a batch, given the members of the split that it holds."""


def tally_members(
    forecaster: Forecaster,
    data: Trajectories | StaticMaps,
    members: Sequence[Any],
    contenders: dict[str, Contender],
    batch_size: int,
    tracked: Callable[[Sequence[int]], Iterable[int]],
) -> "Tally":
    """Returns the errors of the model and its references on members of a split that have values."""
    reconstructs = isinstance(data, Trajectories) and forecaster.task.lead == 0
    tally = Tally(forecaster.task)
    examples = make_examples(data, members, reconstructs=reconstructs)
    batch_size = max(1, min(batch_size, MAX_SITES // data.geometry().num_points))
    for start in tracked(range(0, len(members), batch_size)):
        numbers = range(start, min(start + batch_size, len(members)))
        read = {number: examples[number] for number in numbers}
        known = [number for number in numbers if bool(read[number].weights.any())]
        if not known:
            continue
        batch, chosen = collate([read[n] for n in known]), [members[n] for n in known]
        tally.members += chosen
        for who, predict in contenders.items():
            tally.add(who, predict(batch, chosen), batch)
    return tally


@dataclass
class Tally:
    """Errors of all examples of a split, and some of the fields for their spectra."""

    task: Task
    members: list[Any] = field(default_factory=list)
    """Members of the split that were scored."""
    sums: dict[str, dict[str, float]] = field(default_factory=dict)
    """Sums of every metric over the examples, by who."""
    rows: dict[str, list[np.ndarray]] = field(default_factory=dict)
    """Root mean square errors by who: examples by variables, batch after batch."""
    relative_rows: dict[str, list[np.ndarray]] = field(default_factory=dict)
    """Relative L2 of every variable, likewise."""
    moments: list[np.ndarray] = field(default_factory=list)
    """Means and root mean squares of the truth: two by examples by variables, batch after batch."""
    fields: list[tuple[np.ndarray, np.ndarray]] = field(default_factory=list)
    """Truth and prediction of the first examples, points by variables."""

    @property
    def variables(self) -> tuple[str, ...]:
        """Names of what is predicted."""
        return self.task.outputs

    @property
    def std(self) -> np.ndarray:
        """Standard deviation of every variable in the training data."""
        return np.array(self.task.output_std)

    def add(self, who: str, prediction: Tensor, batch: Example) -> None:
        """Adds the errors of a batch."""
        sums = self.sums.setdefault(who, dict.fromkeys(METRICS, 0.0))
        for metric, norm in METRICS.items():
            errors = norm(prediction, batch.target, batch.weights)
            sums[metric] += len(batch.target) * errors.item()
        errors = channel_errors(prediction, batch.target, batch.weights)
        self.rows.setdefault(who, []).append(errors.numpy())
        sizes = channel_errors(torch.zeros_like(batch.target), batch.target, batch.weights)
        relative = errors / sizes.clamp_min(torch.finfo(sizes.dtype).tiny)
        self.relative_rows.setdefault(who, []).append(relative.numpy())
        if who == "model":
            weights = normalised_weights(batch.weights, batch.target)[..., None]
            counted = torch.where(weights > 0, batch.target, 0.0)
            self.moments.append(torch.stack([(weights * counted).sum(1), sizes]).numpy())
            pairs = zip(batch.target.numpy(), prediction.numpy(), strict=True)
            most = min(MAX_SPECTRA, max(1, MAX_KEPT // (2 * batch.target[0].numel())))
            self.fields += list(pairs)[: most - len(self.fields)]

    @property
    def num_wild(self) -> int:
        """Examples whose prediction is not finite."""
        return int((~np.isfinite(np.concatenate(self.rows["model"]))).any(-1).sum())

    def check_references(self, source: Path) -> None:
        """Refuses errors of references that are not finite: they would be no measure of a model.

        Metrics that are relative to a field may be infinite where that is 0 or constant.
        """
        for who, sums in self.sums.items():
            if who != "model" and not np.isfinite(sums["rmse"]):
                problem = f"are too large or too small: the scores of {who} are not finite. Change"
                raise DataError(source, "values", f"{problem} the units of the data.")

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

    def evidence(self) -> SplitEvidence:
        """Returns what may explain how the model compares with its references."""
        found = {"comparisons": self.comparisons(), "num_examples": len(self.members)}
        if "persistence" not in self.rows:
            return SplitEvidence(**found)
        means, sizes = np.concatenate(self.moments, 1)
        mean = means.mean(0)
        spread = np.sqrt(np.maximum(np.square(sizes).mean(0) - mean**2, 0)) / self.std
        shift = (mean - np.array(self.task.output_mean)) / self.std
        changes = np.concatenate(self.rows["persistence"]) / self.std
        return SplitEvidence(
            **found,
            mean_shift=dict(zip(self.variables, shift.tolist(), strict=True)),
            spread=dict(zip(self.variables, spread.tolist(), strict=True)),
            change=float(np.sqrt(np.square(changes).mean())),
            change_in_training=float(np.sqrt(np.square(self.task.increment_std).mean())),
        )

    def _sizes(self, rows: np.ndarray) -> np.ndarray:
        """Returns one error per example, free of units."""
        return np.sqrt(np.square(rows / self.std).mean(-1))

    def _named(self, rows: list[np.ndarray]) -> dict[str, float]:
        means = np.concatenate(rows).mean(0).tolist()
        return dict(zip(self.variables, means, strict=True))
