"""The diagnosis of a reference that is not beaten, and the verdict on validation data."""

import json
from dataclasses import replace

import numpy as np
import pytest

from gpo.data.splits import Split, TimeSlice, split_time_slices
from gpo.evaluation.diagnosis import SplitDiagnostics, TrainingCurve, change_correlation, explain
from gpo.evaluation.results import Results
from gpo.evaluation.score import evaluate
from gpo.evaluation.verdict import Comparison
from gpo.forecast.forecaster import Forecaster
from tests.core.evaluation.test_score import TASK, Times
from tests.core.training.series import decaying_waves

BETTER, TIED = Comparison(0.5, (0.4, 0.6)), Comparison(1.0, (0.9, 1.1))


def diagnostics(comparison=TIED, num_examples=20, change=0.3, **more):
    return SplitDiagnostics(
        comparisons={"persistence": comparison}, num_examples=num_examples, change=change, **more
    )


def why(test, training=Comparison(0.9, (0.8, 1.0)), **more):
    return explain("persistence", {"test": test}, training, 100, **more)


def test_a_reference_that_is_beaten_on_all_splits_needs_no_reason():
    assert why(diagnostics(BETTER)) == ""
    text = explain(
        "persistence", {"test": diagnostics(BETTER), "validation": diagnostics()}, None, 9
    )
    assert text.startswith("Why the model does not beat persistence on validation data: ")


@pytest.mark.parametrize(
    ("test", "more", "reason"),
    [
        (diagnostics(num_examples=1), {}, "1 test example is too few to compare (at least 4 are needed)"),
        (diagnostics(change=0.004), {}, "persistence is nearly exact, since test data change by 0.004 standard deviations"),
        (diagnostics(), {"change_correlation": -0.45}, "most of the change is noise, since successive changes cancel (correlation -0.45"),
        (diagnostics(mean_shift={"sst": -0.8}), {}, "the mean of sst is 0.8 standard deviations lower"),
        (diagnostics(spread={"sst": 2.0}), {}, "sst varies 2 times as much"),
        (diagnostics(change_in_training=0.1), {}, "test data differ from training data: changes are 3 times as large"),
        (diagnostics(), {"training": Comparison(0.4, None)}, "it overfits 100 training examples (0.4 times the error of persistence on training examples, 1 on test data)"),
        (diagnostics(), {"training": Comparison(1.01, None)}, "it does not fit the training examples, either (1.01 times"),
        (diagnostics(), {"curve": TrainingCurve(num_steps=67)}, "training was short, 67 steps"),
        (diagnostics(), {"curve": TrainingCurve(num_steps=900, scores=(1.0, 0.8, 0.7, 0.6, 0.5))}, "the validation error still fell by 17% in the last fifth"),
        (diagnostics(), {"curve": TrainingCurve(num_steps=900, scores=(0.5,) * 9)}, "no cause found"),
    ],
)  # fmt: skip
def test_each_reason_comes_with_the_numbers_that_support_it(test, more, reason):
    text = why(test, **more)
    assert text.startswith("Why the model does not beat persistence on test data: ")
    assert reason in text
    assert text.count(";") == 0


def test_a_model_that_is_better_on_three_examples_only_needs_more_examples():
    few = diagnostics(Comparison(0.002, None), num_examples=3, spread={"sst": 2.0})
    text = why(few, training=Comparison(0.001, None), curve=TrainingCurve(num_steps=67))
    assert text == (
        "Why the model is not proven better than persistence: 3 test examples are too few to compare "
        "(at least 4 are needed)."
    )


def test_climatology_is_hard_to_beat_where_the_last_frame_carries_no_information():
    both = {"persistence": Comparison(0.7, (0.6, 0.8)), "climatology": TIED}
    split = SplitDiagnostics(comparisons=both, num_examples=20)
    text = explain("climatology", {"test": split}, Comparison(0.9, None), 100)
    assert "the error of persistence is 1.4 times that of climatology" in text


def test_successive_changes_cancel_in_noise_and_not_in_a_drift():
    time_slices = [TimeSlice(0, last, last, last + 1) for last in range(1, 38)]
    base = decaying_waves(num_trajectories=1, num_times=40)
    count = base.geometry().num_points
    steps = np.random.default_rng(0).normal(size=(40, count, 2))
    for frames, expected in ((steps, -0.5), (np.cumsum(steps, 0), 0.0), (np.arange(40.0)[:, None, None] + 0 * steps, 1.0)):  # fmt: skip
        data = replace(base, fetch=lambda n, times, f=frames: f[times])
        assert change_correlation(data, time_slices) == pytest.approx(expected, abs=0.1)


@pytest.mark.thorough
def test_validation_data_have_their_own_verdict(tmp_path):
    data = decaying_waves(num_times=60)
    split = split_time_slices(data)
    results = evaluate(Forecaster(Times(0.9), TASK), data, split)
    validation = results.validation
    assert validation["num_examples"] == len(split.validation)
    assert f"over {len(split.validation)} validation examples" in validation["verdict"]
    swapped = Split(split.training, split.test, split.validation, split.kind)
    other = evaluate(Forecaster(Times(0.9), TASK), data, swapped)
    assert other.comparisons == validation["comparisons"]
    assert other.validation["comparisons"] == results.comparisons
    results.save(tmp_path)
    stored = json.loads((tmp_path / "results.json").read_text())
    assert stored["validation"] == validation
    rows = Results.load(tmp_path / "results.json").comparison_rows()
    assert set(rows) == {f"{s}, {r}" for s in ("test", "validation") for r in results.comparisons}


def test_results_say_why_the_model_does_not_beat_a_reference():
    data = decaying_waves(num_times=60)
    split = split_time_slices(data)
    curve = TrainingCurve(num_steps=12)
    results = evaluate(Forecaster(Times(1.0), TASK), data, split, curve=curve)
    assert "training was short, 12 steps" in results.reasons["persistence"]
    assert "it does not fit the training examples, either" in results.reasons["persistence"]
    assert "test and validation data" in results.reasons["persistence"]


def test_other_data_and_a_single_step_have_no_validation_scores():
    data = decaying_waves()
    split = split_time_slices(data)
    for settings in ({"scope": "one-step"}, {"trained_on": data}):
        assert evaluate(Forecaster(Times(1.0), TASK), data, split, **settings).validation == {}
