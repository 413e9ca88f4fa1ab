"""Files of other models and programs are read correctly."""

import numpy as np
import pytest

from gpo.data.dataset import DataError
from gpo.data.periodic import looks_periodic
from gpo.data.readers.base import ReadOptions
from gpo.data.readers.registry import open_data
from tests.core.data.readers import published_files
from tests.core.data.readers.published_files import COLUMNS, FRAMES, ROWS


def opened(folder, make, suffix=".nc", **options):
    path = folder / f"{make.__name__}{suffix}"
    make(path)
    return open_data(path, ReadOptions(**options))


def ends(geometry):
    """Returns the smallest and largest longitudes and latitudes."""
    degrees = geometry.geographic_degrees()
    return np.stack([degrees.min(0), degrees.max(0)])


def test_cordex(tmp_path):
    data = opened(tmp_path, published_files.cordex)
    geometry = data.geometry()
    assert [variable.name for variable in data.variables] == ["tas"]
    assert (geometry.grid_shape, geometry.pole is not None) == ((ROWS, COLUMNS), True)
    # The centre of the European domain is at 18 degrees east, 50.75 degrees north.
    np.testing.assert_allclose(ends(geometry).mean(0), [21.1, 50.7], atol=0.4)
    assert data.time_labels([0, 29]) == ["1949-12-01 12:00", "1949-12-30 12:00"]
    assert (data.origin.calendar, data.levels) == ("360_day", {"height": "2"})
    expected = published_files.wave(np.linspace(-3, 3, ROWS)[:, None], np.linspace(0, 4, COLUMNS))
    np.testing.assert_allclose(data.frames(0)[..., 0], expected.reshape(FRAMES, -1), atol=6e-4)


def test_roms(tmp_path):
    with pytest.raises(DataError, match=r"are on different grids: .*Choose: `--var zeta`"):
        opened(tmp_path, published_files.roms)
    data = opened(tmp_path, published_files.roms, variables=("zeta",))
    geometry = data.geometry()
    assert (geometry.grid_shape, geometry.is_masked.sum()) == ((ROWS, COLUMNS), 6)
    np.testing.assert_allclose(ends(geometry), [[-70, 38], [-67.9, 39.5]], atol=0.1)
    assert data.time_labels([1]) == ["2014-01-29 17:00"]
    with pytest.raises(DataError, match=r"`s_rho` has 3 values: -0.8, .*--select s_rho=-0.8"):
        opened(tmp_path, published_files.roms, variables=("temp",))
    wind = opened(tmp_path, published_files.roms, variables=("u",), select={"s_rho": "-0.2"})
    assert wind.geometry().grid_shape == (ROWS, COLUMNS - 1)
    assert wind.geometry().geographic_degrees()[0, 0] == pytest.approx(-69.9)
    assert wind.levels == {"s_rho": "-0.2"}


def test_nemo(tmp_path):
    with pytest.raises(DataError, match=r"`deptht` has 2 values: 0.5, 2"):
        opened(tmp_path, published_files.nemo)
    data = opened(tmp_path, published_files.nemo, select={"deptht": "2"})
    assert [variable.name for variable in data.variables] == ["thetao", "zos"]
    assert data.geometry().is_masked.sum() == 4
    assert data.geometry().domain.is_sphere
    assert data.time_labels([0, 1]) == ["1950-01-01 12:00", "1950-01-02 12:00"]
    assert (data.origin.calendar, data.levels) == ("noleap", {"deptht": "2"})
    theta, zos = np.nan_to_num(data.frames(0)).transpose(2, 0, 1)
    is_sea = ~data.geometry().is_masked
    np.testing.assert_allclose(theta[:, is_sea], 20 * zos[:, is_sea] - 1, rtol=1e-5)


@pytest.mark.parametrize("start", ["simulation start", "2000-01-24 12:00:00"])
def test_wrf(tmp_path, start):
    path = tmp_path / "wrfout"
    published_files.wrf(path, start)
    data = open_data(path.rename(path.with_suffix(".nc")), ReadOptions(variables=("T2",)))
    assert data.geometry().grid_shape == (ROWS, COLUMNS)
    assert data.geometry().domain.is_sphere
    np.testing.assert_allclose(data.geometry().geographic_degrees()[0], [-90, 30], atol=1e-4)
    assert data.time_labels([0, 13]) == ["2000-01-24 12:00", "2000-01-25 01:00"]
    np.testing.assert_array_equal(data.time[:3], [0, 1, 2])
    options = ReadOptions(variables=("U",), select={"bottom_top": "0"})
    wind = open_data(path.with_suffix(".nc"), options)
    # The file has no latitudes of staggered points, which are indices.
    assert wind.geometry().grid_shape == (ROWS, COLUMNS + 1)
    assert not wind.geometry().domain.is_sphere


def test_icon(tmp_path):
    data = opened(tmp_path, published_files.icon)
    geometry = data.geometry()
    assert geometry.domain.is_sphere
    np.testing.assert_allclose(ends(geometry)[:, 1], [-79.5, 79.5], atol=0.5)
    assert geometry.weights.max() < 3 * geometry.weights.min()
    assert data.time_labels([0, 1, 9]) == ["2020-01-01 00:00", "2020-01-01 03:00", "2020-01-02 03:00"]  # fmt: skip


def test_mpas(tmp_path):
    with pytest.raises(DataError, match="`nVertLevels` has 2 values: 0, 1"):
        opened(tmp_path, published_files.mpas)
    data = opened(tmp_path, published_files.mpas, select={"nVertLevels": "1"})
    assert data.geometry().domain.is_sphere
    assert data.geometry().num_points == 60
    np.testing.assert_allclose(ends(data.geometry())[:, 1], [-79.5, 79.5], atol=0.5)
    assert (data.origin.calendar, data.time_labels([3])) == ("noleap", ["0001-01-04"])
    assert data.frames(0).mean() == pytest.approx(270, abs=1)


def test_ecmwf(tmp_path):
    with pytest.raises(DataError, match=r"`expver` has 2 values: 1, 5\. Select one"):
        opened(tmp_path, published_files.ecmwf)
    data = opened(tmp_path, published_files.ecmwf, select={"expver": "1"})
    geometry = data.geometry()
    assert geometry.grid_shape == (9, 12)
    assert (geometry.axes[0][0], geometry.axes[1][-1]) == (52, 330)
    assert data.time_labels([0, 1]) == ["2014-01-29 16:00", "2014-01-29 22:00"]
    assert np.isfinite(data.frames(0, slice(0, FRAMES // 2))).all()
    assert np.isnan(data.frames(0, slice(FRAMES // 2, None))).all()


def test_a_satellite_with_gaps(tmp_path):
    data = opened(tmp_path, published_files.altimeter)
    assert [variable.name for variable in data.variables] == ["sla"]
    # Land is masked; moving satellite tracks are not.
    assert data.geometry().is_masked.sum() == 6
    assert np.isnan(data.frames(0, slice(0, 1))).sum() == 6 + ROWS - 2


@pytest.mark.parametrize(
    ("make", "hint"),
    # Allen-Cahn starts with a kink at its ends, so it is not recognised as periodic.
    [(published_files.kdv, ["x"]), (published_files.allen_cahn, [])],
)
def test_series_of_pinn_papers_can_be_made_periodic(tmp_path, make, hint):
    data = opened(tmp_path, make, ".mat")
    assert (data.geometry().grid_shape, len(data.time)) == ((128,), 41)
    assert data.time[-1] == pytest.approx(0.2)
    assert not data.geometry().domain.periodic[0]
    assert looks_periodic(data) == hint
    periodic = opened(tmp_path, make, ".mat", periodic=("x",)).geometry()
    assert periodic.domain.periodic == (True,)
    assert periodic.domain.upper[0] - periodic.domain.lower[0] == pytest.approx(2)


def test_kdv_keeps_mass_and_energy(tmp_path):
    """The file is a solution, which conserves the invariants of the equation."""
    frames = opened(tmp_path, published_files.kdv, ".mat").frames(0)[..., 0]
    np.testing.assert_allclose(frames.mean(1), 0, atol=1e-6)
    np.testing.assert_allclose((frames**2).mean(1), 0.5, rtol=2e-3)


def test_files_without_real_fields_are_refused_with_advice(tmp_path):
    with pytest.raises(DataError, match="`uu` is complex: save its real and imaginary parts"):
        opened(tmp_path, published_files.schroedinger, ".mat")
    with pytest.raises(DataError, match="holds no array of real numbers in its root"):
        opened(tmp_path, published_files.fenics, ".h5")


def test_a_table_of_paraview(tmp_path):
    data = opened(tmp_path, published_files.paraview, ".csv")
    assert [variable.name for variable in data.variables] == ["U:0", "U:1", "U:2", "p"]
    assert data.geometry().coords.shape == (40, 2)
    np.testing.assert_allclose(data.time, 0.1 * np.arange(FRAMES), atol=1e-9)
    frames = data.frames(0)
    np.testing.assert_allclose(frames[..., 0], -frames[..., 1])
    coords = data.geometry().coords
    expected = published_files.wave(3 * coords[:, 0], 3 * coords[:, 1], mean=0)
    np.testing.assert_allclose(frames[..., 0], expected, atol=1e-4)


def test_a_table_with_missing_points_is_refused(tmp_path):
    path = tmp_path / "a.csv"
    published_files.paraview(path)
    whole = path.read_text()
    path.write_text("\n".join(whole.splitlines()[:-1]) + "\n")
    with pytest.raises(DataError, match="must have the same points at each of 30 times"):
        open_data(path)
    path.write_text(whole[:-3])
    with pytest.raises(DataError, match="it may be cut short"):
        open_data(path)
    path.write_text(whole.replace("Points:0", "one").replace("Points:1", "two").replace("Points:2", "three"))  # fmt: skip
    with pytest.raises(DataError, match="Name them: `--coords NAME NAME`"):
        open_data(path)
    data = open_data(path, ReadOptions(coords=("one", "two")))
    assert data.geometry().coords.shape == (40, 2)


@pytest.mark.parametrize("places", [("x", "y"), ("longitude", "latitude")])
def test_a_table_whose_points_fill_a_grid_is_read_as_a_grid(tmp_path, places):
    lines = [f"# time: dates of the 360_day calendar; u: m\ntime,{','.join(places)},u"]
    for day in range(3):
        for first in (3.0, 1.0, 2.0):
            lines += [f"1987-02-{28 + day}T12:00:00,{first},{second},{day + first + second / 10}" for second in (5.0, 4.0)]  # fmt: skip
    (tmp_path / "a.csv").write_text("\n".join(lines) + "\n")
    data = open_data(tmp_path / "a.csv")
    geometry, values = data.geometry(), data.frames(0)[0, :, 0]
    assert data.time_labels([2]) == ["1987-02-30 12:00"]
    assert data.variables[0].units == "m"
    if places[0] == "x":
        assert geometry.grid_shape == (3, 2)
        np.testing.assert_allclose(values, geometry.coords[:, 0] + geometry.coords[:, 1] / 10)
    else:
        assert geometry.grid_shape == (2, 3)
        first, second = geometry.geographic_degrees().T
        np.testing.assert_allclose(values, first + second / 10, rtol=1e-5)
