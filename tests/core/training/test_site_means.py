"""Static maps on corresponding sites are learned relative to the mean of their samples."""

import numpy as np
import pytest
import torch

from gpo.data.splits import split_time_slices, used_frames
from gpo.forecast.forecaster import Forecaster
from gpo.forecast.statistics import FILE_NAME, SiteMeans
from gpo.model.model import AbstractModel
from gpo.model.problem import UnsupportedGeometryError
from gpo.training.config import RunConfig
from gpo.training.setup import new_forecaster, split_of
from tests.core.data.files import pair
from tests.core.training.series import decaying_waves, equal_squares, squares

TINY = {"data": "maps", "hidden_dim": 16, "num_layers": 1, "num_gaussians": 4}


def made(**changes):
    data = equal_squares()
    split = split_time_slices(data)
    return data, split, new_forecaster(data, split, RunConfig.of(**{**TINY, **changes})).eval()


def mean_of(data, split, part):
    return np.mean([pair(data, number.sample)[part] for number in split.training], axis=0)


def test_a_model_that_says_nothing_gives_the_training_mean():
    data, split, forecaster = made()
    with torch.no_grad():
        for parameter in forecaster.model.decoder.parameters():
            parameter.zero_()
    given = torch.tensor(pair(data, split.test[0].sample)[0], dtype=torch.float32)
    output = forecaster(given[None, None], torch.tensor(data.geometry().coords).float())
    np.testing.assert_allclose(output[0].detach(), mean_of(data, split, 1), rtol=1e-5)


def test_the_model_sees_what_differs_from_the_mean_in_units_of_its_size():
    data, split, forecaster = made()
    given = np.stack([pair(data, number.sample)[0] for number in split.training])
    seen = forecaster.normalised_input(torch.tensor(given[:, None], dtype=torch.float32))
    differences = given - mean_of(data, split, 0)
    np.testing.assert_allclose(seen, differences / differences.std(), rtol=2e-3, atol=1e-4)


def test_between_sites_the_mean_is_blended_from_those_next_to_it():
    data, split, forecaster = made()
    given = torch.tensor(pair(data, split.test[0].sample)[0], dtype=torch.float32)[None, None]
    coords = torch.tensor(data.geometry().coords).float()
    at_sites = forecaster(given, coords)
    torch.testing.assert_close(forecaster(given, coords, queries=coords), at_sites)


def test_the_means_are_kept_with_the_model(tmp_path):
    data, split, forecaster = made()
    assert isinstance(forecaster.model, AbstractModel)
    forecaster.save(tmp_path)
    again = Forecaster.load(tmp_path).eval()
    given = torch.tensor(pair(data, split.test[0].sample)[0], dtype=torch.float32)[None, None]
    coords = torch.tensor(data.geometry().coords).float()
    assert torch.equal(again(given, coords), forecaster(given, coords))
    (tmp_path / FILE_NAME).write_bytes(b"damaged")
    with pytest.raises(ValueError, match=f"{FILE_NAME}: cannot be read"):
        Forecaster.load(tmp_path)


def test_other_sites_are_refused():
    _, _, forecaster = made()
    with pytest.raises(
        ValueError, match="Fields must have 16 corresponding points, as in training, got 15"
    ):
        forecaster(torch.zeros(1, 1, 15, 1), torch.linspace(0, 1, 15)[:, None])


def test_maps_of_different_sites_and_predicted_states_have_one_mean_for_all_sites():
    data = squares()
    split = split_time_slices(data)
    assert SiteMeans.of(data, split.training) is None
    assert new_forecaster(data, split, RunConfig.of(**TINY)).input_mean.shape == (1,)
    assert made(predict="state")[2].input_mean.shape == (1,)


POINTWISE = {"data": "waves", "model": "fno", "predict": "state", "normalise": "points"}


def pointwise():
    data, config = decaying_waves(), RunConfig.of(**POINTWISE)
    split = split_of(data, config)
    return data, split, new_forecaster(data, split, config).eval()


def test_fields_have_mean_zero_and_variance_one_at_every_point_of_the_training_frames():
    data, split, forecaster = pointwise()
    used = used_frames(split.training)
    frames = [data.frames(n, slice(t, t + 1)) for n, times in used.items() for t in times]
    frames = torch.from_numpy(np.concatenate(frames))
    seen = forecaster.normalised_input(frames[:, None]).double()
    spread = frames.std(0, correction=0)
    varies = spread > 1e-3 * spread.square().mean(0).sqrt()
    assert varies.any()
    torch.testing.assert_close(seen.mean(0), torch.zeros_like(spread), atol=1e-4, rtol=0)
    ones = torch.ones_like(spread[varies])
    torch.testing.assert_close(seen.std(0, correction=0)[varies], ones, atol=1e-3, rtol=0)
    again = forecaster.denormalised(forecaster.normalised(frames))
    torch.testing.assert_close(again, frames.double(), atol=1e-5, rtol=1e-5)


def test_pointwise_statistics_are_kept_with_the_model_and_change_no_score(tmp_path):
    data, split, forecaster = pointwise()
    plain = RunConfig.of(**{**POINTWISE, "normalise": "variables"})
    assert forecaster.task.output_std == new_forecaster(data, split, plain).task.output_std
    forecaster.save(tmp_path)
    again = Forecaster.load(tmp_path).eval()
    frames = torch.from_numpy(data.frames(0, slice(0, 1)))[None].float()
    coords = torch.from_numpy(data.geometry().coords).float()
    assert torch.equal(again(frames, coords), forecaster(frames, coords))
    with pytest.raises(UnsupportedGeometryError, match="corresponding points, as in training"):
        again(frames[:, :, 1:], coords[1:])


def test_pointwise_normalisation_of_increments_and_maps_is_refused():
    with pytest.raises(ValueError, match="`predict` must be state with --normalise points"):
        RunConfig.of(**{**POINTWISE, "predict": "increment"})
    with pytest.raises(ValueError, match="holds static maps, whose means are pointwise"):
        made(predict="state", normalise="points")
