import numpy as np
import pytest
import torch

from gpo.data.generate import generate
from gpo.data.readers.registry import open_data
from gpo_bench.solvers.airfoil_vortex import AirfoilVortex

SMALL = {"num_around": 88, "num_out": 24, "num_frames": 4, "num_trajectories": 2, "portion_size": 2}


def test_a_series_is_written_as_a_mesh_and_read_back(tmp_path):
    solver = AirfoilVortex(**SMALL)
    generate(solver, tmp_path / "series.h5")
    data = open_data(tmp_path / "series.h5")
    assert data.layout == "mesh-series"
    assert [variable.name for variable in data.variables] == [
        "density", "pressure", "velocity_x", "velocity_y",
    ]  # fmt: skip
    assert data.num_samples == 2
    assert data.geometry(1).triangles is not None
    np.testing.assert_allclose(data.time, [0, 0.1, 0.2, 0.3])
    first, last = data.frames(1)[[0, -1]]
    assert np.isfinite(data.frames(1)).all()
    assert np.abs(last - first).max() > 0.02, "the vortex drifts"


@pytest.mark.thorough
def test_a_vortex_in_a_uniform_stream_is_in_equilibrium_and_drifts():
    """Half a unit of time later it is where the stream has carried it."""
    solver = AirfoilVortex(
        **{**SMALL, "num_around": 176, "num_out": 64},
        start=-1.5, heights=(0.5, 0.5), sizes=(0.4, 0.4), strengths=(0.2, 0.2),
    )  # fmt: skip
    flow = solver.flow([0])
    state = solver.disturbed(flow, flow.uniform(), [0])
    # The airfoil is met by a uniform stream at once; its sound needs a while to the vortex.
    centers = ((flow.nodes[:, 1:, 1:] + flow.nodes[:, :-1, :-1]) / 2)[0]
    is_near = torch.linalg.vector_norm(centers - torch.tensor([-1.2, 0.5]), dim=-1) < 0.7
    later = flow.advance(state, 0.4, 0.8)[:, 0, is_near]
    size = 0.4
    x, y = ((centers[is_near] - torch.tensor([-1.5 + 0.4 * 0.7, 0.5])) / size).T
    swirl = solver.vortex(0)[0] * torch.exp((1 - x**2 - y**2) / 2)
    expected = torch.stack([solver.mach - swirl * y, swirl * x])
    error = (later[1:3] - expected).square().mean().sqrt()
    assert error < 0.12 * 0.2


@pytest.mark.parametrize(
    ("numbers", "problem"),
    [
        ({"sizes": (0.3, 0.1)}, "`sizes` must be the smallest and the largest value"),
        ({"strengths": (-0.1, 0.1)}, "`strengths` must not be negative"),
        ({"frame_step": 0.0}, "`frame_step` must be positive"),
    ],
)
def test_numbers_that_no_series_has_are_refused(numbers, problem):
    with pytest.raises(ValueError, match=problem):
        AirfoilVortex(**numbers)
