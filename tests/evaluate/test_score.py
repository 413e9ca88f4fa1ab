import numpy as np
import pytest
import torch

from gpo import relative_l2
from gpo.data.split import split_windows
from gpo.evaluate.rollout import roll_out
from gpo.evaluate.score import Results, evaluate
from gpo.train.forecaster import Forecaster, Task
from tests.train.series import decaying_waves

TASK = Task(("a", "b"), ("", ""), 1, 1, "state", (0.0, 0.0), (1.0, 1.0), (1.0, 1.0))


class Times(torch.nn.Module):
    """Multiplies the field by a number."""

    def __init__(self, factor):
        super().__init__()
        self.factor = factor

    def forward(self, values, coords, *, weights=None):
        return self.factor * values


def test_a_rollout_feeds_on_itself():
    frames = torch.ones(1, 1, 3, 2)
    steps = roll_out(Forecaster(Times(2.0), TASK), frames, torch.zeros(3, 1), 4)
    assert steps[0, :, 0, 0].tolist() == [2, 4, 8, 16]


def test_a_rollout_that_diverges_is_nan_from_there_on():
    frames = torch.full((1, 1, 3, 2), 1e30)
    steps = roll_out(Forecaster(Times(1e6), TASK), frames, torch.zeros(3, 1), 4)
    assert steps[0, 0].isfinite().all()
    assert steps[0, 2:].isnan().all()


def test_scores_are_those_of_the_named_errors_over_all_test_windows():
    data = decaying_waves()
    windows = split_windows(data).test
    results = evaluate(Forecaster(Times(0.9), TASK), data, windows, batch_size=3)
    expected = []
    for window in windows:
        last, target = (torch.from_numpy(data.frames(window.trajectory)[n]).float()[None] for n in (window.last, window.target))  # fmt: skip
        expected.append(relative_l2(0.9 * last, target).item())
    assert results.one_step["model"]["relative_l2"] == pytest.approx(np.mean(expected), rel=1e-5)
    assert results.num_examples == len(windows)


def test_persistence_is_scored_as_the_last_frame():
    data = decaying_waves()
    results = evaluate(Forecaster(Times(1.0), TASK), data, split_windows(data).test)
    assert results.one_step["model"] == results.one_step["persistence"]
    assert results.rollout["model"] == pytest.approx(results.rollout["persistence"])


def test_a_rollout_stays_within_the_test_split():
    by_trajectory = decaying_waves(num_trajectories=8, num_times=10)
    results = evaluate(
        Forecaster(Times(1.0), TASK), by_trajectory, split_windows(by_trajectory).test
    )
    assert len(results.rollout["model"]) == 9
    by_time = decaying_waves(num_trajectories=1, num_times=100)
    results = evaluate(Forecaster(Times(1.0), TASK), by_time, split_windows(by_time).test)
    assert len(results.rollout["model"]) == 4


def test_missing_values_do_not_count():
    whole, holed = decaying_waves(), decaying_waves(missing=[2, 5])
    windows = split_windows(whole).test
    first, second = (evaluate(Forecaster(Times(0.9), TASK), data, windows) for data in (whole, holed))  # fmt: skip
    assert np.isfinite(list(second.one_step["model"].values())).all()
    assert np.isfinite(second.rollout["model"]).all()
    assert first.one_step["model"]["relative_l2"] != second.one_step["model"]["relative_l2"]


def test_results_round_trip(tmp_path):
    data = decaying_waves()
    results = evaluate(Forecaster(Times(0.9), TASK), data, split_windows(data).test)
    results.save(tmp_path / "results.json")
    assert Results.load(tmp_path / "results.json") == results
