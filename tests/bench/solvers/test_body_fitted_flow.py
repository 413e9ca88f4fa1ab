import numpy as np
import pytest
import torch

from gpo_bench.solvers.airfoil_mesh import c_mesh, naca, named_section, num_wake
from gpo_bench.solvers.body_fitted_flow import BodyFittedFlow
from gpo_bench.solvers.riemann import to_conserved
from gpo_bench.solvers.steady_state import steady_state

AROUND, OUT = 88, 20


def make_flow(section=None, **options) -> BodyFittedFlow:
    nodes = c_mesh(section or naca(0.12), AROUND, OUT)
    return BodyFittedFlow(torch.from_numpy(nodes)[None], num_wake(AROUND), **options)


@pytest.fixture(scope="module")
def lifting():
    flow = make_flow(named_section("2412"), mach=0.5, angle=1.0)
    state, relative = steady_state(flow, flow.uniform(), courant=30.0, drop=1e-8)
    assert relative.item() <= 1e-8
    return flow, state


def test_a_uniform_stream_is_in_balance_away_from_the_airfoil():
    flow = make_flow(mach=0.8, angle=3.0)
    residual = flow.residual(flow.uniform())
    near = slice(flow.body.start - 2, flow.body.stop + 2)
    residual[:, :, near, :2] = 0
    assert residual.abs().max() < 1e-13


def test_what_leaves_one_cell_enters_another():
    """All cells together gain what crosses the outer boundary and what the airfoil pushes."""
    flow = make_flow()
    random = 1 + 0.1 * torch.rand(flow.uniform().shape, dtype=torch.float64)
    disturbed = flow.uniform()
    disturbed[:, :, 3:-3, :-3] *= random[:, :, 3:-3, :-3]
    total = flow.residual(disturbed).sum((2, 3))[:, 0]
    push = flow.wall_pressure(disturbed) * flow.outward.lengths[:, flow.body, 0]
    wall = (push * flow.outward.normals[:, :, flow.body, 0]).sum((1, 2))
    mass, energy = total[0], total[3]
    assert abs(mass) < 1e-10
    assert abs(energy) < 1e-10
    # The boundary carries the far field's own momentum flux, which closes on itself but for
    # the outline of airfoil and wake, around which uniform pressure sums to nothing.
    torch.testing.assert_close(total[1:3], -wall, atol=1e-10, rtol=0)


def test_a_steady_subsonic_flow_has_lift_and_hardly_any_drag(lifting):
    flow, state = lifting
    lift, drag = (force.item() for force in flow.forces(state))
    assert 0.35 < lift < 0.55
    assert abs(drag) < 0.006, "an inviscid flow without shocks has none"


def test_total_enthalpy_and_entropy_are_those_of_the_stream(lifting):
    flow, state = lifting
    density, u, v, pressure = state[:, 0]
    enthalpy = flow.gamma / (flow.gamma - 1) * pressure / density + (u**2 + v**2) / 2
    far = 1 / (flow.gamma - 1) + flow.mach**2 / 2
    assert (enthalpy / far - 1).abs().max() < 0.02
    entropy = pressure * flow.gamma / density**flow.gamma
    weights = flow.areas[0] / flow.areas.sum()
    assert (weights * (entropy - 1).abs()).sum() < 1e-3


def test_the_mirror_image_of_a_flow_is_the_flow_of_the_mirror_image():
    flow, mirrored = make_flow(mach=0.8, angle=2.0), make_flow(mach=0.8, angle=-2.0)
    flip = torch.tensor([1, 1, -1, 1], dtype=torch.float64).view(4, 1, 1, 1)
    state = flow.uniform() * (1 + 0.05 * torch.rand(1, 1, AROUND, OUT, dtype=torch.float64))
    expected = (flow.residual(state) * flip).flip(2)
    torch.testing.assert_close(mirrored.residual((state * flip).flip(2)), expected, atol=1e-12, rtol=0)  # fmt: skip


def test_values_at_nodes_lie_between_those_of_cells_and_agree_on_both_sides_of_the_wake():
    flow = make_flow()
    state = flow.uniform()
    nodal = flow.at_nodes(state)
    torch.testing.assert_close(nodal[0, 0], torch.ones(AROUND + 1, OUT + 1, dtype=torch.float64))
    state[0] += 0.1 * torch.rand(state[0].shape, dtype=torch.float64)
    nodal = flow.at_nodes(state)[0, 0]
    wake = nodal[:, 0]
    torch.testing.assert_close(wake[: flow.num_wake], wake.flip(0)[: flow.num_wake])
    around = state[0, 0, 9:11, 9:11]
    assert nodal[10, 10] == pytest.approx(around.mean().item())


def test_values_on_the_airfoil_are_carried_on_from_the_cells_above():
    flow = make_flow()
    state = flow.uniform()
    state[3] += 0.01 * torch.arange(OUT)
    wall = flow.at_nodes(state)[3, 0, flow.body.start + 1 : flow.body.stop, 0]
    torch.testing.assert_close(wall, torch.full_like(wall, 1 / 1.4 - 0.005))
    torch.testing.assert_close(flow.wall_pressure(state)[0, 1:], wall)


def test_a_mesh_that_folds_is_refused():
    nodes = torch.from_numpy(c_mesh(naca(0.12), AROUND, OUT)[:, ::-1].copy())[None]
    with pytest.raises(ValueError, match="folds over itself"):
        BodyFittedFlow(nodes, num_wake(AROUND))


def test_time_steps_conserve_and_are_of_second_order():
    """Half the steps, four times the error, for a smooth pulse away from the airfoil."""
    nodes = torch.from_numpy(c_mesh(naca(0.12), AROUND, OUT))[None]
    flow = BodyFittedFlow(nodes, num_wake(AROUND), mach=0.5)
    x, y = ((nodes[:, 1:, 1:] + nodes[:, :-1, :-1]) / 2).unbind(-1)
    state = flow.uniform()
    state[[0, 3]] *= 1 + 0.02 * torch.exp(-((x + 3) ** 2 + y**2))
    ends = {courant: flow.advance(state, 0.05, courant) for courant in (0.8, 0.4, 0.05)}
    errors = [(ends[courant] - ends[0.05]).abs().max().item() for courant in (0.8, 0.4)]
    assert np.log2(errors[0] / errors[1]) > 1.7
    before, after = (
        (to_conserved(part, flow.gamma)[[0, 3]] * flow.areas).sum((1, 2, 3))
        for part in (state, ends[0.8])
    )
    torch.testing.assert_close(after, before, rtol=1e-12, atol=0)
