"""`open_data` takes a data set of xarray, with the conventions by which readers describe files."""

import pickle

import numpy as np
import pytest
import xarray as xr

from gpo.data.dataset import DataError
from gpo.data.readers.base import ReadOptions
from gpo.data.readers.lazy import lazy_variable
from gpo.data.readers.registry import open_data

RANDOM = np.random.default_rng(0)
TIMES = np.datetime64("2020-03-01") + np.timedelta64(6, "h") * np.arange(6)


def weather(**attributes):
    values = RANDOM.normal(size=(6, 5, 8)).astype(np.float32)
    axes = {"time": TIMES, "lat": np.linspace(40, 60, 5), "lon": np.arange(8.0)}
    return xr.Dataset({"t2m": (("time", "lat", "lon"), values, {"units": "K"})}, axes, attributes)


def test_a_data_set_in_memory_is_read_as_its_file_is(tmp_path):
    dataset = weather()
    dataset.to_netcdf(tmp_path / "a.nc")
    data, expected = open_data(dataset), open_data(tmp_path / "a.nc")
    assert data.variables == expected.variables
    assert data.origin == expected.origin
    np.testing.assert_array_equal(data.time, 6 * np.arange(6))
    np.testing.assert_array_equal(data.frames(0), expected.frames(0))
    np.testing.assert_array_equal(data.geometry().weights, expected.geometry().weights)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(data)).frames(0), data.frames(0))
    with pytest.raises(DataError, match="dataset: `u10` is not in the file, which has t2m"):
        open_data(dataset, ReadOptions(variables=("u10",)))


def test_a_data_set_of_an_open_file_stays_open(tmp_path):
    weather().to_netcdf(tmp_path / "a.nc")
    with xr.open_dataset(tmp_path / "a.nc") as dataset:
        frames = open_data(dataset).frames(0, slice(2, 4))
        np.testing.assert_array_equal(frames[..., 0], dataset.t2m[2:4].values.reshape(2, -1))


def test_numbers_of_each_sample_are_inputs_of_maps(tmp_path):
    fields = {"u": (("sample", "x"), RANDOM.normal(size=(9, 12))), "mu": ("sample", np.arange(9.0))}
    data = open_data(xr.Dataset(fields, {"x": np.arange(12.0)}), ReadOptions(inputs=("mu",)))
    assert not data.has_time
    inputs, outputs = data.frames(4)[0].T
    assert (inputs == 4).all()
    np.testing.assert_array_equal(outputs, fields["u"][1][4])


def test_attributes_state_what_conventions_cannot():
    values = RANDOM.normal(size=(2, 6, 10))
    coords = {
        "x": ("x", np.arange(10) / 10, {"gpo_periodic": True}),
        "nu": ("trajectory", [1.0, 2]),
    }
    dataset = xr.Dataset({"u": (("trajectory", "time", "x"), values)}, coords)
    data = open_data(dataset)
    assert data.geometry().domain.periodic == (True,)
    assert data.geometry().domain.upper == (1.0,)
    assert data.num_samples == 2
    np.testing.assert_array_equal(data.parameters["nu"], [1, 2])
    np.testing.assert_array_equal(data.frames(1)[..., 0], values[1])


def test_trajectories_may_have_points_of_their_own():
    places = RANDOM.random((2, 7, 2))
    coords = {
        name: (("trajectory", "points"), places[..., n], {"axis": name.upper()})
        for n, name in enumerate("xy")
    }
    values = RANDOM.normal(size=(2, 5, 7))
    dataset = xr.Dataset({"u": (("trajectory", "time", "points"), values)}, coords)
    data = open_data(dataset)
    for number, geometry in enumerate(data.geometries):
        np.testing.assert_array_equal(geometry.coords, places[number])
        assert geometry.domain == data.geometry(0).domain
        np.testing.assert_array_equal(data.frames(number)[..., 0], values[number])


def test_only_the_selected_part_of_a_lazy_array_is_read():
    requested = []
    values = RANDOM.normal(size=(1, 50, 40))

    def read(key):
        requested.append(values[key].size)
        return values[key]

    dims = ("trajectory", "time", "x")
    dataset = xr.Dataset({"u": lazy_variable(dims, values.shape, values.dtype, read)})
    data = open_data(dataset)
    assert requested == [40]
    np.testing.assert_array_equal(data.frames(0, slice(3, 5))[..., 0], values[0, 3:5])
    np.testing.assert_array_equal(
        data.frames(0, slice(3, 5), slice(8, 9))[0, 0, 0], values[0, 3, 8]
    )
    assert requested == [40, 80, 2]
