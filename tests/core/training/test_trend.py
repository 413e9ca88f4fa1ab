"""Where two frames or more are given, the last change goes on in part, and a model corrects that."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch

from gpo.data.gaps import fill_in_time
from gpo.evaluation.score import evaluate
from gpo.forecast.examples import TimeSliceExamples
from gpo.forecast.forecaster import Forecaster
from gpo.forecast.references import Trend
from gpo.training.config import RunConfig
from gpo.training.fit import train
from gpo.training.setup import new_forecaster, split_of
from tests.conftest import PlainModel
from tests.core.evaluation.fitted import inputs_of
from tests.core.training.series import decaying_waves

TINY = {"data": "waves", "hidden_dim": 8, "num_layers": 1, "num_gaussians": 2, "blend": False}


def series(*factors, num_times=60):
    """One trajectory of a variable for every factor, whose changes are multiplied by it every step."""
    data = decaying_waves(num_trajectories=1, num_times=num_times)
    x = np.arange(24) / 24
    sums = [np.cumsum(factor ** np.arange(num_times)) for factor in factors]
    values = np.stack([5 + np.outer(total, np.sin(2 * np.pi * x)) for total in sums], -1)
    return replace(data, fetch=lambda number, times: values[times])


class Silent(PlainModel):
    def forward(self, values, coords, *, weights=None):
        return 0 * values[..., -2:]


def forecaster_of(data, **settings):
    config = RunConfig.of(**TINY, **settings)
    return new_forecaster(data, split_of(data, config), config)


def last_window(data, forecaster):
    config = RunConfig.of(**TINY, history=forecaster.task.history)
    return TimeSliceExamples(data, split_of(data, config).test[-1:])[0]


@pytest.mark.parametrize("history", [2, 3])
def test_a_change_that_goes_on_in_part_is_predicted_without_a_model(history):
    data = series(0.9, 1.0)
    made = forecaster_of(data, history=history)
    assert made.task.trend == pytest.approx((0.9, 1.0))
    assert max(made.task.remainder) < 1e-3
    example = last_window(data, made)
    found = Forecaster(Silent(), made.task)(example.frames, example.coords)
    torch.testing.assert_close(found, example.target, rtol=1e-6, atol=1e-6)


def test_changes_that_swing_back_are_predicted_and_none_grows_beyond_itself():
    made = forecaster_of(series(-0.9, 1.1), history=2)
    assert made.task.trend == pytest.approx((-0.9, 1.0))
    assert made.task.remainder[0] < 1e-3
    assert forecaster_of(series(-1.1, 0.5), history=2).task.trend == pytest.approx((-1.0, 0.5))


def test_one_frame_has_no_trend_and_neither_has_a_predicted_state():
    data = series(0.9, 1.0)
    assert forecaster_of(data).task.trend == ()
    assert forecaster_of(data, history=2, predict="state").task.trend == ()
    assert forecaster_of(data, history=2, model="gpo-paper", phase="field").task.trend == ()


def test_trend_and_remainder_are_least_squares_over_training_data_alone():
    data = decaying_waves()
    split = split_of(data, RunConfig.of(**TINY, history=2, lead=2))
    made = Trend.fit(inputs_of(data, split.training, history=2, lead=2))
    pairs = []
    for window in split.training:
        before, last = (data.frames(window.sample)[n] for n in window.inputs)
        pairs.append((last - before, data.frames(window.sample)[window.target] - last))
    before, after = np.array(pairs).transpose(1, 0, 2, 3)
    trend = (before * after).sum((0, 1)) / (before**2).sum((0, 1))
    left = ((after - trend * before) ** 2).sum((0, 1)) / (after**2).sum((0, 1))
    assert (trend > 0).all()
    assert (trend < 1).all()
    np.testing.assert_allclose(made.factor, trend, rtol=1e-10)
    task = forecaster_of(data, history=2, lead=2).task
    np.testing.assert_allclose(task.remainder, np.sqrt(left), rtol=1e-8)
    held_out = {window.sample for window in (*split.validation, *split.test)}
    spoiled = replace(data, fetch=lambda n, t: data.fetch(n, t) + 1e6 * (n in held_out))
    assert forecaster_of(spoiled, history=2, lead=2).task == task


def test_a_gap_in_one_of_the_frames_is_no_change():
    data = series(0.9, 1.0)
    made = forecaster_of(data, history=2)
    frames = data.frames(0, slice(20, 22)).copy()
    frames[0, 5], frames[1, 7] = np.nan, np.nan
    filled = fill_in_time(frames)
    np.testing.assert_array_equal(filled[:, 5], np.stack([frames[1, 5]] * 2))
    np.testing.assert_array_equal(filled[:, 7], np.stack([frames[0, 7]] * 2))
    holed = replace(data, fetch=lambda n, t: np.concatenate([data.fetch(0, slice(0, 20)), frames, data.fetch(0, slice(22, 60))])[t])  # fmt: skip
    window = next(w for w in split_of(data, RunConfig.of(**TINY, history=2)).training if w.first == 20)  # fmt: skip
    example = TimeSliceExamples(holed, [window])[0]
    found = Forecaster(Silent(), made.task)(example.frames, example.coords)[0]
    np.testing.assert_allclose(found[5], frames[1, 5], rtol=1e-6)
    np.testing.assert_allclose(found[7], frames[0, 7], rtol=1e-6)
    assert example.weights[0, [5, 7]].tolist() == [0, 0]


def test_the_trend_goes_on_at_queries_as_at_sites():
    data = series(0.9, 1.0)
    made = forecaster_of(data, history=2)
    example = last_window(data, made)
    here = made(example.frames, example.coords)
    there = made(example.frames, example.coords, queries=example.coords)
    torch.testing.assert_close(there, here, rtol=1e-5, atol=1e-5)


def test_a_forecaster_keeps_its_trend(tmp_path):
    data = decaying_waves()
    made = forecaster_of(data, history=2)
    made.save(tmp_path)
    loaded, example = Forecaster.load(tmp_path), last_window(data, made)
    assert loaded.task == made.task
    found, expected = (one(example.frames, example.coords) for one in (loaded, made))
    assert torch.equal(found, expected)


def test_runs_from_before_trends_are_read_without_one(tmp_path):
    made = forecaster_of(decaying_waves())
    made.save(tmp_path)
    path = tmp_path / "task.json"
    stored = json.loads(path.read_text())
    del stored["trend"], stored["remainder"], stored["content_sha256"]
    path.write_text(json.dumps(stored))
    assert Forecaster.load(tmp_path).task == made.task


def test_noise_is_no_larger_than_what_is_predicted(tmp_path, monkeypatch):
    sizes, data = [], series(0.9, 1.0)
    monkeypatch.setattr("gpo.training.module.draw_noise", lambda _, size, **__: sizes.append(size))
    config = RunConfig.of(**TINY, history=2, noise=0.05, epochs=1)
    made = train(data, config, tmp_path, is_quiet=True)
    expected = torch.tensor(made.task.increment_std) * torch.tensor(made.task.remainder)
    torch.testing.assert_close(sizes[0], expected, rtol=1e-5, atol=0)
    assert sizes[0].max() < 0.05


def test_the_trend_alone_is_a_reference_of_every_score(tmp_path):
    data = series(0.9, 1.0)
    config = RunConfig.of(**TINY, history=2)
    silent = Forecaster(Silent(), forecaster_of(data, history=2).task)
    scores = evaluate(silent, data, split_of(data, config)).one_step
    assert scores["trend"]["rmse"] == pytest.approx(scores["model"]["rmse"], abs=1e-5)
    assert scores["trend"]["rmse"] < 1e-3 * scores["persistence"]["rmse"]
    silent = Forecaster(Silent(), forecaster_of(data).task)
    assert "trend" not in evaluate(silent, data, split_of(data, RunConfig.of(**TINY))).one_step
    rollout = evaluate(Forecaster(Silent(), forecaster_of(data, history=2).task), data, split_of(data, config)).rollout  # fmt: skip
    assert rollout["trend"] == pytest.approx(rollout["model"], rel=1e-4, abs=1e-5)
