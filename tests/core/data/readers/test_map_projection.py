"""Grids whose file states its projection, but neither longitudes nor latitudes."""

import sys
from importlib.util import find_spec

import numpy as np
import pytest
import xarray as xr

from gpo.cli.describe import describe
from gpo.data.dataset import DataError
from gpo.data.readers.grid_mapping import _transformed
from gpo.data.readers.registry import open_data
from tests.core.data.readers.synthetic_weather import CARRA_ORIGIN, lambert_to_true, write_carra

RADIUS = 6371000.0


def needs(package):
    """Skips a test without a package, which is not imported here."""
    if find_spec(package) is None:
        pytest.skip(f"{package} is not installed")


POLAR = {
    "grid_mapping_name": "polar_stereographic",
    "latitude_of_projection_origin": 90.0,
    "straight_vertical_longitude_from_pole": 0.0,
    "standard_parallel": 60.0,
    "false_easting": 0.0,
    "false_northing": 0.0,
    "earth_radius": RADIUS,
}


def write_polar(path, units="m", **changes):
    """Writes hourly fields on a plane that is true at 60 degrees north; returns x and y in metres."""
    y, x = np.linspace(-4.4e6, -2.4e6, 10), np.linspace(-1e6, 1.2e6, 12)
    scale = {"m": 1.0, "km": 1e-3}[units]
    values = np.sin(x / 3e5 + 0.3 * np.arange(60)[:, None, None]) * np.cos(y[:, None] / 4e5)
    places = {
        name: (
            name,
            scale * axis,
            {"standard_name": f"projection_{name}_coordinate", "units": units},
        )
        for name, axis in (("y", y), ("x", x))
    }
    time = ("time", np.arange(60), {"units": "hours since 2020-06-01"})
    field = (("time", "y", "x"), values, {"units": "K", "grid_mapping": "crs"})
    mapping = {key: value for key, value in {**POLAR, **changes}.items() if value is not None}
    content = {"tas": field, "crs": ((), 0, mapping)}
    xr.Dataset(content, {"time": time, **places}).to_netcdf(path)
    return x, y


@pytest.mark.parametrize("units", ["m", "km"])
def test_a_polar_stereographic_grid_has_the_degrees_of_the_published_formula(tmp_path, units):
    needs("pyproj")
    x, y = (part.ravel() for part in np.meshgrid(*write_polar(tmp_path / "a.nc", units)))
    geometry = open_data(tmp_path / "a.nc").geometry()
    longitude, latitude = geometry.geographic_degrees().T
    # Snyder (1987), 21-1 to 21-15, on a sphere that is true at 60 degrees north.
    distance = np.hypot(x, y) / (RADIUS * (1 + np.sin(np.pi / 3)))
    np.testing.assert_allclose(latitude, 90 - 2 * np.rad2deg(np.arctan(distance)), atol=1e-9)
    np.testing.assert_allclose(longitude, np.rad2deg(np.arctan2(x, -y)), atol=1e-9)
    assert not geometry.projection_note


def test_pyproj_and_eccodes_do_not_meet_in_one_process(tmp_path):
    needs("pyproj")
    __import__("eccodes")
    write_polar(tmp_path / "a.nc")
    assert open_data(tmp_path / "a.nc").geometry().geographic_degrees() is not None
    assert "pyproj" not in sys.modules


def test_a_lambert_grid_without_degrees_has_those_of_its_grid_mapping(tmp_path):
    needs("pyproj")
    write_carra(tmp_path / "a.nc")
    with xr.open_dataset(tmp_path / "a.nc") as stored:
        bare = stored.drop_vars(["latitude", "longitude"]).load()
    bare["v10"].encoding.pop("coordinates", None)
    bare.to_netcdf(tmp_path / "bare.nc")
    found, stated = (open_data(tmp_path / name).geometry() for name in ("bare.nc", "a.nc"))
    np.testing.assert_allclose(found.projected_from, stated.projected_from, atol=1e-9)
    assert lambert_to_true(np.zeros(1), np.zeros(1))[0][0] == pytest.approx(CARRA_ORIGIN[0])


def test_the_sun_stands_over_a_projected_grid(tmp_path):
    needs("pyproj")
    write_polar(tmp_path / "a.nc")
    data = open_data(tmp_path / "a.nc").with_time_features(["solar"])
    elevations = data.input_frames(0, slice(12, 13), 1)[0, :, 0]
    assert np.ptp(elevations) > 0.1


def test_without_pyproj_it_is_said_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyproj", None)
    _transformed.cache_clear()
    write_polar(tmp_path / "a.nc")
    data = open_data(tmp_path / "a.nc")
    assert data.geometry().geographic_degrees() is None
    assert any("pip install 'gpo[maps]'" in text for _, text in describe(data))
    with pytest.raises(DataError, match=r"polar_stereographic .* pip install 'gpo\[maps\]'"):
        data.with_time_features(["solar"])


@pytest.mark.parametrize(
    "changes",
    [
        {"grid_mapping_name": "no_such_projection"},
        {"standard_parallel": "sixty", "straight_vertical_longitude_from_pole": None},
        {"earth_radius": np.nan},
    ],
)
def test_a_projection_that_cannot_be_used_is_told_and_the_grid_stays_a_plane(tmp_path, changes):
    needs("pyproj")
    write_polar(tmp_path / "a.nc", **changes)
    geometry = open_data(tmp_path / "a.nc").geometry()
    if geometry.geographic_degrees() is None:
        assert geometry.projection_note
    else:
        assert np.isfinite(geometry.geographic_degrees()).all()


def test_text_of_a_grid_mapping_that_could_name_a_file_is_not_used(tmp_path):
    needs("pyproj")
    write_polar(
        tmp_path / "a.nc", crs_wkt="+proj=longlat +nadgrids=/etc/hosts", reference="/etc/hosts"
    )
    assert open_data(tmp_path / "a.nc").geometry().geographic_degrees() is not None
