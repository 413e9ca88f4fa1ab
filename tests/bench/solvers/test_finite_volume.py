import math
from itertools import pairwise

import pytest
import torch

from gpo.data.solvers.base import BlowUpError
from gpo_bench.solvers import runge_kutta
from gpo_bench.solvers.finite_volume import AbstractCooling, Flow, Viscosity
from gpo_bench.solvers.runge_kutta import advance, solve_with_retries
from tests.bench.solvers.exact_riemann import exact_tube

DOUBLE = torch.float64


class SteadyCooling(AbstractCooling):
    """Removes the same fraction of internal energy from each cell."""

    def loss(self, density, pressure):
        return pressure * (1.5 * 0.4)

    def max_rate(self):
        return torch.tensor([0.4], dtype=DOUBLE)


def centres(size, length=1.0):
    return (torch.arange(size, dtype=DOUBLE) + 0.5) * (length / size)


def tube(size, left, right, gamma=1.4):
    """A shock tube of length one with its membrane in the middle."""
    is_left = centres(size) < 0.5
    sides = zip(left, right, strict=True)
    rows = [
        torch.where(is_left, *(torch.tensor(side, dtype=DOUBLE) for side in pair)) for pair in sides
    ]
    flow = Flow(spacing=(1 / size,), periodic=(False,), gamma=gamma)
    return flow, torch.stack(rows)[:, None]


def vortex(size):
    """A vortex of uniform entropy in a stream along the diagonal; back in place after t = 10."""
    gamma, strength = 1.4, 5.0
    offset = centres(size, 10.0) - 5
    x, y = offset[:, None], offset[None, :]
    swirl = strength / (2 * math.pi) * torch.exp((1 - x * x - y * y) / 2)
    temperature = 1 - (gamma - 1) / (2 * gamma) * swirl**2
    density, pressure = temperature ** (1 / (gamma - 1)), temperature ** (gamma / (gamma - 1))
    flow = Flow(spacing=(10 / size,) * 2, periodic=(True, True), gamma=gamma)
    return flow, torch.stack([density, 1 - swirl * y, 1 + swirl * x, pressure])[:, None]


def rough(shape, batch=1, seed=0, speed=1.0):
    """A jagged state without any symmetry."""
    generator = torch.Generator().manual_seed(seed)
    fields = torch.rand(len(shape) + 2, batch, *shape, dtype=DOUBLE, generator=generator) + 0.3
    fields[1:-1] = speed * (fields[1:-1] - 0.8)
    return fields


SOD = (1.0, 0.0, 1.0), (0.125, 0.0, 0.1)


def test_sods_tube_converges_to_the_exact_solution_at_first_order():
    errors = []
    for size in (100, 200):
        flow, start = tube(size, *SOD)
        after, _ = advance(flow, flow.conserved(start), 0.2)
        rays = ((centres(size) - 0.5) / 0.2).numpy()
        exact = torch.from_numpy(exact_tube(*SOD, rays, 1.4))
        errors.append((flow.primitive(after)[:, 0] - exact).abs().mean(1))
    density, velocity, pressure = errors[-1].tolist()
    assert density < 4e-3
    assert velocity < 8e-3
    assert pressure < 3e-3
    # Shocks and contacts bound the order by one, contacts of a second order scheme by 2/3.
    for before, after in pairwise(errors):
        orders = torch.log2(before / after)
        assert orders.min() > 0.7, errors
        assert orders.max() < 1.3, errors


@pytest.mark.thorough
def test_the_isentropic_vortex_converges_at_second_order():
    errors = []
    for size in (32, 64):
        flow, start = vortex(size)
        after, _ = advance(flow, flow.conserved(start), 10.0)
        errors.append((flow.primitive(after) - start).abs().mean((1, 2, 3)))
    orders = torch.log2(errors[0] / errors[1])
    assert errors[1].max() < 0.01
    assert orders.min() > 1.8, orders
    assert orders.max() < 2.9, orders


@pytest.mark.parametrize("shape", [(24,), (12, 10), (6, 7, 8)])
def test_mass_momentum_and_energy_of_a_periodic_box_are_kept_to_rounding(shape):
    dim = len(shape)
    flow = Flow(
        spacing=tuple(1 / size for size in shape),
        periodic=(True,) * dim,
        viscosity=Viscosity(3e-3, 2e-3),
    )
    state = flow.conserved(rough(shape, batch=2))
    after, losses = advance(flow, state, 0.2)
    assert (after - state).abs().max() > 0.1
    torch.testing.assert_close(flow.total(after), flow.total(state), rtol=1e-13, atol=1e-13)
    assert not losses.outflow.any()
    assert not losses.cooled.any()


@pytest.mark.parametrize("viscosity", [None, Viscosity(3e-3, 2e-3)])
def test_what_an_open_box_loses_is_what_crossed_its_ends_and_was_radiated(viscosity):
    flow = Flow(
        spacing=(0.1, 0.08, 0.15),
        periodic=(False, True, False),
        viscosity=viscosity,
        cooling=SteadyCooling(),
    )
    state = flow.conserved(rough((10, 8, 6), speed=2.0))
    after, losses = advance(flow, state, 0.3)
    lost = flow.total(state) - flow.total(after)
    expected = losses.outflow.clone()
    expected[-1] += losses.cooled
    assert lost.abs().min() > 1e-4
    assert losses.cooled.min() > 1e-3
    torch.testing.assert_close(lost, expected, rtol=1e-12, atol=1e-13)


def test_gas_that_only_cools_follows_its_law():
    flow = Flow(spacing=(0.5, 0.5), periodic=(True, False), cooling=SteadyCooling())
    state = flow.conserved(
        torch.tensor([1.0, 0, 0, 1], dtype=DOUBLE).view(4, 1, 1, 1).expand(4, 1, 4, 4)
    )
    errors = []
    for courant in (0.4, 0.2):
        after, losses = advance(flow, state.clone(), 2.0, courant)
        exact = math.exp(-0.4 * 2)
        errors.append(abs(flow.primitive(after)[-1].mean().item() - exact))
        assert losses.cooled.item() == pytest.approx(1.5 * 4 * (1 - exact), rel=1e-2)
    assert errors[1] < 1e-3
    assert 3.5 < errors[0] / errors[1] < 4.6


def test_all_axes_are_treated_alike():
    start = rough((6, 8, 10))
    turned = start[[0, 3, 1, 2, 4]].permute(0, 1, 4, 2, 3).contiguous()

    def solve(fields, spacing, periodic):
        flow = Flow(spacing=spacing, periodic=periodic, viscosity=Viscosity(1e-2, 2e-2))
        return flow.primitive(advance(flow, flow.conserved(fields), 0.2)[0])

    straight = solve(start, (0.1, 0.2, 0.3), (True, False, True))
    again = solve(turned, (0.3, 0.1, 0.2), (True, True, False))
    expected = straight[[0, 3, 1, 2, 4]].permute(0, 1, 4, 2, 3)
    torch.testing.assert_close(again, expected, rtol=1e-11, atol=1e-12)


def test_a_mirrored_box_gives_the_mirrored_flow():
    start = rough((12, 9))
    mirror = torch.tensor([1.0, -1, 1, 1], dtype=DOUBLE).view(4, 1, 1, 1)
    flow = Flow(spacing=(0.1, 0.1), periodic=(False, True), viscosity=Viscosity(1e-2, 0.0))
    straight, _ = advance(flow, flow.conserved(start), 0.3)
    turned, _ = advance(flow, flow.conserved((start * mirror).flip(2)), 0.3)
    torch.testing.assert_close(turned, (straight * mirror).flip(2), rtol=1e-11, atol=1e-12)


def test_hot_and_cold_gas_at_rest_stay_at_rest():
    start = torch.ones(4, 1, 6, 12, dtype=DOUBLE)
    start[0, ..., :6], start[1:3] = 100.0, 0.0
    flow = Flow(spacing=(0.1, 0.1), periodic=(True, False))
    after, losses = advance(flow, flow.conserved(start), 1.0)
    torch.testing.assert_close(flow.primitive(after), start, rtol=1e-13, atol=1e-13)
    assert losses.outflow[0].abs().max() < 1e-13


def test_uniform_wind_blows_through_open_ends():
    start = torch.tensor([1.2, 0.7, -0.3, 0.9], dtype=DOUBLE).view(4, 1, 1, 1).repeat(1, 1, 8, 8)
    flow = Flow(spacing=(0.1, 0.1), periodic=(False, False))
    after, _ = advance(flow, flow.conserved(start), 1.0)
    torch.testing.assert_close(flow.primitive(after), start, rtol=1e-12, atol=1e-12)


EXTREME = {
    "two rarefactions": ((1.0, -2.0, 0.4), (1.0, 2.0, 0.4), 0.15),
    "nearly a vacuum": ((1.0, -4.9, 0.4), (1.0, 4.9, 0.4), 0.06),
    "blast": ((1.0, 0.0, 1e5), (1.0, 0.0, 1e-3), 1e-3),
    "two streams": ((1.0, 30.0, 1e-3), (1.0, -30.0, 1e-3), 0.02),
}


@pytest.mark.parametrize("name", list(EXTREME))
def test_density_and_pressure_stay_positive_in_extreme_tubes(name):
    left, right, duration = EXTREME[name]
    flow, start = tube(200, left, right)
    state = flow.conserved(start)
    after, losses = advance(flow, state, duration)
    primitive = flow.primitive(after)
    assert bool(primitive.isfinite().all())
    assert primitive[[0, -1]].min() > 0
    lost = flow.total(state) - flow.total(after)
    scale = flow.total(state.abs()).max()
    assert (lost - losses.outflow).abs().max() < 1e-12 * scale


def test_a_step_that_empties_a_cell_is_repeated_and_still_conserves(monkeypatch):
    repeated = []
    tendency = Flow.tendency

    def spy(self, primitive, is_troubled=None):
        repeated.append(is_troubled is not None)
        return tendency(self, primitive, is_troubled)

    monkeypatch.setattr(Flow, "tendency", spy)
    generator = torch.Generator().manual_seed(2)
    start = torch.rand(4, 1, 24, 24, dtype=DOUBLE, generator=generator)
    start[[0, 3]] = 10 ** (4 * start[[0, 3]] - 4)
    start[1:3] = 8 * start[1:3] - 4
    flow = Flow(spacing=(1 / 24,) * 2, periodic=(True, True), gamma=1.4)
    state = flow.conserved(start)
    after, _ = advance(flow, state, 0.05, courant=0.95)
    assert any(repeated)
    assert flow.primitive(after)[[0, -1]].min() > 0
    torch.testing.assert_close(flow.total(after), flow.total(state), rtol=1e-12, atol=1e-12)


def test_a_trajectory_does_not_depend_on_those_beside_it():
    both = rough((8, 8), batch=2)
    both[1:3, 1] *= 5
    flow = Flow(spacing=(0.1, 0.1), periodic=(True, True))
    together, _ = advance(flow, flow.conserved(both), 0.3)
    for number in range(2):
        alone, _ = advance(flow, flow.conserved(both[:, number : number + 1]), 0.3)
        torch.testing.assert_close(together[:, number : number + 1], alone, rtol=1e-12, atol=1e-13)


def test_a_lost_trajectory_is_marked_and_others_go_on():
    both = rough((8, 8), batch=2)
    flow = Flow(spacing=(0.1, 0.1), periodic=(True, True))
    state = flow.conserved(both)
    alone, _ = advance(flow, state[:, 1:], 0.2)
    state[-1, 0, 3, 3] = -5.0
    after, _ = advance(flow, state, 0.2)
    assert bool(after[:, 0].isnan().all())
    torch.testing.assert_close(after[:, 1:], alone, rtol=1e-12, atol=1e-13)


def test_a_trajectory_that_needs_too_short_steps_is_nan():
    flow, start = tube(20, (1.0, 1e9, 1.0), (1.0, 1e9, 1.0))
    after, _ = advance(flow, flow.conserved(start), 1.0)
    assert bool(after.isnan().all())


def test_a_trajectory_that_blows_up_is_solved_again_with_a_smaller_step():
    calls = []

    def solve(numbers, courant):
        calls.append((list(numbers), courant))
        fails = [number == 7 and courant > 0.3 for number in numbers]
        return torch.tensor(
            [[math.nan if bad else float(n)] for n, bad in zip(numbers, fails, strict=True)]
        )

    assert solve_with_retries(solve, range(6, 9), 0.8).flatten().tolist() == [6, 7, 8]
    assert calls == [([6, 7, 8], 0.8), ([7], 0.4), ([7], 0.2)]


def test_a_trajectory_that_always_blows_up_is_reported():
    def solve(numbers, courant):
        return torch.tensor([[math.nan if number > 3 else 0.0] for number in numbers])

    with pytest.raises(BlowUpError, match=r"Trajectories 4, 5 blew up even with courant=0\.1\."):
        solve_with_retries(solve, range(2, 6), 0.8)
    assert runge_kutta.MAX_ATTEMPTS == 4
