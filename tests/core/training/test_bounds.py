"""Forecasts of quantities that are never negative, such as rain."""

import numpy as np
import pytest
import torch

from gpo.cli.describe import describe
from gpo.data.summary import value_notes
from gpo.evaluation.score import evaluate
from gpo.forecast.forecaster import Forecaster
from gpo.forecast.rollout import rollout
from gpo.training.config import RunConfig
from gpo.training.setup import new_forecaster, split_of
from tests.core.training.series import decaying_waves
from tests.explore.sessions import lively

TINY = {"data": "waves", "hidden_dim": 8, "num_layers": 1, "num_gaussians": 2}


def rain():
    values = np.stack([decaying_waves().fetch(n, slice(None)) for n in range(8)])
    values[..., 1] = np.maximum(values[..., 1], 0)
    return decaying_waves(values=values)


def test_a_variable_that_is_never_negative_is_noted_with_the_flag_that_bounds_it():
    (note,) = value_notes(rain())
    assert note == "b is never negative, but forecasts may be: --non-negative b bounds them"
    assert any(note in text for _, text in describe(rain()))
    assert value_notes(rain(), ["b"]) == []
    assert value_notes(decaying_waves()) == []


def test_forecasts_of_a_bounded_variable_are_never_negative(tmp_path):
    data, made = rain(), {}
    for bounded in ((), ("b",)):
        config = RunConfig.of(**TINY, non_negative=bounded)
        torch.manual_seed(0)
        made[bounded] = lively(new_forecaster(data, split_of(data, config), config))
    made["b",].save(tmp_path)
    frames = torch.from_numpy(data.frames(1, slice(0, 1)))[None] - 0.05
    coords = torch.from_numpy(data.geometry().coords)
    for queries in (None, coords[None, ::2] + 0.01):
        with torch.no_grad():
            free, bounded, loaded = (
                forecaster(frames, coords, queries=queries)
                for forecaster in (made[()], made["b",], Forecaster.load(tmp_path))
            )
        assert free[..., 1].min() < 0 < free[..., 1].max()
        assert torch.equal(bounded[..., 0], free[..., 0])
        assert torch.equal(bounded[..., 1], free[..., 1].clamp(min=0))
        assert torch.equal(loaded, bounded)
    assert rollout(made["b",], frames, coords, 5)[..., 1].min() >= 0
    assert "bias" in evaluate(made["b",], data, split_of(data, config)).variables["b"]["model"]


def test_a_bound_of_a_variable_that_is_no_output_is_refused():
    config = RunConfig.of(**TINY, non_negative=("snow",))
    with pytest.raises(
        ValueError, match="`non_negative` must be among the outputs, a, b, got snow"
    ):
        new_forecaster(rain(), split_of(rain(), config), config)
