"""Identical runs do not drift; different ones do."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from gpo.data.geometry import Geometry
from gpo.interpretation.batches import make_batches
from gpo.interpretation.interpretation import compare_runs, drift, half_resolution, other_data
from gpo.interpretation.particle_fields import fraction_from_field, particle_quantities
from tests.core.interpretation.readings import series, untrained

QUANTITIES = {
    "geometric": {"weight", "displacement"},
    "paper": {"weight", "displacement", "scale", "anisotropy"},
}


@pytest.mark.parametrize("variant", QUANTITIES)
def test_the_same_data_is_no_drift_and_no_degradation(variant):
    data = series()
    forecaster, samples = untrained(data, variant=variant)
    batches = make_batches(data, samples)
    result = other_data(forecaster, batches, batches)
    assert result["degradation"] == pytest.approx(1)
    assert set(result["drift"]) == QUANTITIES[variant]
    for row in result["drift"].values():
        assert row["distance"] == 0
        assert row["ratio"] == 0


@pytest.mark.parametrize(
    ("variant", "names"), [("geometric", ("displacement",)), ("paper", ("weight", "scale"))]
)
def test_data_of_another_size_drifts_farther_than_halves_of_the_usual_are_apart(variant, names):
    data = series()
    larger = replace(data, fetch=lambda number, times: 8 * data.frames(number, times))
    forecaster, samples = untrained(data, variant=variant)
    result = other_data(forecaster, make_batches(data, samples), make_batches(larger, samples))
    for name in names:
        assert result["drift"][name]["ratio"] > 3
    assert result["usual"]["last_frame"] == pytest.approx(result["other"]["last_frame"], rel=1e-5)


def test_the_distance_of_distributions_is_that_of_a_shift():
    rows = {"scale": [np.arange(4.0), np.arange(4.0) + 1]}
    moved = {"scale": [np.arange(4.0) + 7, np.arange(4.0) + 8]}
    result = drift(rows, moved)["scale"]
    assert result == {"distance": pytest.approx(7), "spread": pytest.approx(1), "ratio": pytest.approx(7)}  # fmt: skip


def test_what_differs_between_places_alone_is_not_due_to_the_field():
    place, field = np.arange(50.0), np.arange(50.0)[::-1]
    fractions = fraction_from_field({"a": [place, place], "b": [place * 0 + 1, place * 0 + 2], "c": [place, field]})  # fmt: skip
    assert fractions["a"] == 0
    assert fractions["b"] == pytest.approx(1)
    assert fractions["c"] == pytest.approx(1)
    assert fraction_from_field({"a": [place, place[:3]], "b": [place]}) == {"a": None, "b": None}


def test_quantities_of_particles_are_in_unit_lengths():
    axis = np.arange(12) / 6
    data = series(Geometry.rectilinear([axis, axis], periodic=True))
    forecaster, samples = untrained(data, variant="paper")
    (batch,) = make_batches(data, samples[:1])
    result = particle_quantities(forecaster, [batch])
    particles = batch.particles(forecaster)
    expected = particles.scales.log().mean(-1).exp().flatten() / 2
    np.testing.assert_allclose(result["scale"][0], expected, rtol=1e-5)
    np.testing.assert_allclose(result["weight"][0].reshape(-1, 3).sum(1), 1, rtol=1e-5)


def test_displacements_are_in_unit_lengths_and_never_beyond_the_reach():
    axis = np.arange(12) / 6
    data = series(Geometry.rectilinear([axis, axis], periodic=True))
    forecaster, samples = untrained(data)
    with torch.no_grad():
        forecaster.model.layers[-1].local.mul_(1e3)
    (batch,) = make_batches(data, samples[:1])
    result = particle_quantities(forecaster, [batch])
    assert 0.2 < np.abs(result["displacement"][0]).max() < 0.25 * (1 + 1e-5)
    np.testing.assert_allclose(result["weight"][0].reshape(-1, 3).sum(1), 1, rtol=1e-5)


def test_encoded_particles_at_common_sites_do_not_depend_on_the_resolution():
    """The encoder reads one site at a time, so this must be exact; predictions may differ."""
    data = series()
    forecaster, samples = untrained(data, variant="paper")
    result = half_resolution(forecaster, data, samples[:2], reconstructs=False)
    assert result["centers"] < 1e-5
    assert result["scales"] < 1e-5
    assert result["weights"] < 1e-6
    assert 0 < result["prediction"] < 1


def displacements_at_half(wave, side):
    """How much displacements change at half resolution, in one field on so many sites along an axis."""
    axis = np.arange(side) / side
    data = series(Geometry.rectilinear([axis, axis], periodic=True))
    frames = np.broadcast_to(wave(data.geometry().coords)[:, None], (4, side**2, 1))
    data = replace(data, fetch=lambda number, times: (1 + 0.1 * number) * frames[times])
    forecaster, samples = untrained(data, num_layers=1, num_waves=2, features="none")
    result = half_resolution(forecaster, data, samples[:2], reconstructs=False)
    assert set(result) == {"prediction", "displacements", "weights"}
    return result["displacements"]


def test_displacements_in_a_uniform_field_do_not_depend_on_the_resolution():
    assert displacements_at_half(lambda coords: 1 + 0 * coords[:, 0], 16) < 1e-5


def test_displacements_in_a_smooth_field_converge_with_the_resolution():
    def wave(coords):
        return np.sin(2 * np.pi * coords[:, 0]) * np.cos(2 * np.pi * coords[:, 1])

    coarse, fine = (displacements_at_half(wave, side) for side in (16, 32))
    assert coarse < 0.1, "they are hardly related where it is the root of two"
    assert fine < max(1e-5, coarse / 3)


def test_a_resolution_that_cannot_be_had_gives_the_reason():
    axis = np.arange(9) / 9
    data = series(Geometry.rectilinear([axis, axis], periodic=True))
    forecaster, samples = untrained(data)
    result = half_resolution(forecaster, data, samples[:1], reconstructs=False)
    assert "an axis of 9 sites" in result["reason"]


@pytest.mark.thorough
@pytest.mark.parametrize("variant", ["geometric", "paper"])
def test_a_run_ranks_its_components_as_itself(variant):
    data = series()
    forecaster, samples = untrained(data, variant=variant)
    twin, _ = untrained(data, variant=variant)
    batches = make_batches(data, samples[:2])
    result = compare_runs(forecaster, twin, batches)
    assert result["density"]["value"] == pytest.approx(1)
    assert result["errors"][0] == result["errors"][1]
    numbers = [value for value in result["effects"].values() if isinstance(value, float)]
    assert len(numbers) == (4 if variant == "geometric" else 2)
    np.testing.assert_allclose(numbers, 1)


@pytest.mark.thorough
def test_runs_of_other_weights_do_not():
    data = series()
    forecaster, samples = untrained(data)
    stranger, _ = untrained(data, seed=3)
    with torch.no_grad():
        result = compare_runs(forecaster, stranger, make_batches(data, samples[:2]))
    assert result["density"]["value"] < 0.9
    assert result["effects"]["modes"] < 0.95
