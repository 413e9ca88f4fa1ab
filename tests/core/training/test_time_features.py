"""A model that is told the time of day: through training, rollouts and everything that shows it."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from gpo.data.dataset import DataError, FieldData, Variable
from gpo.data.forcings import cycle
from gpo.data.geometry import Geometry
from gpo.data.splits import split_time_slices
from gpo.evaluation.rollout import make_rollouts
from gpo.evaluation.score import evaluate
from gpo.forecast.examples import TimeSliceExamples, collate
from gpo.forecast.forecaster import Forecaster
from gpo.forecast.predict import Forecasts
from gpo.forecast.rollout import rollout
from gpo.model.problem import UnsupportedGeometryError
from gpo.model.registry import listed_models
from gpo.training.config import RunConfig
from gpo.training.fit import train
from gpo.training.objective import draw_noise, training_losses
from gpo.training.setup import make_task, new_forecaster, split_of
from gpo_explore import answers
from gpo_explore.metadata import run_metadata
from gpo_explore.requests import ExampleRequest, PointRequest
from gpo_explore.session import Session
from tests.conftest import PlainModel
from tests.core.training.series import squares

TINY = {"data": "days", "hidden_dim": 8, "num_layers": 1, "num_gaussians": 2}


def days(num_days=24, first_hour=5.0, clock=("day",)):
    """Weather whose next change the hour alone decides; its level, which wanders, does not tell it."""
    generator, hours = np.random.default_rng(0), np.arange(0, 24 * num_days, 3.0)
    level = generator.normal(size=num_days).repeat(8)[:, None]
    x = np.arange(16) / 16
    rhythm = np.cos(2 * np.pi * (hours + first_hour) / 24)[:, None]
    values = (280 + 3 * level + rhythm * (1 + 0.3 * np.sin(2 * np.pi * x)))[..., None]
    geometry = Geometry.rectilinear([x], periodic=True, bounds=[(0.0, 1.0)])
    return FieldData(
        "days", Path("days"), (Variable("t2m", "K"),), (geometry,), hours, "h", 1,
        lambda number, times: values[times], first_hour=first_hour,
    ).with_time_features(clock)  # fmt: skip


class Telling(PlainModel):
    """Predicts the cosine that the last frame begins with; remembers what it was given."""

    def __init__(self):
        super().__init__()
        self.given = []

    def forward(self, values, coords, *, weights=None):
        self.given.append(values)
        return values[..., -3:-2]


def telling(data, config):
    task = make_task(data, split_of(data, config), config)
    one = {"predict": "state", "output_mean": (0.0,), "output_std": (1.0,)}
    return Forecaster(Telling(), replace(task, **one))


def day_cycle(hours):
    return cycle(hours / 24)


def cosines(data, frames):
    return day_cycle(data.first_hour + data.time[frames])[..., 0]


@pytest.mark.thorough
def test_what_the_hour_decides_is_learned_with_a_clock_and_not_without(tmp_path):
    errors = {}
    for clock in ((), ("day",)):
        # Without a climatology by time of day, which would know the hour by itself.
        config = RunConfig.of(**TINY, time_features=clock, steps=400, epochs=1000, blend=False)
        data = days(clock=clock)
        forecaster = train(data, config, tmp_path / "".join(clock or ("none",)), is_quiet=True)
        results = evaluate(forecaster, data, split_of(data, config))
        errors[clock] = results.one_step["model"]["rmse"]
        persistence = results.one_step["persistence"]["rmse"]
    # Every eighth step goes to another day, whose level nobody can know.
    assert errors["day",] < 0.6 * errors[()]
    assert errors["day",] < 0.8 * persistence


def test_the_clock_of_a_rollout_goes_on_with_the_lead():
    data, config = days(), RunConfig.of(**TINY, history=2, lead=2)
    forecaster = telling(data, config)
    frames = torch.from_numpy(data.input_frames(0, slice(3, 6, 2), 2).astype(np.float32))[None]
    coords = torch.from_numpy(data.geometry().coords.astype(np.float32))
    later = torch.from_numpy(data.forcing_frames(0, np.arange(9, 19, 2)))[None]
    found = rollout(forecaster, frames, coords, 6, forcings=later)[0, :, 0, 0]
    np.testing.assert_allclose(found, cosines(data, np.arange(7, 19, 2)), atol=1e-5)


def test_rollouts_are_scored_against_fields_without_their_clock():
    data, config = days(), RunConfig.of(**TINY)
    found = make_rollouts(telling(data, config), data, split_of(data, config).test, 4, None)
    assert found.truth[0].shape == (16, 1)
    assert found.errors["persistence"].max() < 0.1  # of 280 K; a hand in its place would be 1


def test_the_clock_goes_on_in_rollouts_that_are_trained():
    data, config = days(), RunConfig.of(**TINY, history=2, rollout=3)
    examples = TimeSliceExamples(data, split_time_slices(data, history=2).training, num_steps=3)
    forecaster = telling(data, config)
    training_losses(forecaster, collate([examples[0], examples[1]]), num_steps=3)
    model = forecaster.model
    for step, values in enumerate(model.given):
        expected = day_cycle(data.first_hour + data.time[2 + step : 4 + step])
        np.testing.assert_allclose(values[:, 0, -3:-1], expected, atol=1e-5)
        np.testing.assert_allclose(values[0, :, :2], np.tile(day_cycle(data.first_hour + data.time[[step + 1]]), (16, 1)), atol=1e-5)  # fmt: skip


def test_noise_leaves_the_clock_alone():
    data = days()
    examples = TimeSliceExamples(data, split_time_slices(data, history=2).training)
    batch = collate([examples[number] for number in range(6)])
    noise = draw_noise(batch, size=0.3, fraction=1.0, seeds=range(6)).unflatten(-1, (2, 3))
    assert (noise[..., :2] == 0).all()
    assert (noise[..., 2] != 0).all()


@pytest.mark.thorough
@pytest.mark.parametrize("model", [name for name in listed_models() if name != "gpo-paper"])
def test_every_model_may_have_time_features(model):
    data, settings = days(num_days=6), {"data": "days", "model": model}
    try:
        forecaster = new_forecaster(
            data, split_time_slices(data), RunConfig.of(**settings, time_features=("day",))
        )
    except UnsupportedGeometryError:
        pytest.skip("a model that refuses these sites")
    example = TimeSliceExamples(data, split_time_slices(data).test)[0]
    found = forecaster.eval()(example.frames, example.coords, weights=example.weights)
    assert found.shape == example.target.shape


def untrained(**settings):
    data, config = days(), RunConfig.of(**TINY, time_features=("day",), **settings)
    return data, new_forecaster(data, split_of(data, config), config).eval()


def test_a_saved_model_knows_its_clock(tmp_path):
    data, forecaster = untrained(history=2)
    forecaster.save(tmp_path)
    again = Forecaster.load(tmp_path)
    assert again.task == forecaster.task
    assert again.task.fields == ("t2m",)
    frames = torch.from_numpy(data.input_frames(0, slice(0, 2), 1).astype(np.float32))[None]
    with pytest.raises(ValueError, match="must be those of the next target time: day_cos"):
        again.task.advance(frames, frames[:, 0, :, 2:])


def test_what_is_shown_of_a_frame_is_its_field():
    data, forecaster = untrained(history=2)
    samples = split_time_slices(data, history=2).test
    session = Session("days", forecaster, data, samples)
    metadata = run_metadata(session)
    assert [given["name"] for given in metadata["inputs"]] == ["t2m"]
    assert metadata["inputs"][0]["range"][0] > 260
    given = answers.frames(session, ExampleRequest()).arrays["given"]
    frames = data.frames(0, slice(samples[0].first, samples[0].target))
    np.testing.assert_allclose(given, frames, rtol=1e-6)
    regions = answers.dependence(session, PointRequest(point=(0.5,))).arrays["regions"]
    assert regions.shape == (16,)


def test_forecasts_start_only_from_frames_whose_clock_goes_as_in_training():
    data, forecaster = untrained()
    assert Forecasts(forecaster, data, 3).layout.variables == data.variables
    with pytest.raises(
        DataError, match="`forcings` must be day_cos, day_sin, as in training, got none"
    ):
        Forecasts(forecaster, replace(data, known=()))
    slow = replace(data, time=2 * data.time)
    with pytest.raises(DataError, match="must have a step of 3 h, as in training, got 6"):
        Forecasts(forecaster, slow)
    alone = replace(data, time=data.time[:1])
    assert Forecasts(forecaster, alone).layout.num_cases == 1


def test_only_what_has_days_can_have_a_clock(tmp_path):
    with pytest.raises(ValueError, match="`forcings` must be none in the field phase, got day"):
        RunConfig.of(data="days", time_features=("day",), phase="field")
    with pytest.raises(
        ValueError, match="`relative_to` must not be set: squares holds static maps"
    ):
        train(squares(), RunConfig.of(data="squares", relative_to="change"), tmp_path / "run")
