"""Models of which is known what they rely on."""

import numpy as np
import pytest
import torch

from gpo import Ablation
from gpo.data.geometry import Geometry
from gpo.interpretation.ablations import patches, run_ablations
from gpo.interpretation.batches import Effects, make_batches
from gpo.interpretation.modes import joint_ablation, make_components
from gpo.model.scales import MULTILINEAR
from tests.core.interpretation.readings import TORUS, only_mode, series, untrained


def read(forecaster, data, samples):
    return run_ablations(forecaster, make_batches(data, samples[:2]), np.random.default_rng(0))


def only_wave(forecaster, number):
    """Leaves all layers one wave."""
    model = forecaster.model
    mode = model.waves.vectors.tolist().index(number)
    for layer in model.layers:
        only_mode(layer.filter, mode, 5.0)
        if layer.has_particles:
            only_mode(layer.waves.filter, mode, 5.0)
    return forecaster


@torch.no_grad()
def hold(forecaster):
    """Keeps all particles at their sites, without diffusion."""
    for layer in forecaster.model.layers:
        if layer.has_particles:
            layer.log_scale.data.fill_(MULTILINEAR)
            layer.local.zero_()
            layer.filter.packets.zero_()
    return forecaster


@pytest.mark.thorough
def test_the_one_wave_that_matters_comes_first_and_the_others_cause_nothing():
    data = series()
    forecaster, samples = untrained(data)
    result = read(only_wave(forecaster, [2.0, 1.0]), data, samples)
    first, *others = result["modes"]
    assert first["vector"] == [2.0, 1.0]
    assert first["relative_l2"] > 1e-3
    assert max(other["relative_l2"] for other in others) < 1e-6
    changes = [row["relative_l2"] for row in result["shells"]["all_layers"]]
    assert np.flatnonzero(np.array(changes) > 1e-6).tolist() == [2]
    # The strongest wave alone does what all of them do.
    curve = result["faithfulness"]
    assert curve["strongest_first"][1] == pytest.approx(curve["strongest_first"][-1], rel=1e-5)


def test_opposite_vectors_are_one_wave():
    data = series()
    forecaster, samples = untrained(data)
    components = make_components(forecaster, make_batches(data, samples[:1]))
    parts = {component.name: component for component in components}
    num_modes, limit = forecaster.model.num_modes, forecaster.model.waves.limits[0]
    assert len(parts) == num_modes - limit
    assert "k = (-1, 0)" not in parts
    assert len(parts["k = (1, 0)"].modes) == 4
    assert len(parts["k = (-1, 1)"].modes) == 2
    every = joint_ablation(list(parts.values())).modes
    assert every == {(layer, mode) for layer in range(2) for mode in range(num_modes)}


@pytest.mark.thorough
def test_a_model_that_couples_no_sites_keeps_every_effect_inside_its_region():
    data = series()
    forecaster, samples = untrained(data)
    with torch.no_grad():
        for stage in forecaster.model.layers:
            stage.filter.packets.zero_()
            if stage.has_particles:
                stage.waves.filter.packets.zero_()
    rows = read(hold(forecaster), data, samples)["regions"]["effects"]
    assert len(rows) == 64
    for row in rows:
        assert row["fraction_inside"] == pytest.approx(1)
        assert row["fraction_expected"] == pytest.approx(1 / 64, rel=1e-4)
        assert row["distance"] < 0.1
        assert row["spread"] < 2 / 64


def test_effects_are_those_of_the_ablated_model():
    data = series()
    forecaster, samples = untrained(data)
    (batch,) = make_batches(data, samples[:2])
    effects = Effects.of(forecaster, [batch])
    ablation = Ablation(layers=frozenset({1}))
    result = effects.without(ablation)
    intact, less = batch.predicted(forecaster), batch.predicted(forecaster, ablation)
    by_hand = [((one - two).norm() / two.norm()).item() for one, two in zip(less, intact, strict=True)]  # fmt: skip
    assert result["relative_l2"] == pytest.approx(np.mean(by_hand), rel=1e-4)
    assert effects.error_without(Ablation()) == pytest.approx(effects.error)
    assert {"low", "middle", "high", "spread"} <= set(result)
    nothing = effects.without(Ablation(), [torch.ones(2, 256)])
    assert nothing["relative_l2"] < 1e-12
    assert "fraction_inside" not in nothing


def test_a_change_of_long_waves_shows_in_the_low_band_alone():
    data = series()
    forecaster, samples = untrained(data)
    (batch,) = make_batches(data, samples[:1])
    effects = Effects.of(forecaster, [batch])
    wave = 0.1 * torch.sin(2 * torch.pi * batch.example.coords[..., :1])
    shifted = Effects(forecaster, [batch], [effects.intact[0] + wave])
    result = shifted.without(Ablation())
    assert result["low"] > 1e3 * max(result["middle"], result["high"])


def test_content_windows_show_where_their_effect_should_be():
    data = series(Geometry.unstructured(np.random.default_rng(0).random((90, 2))))
    forecaster, samples = untrained(data, variant="paper")
    result = read(forecaster, data, samples)
    assert len(result["modes"]) == result["num_modes"] == 2 * 2 * 3
    assert {"layer", "head", "mode", "fraction_inside", "fraction_expected"} <= set(
        result["modes"][0]
    )
    assert [(row["layer"], row["head"]) for row in result["heads"]] == [(0, 0), (0, 1), (1, 0), (1, 1)]  # fmt: skip
    assert "low" not in result["layers"][0], "there are no bands without a grid"
    assert "wave number" in result["shells"]["reason"]


@pytest.mark.thorough
def test_the_one_head_that_is_read_out_comes_first():
    data = series()
    forecaster, samples = untrained(data, variant="paper")
    with torch.no_grad():
        for stage in forecaster.model.layers:
            stage.readout[0] = 0
    result = read(forecaster, data, samples)
    changes = {(row["layer"], row["head"]): row["relative_l2"] for row in result["heads"]}
    assert max(changes[0, 0], changes[1, 0]) < 1e-9
    assert min(changes[0, 1], changes[1, 1]) > 1e-6
    assert max(result["modes"], key=lambda mode: mode["relative_l2"])["head"] == 1


@pytest.mark.thorough
def test_narrow_particles_between_all_sites_cause_nothing():
    data = series()
    forecaster, samples = untrained(data, variant="paper", centers="absolute")
    encoder = forecaster.model.lift.encoder
    with torch.no_grad():
        # All in one place, between the sites.
        encoder.centers.out.weight.zero_()
        encoder.centers.out.bias.fill_(0.53)
        encoder.scales.out.bias.fill_(-7.0)
    result = read(forecaster, data, samples)["particles"]
    assert result["all"]["relative_l2"] < 1e-6
    assert len(result["each"]) == 3


def without_particles(forecaster, data, samples, *numbers):
    """How much predictions change when particles of some numbers bring nothing."""
    effects = Effects.of(forecaster, make_batches(data, samples[:2]))
    return effects.without(Ablation(gaussians=frozenset(numbers)))["relative_l2"]


def test_particles_without_displacement_cause_nothing_and_moving_ones_do():
    data = series()
    forecaster, samples = untrained(data)
    assert without_particles(forecaster, data, samples, 0, 1, 2) > 1e-3
    assert without_particles(hold(forecaster), data, samples, 0, 1, 2) < 1e-6


def test_a_particle_with_a_zero_output_matrix_causes_nothing():
    data = series()
    forecaster, samples = untrained(data)
    transport = forecaster.model.layers[-1]
    with torch.no_grad():
        transport.arrive.unflatten(0, (transport.num_gaussians, -1))[1] = 0
    assert without_particles(forecaster, data, samples, 1) < 1e-9
    assert without_particles(forecaster, data, samples, 0) > 1e-3
    assert without_particles(forecaster, data, samples, 2) > 1e-3


@pytest.mark.thorough
def test_particles_are_ablated_all_and_each():
    data = series()
    forecaster, samples = untrained(data, num_layers=1, num_waves=1)
    result = read(forecaster, data, samples)["particles"]
    assert result["all"]["relative_l2"] == without_particles(forecaster, data, samples, 0, 1, 2)
    each = [without_particles(forecaster, data, samples, number) for number in range(3)]
    assert [row["relative_l2"] for row in result["each"]] == each


@pytest.mark.thorough
@pytest.mark.parametrize(
    "changes",
    [{"num_transports": 0, "num_waves": 1}, {"variant": "paper", "has_gaussian_field": False}],
)
def test_a_model_without_particles_has_none_to_ablate(changes):
    data = series()
    forecaster, samples = untrained(data, num_layers=1, **changes)
    assert read(forecaster, data, samples)["particles"] == {"reason": "the model has no particles"}


PLACES = {
    "torus": TORUS,
    "patch": Geometry.latitude_longitude(np.linspace(50, 58, 17), np.linspace(-10, 2, 25)),
    "points": Geometry.unstructured(np.random.default_rng(0).random((500, 3))),
    "few": Geometry.unstructured(np.random.default_rng(0).random((5, 1))),
    "masked": TORUS.masked(np.arange(256) < 60),
}


@pytest.mark.parametrize("geometry", PLACES.values(), ids=PLACES)
def test_patches_share_out_the_sites_about_evenly(geometry):
    number_of = patches(geometry)
    np.testing.assert_array_equal(number_of < 0, geometry.is_masked)
    counts = np.bincount(number_of[number_of >= 0])
    expected = min(64, int((~geometry.is_masked).sum()))
    assert len(counts) == expected
    assert counts.min() >= 1
    assert counts.max() <= 3 * counts.mean()


def test_patches_of_a_grid_are_blocks():
    number_of = patches(TORUS).reshape(16, 16)
    np.testing.assert_array_equal(number_of[::2, ::2], number_of[1::2, 1::2])
    assert len(np.unique(number_of[0])) == 8


def test_a_model_without_layers_has_no_modes():
    data = series()
    forecaster, samples = untrained(data, num_layers=0)
    assert "no layers" in read(forecaster, data, samples)["reason"]
