"""Errors of a model and of reference forecasts over the examples of a split."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from gpo.data.dataset import DataError, FieldData
from gpo.evaluation.diagnosis import SplitDiagnostics
from gpo.evaluation.registry import METRICS
from gpo.evaluation.verdict import Comparison, compare, series_of
from gpo.forecast.blend import MODEL
from gpo.forecast.examples import Example, TimeSliceExamples, collate
from gpo.forecast.forecaster import Forecaster
from gpo.forecast.references import AbstractReference
from gpo.forecast.task import Task
from gpo.numerics.norms import anomaly_scores, channel_errors, normalised_weights

MAX_SPECTRA = 128
"""Maximum number of one-step predictions whose spectra are averaged."""
MAX_KEPT_VALUES = 2**26
"""Maximum number of values of these predictions in memory; the first prediction is always kept."""
BLEND = "blend"
"""Name of the forecast that is written: the combination of the model and references."""
OWN = (MODEL, BLEND)
"""Forecasts that are compared with references."""
MAX_SITES = 2**18
"""Maximum number of sites, over all examples, that are predicted at a time."""


def accumulate_scores(
    forecaster: Forecaster,
    data: FieldData,
    samples: Sequence[Any],
    references: Mapping[str, AbstractReference],
    batch_size: int,
    track: Callable[[Sequence[int]], Iterable[int]],
) -> "ScoreAccumulator":
    """Returns the errors of the model and its references over all samples that have values.

    Args:
        forecaster: The trained model.
        data: The data set.
        samples: Time slices, or numbers of static maps.
        references: Reference forecasts by name.
        batch_size: Maximum number of examples per batch.
        track: Shows progress over the batches.
    """
    scores = ScoreAccumulator(forecaster.task)
    reconstructs = forecaster.task.lead == 0
    examples = TimeSliceExamples(data, samples, reconstructs=reconstructs)
    batch_size = max(1, min(batch_size, MAX_SITES // data.geometry().num_points))
    for start in track(range(0, len(samples), batch_size)):
        numbers = range(start, min(start + batch_size, len(samples)))
        pairs = [(examples[number], samples[number]) for number in numbers]
        pairs = [pair for pair in pairs if bool(pair[0].weights.any())]
        if not pairs:
            continue
        batch, scored = collate([example for example, _ in pairs]), [pair[1] for pair in pairs]
        scores.samples += scored
        options = {"weights": batch.site_weights, "seasons": batch.seasons}
        predictions = {MODEL: forecaster.alone(batch.frames, batch.coords, **options)}
        contribution = forecaster.contribution(batch.frames, batch.coords, **options)
        if contribution is not None:
            predictions[BLEND] = contribution.added_to(predictions[MODEL])
        predictions |= {
            name: reference(batch.frames, batch.coords, **options)
            for name, reference in references.items()
        }
        usual = predictions.get("climatology", forecaster.output_mean)
        for name, prediction in predictions.items():
            scores.add(name, prediction, batch, usual)
    return scores


@dataclass
class ScoreAccumulator:
    """Errors of all examples of a split, and some of the fields for their spectra.

    Dictionaries have an entry for each forecast: `"model"`, `"blend"` where there is one, and the name
    of each reference.
    """

    task: Task
    samples: list[Any] = field(default_factory=list)
    """Time slices or map numbers that were scored."""
    sums: dict[str, dict[str, float]] = field(default_factory=dict)
    """Sum of each metric over the examples."""
    rmse_rows: dict[str, list[np.ndarray]] = field(default_factory=dict)
    """Root mean square errors, examples by variables, for each batch."""
    relative_rows: dict[str, list[np.ndarray]] = field(default_factory=dict)
    """Relative L2 errors, examples by variables, for each batch."""
    bias_rows: dict[str, list[np.ndarray]] = field(default_factory=dict)
    """Mean errors, examples by variables, for each batch."""
    correlation_rows: dict[str, list[np.ndarray]] = field(default_factory=dict)
    """Anomaly correlations, examples by variables, for each batch."""
    moments: list[np.ndarray] = field(default_factory=list)
    """Mean and root mean square of the truth, two by examples by variables, for each batch."""
    fields: list[tuple[np.ndarray, np.ndarray]] = field(default_factory=list)
    """Truth and prediction of the first examples, points by variables."""

    @property
    def written(self) -> str:
        """Name of the forecast that is written."""
        return BLEND if self.task.blend.has_references else MODEL

    @property
    def variables(self) -> tuple[str, ...]:
        """Names of the predicted variables."""
        return self.task.outputs

    @property
    def std(self) -> np.ndarray:
        """Standard deviation of each variable in the training data."""
        return np.array(self.task.output_std)

    def add(
        self, forecast: str, prediction: Tensor, batch: Example, usual: Tensor | None = None
    ) -> None:
        """Adds the errors of a forecast on a batch.

        Args:
            forecast: Name of the forecast.
            prediction: The predicted targets.
            batch: The examples.
            usual: What anomalies differ from: the climatology, or the mean of training (None: zero).
        """
        sums = self.sums.setdefault(forecast, dict.fromkeys(METRICS, 0.0))
        for name, metric in METRICS.items():
            errors = metric(prediction, batch.target, batch.weights)
            sums[name] += len(batch.target) * errors.item()
        errors = channel_errors(prediction, batch.target, batch.weights)
        self.rmse_rows.setdefault(forecast, []).append(errors.numpy())
        bias, correlation = anomaly_scores(prediction, batch.target, batch.weights, usual)
        self.bias_rows.setdefault(forecast, []).append(bias.numpy())
        self.correlation_rows.setdefault(forecast, []).append(correlation.numpy())
        norms = channel_errors(torch.zeros_like(batch.target), batch.target, batch.weights)
        relative = torch.where(errors > 0, errors / norms, 0.0)
        self.relative_rows.setdefault(forecast, []).append(relative.numpy())
        if forecast == self.written:
            weights = normalised_weights(batch.weights, batch.target)[..., None]
            active = torch.where(weights > 0, batch.target, 0.0)
            self.moments.append(torch.stack([(weights * active).sum(1), norms]).numpy())
            pairs = zip(batch.target.numpy(), prediction.numpy(), strict=True)
            num_kept = min(MAX_SPECTRA, max(1, MAX_KEPT_VALUES // (2 * batch.target[0].numel())))
            self.fields += list(pairs)[: num_kept - len(self.fields)]

    @property
    def num_nonfinite(self) -> int:
        """Number of examples whose prediction is not finite."""
        return int((~np.isfinite(np.concatenate(self.rmse_rows[self.written]))).any(-1).sum())

    def check_references(self, source: Path) -> None:
        """Raises a `DataError` where the error of a reference is not finite.

        Only RMSE is checked: relative metrics may be infinite where a field is zero or constant.
        """
        for name, sums in self.sums.items():
            if name not in OWN and not np.isfinite(sums["rmse"]):
                problem = f"are too large or too small: the scores of {name} are not finite. Change"
                raise DataError(source, "values", f"{problem} the units of the data.")

    def mean_errors(self) -> dict[str, dict[str, float]]:
        """Returns the mean of each metric over the examples; `rmse_over_std` is that of the verdict."""
        count, scaled = len(self.samples), self._scaled_errors()
        return {
            forecast: {
                "rmse_over_std": float(scaled[forecast].mean()),
                **{metric: total / count for metric, total in sums.items()},
            }
            for forecast, sums in self.sums.items()
        }

    def relative_l2(self) -> dict[str, dict[str, float]]:
        """Returns the mean relative L2 error of each variable."""
        return {forecast: self._means(rows) for forecast, rows in self.relative_rows.items()}

    def scores(self) -> dict[str, dict[str, dict[str, float]]]:
        """Returns errors and skill, by variable and forecast."""
        rmse = {forecast: self._means(rows) for forecast, rows in self.rmse_rows.items()}
        relative = self.relative_l2()
        bias = {forecast: self._means(rows) for forecast, rows in self.bias_rows.items()}
        correlation = {name: self._means(rows) for name, rows in self.correlation_rows.items()}
        scores: dict[str, dict[str, dict[str, float]]] = {}
        for name, std in zip(self.variables, self.std.tolist(), strict=True):
            scores[name] = {
                forecast: {
                    "relative_l2": relative[forecast][name],
                    "rmse": rmse[forecast][name],
                    "rmse_over_std": rmse[forecast][name] / std,
                    "bias": bias[forecast][name],
                    "anomaly_correlation": correlation[forecast][name],
                }
                for forecast in rmse
            }
            for forecast in rmse:
                for own in OWN:
                    if own in rmse and forecast not in OWN and rmse[forecast][name] > 0:
                        skill = 1 - rmse[own][name] / rmse[forecast][name]
                        scores[name][own][f"skill_{forecast}"] = skill
        return scores

    def comparisons(self, own: str = "") -> dict[str, Comparison]:
        """Returns the comparison with each reference; empty where a prediction is not finite.

        Args:
            own: `"model"` for the model alone; by default the forecast that is written is compared.
        """
        return self._compared(self._scaled_errors(), own)

    def comparisons_by_variable(self) -> dict[str, dict[str, Comparison]]:
        """Returns the comparisons of each variable alone; empty for a single variable."""
        if len(self.variables) == 1:
            return {}
        rows = {forecast: np.concatenate(rows) for forecast, rows in self.rmse_rows.items()}
        return {
            name: self._compared({forecast: errors[:, n] for forecast, errors in rows.items()})
            for n, name in enumerate(self.variables)
        }

    def _scaled_errors(self) -> dict[str, np.ndarray]:
        """Returns the error of each example in standard deviations, over all variables."""
        return {
            forecast: np.sqrt(np.square(np.concatenate(rows) / self.std).mean(-1))
            for forecast, rows in self.rmse_rows.items()
        }

    def _compared(self, errors: dict[str, np.ndarray], own: str = "") -> dict[str, Comparison]:
        compared, series = errors[own or self.written], series_of(self.samples)
        if self.num_nonfinite or not np.isfinite(compared).all():
            return {}
        references = {name: rows for name, rows in errors.items() if name not in OWN}
        return {name: compare(compared, rows, series) for name, rows in references.items()}

    def diagnostics(self) -> SplitDiagnostics:
        """Returns statistics that may explain how the model compares with its references."""
        common = {"comparisons": self.comparisons(), "num_examples": len(self.samples)}
        if "persistence" not in self.rmse_rows:
            return SplitDiagnostics(**common)
        means, norms = np.concatenate(self.moments, 1)
        mean = means.mean(0)
        spread = np.sqrt(np.maximum(np.square(norms).mean(0) - mean**2, 0)) / self.std
        shift = (mean - np.array(self.task.output_mean)) / self.std
        changes = np.concatenate(self.rmse_rows["persistence"]) / self.std
        return SplitDiagnostics(
            **common,
            mean_shift=dict(zip(self.variables, shift.tolist(), strict=True)),
            spread=dict(zip(self.variables, spread.tolist(), strict=True)),
            change=float(np.sqrt(np.square(changes).mean())),
            change_in_training=float(np.sqrt(np.square(self.task.increment_std).mean())),
        )

    def _means(self, rows: list[np.ndarray]) -> dict[str, float]:
        """Returns the mean over all examples, by variable."""
        means = np.concatenate(rows).mean(0).tolist()
        return dict(zip(self.variables, means, strict=True))
