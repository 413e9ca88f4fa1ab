import math

import torch

from gpo_bench.solvers.finite_volume import Flow, Viscosity
from gpo_bench.solvers.runge_kutta import advance

DOUBLE = torch.float64
TURN = 2 * math.pi


def grid(size):
    along = TURN * (torch.arange(size, dtype=DOUBLE) + 0.5) / size
    return torch.meshgrid(along, along, along, indexing="ij")


def friction(size, shear, bulk):
    """Rate of change of momentum and energy by viscosity alone, in a box of side one."""
    x, y, z = grid(size)
    fields = torch.ones(5, 1, size, size, size, dtype=DOUBLE)
    fields[1, 0] = torch.sin(x) * torch.cos(2 * y)
    fields[2, 0] = torch.sin(y + z)
    fields[3, 0] = torch.cos(x) * torch.sin(z)
    options = {"spacing": (1 / size,) * 3, "periodic": (True,) * 3}
    with_friction, _ = Flow(**options, viscosity=Viscosity(shear, bulk)).tendency(fields)
    without, _ = Flow(**options).tendency(fields)
    return (with_friction - without)[1:, 0], fields[1:4, 0]


def test_friction_is_that_of_the_equations_at_second_order():
    shear, bulk = 0.3, 0.7
    errors = []
    for size in (16, 32):
        rate, velocity = friction(size, shear, bulk)
        x, y, z = grid(size)
        # Laplacian, and gradient of the divergence cos x cos 2y + cos(y+z) + cos x cos z.
        laplacian = torch.stack([-5 * velocity[0], -2 * velocity[1], -2 * velocity[2]])
        gradient = torch.stack(
            [
                -torch.sin(x) * (torch.cos(2 * y) + torch.cos(z)),
                -2 * torch.cos(x) * torch.sin(2 * y) - torch.sin(y + z),
                -torch.sin(y + z) - torch.cos(x) * torch.sin(z),
            ]
        )
        exact = TURN**2 * (shear * laplacian + (bulk + shear / 3) * gradient)
        errors.append(((rate[:3] - exact).norm() / exact.norm()).item())
    order = math.log2(errors[0] / errors[1])
    assert errors[1] < 0.02
    assert 1.9 < order < 2.1, errors


def test_friction_turns_motion_into_heat_and_keeps_the_sum():
    rate, velocity = friction(24, 0.3, 0.0)
    # Without bulk viscosity all work is by shear; energy is only moved about.
    assert abs(rate[3].sum()) < 1e-10 * rate[3].abs().sum()
    assert (rate[:3] * velocity).sum() < 0


def test_a_gas_that_expands_evenly_feels_bulk_viscosity_alone():
    places = torch.arange(4, dtype=DOUBLE) / 4
    x, y, z = torch.meshgrid(places, places, places, indexing="ij")
    velocity = torch.stack([x, y, z])[:, None]
    for axis in range(3):
        stress = Viscosity(0.3, 0.7).stress(velocity, axis, (0.25,) * 3)
        expected = torch.zeros_like(stress[:3])
        expected[axis] = 3 * 0.7
        torch.testing.assert_close(stress[:3], expected, rtol=1e-12, atol=1e-12)


def test_a_gas_that_turns_like_a_solid_feels_no_friction():
    places = torch.arange(5, dtype=DOUBLE)
    x, y = torch.meshgrid(places, places, indexing="ij")
    velocity = torch.stack([-y, x])[:, None]
    for axis in range(2):
        stress = Viscosity(0.3, 0.7).stress(velocity, axis, (1.0, 1.0))
        assert stress.abs().max() < 1e-12


def wave(size, shear, bulk, kind):
    """Damping rate of a weak wave along x, measured over some time."""
    x = TURN * (torch.arange(size, dtype=DOUBLE) + 0.5) / size
    fields = torch.ones(4, 1, size, 4, dtype=DOUBLE)
    fields[1:3] = 0
    sound = math.sqrt(5 / 3)
    bump = 1e-4 * torch.sin(x)[:, None]
    if kind == "shear":
        fields[2] += bump
        duration = 0.5
    else:
        # A standing wave, seen after one whole period.
        fields[1] += bump
        duration = 1 / sound
    flow = Flow(spacing=(1 / size, 0.25), periodic=(True, True), viscosity=Viscosity(shear, bulk))
    after, _ = advance(flow, flow.conserved(fields), duration)
    row = 2 if kind == "shear" else 1
    ratio = (flow.primitive(after)[row] * bump).sum() / (fields[row] * bump).sum()
    return -math.log(ratio.item()) / duration


def test_shear_waves_decay_at_the_exact_rate():
    exact = 2e-2 * TURN**2
    errors = [abs(wave(size, 2e-2, 3e-2, "shear") / exact - 1) for size in (16, 32)]
    assert errors[1] < 0.01, errors
    assert errors[0] / errors[1] > 3, errors


def test_sound_decays_by_shear_and_bulk_viscosity_at_the_exact_rate():
    shear, bulk = 4e-3, 6e-3
    exact = (4 / 3 * shear + bulk) * TURN**2 / 2
    errors = [abs(wave(size, shear, bulk, "sound") / exact - 1) for size in (24, 48)]
    assert errors[-1] < 0.05, errors
    assert errors[0] / errors[1] > 3, errors
