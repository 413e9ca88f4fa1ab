"""Windows whose extent, overlap and Gram matrix are known."""

import math

import numpy as np
import pytest
import torch

from gpo import Domain
from gpo.data.geometry import Geometry
from gpo.interpretation.batches import make_batches
from gpo.interpretation.modes import describe_modes, gram_numbers, spread, window_statistics
from tests.conftest import DOMAINS, make_model
from tests.core.interpretation.readings import only_mode, series, untrained

TORUS = DOMAINS["torus"]


def grid(domain, *shape):
    coords, weights = domain.grid(*shape)
    return coords.double()[None], weights.double()[None]


@pytest.mark.parametrize("place", [(0.5, 0.5), (0.02, 0.97)])
def test_the_extent_of_a_gaussian_is_its_deviation_wherever_it_lies(place):
    coords, _ = grid(TORUS, 64, 64)
    offset = TORUS.offset(coords, torch.tensor(place, dtype=torch.double))
    mass = torch.exp(-0.5 * (offset / 0.05).square().sum(-1)).unsqueeze(1)
    assert spread(mass, coords, TORUS).item() == pytest.approx(0.05 * math.sqrt(2), rel=1e-3)


def test_the_extent_of_a_cap_is_its_chord():
    sphere = Domain.sphere()
    coords, weights = grid(sphere, 90, 180)
    edge = math.cos(math.radians(18))
    cap = (coords[..., 2] > edge) * weights
    # The mean squared chord from the middle of a cap is that to half its height.
    expected = math.sqrt(2 - (1 + edge))
    assert spread(cap.unsqueeze(1), coords, sphere).item() == pytest.approx(expected, rel=0.01)


def test_windows_that_share_sites_evenly_are_everywhere_and_all_alike():
    coords, weights = grid(TORUS, 8, 8)
    result = window_statistics(torch.full((1, 2, 64, 4), 0.25).double(), coords, weights, TORUS)
    np.testing.assert_allclose(result["coverage"], 0.25)
    np.testing.assert_allclose(result["entropy"], 1)
    np.testing.assert_allclose(result["effective_modes"], 4)
    np.testing.assert_allclose(result["extent"], 1, rtol=1e-6)
    np.testing.assert_allclose(result["overlap_in_head"], 1)
    np.testing.assert_allclose(result["overlap_between_heads"], 1)
    np.testing.assert_allclose(result["gram_smallest"], 0, atol=1e-12)


def test_windows_without_overlap_are_perfectly_conditioned():
    coords, weights = grid(TORUS, 8, 8)
    quarter = ((coords[0, :, 0] >= 0.5).long() * 2 + (coords[0, :, 1] >= 0.5).long()).numpy()
    windows = torch.from_numpy(np.eye(4)[quarter])[None, None]
    result = window_statistics(windows, coords, weights, TORUS)
    np.testing.assert_allclose(result["entropy"], 0, atol=1e-12)
    np.testing.assert_allclose(result["overlap_in_head"], 0, atol=1e-12)
    np.testing.assert_allclose(result["gram_smallest"], 1)
    # Half as wide along both axes: half the distance.
    np.testing.assert_allclose(result["extent"], 0.5, rtol=0.05)


def test_an_unused_mode_does_not_count():
    coords, weights = grid(TORUS, 8, 8)
    windows = torch.rand(1, 1, 64, 3).double()
    windows[..., 2] = 0
    windows = windows / windows.sum(-1, keepdim=True)
    result = window_statistics(windows, coords, weights, TORUS)
    assert result["coverage"][0, 0, 2] == 0
    assert 1.9 < result["effective_modes"][0, 0] < 2.0001
    assert np.isfinite(result["extent"]).all()


def test_a_periodic_grid_resolves_all_its_waves_and_a_masked_one_does_not():
    windows = make_model(TORUS, variant="geometric", num_waves=3).waves
    coords, weights = TORUS.grid(12, 12)
    whole = gram_numbers(windows, coords, weights)
    assert whole["waves"]["count"] == 49
    assert whole["waves"]["smallest"] == pytest.approx(1, abs=1e-5)
    assert whole["measured"]["smallest_over_largest"] == pytest.approx(1, abs=1e-5)
    assert whole["measured"]["fraction_hardly_seen"] == 0
    half = gram_numbers(windows, coords, weights * (coords[:, 0] < 0.5))
    assert half["waves"]["smallest_over_largest"] < 1e-3
    assert half["measured"]["fraction_hardly_seen"] > 0.2


def test_waves_on_an_open_axis_nearly_depend_on_each_other_but_what_is_measured_does_not():
    line = Domain.unit_box(1)
    windows = make_model(line, variant="geometric", num_waves=8).waves
    coords, weights = line.grid(400)
    result = gram_numbers(windows, coords, weights)
    assert result["waves"]["smallest_over_largest"] < 1e-6
    assert result["measured"]["smallest_over_largest"] > 0.8


def test_energy_is_shared_out_among_waves():
    data = series()
    forecaster, samples = untrained(data)
    result = describe_modes(forecaster, make_batches(data, samples[:2]))
    assert result["kind"] == "waves"
    assert "whole domain" in result["extent"]
    for layer in result["layers"]:
        assert sum(layer["energy_scattered"]) == pytest.approx(1)
        assert sum(layer["energy_by_shell"]) == pytest.approx(1)
        assert 1 <= layer["effective_modes"] <= len(result["vectors"])


def test_a_single_wave_in_the_response_is_all_that_is_synthesised():
    data = series()
    forecaster, samples = untrained(data)
    only_mode(forecaster.model.layers[0].filter, 9)
    layer = describe_modes(forecaster, make_batches(data, samples[:2]))["layers"][0]
    assert layer["energy_scattered"][9] == pytest.approx(1)
    assert layer["effective_modes"] == pytest.approx(1)
    assert sum(value > 0 for value in layer["response_by_shell"]) == 1


def test_content_windows_of_a_model_cover_the_field_once_per_head():
    data = series(Geometry.unstructured(np.random.default_rng(0).random((80, 2))))
    forecaster, samples = untrained(data, variant="paper")
    result = describe_modes(forecaster, make_batches(data, samples[:3]))
    assert result["kind"] == "content"
    assert len(result["layers"]) == 2
    for layer in result["layers"]:
        np.testing.assert_allclose(np.sum(layer["coverage"], axis=-1), 1, rtol=1e-5)
        assert np.shape(layer["extent"]) == (2, 3)


def test_a_model_without_layers_has_no_windows():
    data = series()
    forecaster, samples = untrained(data, num_layers=0)
    assert "no layers" in describe_modes(forecaster, make_batches(data, samples[:1]))["reason"]
