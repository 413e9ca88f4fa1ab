import numpy as np
import pytest
import torch

from gpo_bench.solvers.riemann import hllc, reconstruct
from tests.bench.solvers.exact_riemann import exact_tube

GAMMA = 1.4


def flux_of(density, u, v, pressure):
    energy = pressure / (GAMMA - 1) + density * (u * u + v * v) / 2
    return torch.tensor(
        [density * u, density * u * u + pressure, density * u * v, u * (energy + pressure)],
        dtype=torch.float64,
    )


def faces(left, right):
    return torch.tensor([left, right], dtype=torch.float64)[..., None]


@pytest.mark.parametrize("u", [-3.0, -0.4, 0.0, 0.7, 5.0])
def test_two_equal_states_give_the_flux_of_the_equations(u):
    state = (0.7, u, 1.3, 2.1)
    flux = hllc(faces(state, state), GAMMA)[:, 0]
    torch.testing.assert_close(flux, flux_of(*state), rtol=1e-13, atol=1e-13)


def test_a_supersonic_stream_takes_the_flux_from_upstream():
    left, right = (1.0, 4.0, 0.3, 1.0), (0.5, 3.5, -0.2, 0.8)
    flux = hllc(faces(left, right), GAMMA)[:, 0]
    torch.testing.assert_close(flux, flux_of(*left), rtol=1e-13, atol=1e-13)
    back = [(0.5, -3.5, -0.2, 0.8), (1.0, -4.0, 0.3, 1.0)]
    flux = hllc(faces(*back), GAMMA)[:, 0]
    torch.testing.assert_close(flux, flux_of(*back[1]), rtol=1e-13, atol=1e-13)


def test_a_resting_contact_and_a_shear_wave_are_kept_exactly():
    flux = hllc(faces((100.0, 0.0, -0.5, 1.0), (1.0, 0.0, 0.5, 1.0)), GAMMA)[:, 0]
    torch.testing.assert_close(flux, torch.tensor([0.0, 1.0, 0.0, 0.0], dtype=torch.float64))


def test_a_moving_contact_carries_what_is_behind_it():
    left, right = (100.0, 0.2, -0.5, 1.0), (1.0, 0.2, 0.5, 1.0)
    flux = hllc(faces(left, right), GAMMA)[:, 0]
    torch.testing.assert_close(flux, flux_of(*left), rtol=1e-12, atol=1e-12)


def test_an_isolated_shock_at_rest_does_not_move():
    # Mach 2 from the left: the jump conditions, in the frame of the shock.
    mach = 2.0
    ratio = (GAMMA + 1) * mach**2 / ((GAMMA - 1) * mach**2 + 2)
    before = (1.0, mach * GAMMA**0.5, 0.3, 1.0)
    after = (ratio, before[1] / ratio, 0.3, 1 + 2 * GAMMA / (GAMMA + 1) * (mach**2 - 1))
    flux = hllc(faces(before, after), GAMMA)[:, 0]
    torch.testing.assert_close(flux, flux_of(*before), rtol=1e-12, atol=1e-12)


def test_mirrored_states_give_the_mirrored_flux():
    generator = torch.Generator().manual_seed(0)
    states = torch.rand(2, 4, 500, dtype=torch.float64, generator=generator) + 0.05
    states[:, 1:3] = 6 * states[:, 1:3] - 3
    mirror = torch.tensor([1.0, -1.0, 1.0, 1.0], dtype=torch.float64)[:, None]
    flux = hllc(states, GAMMA)
    mirrored = hllc(states.flip(0) * mirror, GAMMA)
    torch.testing.assert_close(mirrored, -mirror * flux, rtol=1e-11, atol=1e-11)


def test_weak_waves_get_the_flux_of_the_exact_solution_but_for_squares():
    generator = np.random.default_rng(1)
    jumps = generator.uniform(-1, 1, (40, 2, 3))

    def error(size):
        errors = []
        for jump in jumps:
            left, right = np.array([1.0, 0.1, 1.0]) + size * jump
            exact = flux_of(*np.insert(exact_tube(left, right, [0.0], GAMMA)[:, 0], 2, 0.0))
            sides = (np.insert(side, 2, 0.0).tolist() for side in (left, right))
            errors.append((hllc(faces(*sides), GAMMA)[:, 0] - exact).norm().item())
        return np.mean(errors)

    coarse, fine = error(0.04), error(0.02)
    assert fine < 1e-3
    assert coarse / fine > 3.5, (coarse, fine)


def test_straight_lines_are_reconstructed_exactly():
    line = torch.linspace(1, 2, 12, dtype=torch.float64).expand(3, 12)[..., None]
    left, right = reconstruct(line)
    middle = (line[:, 1:-2] + line[:, 2:-1]) / 2
    torch.testing.assert_close(left, middle)
    torch.testing.assert_close(right, middle)


def test_no_face_value_lies_outside_the_two_cells_it_separates():
    generator = torch.Generator().manual_seed(0)
    padded = torch.rand(4, 300, 5, dtype=torch.float64, generator=generator) ** 8
    states = reconstruct(padded)
    low = torch.minimum(padded[:, 1:-2], padded[:, 2:-1])
    high = torch.maximum(padded[:, 1:-2], padded[:, 2:-1])
    assert bool((states >= low - 1e-15).all())
    assert bool((states <= high + 1e-15).all())


def test_slopes_of_marked_cells_are_zero():
    padded = torch.linspace(1, 2, 9, dtype=torch.float64).expand(1, 9)[..., None].contiguous()
    is_first_order = torch.zeros(9, 1, dtype=torch.float64)
    is_first_order[4] = 1
    left, right = reconstruct(padded, is_first_order)[:, 0, :, 0]
    # Cell 4 is left of face 3 and right of face 2.
    assert left[3] == padded[0, 4, 0]
    assert right[2] == padded[0, 4, 0]
    assert left[2] != padded[0, 3, 0]
