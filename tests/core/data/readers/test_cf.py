import numpy as np
import pytest
import torch
import xarray as xr

from gpo.data.dataset import DataError
from gpo.data.geometry import Geometry
from gpo.data.rotated_pole import RotatedPole
from gpo.forecast.compatibility import convert_to_training_units
from gpo.forecast.task import TrainedOn
from gpo.numerics.domain import longitude_latitude
from tests.core.data.readers.gridded_files import (
    EAST,
    HOURLY,
    NORTH,
    flat,
    grid,
    read,
    save,
    table,
)

# Places


def test_the_direction_of_latitudes_and_the_order_of_dimensions_do_not_matter(tmp_path):
    dataset = grid()
    up = read(save(tmp_path / "up.nc", dataset))
    down = read(save(tmp_path / "down.nc", dataset.isel(lat=slice(None, None, -1))))
    turned = read(save(tmp_path / "turned.nc", dataset.transpose("time", "lon", "lat")))
    order = np.arange(12).reshape(3, 4)[::-1].ravel()
    np.testing.assert_allclose(down.geometry().weights[order], up.geometry().weights, rtol=1e-12)
    np.testing.assert_array_equal(down.frames(0)[:, order], up.frames(0))
    np.testing.assert_array_equal(turned.frames(0), up.frames(0))
    np.testing.assert_array_equal(up.frames(0)[0, :, 0], np.arange(12))


@pytest.mark.parametrize("longitude", [[358, 359, 0, 1], [178, 179, -180, -179]])
def test_longitudes_may_cross_the_date_line(tmp_path, longitude):
    geometry = read(save(tmp_path / "a.nc", grid(longitude=longitude))).geometry()
    plain = read(save(tmp_path / "b.nc", grid(longitude=np.arange(4) + longitude[0]))).geometry()
    np.testing.assert_allclose(geometry.weights, plain.weights, rtol=1e-12)
    np.testing.assert_allclose(geometry.coords, plain.coords, atol=1e-12)
    np.testing.assert_array_equal(np.diff(geometry.axes[1]), 1)


@pytest.mark.parametrize("step", [1, -1])
def test_a_region_across_greenwich_is_cut_at_the_largest_gap_of_its_longitudes(tmp_path, step):
    plain = read(save(tmp_path / "a.nc", grid(longitude=np.arange(-10, 14, 2)[::step])))
    longitude = np.r_[0:14:2, 350:360:2][::step]
    stored = grid(longitude=longitude)
    whole = grid(longitude=np.arange(-10, 14, 2)[::step])["t2m"].values
    stored["t2m"][...] = np.roll(whole, -5 * step, axis=2)
    data = read(save(tmp_path / "b.nc", stored))
    np.testing.assert_allclose(data.geometry().weights, plain.geometry().weights, rtol=1e-12)
    np.testing.assert_allclose(data.geometry().coords, plain.geometry().coords, atol=1e-12)
    np.testing.assert_array_equal(data.frames(0), plain.frames(0))
    np.testing.assert_array_equal(data.frames(0, sites=slice(12, 24)), plain.frames(0)[:, 12:24])
    trained = TrainedOn.of(plain)
    assert convert_to_training_units(data, trained)[1] == []


def test_longitudes_around_the_whole_circle_keep_their_order(tmp_path):
    geometry = read(save(tmp_path / "a.nc", grid(longitude=np.arange(0, 360, 30)))).geometry()
    np.testing.assert_array_equal(geometry.axes[1], np.arange(0, 360, 30))


def test_a_repeated_last_meridian_is_refused(tmp_path):
    path = save(tmp_path / "a.nc", grid(longitude=np.linspace(0, 360, 9)))
    with pytest.raises(DataError, match="`lon` spans 360 degrees: the first and last meridian"):
        read(path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"latitude": (50, 52, 51)}, "`lat` must be sorted"),
        ({"latitude": (50, 50, 51)}, "`lat` must be distinct"),
        ({"latitude": (50, np.nan, 51)}, "`lat` must be finite"),
        ({"latitude": (80, 90, 100)}, "`lat` must lie within -90 and 90 degrees, got 100"),
        ({"longitude": (0, 2, 1, 3)}, "`lon` must be sorted"),
        ({"longitude": (0, 1, 1, 3)}, "`lon` must be distinct"),
    ],
)
def test_unsorted_or_invalid_coordinates_are_refused(tmp_path, changes, message):
    path = save(tmp_path / "a.nc", grid(**changes))
    with pytest.raises(DataError, match=message):
        read(path)


@pytest.mark.parametrize(
    ("name", "attributes"),
    [
        ("phi", {"standard_name": "latitude"}),
        ("phi", {"units": "degreeN"}),
        ("phi", {"axis": "Y", "units": "degrees"}),
        ("Latitude", {}),
    ],
)
def test_latitudes_are_recognised_by_attributes_or_name(tmp_path, name, attributes):
    dataset = grid().rename(lat=name)
    dataset[name].attrs = attributes
    assert read(save(tmp_path / "a.nc", dataset)).geometry().domain.is_sphere


def test_a_projected_plane_keeps_the_units_of_the_file(tmp_path):
    y = ("y", [20.0, 10.0, 0.0], {"standard_name": "projection_y_coordinate", "units": "km"})
    x = ("x", [0.0, 5.0], {"standard_name": "projection_x_coordinate", "units": "km"})
    geometry = read(save(tmp_path / "a.nc", flat(("y", "x"), (3, 2), y=y, x=x))).geometry()
    assert not geometry.domain.is_sphere
    assert (geometry.domain.lower, geometry.domain.upper) == ((0, 0), (20, 5))
    assert (geometry.axis_names, geometry.axis_units) == (("y", "x"), ("km", "km"))
    np.testing.assert_array_equal(geometry.coords[:3], [[20, 0], [20, 5], [10, 0]])
    np.testing.assert_allclose(geometry.weights, [1 / 8, 1 / 8, 1 / 4, 1 / 4, 1 / 8, 1 / 8])


@pytest.mark.parametrize("dims", [("i",), ("i", "j"), ("i", "j", "k")])
def test_dimensions_without_coordinates_are_indices(tmp_path, dims):
    data = read(save(tmp_path / "a.nc", flat(dims, (2, 3, 4)[: len(dims)])))
    geometry = data.geometry()
    np.testing.assert_array_equal(geometry.coords[-1], (1, 2, 3)[: len(dims)])
    np.testing.assert_array_equal(data.time, [0, 0.5])
    assert data.time_units == ""
    np.testing.assert_array_equal(data.frames(0)[0, :, 0], np.arange(geometry.num_points))


def test_four_axes_are_too_many(tmp_path):
    path = save(tmp_path / "a.nc", flat(("i", "j", "k", "l"), (2, 2, 2, 2)))
    with pytest.raises(DataError, match="must be 1, 2 or 3, got i, j, k, l"):
        read(path)
    assert read(path, l="1").frames(0)[0, :2, 0].tolist() == [1, 3]


def rotated(**mapping):
    axes = {
        "rlat": ("rlat", [-1.0, 0.0, 1.0], {"standard_name": "grid_latitude", "units": "degrees"}),
        "rlon": ("rlon", [0.0, 1.0], {"standard_name": "grid_longitude", "units": "degrees"}),
    }
    attributes = {"grid_mapping_name": "rotated_latitude_longitude", **mapping}
    return flat(("rlat", "rlon"), (3, 2), **axes).assign(pole=((), 0, attributes))


def test_a_rotated_grid_is_located_by_its_pole(tmp_path):
    pole = {"grid_north_pole_latitude": 39.25, "grid_north_pole_longitude": -162.0}
    geometry = read(save(tmp_path / "a.nc", rotated(**pole))).geometry()
    longitude, latitude = geometry.geographic_degrees().T
    # The origin of the European domain of CORDEX.
    assert (latitude[2], longitude[2]) == (pytest.approx(50.75), pytest.approx(18))
    assert longitude[3] > longitude[2]
    assert geometry.grid_shape == (3, 2)
    with pytest.raises(DataError, match="`rlat` belongs to a rotated grid"):
        read(save(tmp_path / "b.nc", rotated()))


def test_a_rotated_grid_is_a_tensor_grid_in_its_own_frame(tmp_path):
    pole = {"grid_north_pole_latitude": 39.25, "grid_north_pole_longitude": -162.0}
    geometry = read(save(tmp_path / "a.nc", rotated(**pole))).geometry()
    assert geometry.axis_names == ("rlat", "rlon")
    assert [axis.tolist() for axis in geometry.axes] == [[-1, 0, 1], [0, 1]]
    longitude, latitude = longitude_latitude(torch.from_numpy(geometry.coords))
    np.testing.assert_allclose(latitude, [-1, -1, 0, 0, 1, 1], atol=1e-12)
    np.testing.assert_allclose(longitude, [0, 1, 0, 1, 0, 1], atol=1e-12)
    turned = rotated(**pole).transpose("time", "rlon", "rlat")
    np.testing.assert_array_equal(
        read(save(tmp_path / "b.nc", turned)).frames(0), read(tmp_path / "a.nc").frames(0)
    )


@pytest.mark.parametrize("stated", [False, True])
def test_geographic_coordinates_determine_the_pole_without_a_grid_mapping(tmp_path, stated):
    right = RotatedPole(39.25, -162.0, 12.0)
    axes = {"rlat": [-1.0, 0.0, 1.0], "rlon": [0.0, 1.0]}
    frame = Geometry.latitude_longitude(*(np.array(axis) for axis in axes.values()), pole=right)
    longitude, latitude = (part.reshape(3, 2) for part in frame.geographic_degrees().T)
    places = {"lat": (("rlat", "rlon"), latitude), "lon": (("rlat", "rlon"), longitude)}
    wrong = {"grid_north_pole_latitude": 10.0, "grid_north_pole_longitude": 0.0}
    dataset = rotated(**(wrong if stated else {})).assign(places)
    geometry = read(save(tmp_path / "a.nc", dataset)).geometry()
    assert len(geometry.axes) == 2
    np.testing.assert_allclose(geometry.geographic_degrees(), frame.geographic_degrees(), atol=1e-5)


def test_a_projected_grid_is_a_box_with_geographic_coordinates(tmp_path):
    y = ("y", [0.0, 10.0, 20.0], {"units": "km", "axis": "Y"})
    x = ("x", [0.0, 5.0], {"units": "km", "axis": "X"})
    dataset = flat(("y", "x"), (3, 2), y=y, x=x)
    dataset = dataset.assign(
        lat=(("y", "x"), 50 + table(3, 2), NORTH), lon=(("x", "y"), table(2, 3), EAST)
    )
    data = read(save(tmp_path / "a.nc", dataset))
    geometry = data.geometry()
    assert not geometry.domain.is_sphere
    assert len(geometry.axes) == 2
    np.testing.assert_array_equal(
        geometry.geographic_degrees(), np.stack([table(2, 3).T.ravel(), 50 + np.arange(6)], -1)
    )
    coarse, numbers = geometry.coarsen(1)
    np.testing.assert_array_equal(
        coarse.geographic_degrees(), geometry.geographic_degrees()[numbers]
    )


def test_geographic_coordinates_that_are_no_rotation_are_kept(tmp_path):
    places = {"lat": (("rlat", "rlon"), table(3, 2) / 9), "lon": (("rlat", "rlon"), table(3, 2))}
    geometry = read(save(tmp_path / "a.nc", rotated().assign(places))).geometry()
    longitude, _ = longitude_latitude(torch.from_numpy(geometry.coords))
    np.testing.assert_allclose(longitude, np.arange(6), atol=1e-9)


def curvilinear(latitude, longitude, dims=("y", "x")):
    places = {"nav_lat": (dims, latitude, NORTH), "nav_lon": (dims, longitude, EAST)}
    return flat(("y", "x"), (2, 3)).assign(places)


def test_invalid_two_dimensional_coordinates_are_refused(tmp_path):
    latitude, longitude = table(2, 3), table(2, 3)
    assert (
        read(save(tmp_path / "a.nc", curvilinear(latitude, longitude))).geometry().domain.is_sphere
    )
    latitude[0, 0] = np.nan
    with pytest.raises(DataError, match="`nav_lat` must be finite"):
        read(save(tmp_path / "b.nc", curvilinear(latitude, longitude)))
    with pytest.raises(DataError, match="`nav_lat` must have two rows and columns"):
        read(save(tmp_path / "c.nc", curvilinear(table(2, 3), longitude).isel(y=[0])))


def test_coordinates_may_have_a_time_axis_but_may_not_change(tmp_path):
    dims = ("time", "y", "x")
    still = np.stack([table(2, 3)] * 2)
    data = read(save(tmp_path / "a.nc", curvilinear(still, still, dims)))
    assert data.geometry().grid_shape == (2, 3)
    assert [variable.name for variable in data.variables] == ["q"]
    with pytest.raises(DataError, match="`nav_lat` must not change in time"):
        read(
            save(tmp_path / "b.nc", curvilinear(still + still[:, :1] * [[[0]], [[1]]], still, dims))
        )


def test_sites_along_one_dimension_are_unstructured_points_on_the_sphere(tmp_path):
    places = {"lat": ("cell", [0.0, 10.0, 20.0], NORTH), "lon": ("cell", [5.0, 0.0, 5.0], EAST)}
    geometry = read(save(tmp_path / "a.nc", flat(("cell",), (3,)).assign(places))).geometry()
    assert geometry.grid_shape == ()
    assert geometry.domain.is_sphere
    np.testing.assert_allclose(geometry.weights, 1 / 3)


# Times


def with_times(values, **attributes):
    return flat(("i",), (3,)).assign_coords(time=("time", np.array(values), attributes))


@pytest.mark.parametrize(
    ("values", "attributes", "expected", "units"),
    [
        ([3, 9], {"units": "hours since 2020-02-28"}, [0, 6], "h"),
        ([58, 60], {"units": "days since 2019-01-01", "calendar": "noleap"}, [0, 48], "h"),
        ([0, 1], {"units": "months since 2019-01-01", "calendar": "360_day"}, [0, 720], "h"),
        ([0.0, 1 / 24], {"units": "days since 1850-01-01"}, [0, 1], "h"),
        ([5.0, 7.0], {"units": "seconds"}, [5, 7], "s"),
        ([5.0, 7.0], {"units": "1"}, [5, 7], ""),
        (np.array([2, 5], np.uint8), {}, [2, 5], ""),
    ],
)
def test_times_are_hours_from_the_first_frame_or_plain_numbers(
    tmp_path, values, attributes, expected, units
):
    data = read(save(tmp_path / "a.nc", with_times(values, **attributes)))
    np.testing.assert_array_equal(data.time, expected)
    assert data.time_units == units


def test_uneven_times_are_allowed(tmp_path):
    path = save(tmp_path / "a.nc", grid(time=(0, 1, 7)))
    assert read(path).time.tolist() == [0, 1, 7]


@pytest.mark.parametrize(
    ("values", "attributes", "message"),
    [
        ([1, 1], HOURLY, "`time` must be distinct"),
        ([2, 1], HOURLY, "`time` must increase, got times running backwards"),
        (np.array([2, 1], np.uint8), {}, "`time` must increase"),
        ([0.0, np.nan], HOURLY, "`time` must be finite"),
        ([0, 1], {"units": "hours since breakfast"}, "`time` has units 'hours since breakfast'"),
        ([0, 1], {"units": "fortnights"}, "`time` must have units of time, got 'fortnights'"),
        ([0, 1], {**HOURLY, "calendar": "maya"}, "`time` has units .* in calendar 'maya'"),
        (["then", "now"], {}, "`time` must be numbers with units"),
    ],
)
def test_invalid_times_are_refused(tmp_path, values, attributes, message):
    path = save(tmp_path / "a.nc", with_times(values, **attributes))
    with pytest.raises(DataError, match=message):
        read(path)


def test_times_out_of_order_or_absent_are_refused(tmp_path):
    with pytest.raises(DataError, match="`time` must be sorted"):
        read(save(tmp_path / "a.nc", grid(time=(0, 2, 1))))
    with pytest.raises(DataError, match="`time` has length zero"):
        read(save(tmp_path / "b.nc", grid(time=())))
    with pytest.raises(DataError, match=r"`time` is not among .*\(lat, lon\): one frame is not"):
        read(save(tmp_path / "c.nc", grid().isel(time=0).drop_vars("time")))
    assert read(save(tmp_path / "d.nc", grid().isel(time=[0]))).time.tolist() == [0]


def test_samples_without_times_name_the_inputs_that_they_may_have(tmp_path):
    content = {"u": (("run", "y", "x"), np.ones((5, 3, 4))), "mu": ("run", np.arange(5.0))}
    path = save(tmp_path / "a.nc", xr.Dataset(content))
    with pytest.raises(
        DataError, match=r"not a time series\. If `run` counts samples: `--inputs mu`"
    ):
        read(path)


def test_frames_without_times_are_numbered(tmp_path):
    data = read(save(tmp_path / "a.nc", grid().drop_vars("time")))
    assert (data.time.tolist(), data.time_units) == ([0, 1], "")


def test_the_time_variable_may_have_another_name_than_its_dimension(tmp_path):
    dataset = grid().drop_vars("time").rename_dims(time="record")
    dataset["XTIME"] = ("record", [0, 60], {"units": "minutes since 2020-01-01"})
    assert read(save(tmp_path / "a.nc", dataset)).time.tolist() == [0, 1]
