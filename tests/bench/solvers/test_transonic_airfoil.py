import numpy as np
import pytest
import torch

from gpo.data.generate import generate
from gpo.data.readers.registry import open_data
from gpo.data.solvers.base import BlowUpError
from gpo_bench.solvers.airfoils import TransonicAirfoil
from gpo_bench.solvers.steady_state import steady_state
from tests.core.data.files import pair

SMALL = {"num_around": 88, "num_out": 20, "num_trajectories": 3, "portion_size": 2}


def test_the_published_layout_is_written_and_read_back(tmp_path):
    solver = TransonicAirfoil(**SMALL)
    generate(solver, tmp_path / "airfoil")
    data = open_data(tmp_path / "airfoil")
    assert data.layout == "airfoil"
    assert data.num_samples == 3
    mesh, mach = pair(data, 2)
    np.testing.assert_allclose(mesh.reshape(89, 21, 2), solver.mesh(2), rtol=1e-6, atol=1e-6)
    assert 1.05 < mach.max() < 1.8, "supersonic over the airfoil"
    assert mach.min() < 0.4, "slow at the nose"
    far = mach.reshape(89, 21)[:, -1]
    np.testing.assert_allclose(far, 0.8, atol=0.02)


@pytest.mark.thorough
def test_a_sample_depends_on_its_number_alone():
    solver = TransonicAirfoil(**SMALL)
    together, alone = solver.solve(range(2)), solver.solve(range(1, 2))
    for name in ("x", "y", "q"):
        np.testing.assert_allclose(together[name][1], alone[name][0], rtol=1e-6, atol=1e-6)
    again = solver.solve(range(1, 2))
    assert all(np.array_equal(alone[name], again[name]) for name in alone)
    other = TransonicAirfoil(**SMALL, seed=1)
    assert not np.allclose(other.mesh(1), solver.mesh(1))


def test_a_symmetric_airfoil_has_a_symmetric_flow():
    solver = TransonicAirfoil(**SMALL, deformation=0.0, drop=1e-8)
    flow = solver.flow([0])
    state = solver.steady_flow(flow, 30.0)
    lift, drag = flow.forces(state)
    assert abs(lift.item()) < 1e-12
    assert drag.item() > 0.003, "a shock costs drag"
    torch.testing.assert_close(state[3], state[3].flip(1), atol=1e-12, rtol=0)


def test_what_does_not_become_steady_is_not_a_number_and_is_reported():
    solver = TransonicAirfoil(**SMALL, drop=1e-30)
    flow = solver.flow([0, 1])
    state, relative = steady_state(flow, flow.uniform(), drop=0.3, max_steps=400)
    assert state.isfinite().all()
    assert (relative <= 0.3).all()
    state, relative = steady_state(flow, flow.uniform(), drop=1e-30, max_steps=20)
    assert state.isnan().all()
    assert (relative > 0).all()
    with pytest.raises(BlowUpError, match="Trajectories 0 blew up even with courant="):
        TransonicAirfoil(**SMALL, mach=0.999, angle=10.0, steady_courant=1e6).solve(range(1))


@pytest.mark.parametrize(
    ("numbers", "problem"),
    [
        ({"num_around": 90}, "`num_around` must be a multiple of 4"),
        ({"mach": 1.2}, "`mach` must lie between 0 and 1"),
        ({"radius": 1.0}, "`radius` must be at least 3"),
        ({"num_trajectories": 0}, "`num_trajectories` must be at least 1"),
    ],
)
def test_numbers_that_no_flow_has_are_refused(numbers, problem):
    with pytest.raises(ValueError, match=problem):
        TransonicAirfoil(**numbers)
