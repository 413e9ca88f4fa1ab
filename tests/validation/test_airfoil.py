"""The flow around NACA 0012 beside what others have published for it."""

import numpy as np
import pytest
import torch

from gpo_bench.solvers.airfoils import TransonicAirfoil
from tests.validation import openfoam

pytestmark = pytest.mark.slow


def solved(**numbers):
    solver = TransonicAirfoil(deformation=0.0, **numbers)
    flow = solver.flow([0])
    state = solver.steady_flow(flow, solver.steady_courant)
    assert state.isfinite().all()
    return flow, state


def test_lift_and_drag_lie_within_the_published_inviscid_spread():
    """Mach 0.8 at 1.25 degrees, a shock on either side: the classical case of AGARD."""
    flow, state = solved(angle=1.25)
    lift, drag = (force.item() for force in flow.forces(state))
    assert 0.34 < lift < 0.38
    assert 0.021 < drag < 0.024
    density, u, v, pressure = flow.at_nodes(state)[:, 0].numpy()
    mach = np.sqrt((u**2 + v**2) * density / (flow.gamma * pressure))[:, 0]
    x = flow.nodes[0, :, 0, 0].numpy()
    sides = (np.arange(130, 190), np.arange(90, 30, -1))  # behind the nose, downstream
    ends = [x[side][np.diff(mach[side]).argmin()] for side in sides]
    assert 0.58 < ends[0] < 0.68, "the strong shock"
    assert 0.28 < ends[1] < 0.42, "the weak one"


def test_the_flow_at_no_angle_is_symmetric_and_its_drag_published():
    flow, state = solved(drop=1e-6)
    lift, drag = (force.item() for force in flow.forces(state))
    assert abs(lift) < 1e-10
    assert 0.007 < drag < 0.010


def test_the_far_field_does_not_decide_the_outcome():
    """Twice the distance of the outer boundary changes little."""
    near, far = (flow.forces(state) for flow, state in (solved(angle=1.25, radius=r) for r in (25.0, 50.0)))  # fmt: skip
    assert abs(near[0].item() - far[0].item()) < 0.012
    assert abs(near[1].item() - far[1].item()) < 0.001


@pytest.mark.skipif(openfoam.SOLVER is None, reason="needs rhoCentralFoam of OpenFOAM")
def test_openfoam_agrees_where_it_is_given_our_flow(tmp_path):
    """Another code, begun at our flow, stays near it and within the published spread."""
    flow, ours = solved(angle=1.25, num_around=132, num_out=40)
    nodes, start = flow.nodes[0].numpy(), ours[:, 0].numpy()
    theirs = openfoam.solve(tmp_path, nodes, start, mach=0.8, angle=1.25, steps=5000)
    lift, drag = (force.item() for force in flow.forces(torch.from_numpy(theirs)[:, None]))
    assert 0.34 < lift < 0.38
    assert 0.021 < drag < 0.024
    near = (3, slice(24, 108), slice(0, 20))
    change, scale = theirs[near] - start[near], start[near] - 1 / flow.gamma
    assert np.linalg.norm(change) < 0.08 * np.linalg.norm(scale)
