import csv

import numpy as np
import pytest
import torch

from gpo import relative_l2
from gpo.data.splits import split_time_slices
from gpo.evaluation.results import Results
from gpo.evaluation.score import evaluate
from gpo.forecast.forecaster import Forecaster, Task
from gpo.forecast.rollout import rollout
from tests.conftest import PlainModel
from tests.core.data.files import pair
from tests.core.training.series import decaying_waves, equal_squares

NONE, ONE = (0.0, 0.0), (1.0, 1.0)
TASK = Task(("a", "b"), ("a", "b"), ("", ""), 1, 1, "state", NONE, ONE, NONE, ONE, ONE)


class Times(PlainModel):
    """Multiplies the field by a number."""

    def __init__(self, factor):
        super().__init__()
        self.factor = factor

    def forward(self, values, coords, *, weights=None):
        return self.factor * values


def test_a_rollout_is_applied_to_its_own_forecasts():
    frames = torch.ones(1, 1, 3, 2)
    steps = rollout(Forecaster(Times(2.0), TASK), frames, torch.zeros(3, 1), 4)
    assert steps[0, :, 0, 0].tolist() == [2, 4, 8, 16]


def test_a_rollout_that_diverges_is_nan_from_there_on():
    frames = torch.full((1, 1, 3, 2), 1e30)
    steps = rollout(Forecaster(Times(1e6), TASK), frames, torch.zeros(3, 1), 4)
    assert steps[0, 0].isfinite().all()
    assert steps[0, 2:].isnan().all()


def test_scores_are_the_named_errors_over_all_test_examples():
    data = decaying_waves()
    split = split_time_slices(data)
    results = evaluate(Forecaster(Times(0.9), TASK), data, split, batch_size=3)
    expected = []
    for part in split.test:
        last, target = (torch.from_numpy(data.frames(part.sample)[n]).float()[None] for n in (part.last, part.target))  # fmt: skip
        expected.append(relative_l2(0.9 * last, target).item())
    assert results.one_step["model"]["relative_l2"] == pytest.approx(np.mean(expected), rel=1e-5)
    assert results.num_examples == len(split.test)


def test_persistence_is_scored_as_the_last_frame():
    data = decaying_waves()
    results = evaluate(Forecaster(Times(1.0), TASK), data, split_time_slices(data))
    # The input of the model is rounded to single precision; persistence is not.
    expected = pytest.approx(results.one_step["persistence"], rel=1e-6)
    assert results.one_step["model"] == expected
    assert results.rollout["model"] == pytest.approx(results.rollout["persistence"])


def test_a_rollout_stays_within_the_test_split():
    by_trajectory = decaying_waves(num_trajectories=8, num_times=10)
    results = evaluate(
        Forecaster(Times(1.0), TASK), by_trajectory, split_time_slices(by_trajectory)
    )
    assert len(results.rollout["model"]) == 9
    by_time = decaying_waves(num_trajectories=1, num_times=100)
    results = evaluate(Forecaster(Times(1.0), TASK), by_time, split_time_slices(by_time))
    assert len(results.rollout["model"]) == 4


def test_missing_values_do_not_count():
    whole, holed = decaying_waves(), decaying_waves(missing=[2, 5])
    split = split_time_slices(whole)
    first, second = (evaluate(Forecaster(Times(0.9), TASK), data, split) for data in (whole, holed))  # fmt: skip
    assert np.isfinite(list(second.one_step["model"].values())).all()
    assert np.isfinite(second.rollout["model"]).all()
    assert first.one_step["model"]["relative_l2"] != second.one_step["model"]["relative_l2"]


def test_results_round_trip(tmp_path):
    data = decaying_waves()
    results = evaluate(Forecaster(Times(0.9), TASK), data, split_time_slices(data))
    results.save(tmp_path)
    assert Results.load(tmp_path / "results.json") == results
    rows = list(csv.DictReader((tmp_path / "results.csv").read_text().splitlines()))
    values = [row["value"] for row in rows if (row["part"], row["who"], row["what"]) == ("rollout", "model", "3")]  # fmt: skip
    assert float(values[0]) == results.rollout["model"][2]
    energies = [row for row in rows if row["part"] == "spectrum of a" and row["who"] == "truth"]
    assert len(energies) == len(results.spectrum["a"]["wavenumbers"])
    (tmp_path / "results.json").write_text("{}")
    with pytest.raises(ValueError, match=r"results.json: must be results that gpo evaluate wrote"):
        Results.load(tmp_path / "results.json")


def test_the_reference_of_static_maps_is_the_training_mean_site_by_site():
    data = equal_squares()
    split = split_time_slices(data)
    task = Task(("a",), ("s",), ("",), 1, 0, "state", (0.0,), (1.0,), (0.0,), (1.0,), (1.0,))
    results = evaluate(Forecaster(Times(1.0), task), data, split)
    mean = np.mean([pair(data, number.sample)[1] for number in split.training], axis=0)
    expected = [np.linalg.norm(mean - u) / np.linalg.norm(u) for u in (pair(data, n.sample)[1] for n in split.test)]  # fmt: skip
    assert results.one_step["training mean"]["relative_l2"] == pytest.approx(np.mean(expected), rel=1e-5)  # fmt: skip


def test_a_rollout_has_diverged_where_its_error_leaves_the_bounds():
    data = decaying_waves()
    # Each step multiplies by thirty: the error exceeds the bound at once.
    results = evaluate(Forecaster(Times(30.0), TASK), data, split_time_slices(data))
    assert results.diverged_at == [1] * results.num_rollouts
    calm = evaluate(Forecaster(Times(0.9), TASK), data, split_time_slices(data))
    assert calm.diverged_at == []


def test_errors_after_a_rollout_is_not_finite_are_none():
    data = decaying_waves(num_times=12)
    results = evaluate(Forecaster(Times(1e12), TASK), data, split_time_slices(data))
    assert results.rollout["model"][0] is not None
    assert results.rollout["model"][-1] is None
    assert len(results.diverged_at) == results.num_rollouts
