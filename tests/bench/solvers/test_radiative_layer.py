import math

import numpy as np
import pytest
import torch

from gpo.data.generate import generate
from gpo.data.readers.registry import open_data
from gpo.data.solvers.base import BlowUpError
from gpo_bench.solvers.finite_volume import Flow
from gpo_bench.solvers.radiative_layer import RadiativeCooling, RadiativeLayer
from gpo_bench.solvers.runge_kutta import advance

DOUBLE = torch.float64
SMALL = RadiativeLayer(
    size=16, num_waves=4, num_trajectories=5, num_frames=3, frame_step=0.05, portion_size=2
)


def cooling(time=0.3):
    return RadiativeCooling(torch.tensor([time], dtype=DOUBLE), contrast=100.0)


def loss_at(temperature, time=0.3):
    """Energy lost per volume and time at pressure one."""
    density = torch.tensor([[1 / temperature]], dtype=DOUBLE)
    return cooling(time).loss(density, torch.ones_like(density)).item()


def test_neither_gas_cools_by_itself():
    for temperature in (0.001, 0.0099, 0.51, 0.9, 1.0, 1.3):
        assert loss_at(temperature) == 0
    assert loss_at(0.01) < 1e-25
    for temperature in (0.02, 0.0707, 0.3):
        assert loss_at(temperature) > 0


def test_mixed_gas_cools_in_the_cooling_time():
    energy = 1.5
    assert loss_at(math.sqrt(0.5 * 0.01), 0.25) == pytest.approx(energy / 0.25)
    assert loss_at(0.1, 0.25) == pytest.approx(2 * loss_at(0.1, 0.5))
    assert cooling(0.25).max_rate().tolist() == [4.0]


def test_a_box_of_mixed_gas_loses_exactly_what_is_reported_and_follows_the_law():
    flow = Flow(spacing=(0.1, 0.1), periodic=(True, True), cooling=cooling())
    start = torch.ones(4, 1, 4, 4, dtype=DOUBLE)
    start[0], start[1:3] = 5.0, 0.0
    state = flow.conserved(start)
    # At constant density d ln T / dt = -L(T) / t_cool; tiny steps of it are the truth.
    logarithm, num_steps = math.log(1 / 5), 20000
    low, high = math.log(0.01), math.log(0.5)
    for _ in range(num_steps):
        position = (logarithm - (low + high) / 2) / ((high - low) / 2)
        logarithm -= 0.5 / num_steps / 0.3 * max(0.0, 1 - position**2) ** 2
    errors = []
    for courant in (0.8, 0.4):
        after, losses = advance(flow, state, 0.5, courant)
        lost = flow.total(state)[-1] - flow.total(after)[-1]
        torch.testing.assert_close(lost, losses.cooled, rtol=1e-13, atol=1e-14)
        errors.append(abs(flow.primitive(after)[-1].mean().item() - 5 * math.exp(logarithm)))
    assert errors[0] < 5e-3
    assert 3.4 < errors[0] / errors[1] < 4.8, errors


def test_the_layers_budgets_close_with_cooling_and_open_ends():
    solver = RadiativeLayer(size=16, num_waves=4, shear=0.4, cooling_times=(0.03, 0.32))
    flow = solver.flow(range(2))
    fields = [solver.initial_fields(number) for number in range(2)]
    state = flow.conserved(torch.stack(fields, 1))
    # Long enough for sound in hot gas to reach the upper end; cold gas sinks from the start.
    after, losses = advance(flow, state, 2.5)
    expected = losses.outflow.clone()
    expected[-1] += losses.cooled
    lost = flow.total(state) - flow.total(after)
    torch.testing.assert_close(lost, expected, rtol=1e-11, atol=1e-12)
    # The faster it cools, the more it radiates and the more hot gas it draws in.
    assert losses.cooled[0] > 1.5 * losses.cooled[1] > 0.1
    assert losses.outflow[-1, 0] < losses.outflow[-1, 1] < 0


def test_the_strongest_preset_stays_positive_in_single_precision():
    solver = RadiativeLayer(
        size=16, num_waves=8, shear=0.4, noise=0.3, cooling_times=(0.03,), num_frames=6,
        frame_step=0.4,
    )  # fmt: skip
    frames = solver.solve(range(1))
    assert all(np.isfinite(values).all() for values in frames.values())
    assert frames["density"].min() > 0.1
    assert frames["pressure"].min() > 0.01
    assert frames["density"].dtype == np.float32


def test_without_shear_and_mixed_gas_nothing_happens():
    solver = RadiativeLayer(
        size=16, num_waves=4, shear=0.0, sinking=0.0, thickness=1e-6, num_frames=2, frame_step=0.4
    )
    frames = solver.solve(range(1))
    assert np.abs(frames["velocity"]).max() < 1e-5
    assert np.abs(frames["pressure"] - 1).max() < 1e-5
    assert set(np.unique(frames["density"][0, 0]).round(4)) == {1.0, 100.0}
    np.testing.assert_allclose(frames["density"][0, 1], frames["density"][0, 0], rtol=1e-4)


def test_the_start_is_hot_gas_above_cold_gas_in_balance():
    solver = RadiativeLayer(size=64, cooling_times=(0.1, 1.0), sinking=0.0)
    fields = solver.initial_fields(0)
    assert bool((fields[3] == 1).all())
    torch.testing.assert_close(fields[0, :, 0], torch.full((64,), 100.0, dtype=DOUBLE))
    torch.testing.assert_close(fields[0, :, -1], torch.ones(64, dtype=DOUBLE))
    assert (fields[1, 0, -1] - fields[1, 0, 0]).item() == pytest.approx(0.1)
    middle = fields[2, :, 64].square().mean().sqrt().item()
    assert middle == pytest.approx(0.1 * 0.1, rel=0.02)
    assert fields[2, :, [0, -1]].abs().max() < 1e-12
    sinking = RadiativeLayer(size=64, cooling_times=(0.1, 1.0))
    fall = [sinking.initial_fields(number)[2, :, -1].mean().item() for number in range(2)]
    assert fall == pytest.approx([-0.0013 * 0.1**-0.6, -0.0013])


def test_a_trajectory_depends_on_its_number_and_the_seed_alone():
    first = SMALL.initial_fields(1)
    assert torch.equal(
        first, RadiativeLayer(size=16, num_waves=4, num_trajectories=50).initial_fields(1)
    )
    assert not torch.equal(first, SMALL.initial_fields(2))
    assert not torch.equal(first, RadiativeLayer(size=16, num_waves=4, seed=1).initial_fields(1))
    both, alone = SMALL.solve(range(2)), SMALL.solve(range(1, 2))
    for name, values in alone.items():
        np.testing.assert_allclose(both[name][1:], values, rtol=1e-4, atol=1e-5)


def test_cooling_times_take_turns():
    solver = RadiativeLayer(cooling_times=(0.1, 0.3, 1.0))
    assert [solver.cooling_time(number) for number in range(5)] == [0.1, 0.3, 1.0, 0.1, 0.3]


def test_the_file_has_the_wells_layout_and_is_read_back(tmp_path):
    path = tmp_path / "layer.hdf5"
    generate(SMALL, path)
    data = open_data(path)
    assert data.layout == "well"
    assert [variable.name for variable in data.variables] == [
        "density", "pressure", "velocity_x", "velocity_y",
    ]  # fmt: skip
    assert data.num_samples == 5
    np.testing.assert_allclose(data.time, [0, 0.05, 0.1], rtol=1e-6)
    geometry = data.geometry(0)
    assert geometry.grid_shape == (16, 48)
    assert geometry.domain.periodic == (True, False)
    np.testing.assert_allclose(data.parameters["tcool"], [0.03, 0.06, 0.1, 0.18, 0.32], rtol=1e-6)
    low, high = geometry.coords.min(0), geometry.coords.max(0)
    np.testing.assert_allclose(low, [-0.5 + 1 / 32, -1 + 1 / 32], rtol=1e-5)
    np.testing.assert_allclose(high, [0.5 - 1 / 32, 2 - 1 / 32], rtol=1e-5)
    start = SMALL.initial_fields(3)[[0, 3, 1, 2]].flatten(1).T
    np.testing.assert_allclose(data.frames(3, slice(0, 1))[0], start, rtol=1e-5, atol=1e-6)


def test_the_same_recipe_gives_the_same_bytes(tmp_path):
    generate(SMALL, tmp_path / "one.hdf5")
    generate(SMALL, tmp_path / "two.hdf5")
    assert (tmp_path / "one.hdf5").read_bytes() == (tmp_path / "two.hdf5").read_bytes()


def test_a_layer_that_blows_up_is_reported_not_stored(monkeypatch, tmp_path):
    def explode(flow, state, duration, courant):
        return state * math.nan, None

    monkeypatch.setattr("gpo_bench.solvers.runge_kutta.advance", explode)
    with pytest.raises(BlowUpError, match="Trajectories 0, 1 blew up even with courant="):
        generate(SMALL, tmp_path / "layer.hdf5")
    assert not (tmp_path / "layer.hdf5").exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"cooling_times": ()}, "`cooling_times` must be positive numbers"),
        ({"cooling_times": (0.1, -1.0)}, "`cooling_times` must be positive numbers"),
        ({"contrast": 1.5}, "`contrast` must be above 2, got 1.5"),
        ({"size": 16}, "at most half of `size`, got num_waves=12, size=16"),
        ({"thickness": 0.0}, "`thickness` must be positive"),
        ({"courant": 0.0}, "`courant` between 0 and 1"),
        ({"num_trajectories": 0}, "at least 1"),
    ],
)
def test_impossible_numbers_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        RadiativeLayer(**changes)
