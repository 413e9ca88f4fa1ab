"""Our planet beside one that is not ours."""

import numpy as np
import pytest
import torch

from gpo_bench.solvers.rotating_shallow_water import advance
from gpo_bench.solvers.shallow_water_sphere import ShallowWaterSphere

pytestmark = pytest.mark.slow


@pytest.mark.filterwarnings("ignore")
def test_jets_and_eddies_after_two_days_are_those_of_torch_harmonics():
    package = pytest.importorskip(
        "torch_harmonics.examples.shallow_water_equations",
        reason="needs the package torch-harmonics",
        exc_type=ImportError,
    )
    solver = ShallowWaterSphere(mountains=0.0, forcing=0.0, damping_time=float("inf"))
    planet, duration, step = solver.planet(), 2 * 86400.0, 60.0
    harmonics = planet.harmonics
    start = planet.balanced(harmonics.truncated(solver.initial_vorticity(0)))
    after = advance(start, planet, duration, step=4 * step)

    theirs = package.ShallowWaterSolver(
        *harmonics.shape, step, lmax=43, mmax=43, grid="legendre-gauss",
        radius=solver.radius, omega=solver.rotation, gravity=solver.gravity,
        havg=solver.mean_depth,
    ).double()  # fmt: skip
    theirs.hyperdiff.fill_(1.0)

    def on_grid(state):
        south, east = planet.wind(state)
        return np.stack([solver.mean_depth + harmonics.field(state[2]), east, -south])

    given = torch.from_numpy(on_grid(start))
    spectrum = torch.cat(
        [theirs.grid2spec(given[:1] * solver.gravity), theirs.vrtdivspec(given[1:])]
    )
    spectrum = theirs.timestep(spectrum, round(duration / step))
    height, wind = theirs.spec2grid(spectrum[:1]) / solver.gravity, theirs.getuv(spectrum[1:])
    found = torch.cat([height, wind]).numpy()
    # Ours is of fourth order, theirs of third: what is left is their error of time.
    for ours, other, before in zip(on_grid(after), found, given.numpy(), strict=True):
        change, error = np.linalg.norm(other - before), np.linalg.norm(other - ours)
        assert change > 0.2 * np.linalg.norm(before - before.mean())
        assert error < 1e-4 * change, error / change
