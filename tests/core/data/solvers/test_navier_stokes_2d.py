import math
from itertools import pairwise

import numpy as np
import pytest
import torch

from gpo.data.solvers.base import BlowUpError
from gpo.data.solvers.navier_stokes_2d import Flow, NavierStokes2D, advance, fno_forcing
from gpo.numerics.spectral import energy_spectrum, random_field

SIZE = 32


def grid(size=SIZE):
    x = 2 * math.pi * torch.arange(size, dtype=torch.float64) / size
    return x[:, None], x[None, :]


def smooth_start(size=SIZE, scale=0.05):
    generator = torch.Generator().manual_seed(3)
    field = random_field(size, lambda squared: scale * torch.exp(-squared / 400), generator)
    return torch.fft.rfft2(field)


def test_taylor_green_vortices_decay_at_the_exact_rate():
    x, y = grid()
    vorticity = torch.cos(2 * x) * torch.cos(2 * y)
    after = advance(torch.fft.rfft2(vorticity), 1.5, viscosity=1e-2)
    expected = vorticity * math.exp(-1e-2 * 2 * (2 * 2 * math.pi) ** 2 * 1.5)
    torch.testing.assert_close(torch.fft.irfft2(after), expected, rtol=1e-12, atol=1e-14)


def test_advection_is_the_pointwise_product_of_velocity_and_gradient():
    x, y = grid()
    # psi = cos(x) sin(2y) + sin(3x) in angles; one angle is 1/(2 pi) of the box.
    turn = 2 * math.pi
    vorticity = turn**2 * (5 * torch.cos(x) * torch.sin(2 * y) + 9 * torch.sin(3 * x))
    u = turn * 2 * torch.cos(x) * torch.cos(2 * y)
    v = turn * (torch.sin(x) * torch.sin(2 * y) - 3 * torch.cos(3 * x))
    along_x = turn**3 * (-5 * torch.sin(x) * torch.sin(2 * y) + 27 * torch.cos(3 * x))
    along_y = turn**3 * 10 * torch.cos(x) * torch.cos(2 * y)
    flow = Flow(SIZE, torch.float64, "cpu")
    found_u, found_v = flow.velocity(torch.fft.rfft2(vorticity))
    torch.testing.assert_close(found_u, u, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(found_v, v + 0 * y, rtol=1e-10, atol=1e-10)
    advection = torch.fft.irfft2(flow.advection(torch.fft.rfft2(vorticity)))
    torch.testing.assert_close(advection, -(u * along_x + v * along_y), rtol=1e-9, atol=1e-7)


def test_energy_and_enstrophy_are_conserved_without_viscosity_to_the_schemes_order():
    start = smooth_start() * Flow(SIZE, torch.float64, "cpu").is_resolved

    def drifts(step):
        before = torch.fft.irfft2(start)
        after = torch.fft.irfft2(advance(start, 0.8, viscosity=0.0, step=step))
        energy = energy_spectrum(after).sum() / energy_spectrum(before).sum() - 1
        enstrophy = after.square().mean() / before.square().mean() - 1
        return energy.abs().item(), enstrophy.abs().item()

    coarse, fine = drifts(0.04), drifts(0.02)
    for before, after in zip(coarse, fine, strict=True):
        assert after < 1e-6
        # Fourth order or better: halving the step divides the drift by 16 at least, nearly.
        assert before / after > 14, (coarse, fine)


def test_the_measured_order_of_convergence_is_four():
    start, forcing = smooth_start(), fno_forcing(SIZE, torch.float64, "cpu")

    def solve(step):
        return advance(start, 0.64, viscosity=1e-3, forcing=forcing, step=step)

    exact = solve(0.0025)
    errors = [(solve(step) - exact).abs().norm().item() for step in (0.08, 0.04, 0.02)]
    orders = [math.log2(before / after) for before, after in pairwise(errors)]
    assert all(3.7 < order < 4.5 for order in orders), orders


def test_space_converges_spectrally():
    def solve(size):
        x, y = grid(size)
        start = torch.fft.rfft2(torch.cos(x) * torch.sin(y) + torch.cos(2 * x + y))
        after = torch.fft.irfft2(advance(start, 0.5, viscosity=1e-3, step=0.005))
        return after[:: size // 16, :: size // 16]

    exact = solve(128)
    errors = [(solve(size) - exact).abs().max().item() for size in (16, 32, 64)]
    # No fixed order: every doubling of the grid gains more digits than the one before.
    first, second = (math.log2(before / after) for before, after in pairwise(errors))
    assert first > 8
    assert second > 2 * first


def test_from_rest_only_the_forcing_acts():
    x, y = grid()
    zero = torch.zeros(SIZE, SIZE // 2 + 1, dtype=torch.complex128)
    forcing = fno_forcing(SIZE, torch.float64, "cpu")
    after = torch.fft.irfft2(advance(zero, 2.0, viscosity=1e-2, forcing=forcing, step=0.01))
    rate = 1e-2 * 2 * (2 * math.pi) ** 2
    expected = 0.1 * (torch.sin(x + y) + torch.cos(x + y)) * (1 - math.exp(-rate * 2)) / rate
    torch.testing.assert_close(after, expected, rtol=1e-9, atol=1e-12)


def test_adaptive_steps_agree_with_tiny_ones():
    start = smooth_start()
    adaptive = advance(start, 0.5, viscosity=1e-4)
    tiny = advance(start, 0.5, viscosity=1e-4, step=0.001)
    assert (adaptive - tiny).abs().norm() < 1e-3 * tiny.abs().norm()


def test_a_trajectory_depends_on_its_number_and_the_seed_alone():
    solver = NavierStokes2D(size=16, num_trajectories=6)
    assert torch.equal(solver.initial_field(4), NavierStokes2D(size=32).initial_field(4))
    assert not torch.equal(solver.initial_field(4), solver.initial_field(5))
    assert not torch.equal(solver.initial_field(4), NavierStokes2D(seed=1).initial_field(4))


def test_stored_frames_are_the_fourier_truncation_of_a_finer_solution():
    coarse = NavierStokes2D(size=16, num_frames=2, viscosity=1e-3).solve(range(2))
    fine = NavierStokes2D(size=32, num_frames=2, viscosity=1e-3).solve(range(2))
    assert coarse["a"].shape == (2, 16, 16)
    assert coarse["u"].shape == (2, 16, 16, 2)
    cut = np.fft.rfft2(fine["u"], axes=(1, 2))
    for kx in (0, 1, 3, -2):
        for ky in (0, 1, 4):
            low = np.fft.rfft2(coarse["u"], axes=(1, 2))[:, kx, ky] / 16**2
            np.testing.assert_allclose(low, cut[:, kx, ky] / 32**2, atol=2e-4)


def test_a_flow_that_blows_up_is_reported_not_stored(monkeypatch):
    def explode(*args, **kwargs):
        return args[0] * math.nan

    monkeypatch.setattr("gpo.data.solvers.navier_stokes_2d.advance", explode)
    with pytest.raises(BlowUpError, match="Trajectories 0 to 1 blew up even with courant="):
        NavierStokes2D(size=16, num_frames=1).solve(range(2))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"viscosity": -1.0}, "viscosity=-1.0"),
        ({"size": 15}, "even and at least 8, got size=15"),
        ({"refinement": 1}, "`refinement` must be at least 2"),
        ({"num_frames": 0}, "at least 1"),
    ],
)
def test_invalid_parameters_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        NavierStokes2D(**changes)
