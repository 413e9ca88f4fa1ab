"""Scores of a trained run on its test split, beside persistence; written as `results.json`."""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader

from gpo.data.split import Split, Window
from gpo.data.trajectories import Pairs, Trajectories
from gpo.evaluate.rollout import roll_out
from gpo.files import write_text
from gpo.numerics.norms import linf, nrmse, relative_l2, rmse, vrmse
from gpo.train.examples import Example, collate, make_examples
from gpo.train.forecaster import Forecaster

METRICS = {norm.__name__: norm for norm in (relative_l2, rmse, nrmse, vrmse, linf)}

MAX_ROLLOUTS = 32


@dataclass(frozen=True)
class Results:
    """All numbers of an evaluation; enough to draw every figure again."""

    num_examples: int
    """Test windows scored."""
    one_step: dict[str, dict[str, float]]
    """Errors by name, of the model and of a reference, after inverse normalisation. The
    reference is persistence, or for static maps the mean output of the training split."""
    per_variable: dict[str, dict[str, float]]
    """Relative L2 of every variable alone, likewise."""
    rollout: dict[str, list[float]]
    """Relative L2 after every step, likewise; empty for static maps."""

    def save(self, path: Path) -> None:
        """Writes the numbers as JSON."""
        write_text(path, json.dumps(asdict(self), indent=2) + "\n")

    @classmethod
    def load(cls, path: Path) -> "Results":
        """Returns what `save` wrote."""
        return cls(**json.loads(path.read_text(encoding="utf-8")))


@torch.no_grad()
def evaluate(
    forecaster: Forecaster,
    data: Trajectories | Pairs,
    split: Split[Any],
    *,
    num_steps: int = 20,
    batch_size: int = 8,
) -> Results:
    """Returns errors over the whole test split, and the error of rollouts of a time series.

    Args:
        forecaster: The trained model.
        data: The data set.
        split: Its splits; of training data only the mean is used, as a reference.
        num_steps: How far to roll out, where the test data reaches that far.
        batch_size: Examples at a time; no influence on the numbers.
    """
    forecaster.eval()
    contenders: dict[str, Callable[[Example], Tensor]] = {
        "model": lambda batch: forecaster(batch.frames, batch.coords, weights=batch.weights)
    }
    if isinstance(data, Pairs):
        mean = _training_mean(forecaster, data, split.training)
        contenders["training mean"] = lambda batch: mean.expand_as(batch.target)
    else:
        contenders["persistence"] = lambda batch: batch.frames[:, -1]
    names = forecaster.task.outputs
    sums = {who: dict.fromkeys(METRICS, 0.0) for who in contenders}
    by_variable = {who: dict.fromkeys(names, 0.0) for who in contenders}
    examples = make_examples(data, split.test)
    for batch in DataLoader(examples, batch_size, collate_fn=collate):
        share = len(batch.target) / len(split.test)
        for who, predict in contenders.items():
            prediction = predict(batch)
            for metric, norm in METRICS.items():
                score = norm(prediction, batch.target, batch.weights).item()
                sums[who][metric] += share * score
            for channel, name in enumerate(names):
                part = slice(channel, channel + 1)
                pair = prediction[..., part], batch.target[..., part]
                by_variable[who][name] += share * relative_l2(*pair, batch.weights).item()
    rollout = {}
    if isinstance(data, Trajectories):
        rollout = _rollout_errors(forecaster, data, split.test, num_steps)
    return Results(len(split.test), sums, by_variable, rollout)


def _training_mean(forecaster: Forecaster, data: Pairs, numbers: Sequence[int]) -> Tensor:
    """Returns the mean output site by site, or one number where samples differ in their sites."""
    counts = {data.geometry(number).num_points for number in range(data.num_samples)}
    if len(counts) > 1:
        return forecaster.output_mean
    outputs = np.stack([data.sample(number)[1] for number in numbers])
    known = np.isfinite(outputs)
    mean = np.where(known, outputs, 0).sum(0) / np.maximum(known.sum(0), 1)
    return torch.from_numpy(mean.astype(np.float32))


def _rollout_errors(
    forecaster: Forecaster, data: Trajectories, windows: tuple[Window, ...], num_steps: int
) -> dict[str, list[float]]:
    """Returns the mean error after every step, over rollouts that all stay in the test split."""
    lead = forecaster.task.lead
    end = {number: max(w.target for w in windows if w.trajectory == number)
           for number in {window.trajectory for window in windows}}  # fmt: skip
    reach = max((end[window.trajectory] - window.last) // lead for window in windows)
    # A series split by time is short: half its length, so that there are several starts.
    num_steps = min(num_steps, reach if data.num_trajectories > 2 else max(1, reach // 2))
    starts = [w for w in windows if w.last + num_steps * lead <= end[w.trajectory]]
    chosen = np.unique(np.linspace(0, len(starts) - 1, MAX_ROLLOUTS).round().astype(int)).tolist()
    errors: dict[str, list[list[float]]] = {"model": [], "persistence": []}
    for window in (starts[number] for number in chosen):
        geometry = data.geometry(window.trajectory)
        stop = window.last + num_steps * lead + 1
        frames = data.frames(window.trajectory, slice(window.first, stop, lead))
        given, truth = np.split(frames.astype(np.float32), [forecaster.task.history])
        is_known = np.asarray(np.isfinite(frames).all((0, 2)))
        weights = torch.from_numpy(np.where(is_known, geometry.weights, 0).astype(np.float32))
        coords = torch.from_numpy(geometry.coords.astype(np.float32))
        start = torch.from_numpy(np.where(is_known[:, None], given, 0))[None]
        forecast = roll_out(forecaster, start, coords, num_steps, weights=weights)[0]
        guesses = {"model": forecast, "persistence": start[0, -1].expand_as(forecast)}
        for who, guess in guesses.items():
            errors[who].append(
                [
                    relative_l2(g[None], u[None], weights[None]).item()
                    for g, u in zip(guess, torch.from_numpy(truth), strict=True)
                ]
            )
    return {who: np.mean(rows, axis=0).tolist() for who, rows in errors.items()}
