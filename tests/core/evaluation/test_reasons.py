"""Why a reference is not beaten, and the verdict on validation data."""

import json
from dataclasses import replace

import numpy as np
import pytest

from gpo.data.splits import Split, TimeSlice, split_time_slices
from gpo.evaluation.reasons import SplitEvidence, TrainingCurve, change_correlation, explain
from gpo.evaluation.results import Results
from gpo.evaluation.score import evaluate
from gpo.evaluation.verdict import Comparison
from gpo.forecast.forecaster import Forecaster
from tests.core.evaluation.test_score import TASK, Times
from tests.core.training.series import decaying_waves

BETTER, TIED = Comparison(0.5, (0.4, 0.6)), Comparison(1.0, (0.9, 1.1))


def evidence(found=TIED, num_examples=20, change=0.3, **more):
    return SplitEvidence(
        comparisons={"persistence": found}, num_examples=num_examples, change=change, **more
    )


def why(test, training=Comparison(0.9, (0.8, 1.0)), **more):
    return explain("persistence", {"test": test}, training, 100, **more)


def test_what_is_beaten_everywhere_needs_no_reason():
    assert why(evidence(BETTER)) == ""
    told = explain("persistence", {"test": evidence(BETTER), "validation": evidence()}, None, 9)
    assert told.startswith("Why not better than persistence on validation data: ")


@pytest.mark.parametrize(
    ("test", "more", "reason"),
    [
        (evidence(num_examples=1), {}, "1 test example cannot prove anything, 4 are the fewest"),
        (evidence(change=0.004), {}, "persistence is nearly perfect, since from input to target test data change by 0.004 of"),
        (evidence(), {"change_correlation": -0.45}, "a change is undone by the next one (correlation -0.45"),
        (evidence(mean_shift={"sst": -0.8}), {}, "the mean of sst is 0.8 standard deviations lower"),
        (evidence(spread={"sst": 2.0}), {}, "sst varies 2 times as much"),
        (evidence(change_in_training=0.1), {}, "test data differ from training data: changes are 3 times as large"),
        (evidence(), {"training": Comparison(0.4, None)}, "it over-fits 100 training examples (0.4 times the error of persistence on training examples, 1 on test data)"),
        (evidence(), {"training": Comparison(1.01, None)}, "it has not learned the training examples either (1.01 times"),
        (evidence(), {"curve": TrainingCurve(num_steps=67)}, "training was short, 67 steps"),
        (evidence(), {"curve": TrainingCurve(num_steps=900, scores=(1.0, 0.8, 0.7, 0.6, 0.5))}, "the validation error still fell by 17% in the last fifth"),
        (evidence(), {"curve": TrainingCurve(num_steps=900, scores=(0.5,) * 9)}, "no cause found"),
    ],
)  # fmt: skip
def test_every_reason_comes_with_its_evidence(test, more, reason):
    told = why(test, **more)
    assert told.startswith("Why not better than persistence on test data: ")
    assert reason in told
    assert told.count(";") == 0


def test_a_model_that_is_better_on_three_examples_lacks_examples_alone():
    few = evidence(Comparison(0.002, None), num_examples=3, spread={"sst": 2.0})
    told = why(few, training=Comparison(0.001, None), curve=TrainingCurve(num_steps=67))
    assert told == (
        "Why not proven better than persistence: 3 test examples cannot prove anything, 4 are the "
        "fewest."
    )


def test_climatology_is_hard_to_beat_where_the_last_frame_is_forgotten():
    both = {"persistence": Comparison(0.7, (0.6, 0.8)), "climatology": TIED}
    split = SplitEvidence(comparisons=both, num_examples=20)
    told = explain("climatology", {"test": split}, Comparison(0.9, None), 100)
    assert "persistence errs 1.4 times as much as climatology" in told


def test_successive_changes_of_noise_undo_each_other_and_those_of_a_drift_do_not():
    windows = [TimeSlice(0, last, last, last + 1) for last in range(1, 38)]
    base = decaying_waves(num_trajectories=1, num_times=40)
    count = base.geometry().num_points
    steps = np.random.default_rng(0).normal(size=(40, count, 2))
    for frames, expected in ((steps, -0.5), (np.cumsum(steps, 0), 0.0), (np.arange(40.0)[:, None, None] + 0 * steps, 1.0)):  # fmt: skip
        data = replace(base, fetch=lambda n, times, f=frames: f[times])
        assert change_correlation(data, windows) == pytest.approx(expected, abs=0.1)


def test_validation_data_get_a_verdict_of_their_own(tmp_path):
    data = decaying_waves(num_times=60)
    split = split_time_slices(data)
    results = evaluate(Forecaster(Times(0.9), TASK), data, split)
    found = results.validation
    assert found["num_examples"] == len(split.validation)
    assert f"over {len(split.validation)} validation examples" in found["verdict"]
    swapped = Split(split.training, split.test, split.validation, split.kind)
    other = evaluate(Forecaster(Times(0.9), TASK), data, swapped)
    assert other.comparisons == found["comparisons"]
    assert other.validation["comparisons"] == results.comparisons
    results.save(tmp_path)
    stored = json.loads((tmp_path / "results.json").read_text())
    assert stored["validation"] == found
    rows = Results.load(tmp_path / "results.json").comparison_rows()
    assert set(rows) == {f"{s}, {r}" for s in ("test", "validation") for r in results.comparisons}


def test_a_run_says_why_it_does_not_beat_a_reference():
    data = decaying_waves(num_times=60)
    split = split_time_slices(data)
    curve = TrainingCurve(num_steps=12)
    results = evaluate(Forecaster(Times(1.0), TASK), data, split, curve=curve)
    assert "training was short, 12 steps" in results.reasons["persistence"]
    assert "it has not learned the training examples either" in results.reasons["persistence"]
    assert "test and validation data" in results.reasons["persistence"]


def test_other_data_and_one_step_alone_have_no_validation_data():
    data = decaying_waves()
    split = split_time_slices(data)
    for settings in ({"scope": "one-step"}, {"trained_on": data}):
        assert evaluate(Forecaster(Times(1.0), TASK), data, split, **settings).validation == {}
