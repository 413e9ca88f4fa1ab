"""The verdict on a run, and the intervals on which it rests."""

import itertools
import json
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch

from gpo.data.splits import Split, TimeSlice, split_time_slices
from gpo.evaluation.results import Results
from gpo.evaluation.score import evaluate
from gpo.evaluation.verdict import Comparison, _blocks, compare, last_good_step, series_of, verdict
from gpo.forecast.forecaster import Forecaster, Task
from tests.conftest import PlainModel
from tests.core.evaluation.test_score import TASK, Times
from tests.core.training.series import decaying_waves, equal_squares

ONE_SERIES = [np.arange(200)]


def correlated(generator, count, memory):
    """Autocorrelated positive numbers around one."""
    values = np.zeros(count)
    for number in range(1, count):
        values[number] = memory * values[number - 1] + generator.normal()
    return 1 + 0.1 * values * np.sqrt(1 - memory**2)


@pytest.mark.thorough
def test_the_interval_of_independent_examples_has_its_nominal_coverage():
    generator, hits = np.random.default_rng(0), 0
    each = [np.array([number]) for number in range(60)]
    for seed in range(200):
        model, reference = 0.8 * generator.lognormal(size=60), generator.lognormal(size=60)
        low, high = compare(model, reference, each, seed).interval
        hits += low <= 0.8 <= high
    # 95 % of 200 with a standard deviation of 3; a percentile bootstrap of 60 covers slightly less.
    assert 176 <= hits <= 199


@pytest.mark.thorough
def test_the_interval_of_a_correlated_series_has_nearly_its_nominal_coverage():
    generator, hits = np.random.default_rng(0), 0
    for seed in range(100):
        model = correlated(generator, 200, 0.8)
        low, high = compare(model, np.ones(200), ONE_SERIES, seed).interval
        hits += low <= 1 <= high
    # If examples were drawn one by one, the coverage would be one half.
    assert 85 <= hits <= 99


def test_correlated_examples_widen_the_interval():
    model, reference = correlated(np.random.default_rng(1), 200, 0.95), np.ones(200)
    low, high = compare(model, reference, ONE_SERIES).interval
    each = [np.array([number]) for number in range(200)]
    alone_low, alone_high = compare(model, reference, each).interval
    assert high - low > 2.5 * (alone_high - alone_low)


def test_the_interval_contains_the_ratio_where_errors_are_at_the_ends_of_series():
    """Blocks that end with their series would draw its ends less often than its middle."""
    lengths = 40, 40, 3
    starts = np.cumsum([0, *lengths])
    series = [np.arange(*ends) for ends in itertools.pairwise(starts)]
    time = np.concatenate([np.linspace(-1, 1, length) for length in lengths])
    comparison = compare(0.01 + time**20, np.ones(len(time)), series)
    low, high = comparison.interval
    assert low < comparison.ratio < high
    drawn = np.bincount(np.concatenate(_blocks(series, 7)))
    assert set(drawn) == {7}


def test_the_same_errors_give_the_same_interval():
    generator = np.random.default_rng(2)
    model, reference = generator.random(50), generator.random(50)
    series = [np.arange(50)]
    assert compare(model, reference, series) == compare(model, reference, series)


def test_equal_errors_are_tied_and_a_reference_without_error_cannot_be_beaten():
    errors = np.random.default_rng(3).random(20)
    tied = compare(errors, errors, [np.arange(20)])
    assert (tied.ratio, tied.interval, tied.outcome) == (1.0, (1.0, 1.0), "tied")
    perfect = compare(errors, np.zeros(20), [np.arange(20)])
    assert perfect.outcome == "worse"
    text = verdict({"persistence": perfect}, 20)
    assert (
        text == "Worse than persistence, which has no error, over 20 test examples in RMSE / std."
    )


def test_three_examples_are_too_few_for_an_interval():
    comparison = compare(np.full(3, 0.1), np.ones(3), [np.arange(3)])
    assert comparison.interval is None
    assert verdict({"persistence": comparison}, 3) == (
        "3 test examples are too few for a verdict (error ratio 0.1 to persistence)."
    )


def test_examples_of_a_trajectory_are_a_series_and_maps_are_independent():
    time_slices = [TimeSlice(0, 0, 0, 1), TimeSlice(4, 0, 0, 1), TimeSlice(0, 1, 1, 2)]
    assert [numbers.tolist() for numbers in series_of(time_slices)] == [[0, 2], [1]]
    maps = [TimeSlice(7, 0, 0, 0), TimeSlice(8, 0, 0, 0)]
    assert [numbers.tolist() for numbers in series_of(maps)] == [[0], [1]]


def test_the_last_good_step_is_the_last_one_not_worse_than_the_reference():
    reference = np.ones((2, 5))
    assert last_good_step(np.array([[0.5, 2.0, 0.5, 2.0, 2.0]] * 2), reference) == 3
    assert last_good_step(np.full((2, 5), 0.5), reference) is None
    assert last_good_step(np.full((2, 5), 1.5), reference) == 0
    assert last_good_step(np.array([[0.5, 0.5, 0.5, np.nan, np.nan]] * 2), reference) == 3


def test_a_verdict_names_each_reference_and_the_step_after_which_rollouts_are_worse():
    comparisons = {
        "persistence": Comparison(0.5, (0.4, 0.625)),
        "trend": Comparison(3.0, (2.0, 5.0)),
        "climatology": Comparison(1.0, (0.9, 1.1)),
    }
    assert verdict(comparisons, 40, losses={"climatology": 7}, num_steps=20) == (
        "Better than persistence (error 2 times smaller, 95% interval 1.6 to 2.5), worse than trend "
        "(error 3 times larger, 95% interval 2 to 5) and tied with climatology (error ratio 1, 95% "
        "interval 0.9 to 1.1), over 40 test examples in RMSE / std; in rollouts, worse than "
        "climatology after step 7 of 20."
    )
    assert "worse than climatology at each step." in verdict(comparisons, 9, losses={"climatology": 0}, num_steps=20)  # fmt: skip


def test_a_verdict_names_variables_whose_outcome_is_another():
    better, worse, tied = (
        Comparison(ratio, interval)
        for ratio, interval in ((0.5, (0.4, 0.6)), (1.16, (1.1, 1.2)), (1.0, (0.9, 1.1)))
    )
    by_variable = {"t2m": {"trend": better}, "wind": {"trend": worse}, "msl": {"trend": tied}}
    text = verdict({"trend": better}, 9, by_variable=by_variable)
    assert text.endswith("RMSE / std; but wind is worse than trend (error 1.16 times larger).")
    many = {f"v{n}": {"trend": Comparison(2.0 + n, (1.5, 9.0))} for n in range(5)}
    assert "but v4 is worse" in verdict({"trend": tied}, 9, by_variable=many)
    assert "and 2 more differ." in verdict({"trend": tied}, 9, by_variable=many)


def test_the_measure_of_the_verdict_is_a_score_of_every_forecast():
    data = decaying_waves(num_times=40)
    results = evaluate(
        Forecaster(Times(0.9), TASK), data, split_time_slices(data), scope="one-step"
    )
    scores = {name: errors["rmse_over_std"] for name, errors in results.one_step.items()}
    for name, comparison in results.comparisons.items():
        assert scores["model"] / scores[name] == pytest.approx(comparison["ratio"])


def test_one_example_is_too_few_for_a_verdict():
    data = decaying_waves()
    split = split_time_slices(data)
    single = Split(split.training, split.validation, split.test[:1], split.kind)
    results = evaluate(Forecaster(Times(0.9), TASK), data, single, scope="one-step")
    assert results.verdict.startswith("1 test example is too few for a verdict (error ratio ")
    assert results.comparisons["persistence"]["outcome"] == "unproven"


def test_persistence_itself_is_tied_with_persistence():
    data = decaying_waves(num_times=40)
    results = evaluate(Forecaster(Times(1.0), TASK), data, split_time_slices(data))
    entry = results.comparisons["persistence"]
    # The input of the model is rounded to single precision; persistence is not.
    assert [entry["ratio"], *entry["interval"]] == pytest.approx([1.0, 1.0, 1.0], rel=1e-5)
    assert entry["outcome"] == "tied"
    assert "ied with persistence (error ratio 1," in results.verdict


def test_a_verdict_does_not_depend_on_units():
    evaluations = []
    for factor in (1.0, 1000.0):
        data = decaying_waves()
        scale = np.array([factor, 1.0])
        scaled = replace(data, fetch=lambda n, times, d=data, s=scale: d.fetch(n, times) * s)
        std = (2 * factor, 0.05)
        task = replace(TASK, input_std=std, output_std=std)
        split = split_time_slices(scaled)
        evaluations.append(evaluate(Forecaster(Times(0.95), task), scaled, split, scope="one-step"))
    first, second = evaluations
    near = partial(pytest.approx, rel=1e-4)
    assert first.comparisons["persistence"]["ratio"] == near(second.comparisons["persistence"]["ratio"])  # fmt: skip
    before, after = (results.variables["a"]["model"] for results in evaluations)
    assert after["rmse_over_std"] == near(before["rmse_over_std"])
    assert after["rmse"] == near(1000 * before["rmse"])


def test_skill_is_one_minus_the_ratio_of_errors():
    data = decaying_waves()
    results = evaluate(Forecaster(Times(0.99), TASK), data, split_time_slices(data), scope="one-step")  # fmt: skip
    for scores in results.variables.values():
        ratio = scores["model"]["rmse"] / scores["persistence"]["rmse"]
        assert scores["model"]["skill_persistence"] == pytest.approx(1 - ratio)


class NotFinite(PlainModel):
    """Predicts NaN."""

    def forward(self, values, coords, *, weights=None):
        return values * torch.nan


def test_a_score_that_is_not_finite_is_reported_and_stored_as_null(tmp_path):
    data = decaying_waves()
    split = split_time_slices(data)
    results = evaluate(Forecaster(NotFinite(), TASK), data, split, scope="one-step")
    count = len(split.test)
    assert results.verdict == f"No verdict: the prediction is not finite in {count} of {count} test examples."  # fmt: skip
    results.save(tmp_path)
    stored = json.loads((tmp_path / "results.json").read_text(), parse_constant=pytest.fail)
    assert stored["one_step"]["model"]["relative_l2"] is None
    assert np.isnan(Results.load(tmp_path / "results.json").one_step["model"]["relative_l2"])


def test_a_frame_without_any_value_is_left_out_and_counted():
    whole = decaying_waves(num_trajectories=1, num_times=60)
    split = split_time_slices(whole)
    missing = split.test[1].target

    def fetch(number, times):
        frames = np.array(whole.fetch(number, slice(None)))
        frames[missing] = np.nan
        return frames[times]

    results = evaluate(Forecaster(Times(0.9), TASK), replace(whole, fetch=fetch), split)
    assert results.num_unknown == 2
    assert results.num_examples == len(split.test) - 2
    assert np.isfinite(list(results.one_step["model"].values())).all()


def test_static_maps_are_compared_with_the_training_mean_and_a_linear_map():
    data = equal_squares(40)
    task = Task(("a",), ("s",), ("",), 1, 0, "state", (0.0,), (1.0,), (0.0,), (1.0,), (1.0,))
    results = evaluate(Forecaster(Times(1.0), task), data, split_time_slices(data))
    assert set(results.comparisons) == {"training mean", "linear map"}
    assert "training mean" in results.verdict


def test_a_large_error_is_no_divergence_where_those_of_references_are_as_large():
    # Fields near zero: errors are many times the truth, for all references alike.
    data = decaying_waves()
    results = evaluate(Forecaster(Times(1.0), TASK), data, split_time_slices(data))
    assert results.diverged_at == []
