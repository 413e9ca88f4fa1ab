"""Metrics and reference forecasts from outside: one registration, no other change."""

import csv
import json
from dataclasses import dataclass

import pytest
import torch

from gpo.data.splits import split_time_slices
from gpo.evaluation.registry import METRICS
from gpo.evaluation.results import Results
from gpo.evaluation.score import evaluate
from gpo.forecast.forecaster import Forecaster
from gpo.forecast.references import AbstractReference
from gpo.forecast.registry import REFERENCES
from gpo.report.run_figures import draw_rollout
from gpo.training.choice import reference_errors
from gpo.training.config import RunConfig
from gpo_explore.answers import rollout
from gpo_explore.requests import RolloutRequest
from tests.core.evaluation.test_score import TASK, Times
from tests.core.training.series import decaying_waves
from tests.explore.sessions import make_session


def bias(prediction, target, weights):
    weights = weights / weights.sum(1, keepdim=True)
    return (weights[..., None] * (prediction - target)).sum(1).mean()


@dataclass(frozen=True)
class Zero(AbstractReference):
    """Predicts zero for time series."""

    @classmethod
    def fit(cls, inputs):
        return cls(inputs.task) if inputs.is_forecast else None

    def __call__(self, frames, coords, *, weights=None, seasons=None):
        return torch.zeros_like(self.task.state(frames[:, -1]))


@dataclass(frozen=True)
class Never(Zero):
    """Does not apply to any data."""

    @classmethod
    def fit(cls, inputs):
        return None


@pytest.fixture
def _registered():
    METRICS.register("bias", bias)
    REFERENCES.register("zero", Zero)
    REFERENCES.register("never", "tests.core.evaluation.test_outside:Never")
    yield
    del METRICS["bias"], REFERENCES["zero"], REFERENCES["never"]


@pytest.mark.usefixtures("_registered")
def test_a_registered_metric_and_reference_are_in_results_and_tables(tmp_path):
    data = decaying_waves(num_times=40)
    evaluate(Forecaster(Times(0.9), TASK), data, split_time_slices(data)).save(tmp_path)
    stored = json.loads((tmp_path / "results.json").read_text())
    known = ["model", "persistence", "climatology", "damped persistence", "linear map"]
    assert list(stored["one_step"]) == [*known, "zero"]
    # The mean of a is 10 and that of b is 0: a factor of 0.9 has a bias of -1 and 0.
    assert stored["one_step"]["model"]["bias"] == pytest.approx(-0.5, abs=0.05)
    assert stored["one_step"]["zero"]["relative_l2"] == pytest.approx(1)
    assert stored["rollout"]["zero"] == pytest.approx([1] * len(stored["rollout"]["model"]))
    assert set(stored["variables"]["a"]) == set(stored["one_step"])
    assert "skill_zero" in stored["variables"]["a"]["model"]
    assert "than zero (error " in stored["verdict"]
    rows = Results.load(tmp_path / "results.json").comparison_rows()
    assert {"test, zero", "validation, zero"} < set(rows)
    table = list(csv.reader((tmp_path / "results.csv").read_text().splitlines()))
    assert ["one_step", "zero", "bias"] in [row[:3] for row in table]


@pytest.mark.usefixtures("_registered")
def test_it_is_in_the_table_of_tuning_on_the_page_and_in_the_curves_of_the_report():
    data = decaying_waves()
    assert "zero" in reference_errors(data, RunConfig.of(data="waves"))
    session = make_session()
    metadata = rollout(session, RolloutRequest(example=0, steps=2)).metadata
    assert "zero" in metadata["references"]
    results = evaluate(Forecaster(Times(0.9), TASK), data, split_time_slices(data))
    labels = [line.get_label() for line in draw_rollout(results, 1).axes[0].lines]
    assert labels == list(results.rollout)
    assert "zero" in labels


def test_a_name_is_registered_once():
    with pytest.raises(ValueError, match="The metric 'rmse' is already registered"):
        METRICS.register("rmse", bias)
