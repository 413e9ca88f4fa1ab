import math

import numpy as np
import pytest

from gpo.data.generate import generate
from gpo.data.readers.base import ReadOptions
from gpo.data.readers.well import READER
from gpo.data.solvers.base import BlowUpError
from gpo.numerics.spectral import degree_spectrum
from gpo_bench.solvers.rotating_shallow_water import advance
from gpo_bench.solvers.shallow_water_sphere import HOUR, ShallowWaterSphere
from gpo_bench.solvers.spherical_harmonics import SphericalHarmonics


def small(**changes):
    numbers = {
        "size": 16,
        "max_degree": 10,
        "num_trajectories": 3,
        "num_frames": 3,
        "burn_in": 12.0,
    }
    return ShallowWaterSphere(**{**numbers, **changes})


def test_a_trajectory_depends_on_its_number_and_the_seed_alone():
    both, alone = small().solve(range(2)), small().solve(range(1, 2))
    for name in ("height", "velocity"):
        np.testing.assert_array_equal(both[name][1], alone[name][0])
        assert np.abs(both[name][0] - both[name][1]).max() > 1
    other = small(seed=1).solve(range(1, 2))
    assert np.abs(other["height"] - alone["height"]).max() > 10


def test_winds_and_mountains_are_the_same_at_every_degree():
    coarse, fine = small(), small(size=64, max_degree=50)
    np.testing.assert_array_equal(coarse.initial_vorticity(4), fine.initial_vorticity(4))
    grids = SphericalHarmonics(42), SphericalHarmonics(60)
    low, high = (fine.mountain_heights(grid).max() for grid in grids)
    assert low == pytest.approx(1500)
    assert high == pytest.approx(1500, rel=0.01)
    assert fine.mountain_heights(grids[1]).min() > -0.05 * 1500


def test_initial_winds_are_westerly_jets_with_eddies_of_the_stated_speed():
    harmonics = SphericalHarmonics(42)
    jets = small(eddy_speed=0.0, jet_speed=30.0).initial_vorticity(0)
    south, east = harmonics.vector(jets, 0 * jets) * small().radius
    np.testing.assert_allclose(south, 0, atol=1e-8)
    north = harmonics.theta < math.pi / 2
    for side in (north, ~north):
        latitude = 90 - np.rad2deg(harmonics.theta[side][east[side, 0].argmax()])
        assert 30 < abs(latitude) < 52
        assert 30 * 0.7 * math.cos(math.radians(52)) < east[side].max() < 30 * 1.3
    eddies = [small(eddy_speed=8.0, jet_speed=0.0).initial_vorticity(n) for n in range(12)]
    winds = [harmonics.vector(part, 0 * part) * small().radius for part in eddies]
    area = np.sin(harmonics.theta)[:, None] / np.sin(harmonics.theta).mean()
    squared = np.mean([((wind**2).sum(0) * area).mean() for wind in winds])
    assert math.sqrt(squared) == pytest.approx(8.0, rel=0.1)


def test_the_forcing_is_that_of_the_well_and_goes_east_with_the_day():
    solver, harmonics = small(), SphericalHarmonics(40)
    latitude = math.pi / 2 - harmonics.theta[:, None]
    for hours in (0.0, 6.0, 255.0):
        noon = 0.4 * math.sin(2 * math.pi * hours / 1008)
        formula = 9.0 * np.cos(harmonics.phi - 2 * math.pi * hours / 24)
        formula = formula * np.exp(-(((latitude - noon) / (math.pi / 2)) ** 2))
        heating = harmonics.field(solver.heating(harmonics, hours * HOUR)) * HOUR
        # The formula is not continuous at the poles, so that no series converges right there.
        away = np.abs(latitude[:, 0]) < math.radians(75)
        np.testing.assert_allclose(heating[away], formula[away], atol=0.2)
        assert abs(solver.heating(harmonics, hours * HOUR)[0]) == 0


def test_the_height_has_its_mean_and_answers_to_the_forcing():
    solver = small(jet_speed=0.0, eddy_speed=0.0, mountains=0.0, num_frames=4)
    assert np.abs(small(forcing=0.0, jet_speed=0.0, eddy_speed=0.0).solve(range(1))["height"]).max() < 1e-9  # fmt: skip
    height = solver.solve(range(1))["height"][0].astype(float)
    assert height.std() > 5
    latitude = 90 - (np.arange(16) + 0.5) * 180 / 16
    # Power of degree 0 is the squared mean over the sphere.
    assert np.sqrt(degree_spectrum(height, latitude)[:, 0]).max() < 1e-6 * np.abs(height).max()


def test_settling_leaves_hardly_any_gravity_waves():
    def hourly_change(**changes):
        numbers = {"forcing": 0.0, "burn_in": 72.0, "hours_per_frame": 1.0, **changes}
        height = small(size=32, max_degree=21, num_frames=7, **numbers).solve(range(1))["height"][0]
        # Waves of some hours bend the course of the height far more than weather does.
        return np.diff(height.astype(float), 2, axis=0).std()

    assert hourly_change() < 0.15 * hourly_change(calming_time=1e9)


def test_stored_frames_hardly_depend_on_the_step():
    coarse, fine = (small(size=32, max_degree=21, courant=c).solve(range(1)) for c in (1.8, 0.6))
    for name in ("height", "velocity"):
        assert np.linalg.norm(coarse[name] - fine[name]) < 1e-3 * np.linalg.norm(fine[name])


def test_what_is_written_reads_back_as_the_sphere(tmp_path):
    solver, path = small(hours_per_frame=3.0), tmp_path / "planet"
    generate(solver, path)
    data = READER.read(path, ReadOptions())
    assert [(variable.name, variable.units) for variable in data.variables] == [
        ("height", "m"),
        ("velocity_theta", "m s-1"),
        ("velocity_phi", "m s-1"),
    ]
    assert (data.num_samples, data.time_units) == (3, "h")
    np.testing.assert_array_equal(data.time, [12, 15, 18])
    geometry = data.geometry()
    assert geometry.domain.is_sphere
    assert geometry.grid_shape == (16, 32)
    np.testing.assert_allclose(geometry.axes[0], 90 - (np.arange(16) + 0.5) * 11.25, atol=1e-4)
    np.testing.assert_allclose(geometry.axes[1], np.arange(32) * 11.25, atol=1e-4)
    portion = solver.solve(range(2, 3))
    frames = data.frames(2).reshape(3, 16, 32, 3)
    np.testing.assert_array_equal(frames[..., 0], portion["height"][0])
    np.testing.assert_array_equal(frames[..., 1:], portion["velocity"][0])


def test_stored_winds_are_nearly_in_balance_with_the_stored_height():
    solver = small(size=32, max_degree=21, num_frames=1, burn_in=48.0, mountains=0.0)
    portion = solver.solve(range(1))
    height, velocity = (portion[name][0, 0].astype(float) for name in ("height", "velocity"))
    stored = SphericalHarmonics(21, "centers", 32)
    potential = stored.coefficients(height * solver.gravity) * stored.laplacian
    slope = stored.vector(0 * potential, potential) / solver.radius
    f = 2 * solver.rotation * np.cos(stored.theta)[:, None]
    band = np.abs(90 - np.rad2deg(stored.theta) - 45) < 20
    # The wind is g∇h / f turned by a quarter: high heights are to its right in the north.
    for wind, balance in ((velocity[..., 0], -slope[1]), (velocity[..., 1], slope[0])):
        assert np.corrcoef((f * wind)[band].ravel(), balance[band].ravel())[0, 1] > 0.95


def test_the_same_seed_gives_the_same_bytes(tmp_path):
    for name in ("first", "second"):
        generate(small(), tmp_path / name)
    files = sorted(file.name for file in (tmp_path / "first").iterdir())
    assert files == ["planetswe_000.hdf5", "planetswe_001.hdf5", "planetswe_002.hdf5"]
    for name in files:
        first, second = ((tmp_path / run / name).read_bytes() for run in ("first", "second"))
        assert first == second


def test_a_trajectory_that_blows_up_is_solved_again_with_shorter_steps(monkeypatch):
    def fragile(*args, courant, **kwargs):
        return advance(*args, courant=courant, **kwargs) * (math.nan if courant > 0.5 else 1)

    careful = small(courant=0.45).solve(range(1))
    monkeypatch.setattr("gpo_bench.solvers.shallow_water_sphere.advance", fragile)
    np.testing.assert_array_equal(small(courant=1.8).solve(range(1))["height"], careful["height"])


def test_a_flow_that_blows_up_is_reported_not_stored(tmp_path):
    solver = small(mean_depth=300.0)
    with pytest.raises(BlowUpError, match=r"Trajectory 0 blew up even with courant=0\.275"):
        generate(solver, tmp_path / "planet")
    assert not (tmp_path / "planet").exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"size": 15}, "even and at least 8, got size=15"),
        ({"max_degree": 16}, "below `size`, got max_degree=16, size=16"),
        ({"num_frames": 0}, "at least 1"),
        ({"courant": 2.9}, "`courant` must be positive and at most 2.5, got 2.9"),
        ({"mean_depth": 0.0}, "`mean_depth` must be positive"),
        ({"calming_time": 0.0}, "`calming_time` must be positive"),
        ({"damping_time": -1.0}, "`damping_time` must be positive"),
        ({"mountains": -1.0}, "`mountains` must not be negative"),
        ({"seed": -1}, "`seed` must not be negative"),
    ],
)
def test_impossible_numbers_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        small(**changes)
