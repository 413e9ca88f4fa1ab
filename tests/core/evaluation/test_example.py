"""The example of the report: the file holds what the model computes."""

import numpy as np
import pytest
import torch

from gpo.data.splits import split_time_slices
from gpo.evaluation.example import ReportExample, last_example
from gpo.training.config import RunConfig
from gpo.training.fit import new_forecaster
from tests.core.interpretation.readings import series, untrained


@pytest.mark.parametrize("variant", ["geometric", "paper"])
def test_a_stored_example_is_the_prediction_and_the_states_of_the_layers(variant, tmp_path):
    data = series()
    forecaster, samples = untrained(data, variant=variant)
    example = last_example(forecaster, data, samples)
    ReportExample.of(forecaster, example).save(tmp_path)
    stored = ReportExample.load(tmp_path)
    with torch.no_grad():
        expected = forecaster(example.frames, example.coords, weights=example.weights)[0]
        values = forecaster.normalised_input(example.frames)
        trace = forecaster.model.trace(values, example.coords, weights=example.weights)
    np.testing.assert_array_equal(stored.predicted, expected)
    assert stored.activations.shape == (3, 256)
    np.testing.assert_array_equal(stored.activations[1], trace.states[1][0].square().sum(-1))
    assert len(stored.windows) == (2 if variant == "paper" else 0)
    if variant == "paper":
        rows = trace.windows[1][0].transpose(1, 2).flatten(0, 1).numpy()
        assert stored.windows[1].std() == pytest.approx(rows.std(-1).max())


def test_a_baseline_has_a_prediction_and_no_layers(tmp_path):
    data = series()
    forecaster, samples = untrained_baseline(data)
    ReportExample.of(forecaster, last_example(forecaster, data, samples)).save(tmp_path)
    stored = ReportExample.load(tmp_path)
    assert stored.predicted.shape == (256, 1)
    assert stored.activations.shape == stored.windows.shape == (0, 256)


def untrained_baseline(data):
    split = split_time_slices(data)
    return new_forecaster(data, split, RunConfig.of(data="x", model="fno")).eval(), split.test
