import math

import numpy as np
import pytest
import torch

from gpo.data.generate import generate
from gpo.data.readers.registry import open_data
from gpo.data.solvers.base import BlowUpError
from gpo_bench.solvers.navier_stokes_3d import NavierStokes3D
from gpo_bench.solvers.runge_kutta import advance

SMALL = NavierStokes3D(size=12, num_trajectories=3, num_frames=3, portion_size=2)
SOUND = math.sqrt(5 / 3)


def slope(field, axis):
    """The exact derivative of a field of few waves."""
    size = field.shape[axis]
    numbers = torch.fft.fftfreq(size, 1 / size, dtype=torch.float64)
    shape = [-1 if other == axis else 1 for other in range(3)]
    factor = (2j * math.pi * numbers).view(shape)
    return torch.fft.ifft(torch.fft.fft(field, dim=axis) * factor, dim=axis).real


@pytest.mark.parametrize("start", ["turbulent", "random"])
@pytest.mark.parametrize("mach", [0.1, 1.0])
def test_the_start_has_the_requested_mach_number(start, mach):
    fields = NavierStokes3D(start=start, mach=mach).initial_fields(0)
    speed = fields[1:4].square().sum(0).mean().sqrt().item()
    assert speed == pytest.approx(mach * SOUND, rel=1e-12)
    assert fields[1:4].mean((1, 2, 3)).abs().max() < 1e-12
    assert fields[0].mean().item() == pytest.approx(1, rel=1e-12)
    assert fields[4].mean().item() == pytest.approx(1, rel=1e-12)
    assert fields[[0, 4]].min() > 0


def test_turbulence_starts_as_eddies_in_a_level_gas():
    fields = NavierStokes3D(size=24).initial_fields(1)
    assert bool((fields[[0, 4]] == 1).all())
    divergence = sum(slope(fields[1 + axis], axis) for axis in range(3))
    shear = slope(fields[1], 1)
    assert divergence.abs().max() < 1e-10 * shear.abs().max()


def test_a_random_start_is_random_in_every_field():
    fields = NavierStokes3D(start="random", size=24, contrast=0.2).initial_fields(1)
    divergence = sum(slope(fields[1 + axis], axis) for axis in range(3))
    assert divergence.abs().max() > 1
    assert 0.15 < fields[0].log().std() < 0.25
    assert 0.15 < fields[4].log().std() < 0.25
    assert torch.corrcoef(fields.flatten(1)).fill_diagonal_(0).abs().max() < 0.5


@pytest.mark.parametrize("start", ["turbulent", "random"])
def test_the_start_is_the_same_function_on_every_grid(start):
    coarse = NavierStokes3D(start=start, size=12).initial_fields(2)
    fine = NavierStokes3D(start=start, size=36).initial_fields(2)
    # Every third cell of the fine grid has its centre where a coarse one has.
    sampled = fine[:, 1::3, 1::3, 1::3]
    torch.testing.assert_close(coarse[1:4], sampled[1:4], rtol=1e-9, atol=1e-9)
    # Density and pressure are scaled to mean one on their own grid.
    torch.testing.assert_close(coarse, sampled, rtol=1e-3, atol=1e-3)


def test_waves_are_no_shorter_than_requested_and_fall_off():
    fields = NavierStokes3D(size=32, largest_wavenumber=5, decay=2.0).initial_fields(0)
    power = torch.fft.fftn(fields[1:4], dim=(1, 2, 3), norm="forward").abs().square().sum(0)
    along = torch.fft.fftfreq(32, 1 / 32)
    radius = (along[:, None, None] ** 2 + along[:, None] ** 2 + along**2).sqrt()
    assert power[radius > 5.01].max() < 1e-20
    assert power[radius == 1].mean() > 30 * power[(radius > 4) & (radius < 5.01)].mean()


def test_a_trajectory_depends_on_its_number_and_the_seed_alone():
    first = SMALL.initial_fields(1)
    assert torch.equal(first, NavierStokes3D(size=12, num_trajectories=9).initial_fields(1))
    assert not torch.equal(first, SMALL.initial_fields(2))
    assert not torch.equal(first, NavierStokes3D(size=12, seed=1).initial_fields(1))
    both, alone = SMALL.solve(range(2)), SMALL.solve(range(1, 2))
    for name, values in alone.items():
        np.testing.assert_allclose(both[name][1:], values, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("start", ["turbulent", "random"])
def test_the_strongest_flow_keeps_mass_momentum_energy_and_stays_positive(start):
    solver = NavierStokes3D(start=start, size=16, mach=1.0)
    flow = solver.flow
    state = flow.conserved(solver.initial_fields(0)[:, None])
    after, _ = advance(flow, state, 0.3)
    assert flow.primitive(after)[[0, -1]].min() > 0
    torch.testing.assert_close(flow.total(after), flow.total(state), rtol=1e-12, atol=1e-12)
    # Entropy of the whole only grows: log(p / rho^gamma) weighted with mass.
    entropy = [
        (fields[0] * (fields[-1] / fields[0] ** flow.gamma).log()).mean().item()
        for fields in (flow.primitive(state), flow.primitive(after))
    ]
    assert entropy[1] > entropy[0] + 0.01


def test_stored_frames_keep_their_energy_to_single_precision():
    frames = NavierStokes3D(size=12, num_frames=4).solve(range(1))
    fields = {name: values.astype(np.float64) for name, values in frames.items()}
    kinetic = sum(fields[name] ** 2 for name in ("Vx", "Vy", "Vz")) * fields["density"] / 2
    energy = (fields["pressure"] * 1.5 + kinetic).mean((0, 2, 3, 4))
    np.testing.assert_allclose(energy, energy[0], rtol=1e-5)
    moving = kinetic.mean((0, 2, 3, 4))
    assert moving[-1] < 0.95 * moving[0]


def test_slow_eddies_are_nearly_incompressible():
    frames = NavierStokes3D(size=12, num_frames=2, mach=0.1, frame_step=0.5).solve(range(1))
    assert np.ptp(frames["density"]) < 0.05
    assert np.ptp(frames["pressure"]) < 0.1


def test_friction_slows_the_flow():
    def motion(eta, zeta):
        solver = NavierStokes3D(
            start="random", size=12, num_frames=2, frame_step=0.1, mach=0.3,
            shear_viscosity=eta, bulk_viscosity=zeta,
        )  # fmt: skip
        frames = solver.solve(range(1))
        return sum((frames[name][0, -1] ** 2).mean() for name in ("Vx", "Vy", "Vz"))

    free = motion(0.0, 0.0)
    assert motion(1e-2, 0.0) < 0.9 * free
    assert motion(0.0, 1e-2) < 0.98 * free


def test_the_file_has_pdebenchs_layout_and_is_read_back(tmp_path):
    path = tmp_path / "flow.hdf5"
    generate(SMALL, path)
    data = open_data(path)
    assert data.layout == "pdebench"
    assert [variable.name for variable in data.variables] == [
        "density", "pressure", "Vx", "Vy", "Vz",
    ]  # fmt: skip
    assert data.num_samples == 3
    np.testing.assert_allclose(data.time, [0, 0.05, 0.1], rtol=1e-6)
    geometry = data.geometry(0)
    assert geometry.grid_shape == (12, 12, 12)
    assert geometry.domain.periodic == (True, True, True)
    np.testing.assert_allclose(geometry.coords.min(0), 0.5 / 12, rtol=1e-5)
    assert {name: values[0] for name, values in data.parameters.items()} == {
        "eta": 1e-8, "zeta": 1e-8, "M": 1.0,
    }  # fmt: skip
    start = SMALL.initial_fields(2)[[0, 4, 1, 2, 3]].flatten(1).T
    np.testing.assert_allclose(data.frames(2, slice(0, 1))[0], start, rtol=1e-5, atol=1e-6)
    assert [file.name for file in tmp_path.iterdir() if "made" not in file.name] == ["flow.hdf5"]


def test_the_same_recipe_gives_the_same_bytes(tmp_path):
    generate(SMALL, tmp_path / "one.hdf5")
    generate(SMALL, tmp_path / "two.hdf5")
    assert (tmp_path / "one.hdf5").read_bytes() == (tmp_path / "two.hdf5").read_bytes()


def test_a_flow_that_blows_up_is_reported_not_stored(monkeypatch, tmp_path):
    def explode(flow, state, duration, courant):
        return state * math.nan, None

    monkeypatch.setattr("gpo_bench.solvers.runge_kutta.advance", explode)
    with pytest.raises(BlowUpError, match="Trajectories 0, 1 blew up even with courant="):
        generate(SMALL, tmp_path / "flow.hdf5")
    assert not (tmp_path / "flow.hdf5").exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"mach": 0.0}, "`mach` must be between 0.01 and 3, got mach=0.0"),
        ({"shear_viscosity": -1.0}, "must not be negative"),
        ({"size": 8}, "below half of `size`"),
        ({"largest_wavenumber": 9}, "1 to 7"),
        ({"courant": 2.0}, "`courant` between 0 and 1"),
        ({"num_frames": 0}, "at least 1"),
    ],
)
def test_impossible_numbers_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        NavierStokes3D(**changes)


def test_another_start_is_refused():
    solver = NavierStokes3D()
    # As `--set start=calm` would: annotations are checked in tests only.
    object.__setattr__(solver, "start", "calm")
    with pytest.raises(ValueError, match="turbulent or random, got 'calm'"):
        solver.__post_init__()
