import numpy as np
import pytest
import xarray as xr

from gpo.data.dataset import DataError
from gpo.data.readers.base import ReadOptions
from gpo.data.readers.registry import open_data, open_static
from gpo.data.splits import split_by_date, split_by_file, split_time_slices
from tests.core.data.files import pair

VALUES = np.random.default_rng(0).normal(size=(24, 3, 4)).astype(np.float32)


def write(path, frames, start="2020-01-01", name="t2m", land=False, values=VALUES):
    """Writes frames of a daily series, with times relative to the first one."""
    part = values[frames].copy()
    if land:
        part[:, 0, 0] = np.nan
    date = np.datetime64(start) + np.timedelta64(frames[0], "D")
    xr.Dataset(
        {name: (("time", "lat", "lon"), part, {"units": "K"})},
        {
            "time": ("time", np.arange(len(part)), {"units": f"days since {date}"}),
            "lat": ("lat", [50.0, 51, 52], {"units": "degrees_north"}),
            "lon": ("lon", [0.0, 1, 2, 3], {"units": "degrees_east"}),
        },
    ).to_netcdf(path)
    return path


def months(folder, **options):
    """Writes 24 days in three files whose names are not in the order of their dates."""
    folder.mkdir(exist_ok=True)
    ranges = {"b.nc": range(8), "c.nc": range(8, 16), "a.nc": range(16, 24)}
    return [write(folder / name, list(days), **options) for name, days in ranges.items()]


@pytest.mark.parametrize("how", ["folder", "pattern", "list"])
def test_files_that_follow_each_other_are_one_series(tmp_path, how):
    files = months(tmp_path / "months")
    path = {"folder": tmp_path / "months", "pattern": f"{tmp_path}/months/*.nc", "list": files}[how]
    data = open_data(path)
    assert (data.files.kind, data.files.starts) == ("series", (0, 8, 16))
    np.testing.assert_array_equal(data.time, 24.0 * np.arange(24))
    assert data.origin.date == "2020-01-01 00:00:00"
    np.testing.assert_array_equal(data.frames(0)[..., 0], VALUES.reshape(24, 12))
    part = data.frames(0, slice(3, 20, 5), slice(2, 7))
    np.testing.assert_array_equal(part[..., 0], VALUES.reshape(24, 12)[3:20:5, 2:7])


@pytest.mark.parametrize("name", ["time", "valid_time"])
def test_files_of_one_frame_with_a_scalar_time_are_one_series(tmp_path, name):
    """As radars and satellites write, and models whose `time` is when the forecast began."""
    for hour, file in zip((3, 0, 1, 2), "abcd", strict=True):
        times = {
            "time": (
                (),
                0,
                {"units": "hours since 2020-01-01", "standard_name": "forecast_reference_time"},
            )
        }
        times[name] = ((), 60 * hour, {"units": "minutes since 2020-01-01"})
        xr.Dataset(
            {
                "rain": (("y", "x"), VALUES[hour], {"units": "mm"}),
                "land": (("y", "x"), np.ones((3, 4), np.int8)),
                "lat": (("y", "x"), np.add.outer([50.0, 51, 52], np.zeros(4)), {"units": "degrees_north"}),
                "lon": (("y", "x"), np.add.outer(np.zeros(3), np.arange(4.0)), {"units": "degrees_east"}),
            },
            {**times, "y": np.arange(3.0), "x": np.arange(4.0)},
        ).to_netcdf(tmp_path / f"{file}.nc")  # fmt: skip
    data = open_data(tmp_path, ReadOptions(variables=("rain",)))
    np.testing.assert_array_equal(data.time, np.arange(4.0))
    assert data.origin.date == "2020-01-01 00:00:00"
    assert data.time_dim == name
    np.testing.assert_array_equal(data.frames(0)[..., 0], VALUES[:4].reshape(4, 12))
    np.testing.assert_array_equal(data.frames(0, sites=slice(4, 8))[..., 0], VALUES[:4, 1])
    variable, values, _ = open_static(tmp_path / "a.nc", "land", ReadOptions())
    assert (variable.name, values.tolist()) == ("land", [1] * 12)


def test_a_static_field_is_read_beside_series_of_which_levels_must_be_selected(tmp_path):
    land, levels = np.arange(12).reshape(3, 4) % 2 == 0, np.zeros((5, 2, 3, 4))
    content = {"land": (("y", "x"), land), "u": (("time", "level", "y", "x"), levels)}
    xr.Dataset(content, {"time": np.arange(5.0)}).to_netcdf(tmp_path / "a.nc")
    with pytest.raises(DataError, match="`level` has 2 values"):
        open_data(tmp_path / "a.nc")
    variable, values, geometry = open_static(tmp_path / "a.nc", "land", ReadOptions())
    assert (variable.name, values.tolist()) == ("land", land.ravel().astype(float).tolist())
    assert geometry.grid_shape == (3, 4)
    assert open_static(tmp_path / "a.nc", "u", ReadOptions()) is None


def test_frames_are_read_from_the_files_that_hold_them(tmp_path):
    files = months(tmp_path)
    data = open_data(files)
    for file in files[1:]:
        file.unlink()
    np.testing.assert_array_equal(data.frames(0, slice(2, 8)).ravel(), VALUES[2:8].ravel())
    with pytest.raises(DataError):
        data.frames(0, slice(2, 9))


def test_files_with_the_same_times_are_trajectories(tmp_path):
    for number in range(4):
        write(tmp_path / f"member{number}.nc", [0, 1, 2], values=VALUES + number)
    data = open_data(tmp_path)
    assert (data.files.kind, data.num_samples, len(data.time)) == ("trajectories", 4, 3)
    for number in range(4):
        np.testing.assert_array_equal(data.frames(number).ravel(), (VALUES + number)[:3].ravel())


def test_files_of_other_variables_are_read_side_by_side(tmp_path):
    for name, values in (("u10", VALUES), ("v10", -VALUES)):
        write(tmp_path / f"{name}-1.nc", [0, 1, 2], name=name, values=values)
        write(tmp_path / f"{name}-2.nc", [3, 4], name=name, values=values)
    data = open_data(tmp_path, ReadOptions(variables=("v10", "u10")))
    assert [variable.name for variable in data.variables] == ["v10", "u10"]
    expected = np.stack([-VALUES[:5], VALUES[:5]], -1).reshape(5, 12, 2)
    np.testing.assert_array_equal(data.frames(0), expected)


def test_a_site_is_masked_where_every_file_masks_it(tmp_path):
    whole = open_data(months(tmp_path / "whole")).geometry().weights
    sea = open_data(months(tmp_path / "sea", land=True)).geometry()
    assert sea.is_masked.tolist() == [True, *(11 * [False])]
    files = [write(tmp_path / "a.nc", [0, 1], land=True), write(tmp_path / "b.nc", [2, 3])]
    np.testing.assert_allclose(open_data(files).geometry().weights, whole, rtol=1e-12)


@pytest.mark.parametrize("frames", [[2, 3], [1, 2, 3, 4]])
def test_files_whose_times_overlap_are_refused_by_name(tmp_path, frames):
    files = [write(tmp_path / "a.nc", [0, 1, 2]), write(tmp_path / "b.nc", frames)]
    message = f"b.nc: `time` begins at 2020-01-0{frames[0] + 1}, but a.nc ends at 2020-01-03: times"
    with pytest.raises(DataError, match=message):
        open_data(files)


def test_files_on_other_sites_are_refused_by_name(tmp_path):
    path = write(tmp_path / "a.nc", [0, 1, 2])
    with xr.open_dataset(path, decode_times=False) as dataset:
        part = dataset.isel(lat=slice(0, 2)).load()
    part["time"].attrs["units"] = "days since 2020-02-01"
    part.to_netcdf(tmp_path / "b.nc")
    message = (
        r"b.nc: `sites` must be the same as in a.nc \(latitude 3 x longitude 4\), got latitude 2"
    )
    with pytest.raises(DataError, match=message):
        open_data([path, tmp_path / "b.nc"])


def test_patterns_without_files_and_repeated_files_are_refused(tmp_path):
    with pytest.raises(DataError, match="is a pattern that matches no file"):
        open_data(f"{tmp_path}/*.nc")
    with pytest.raises(DataError, match="must be named once, got it twice"):
        open_data([write(tmp_path / "a.nc", [0, 1])] * 2)


def test_a_split_by_date_begins_at_its_dates(tmp_path):
    data = open_data(months(tmp_path))
    split = split_by_date(data, "2020-01-13", "2020-01-19")
    assert split.kind == "date"
    # The two frames before each date are unused: (history + 1) * lead.
    assert [part[0].first for part in (split.training, split.validation, split.test)] == [0, 12, 18]
    assert [part[-1].target for part in (split.training, split.validation)] == [9, 15]
    assert split.test[-1].target == 23
    with pytest.raises(ValueError, match="`test_from` must lie within the data, which go from 2020-01-01 to 2020-01-24"):  # fmt: skip
        split_by_date(data, None, "2021-01-01")
    with pytest.raises(ValueError, match="must be a date of the standard calendar"):
        split_by_date(data, None, "soon")


def test_a_split_by_file_tests_on_the_last_files(tmp_path):
    data = open_data(months(tmp_path / "series"))
    split = split_by_file(data, 1)
    assert [part[0].first for part in (split.training, split.validation, split.test)] == [0, 8, 16]
    (tmp_path / "members").mkdir()
    for number in range(5):
        write(tmp_path / f"members/{number}.nc", [0, 1, 2], values=VALUES + number)
    ensemble = open_data(tmp_path / "members")
    split = split_by_file(ensemble, 2)
    assert {time_slice.sample for time_slice in split.test} == {3, 4}
    assert {time_slice.sample for time_slice in split.training} == {0}
    with pytest.raises(ValueError, match="`test_files` must leave files to train on"):
        split_by_file(ensemble, 3)


def write_maps(path, numbers, *, has_samples=True, dims=("y", "x"), units="m"):
    """Writes samples of a map from a field to its double on 5 x 6 sites."""
    a = np.stack([number + VALUES.ravel()[:30].reshape(5, 6) for number in numbers])
    a = a if has_samples else a[0]
    if path.suffix == ".npz":
        np.savez(path, a=a, u=2 * a)
        return
    names = (*(("sample",) if has_samples else ()), *dims)
    xr.Dataset({"a": (names, a), "u": (names, 2 * a, {"units": units})}).to_netcdf(path)


@pytest.mark.parametrize("suffix", [".npz", ".nc"])
@pytest.mark.parametrize("has_samples", [True, False])
def test_samples_of_static_maps_in_several_files_are_concatenated(tmp_path, suffix, has_samples):
    counts = {"a_0": [0, 1], "a_1": [2], "a_2": [3, 4, 5]} if has_samples else {}
    for name, numbers in (counts or {f"a_{n}": [n] for n in range(6)}).items():
        write_maps(tmp_path / f"{name}{suffix}", numbers, has_samples=has_samples)
    inputs = ("a",) if suffix == ".nc" else ()
    axes = {"axes": "x,y"} if suffix == ".npz" and not has_samples else {}
    maps = open_data(f"{tmp_path}/a_*{suffix}", ReadOptions(inputs=inputs, select=axes))
    assert not maps.has_time
    assert (maps.num_samples, len(maps.geometries)) == (6, 1)
    assert maps.geometry().grid_shape == (5, 6)
    for number in range(6):
        values, outputs = pair(maps, number)
        np.testing.assert_allclose(values[:, 0], number + VALUES.ravel()[:30], rtol=1e-6)
        np.testing.assert_allclose(outputs, 2 * values)


def test_static_maps_that_do_not_belong_together_are_refused_by_name(tmp_path):
    write_maps(tmp_path / "a.nc", [0, 1])
    write_maps(tmp_path / "b.nc", [2], units="cm")
    options = ReadOptions(inputs=("a",))
    with pytest.raises(DataError, match=r"b.nc: `variables` must be u \(m\), as in a.nc"):
        open_data(tmp_path, options)
    write_maps(tmp_path / "b.nc", [2], dims=("x", "y"))
    with pytest.raises(DataError, match=r"b.nc: `sites` must be the same as in a.nc"):
        open_data(tmp_path, options)
    for number in range(2):
        write_maps(tmp_path / f"c_{number}.nc", [0], has_samples=False, dims=("p", "q"))
        write_maps(tmp_path / f"d_{number}.npz", [0], has_samples=False)
        np.savez(tmp_path / f"e_{number}.npz", u=np.ones((9, 5, 6)), t=np.arange(9.0))
    with pytest.raises(DataError, match=r"samples on a line, or one sample on a grid.*`y` and `x`"):
        open_data(f"{tmp_path}/c_*.nc", options)
    with pytest.raises(DataError, match=r"samples on a line, or one sample.*--select axes=x,y"):
        open_data(f"{tmp_path}/d_*.npz")
    write_maps(tmp_path / "d_0.npz", [0, 1, 2])
    with pytest.raises(DataError, match=r"e_0.npz: `file` must hold static maps, as d_0.npz does"):
        open_data([tmp_path / "d_0.npz", tmp_path / "e_0.npz"])


def test_a_file_of_one_static_map_is_one_sample(tmp_path):
    write_maps(tmp_path / "one.nc", [0], has_samples=False)
    maps = open_data(tmp_path / "one.nc", ReadOptions(inputs=("a",)))
    assert (maps.num_samples, maps.geometry().grid_shape) == (1, (5, 6))
    with pytest.raises(ValueError, match="at least 3 samples"):
        split_time_slices(maps)


def test_one_static_map_on_unstructured_points_keeps_their_coordinates(tmp_path):
    x, y = np.random.default_rng(0).uniform(size=(2, 9))
    fields = {"a": ("p", x + y), "u": ("p", x * y), "mu": ((), 3.0)}
    dataset = xr.Dataset({**fields, "x_elem": ("p", x), "y_elem": ("p", y)})
    dataset.to_netcdf(tmp_path / "one.nc")
    maps = open_data(tmp_path / "one.nc", ReadOptions(inputs=("mu", "a")))
    assert [variable.name for variable in maps.outputs] == ["u"]
    np.testing.assert_array_equal(maps.geometry().coords, np.stack([x, y], -1))
    inputs, outputs = pair(maps, 0)
    np.testing.assert_allclose(inputs, np.stack([np.full(9, 3.0), x + y], -1))
    np.testing.assert_allclose(outputs[:, 0], x * y)


def test_one_static_map_may_be_one_dimensional_with_scalar_inputs(tmp_path):
    x = np.linspace(0, 1, 8)
    xr.Dataset({"u": ("x", x**2), "mu": ((), 3.0)}, {"x": x}).to_netcdf(tmp_path / "one.nc")
    maps = open_data(tmp_path / "one.nc", ReadOptions(inputs=("mu",)))
    assert (maps.num_samples, maps.geometry().grid_shape) == (1, (8,))
    inputs, outputs = pair(maps, 0)
    np.testing.assert_array_equal(inputs, np.full((8, 1), 3.0))
    np.testing.assert_allclose(outputs[:, 0], x**2)
