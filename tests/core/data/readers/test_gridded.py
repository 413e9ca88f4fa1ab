import os
import re
import shutil

import numpy as np
import pytest
import torch
import xarray as xr
import zarr

from gpo.data.dataset import DataError
from gpo.data.readers import content
from gpo.data.readers.gridded import READER
from tests.core.data.files import real_file
from tests.core.data.readers.gridded_files import (
    flat,
    grid,
    read,
    save,
    table,
    write_grib,
)
from tests.core.data.readers.synthetic_weather import (
    lambert_to_true,
    write_carra,
    write_era5,
    write_weatherbench,
)

# Real files


def test_era5_grib_around_the_uk_is_an_hourly_patch():
    data = read(real_file("era5", "era5-2mt-2019-03-uk.grib"))
    np.testing.assert_array_equal(data.time, np.arange(744))
    assert (data.time_units, data.variables[0].name, data.variables[0].units) == ("h", "t2m", "K")
    geometry = data.geometry()
    assert geometry.grid_shape == (33, 49)
    assert geometry.domain.is_sphere
    assert geometry.domain.lower[0] > 0.5
    values = data.frames(0)
    assert values.dtype == np.float32
    assert values.min() == pytest.approx(265.7, abs=0.05)
    assert values.max() == pytest.approx(291.6, abs=0.05)
    np.testing.assert_array_equal(data.frames(0, slice(700, 744, 20)), values[700::20])
    assert not geometry.is_masked.any()


def test_global_era5_grib_covers_the_sphere_with_cosine_weights():
    data = read(real_file("era5", "era5_tcwv_global025_20220617T09-12.grib"))
    np.testing.assert_array_equal(data.time, [0, 3])
    geometry = data.geometry()
    assert geometry.grid_shape == (721, 1440)
    assert geometry.domain.lower == (-1, -1, -1)
    assert geometry.weights.sum() == pytest.approx(1, abs=1e-12)
    rows = geometry.weights.reshape(721, 1440)
    cosine = np.cos(np.deg2rad(geometry.axes[0]))
    np.testing.assert_allclose(rows[1:-1, 0] / rows[360, 0], cosine[1:-1], rtol=1e-5)
    np.testing.assert_allclose(rows, rows[:, :1] * np.ones(1440), rtol=1e-9)
    assert (rows[[0, -1]] > 0).all()


def test_no_index_file_is_left_beside_grib(tmp_path):
    path = tmp_path / "copy.grib"
    shutil.copyfile(real_file("era5", "era5_tcwv_global025_20220617T09-12.grib"), path)
    read(path).frames(0, slice(0, 1))
    assert os.listdir(tmp_path) == ["copy.grib"]


def test_land_is_masked_for_all_variables_read_together():
    path = real_file("era5", "era5_u10v10sst_med_daily12z_2022-01.nc")
    alone, together, wind = read(path, "sst"), read(path), read(path, "u10", "v10")
    np.testing.assert_array_equal(alone.time, 24 * np.arange(27))
    assert alone.geometry().is_masked.mean() == pytest.approx(0.587, abs=5e-4)
    np.testing.assert_array_equal(together.geometry().is_masked, alone.geometry().is_masked)
    assert not wind.geometry().is_masked.any()
    assert [variable.name for variable in together.variables] == ["u10", "v10", "sst"]
    is_known = np.isfinite(alone.frames(0)[..., 0])
    np.testing.assert_array_equal(is_known.any(0), ~alone.geometry().is_masked)
    assert alone.geometry().weights.sum() == pytest.approx(1)


def test_hourly_wind_and_a_single_frame_are_read():
    data = read(real_file("era5", "wam2layers_ERA5_2020-01-01_u10.nc"))
    np.testing.assert_array_equal(data.time, np.arange(24))
    assert data.geometry().grid_shape == (41, 41)
    assert data.variables[0].units == "m s**-1"
    data = read(real_file("era5", "era5_lsm_orography_global025.nc"), "lsm")
    assert data.frames(0).shape == (1, 721 * 1440, 1)


# Published layouts


def test_era5_in_netcdf_and_in_zarr_holds_the_same_numbers(tmp_path):
    write_era5(tmp_path / "new.nc")
    write_era5(tmp_path / "old.nc", time_name="time")
    write_weatherbench(tmp_path / "era5.zarr")
    first, *others = (read(tmp_path / name, "t2m", "u10") for name in os.listdir(tmp_path))
    assert first.geometry().domain.lower == (-1, -1, -1)
    for data in others:
        np.testing.assert_array_equal(data.frames(0), first.frames(0))
        np.testing.assert_array_equal(data.time, first.time)
        np.testing.assert_array_equal(data.geometry().coords, first.geometry().coords)
        assert data.variables == first.variables


def test_variables_of_a_zarr_store_come_in_the_order_of_their_names(tmp_path):
    path = tmp_path / "weather.zarr"
    write_weatherbench(path)
    for _ in range(20):
        names = [variable.name for variable in read(path).variables]
        assert names == sorted(names)
        assert len(names) > 1


@pytest.mark.parametrize("alias", ["t2m", "2t", "2m_temperature"])
def test_era5_variables_can_be_requested_by_any_of_their_names(tmp_path, alias):
    write_era5(tmp_path / "a.nc")
    write_weatherbench(tmp_path / "a.zarr")
    for name in ("a.nc", "a.zarr"):
        data = read(tmp_path / name, alias)
        assert data.variables[0].name == alias
        assert data.frames(0).mean() > 250


def test_carra_is_on_a_projected_grid_with_land_masked(tmp_path):
    write_carra(tmp_path / "carra.nc")
    data = read(tmp_path / "carra.nc", "v10")
    geometry = data.geometry()
    assert geometry.grid_shape == (12, 16)
    assert data.time.tolist() == [0, 3, 6, 9]
    assert len(geometry.axes) == 2
    assert not geometry.domain.is_sphere
    longitude, latitude = geometry.geographic_degrees().T
    np.testing.assert_array_equal(geometry.is_masked, longitude < -41)
    assert 68 < latitude.min() < latitude.max() < 76
    np.testing.assert_array_equal(np.isnan(data.frames(0)[0, :, 0]), geometry.is_masked)


def test_a_mask_variable_is_not_applied(tmp_path):
    write_carra(tmp_path / "carra.nc", land="mask")
    data = read(tmp_path / "carra.nc")
    assert [variable.name for variable in data.variables] == ["v10"]
    weights = data.geometry().weights
    assert (weights > 0).all()
    inner = weights.reshape(12, 16)[1:-1, 1:-1]
    assert inner.max() == pytest.approx(inner.min())


def test_the_lambert_plane_is_conformal_and_true_at_its_origin():
    up, along = lambert_to_true(np.array([0.0, 1.0, 0.0]), np.array([0.0, 0.0, 1.0]))
    assert (up[0], along[0]) == (pytest.approx(72), pytest.approx(-36))
    radius = np.deg2rad(6371229.0)
    east = (along[1] - along[0]) * np.cos(np.deg2rad(72)) * radius
    assert east == pytest.approx(1, rel=1e-6)
    assert (up[2] - up[0]) * radius == pytest.approx(1, rel=1e-6)


# Levels and members


def levels(name="level", values=(500, 850), **attributes):
    dataset = grid()
    data = dataset.t2m.expand_dims({name: list(values)}, 1).copy()
    data = data + 100 * xr.DataArray(np.arange(len(values)), dims=name)
    dataset["t"] = data.astype(np.float32)
    dataset[name].attrs = attributes
    return dataset


def test_a_level_is_selected_by_its_value(tmp_path):
    path = save(tmp_path / "a.nc", levels())
    assert read(path, "t", level="850").frames(0)[0, 0, 0] == 100
    assert read(path, "t", level="500.0").frames(0)[0, 0, 0] == 0
    assert read(path, "t2m").frames(0).shape == (2, 12, 1)
    both = read(path, level="850")
    assert both.frames(0)[0, 0].tolist() == [0, 100]


def test_several_levels_are_variables_with_their_value(tmp_path):
    path = save(tmp_path / "a.nc", levels())
    one, other = (read(path, "t", level=text).frames(0)[..., 0] for text in ("500", "850"))
    data = read(path, "t", level="850,500")
    assert [variable.name for variable in data.variables] == ["t850", "t500"]
    assert data.variables[0].units == read(path, "t", level="500").variables[0].units
    np.testing.assert_array_equal(data.frames(0), np.stack([other, one], -1))
    part = data.frames(0, slice(1, 2), slice(0, 4))
    np.testing.assert_array_equal(part[..., 1], one[1:2, :4])
    again = read(path, "t500", level="850,500")
    np.testing.assert_array_equal(again.frames(0)[..., 0], one)
    with pytest.raises(DataError, match="`level` has no value 700; it has 500, 850"):
        read(path, "t", level="500,700")


def test_a_helper_variable_with_another_axis_may_be_left_out(tmp_path):
    dataset = levels("ts", (np.nan, np.nan)).rename(t="helper")
    path = save(tmp_path / "a.nc", dataset)
    message = r"`ts` has 2 values: nan, nan\. .*all but helper: `--var t2m`\.$"
    with pytest.raises(DataError, match=message):
        read(path)
    assert read(path, "t2m").variables[0].name == "t2m"


def test_a_missing_selection_of_a_level_is_an_error(tmp_path):
    path = save(tmp_path / "a.nc", levels("pressure_level"))
    message = r"`pressure_level` has 2 values: 500, 850\. .*`--select pressure_level=500`"
    with pytest.raises(DataError, match=message):
        read(path, "t")
    with pytest.raises(DataError, match="`pressure_level` has no value 700; it has 500, 850"):
        read(path, "t", pressure_level="700")
    with pytest.raises(DataError, match="`pressure_level` has no value high"):
        read(path, "t", pressure_level="high")
    with pytest.raises(DataError, match=r"`number` is no dimension .*: pressure_level"):
        read(path, "t", number="0", pressure_level="500")


@pytest.mark.parametrize("name", ["number", "realization", "step", "anything"])
def test_ensemble_members_and_forecast_steps_are_selected_like_levels(tmp_path, name):
    path = save(tmp_path / "a.nc", levels(name, (0.0, 6.0)))
    with pytest.raises(DataError, match=f"`{name}` has 2 values: 0, 6"):
        read(path)
    assert read(path, "t", **{name: "6"}).frames(0)[0, 0, 0] == 100


def test_a_dimension_of_length_one_needs_no_selection(tmp_path):
    path = save(tmp_path / "a.nc", levels("level", (500,)))
    assert read(path, "t").frames(0).shape == (2, 12, 1)
    assert read(path, "t", level="500").num_samples == 1
    with pytest.raises(DataError, match="`level` has no value 850; it has 500"):
        read(path, "t", level="850")


def test_a_scalar_coordinate_can_be_selected_by_its_value_only(tmp_path):
    write_era5(tmp_path / "a.nc")
    assert read(tmp_path / "a.nc", number="0").frames(0).shape[-1] == 2
    with pytest.raises(DataError, match="`number` has no value 3; it has 0"):
        read(tmp_path / "a.nc", number="3")


def test_a_vertical_axis_is_kept_on_request_in_the_plane_only(tmp_path):
    height = ("z", [0.0, 10.0, 50.0], {"positive": "up", "units": "m"})
    path = save(tmp_path / "a.nc", flat(("z", "y", "x"), (3, 2, 2), z=height))
    with pytest.raises(DataError, match="`z` has 3 values: 0, 10, 50"):
        read(path)
    data = read(path, z="all")
    assert data.geometry().axis_names == ("z", "y", "x")
    np.testing.assert_array_equal(data.geometry().coords[-1], [50, 1, 1])
    assert read(path, z="10").geometry().axis_names == ("y", "x")
    with pytest.raises(DataError, match="`level` cannot be an axis on the sphere"):
        read(save(tmp_path / "b.nc", levels()), "t", level="all")


# Variables


def test_variables_on_different_grids_are_refused_until_one_is_named(tmp_path):
    other = (("time", "i", "j"), table(2, 2, 2))
    path = save(tmp_path / "a.nc", grid(other=other))
    message = r"different grids: t2m \(lat, lon\); other \(i, j\)\. Choose: `--var t2m`"
    with pytest.raises(DataError, match=message):
        read(path)
    assert read(path, "other").geometry().grid_shape == (2, 2)
    with pytest.raises(DataError, match="different grids"):
        read(path, "other", "t2m")


def test_a_variable_is_read_once(tmp_path):
    path = save(tmp_path / "a.nc", grid())
    with pytest.raises(DataError, match="`t2m` must be requested once, got it twice"):
        read(path, "t2m", "2t")
    with pytest.raises(DataError, match="`q` is not in the file, which has t2m"):
        read(path, "q")
    with pytest.raises(DataError, match="`variables` must include numeric fields"):
        read(save(tmp_path / "b.nc", grid().drop_vars("t2m")))


def test_variables_that_describe_the_grid_are_not_fields(tmp_path):
    more = {
        "time_bnds": (("time", "two"), table(2, 2)),
        "edges": (("lat", "two"), table(3, 2)),
        "projection": ((), 0, {"grid_mapping_name": "latitude_longitude"}),
        "mean": ("time", table(2)),
        "orography": (("lat", "lon"), table(3, 4)),
        "label": (("time", "lat", "lon"), np.full((2, 3, 4), "a")),
    }
    dataset = grid(**more)
    dataset.lat.attrs["bounds"] = "edges"
    path = save(tmp_path / "a.nc", dataset)
    assert [variable.name for variable in read(path).variables] == ["t2m"]
    with pytest.raises(DataError, match="`orography` has no axis `time`"):
        read(path, "t2m", "orography")
    with pytest.raises(DataError, match="`mean` has no axis with sites"):
        read(path, "mean")
    with pytest.raises(DataError, match="`label` is not in the file, which has t2m"):
        read(path, "label")
    with pytest.raises(DataError, match="must include fields with a time axis `time` and sites"):
        read(save(tmp_path / "b.nc", dataset[["mean"]]))


def test_missing_values_are_nan_and_never_filled(tmp_path):
    dataset = grid()
    dataset.t2m[0, 0, 0] = np.nan
    dataset.t2m[:, 1, 1] = np.nan
    path = save(
        tmp_path / "a.nc",
        dataset,
        encoding={"t2m": {"dtype": "int16", "_FillValue": -99, "scale_factor": 0.5}},
    )
    data = read(path)
    is_missing = np.isnan(data.frames(0)[..., 0])
    assert is_missing[0, 0]
    assert is_missing[:, 5].all()
    assert is_missing.sum() == 3
    assert np.flatnonzero(data.geometry().is_masked).tolist() == [5]


def test_a_site_is_masked_if_any_variable_is_always_missing(tmp_path):
    first, second = table(2, 3, 4), table(2, 3, 4)
    first[:, 0], second[:, 1] = np.nan, np.nan
    dims = ("time", "lat", "lon")
    path = save(tmp_path / "a.nc", grid(a=(dims, first), b=(dims, second)))
    assert read(path).geometry().is_masked.reshape(3, 4)[:, 0].tolist() == [True, True, False]
    assert read(path, "a").geometry().is_masked.sum() == 4
    second[:, 2] = np.nan
    path = save(tmp_path / "b.nc", grid(a=(dims, first), b=(dims, second)))
    with pytest.raises(DataError, match="`a` and the other variables have no site in common"):
        read(path, "a", "b")


def test_a_variable_without_a_number_is_refused(tmp_path):
    path = save(tmp_path / "a.nc", grid(void=(("time", "lat", "lon"), table(2, 3, 4) * np.nan)))
    with pytest.raises(DataError, match="`void` holds no number at all"):
        read(path)
    assert len(read(path, "t2m").variables) == 1


def test_sixteen_frames_of_large_files_are_searched_for_masked_sites(tmp_path, monkeypatch):
    dataset = grid(time=np.arange(100))
    dataset.t2m[:, 0, 0] = np.nan
    dataset.t2m[1, 0, 0] = 7
    path = save(tmp_path / "a.nc", dataset)
    assert not read(path).geometry().is_masked.any()
    monkeypatch.setattr(content, "SMALL_FILE", 0)
    assert read(path).geometry().is_masked.sum() == 1


# Files


def test_classic_netcdf_is_read_in_native_byte_order(tmp_path):
    path = save(tmp_path / "a.nc", grid(), format="NETCDF3_CLASSIC")
    values = read(path).frames(0)
    assert values.dtype == np.float32
    assert torch.from_numpy(values).sum() == table(2, 12).sum()


def test_grib_of_one_frame_and_of_levels_is_read(tmp_path):
    path = write_grib(tmp_path / "a.grib2", [("2t", "heightAboveGround", 2, 0, 280)])
    assert read(path).frames(0).shape == (1, 12, 1)
    spots = [(level, hour) for level in (500, 850) for hour in (0, 6)]
    messages = [("t", "isobaricInhPa", level, hour, level + hour) for level, hour in spots]
    path = write_grib(tmp_path / "b.grib2", messages)
    with pytest.raises(DataError, match=r"`isobaricInhPa` has 2 values: (500, 850|850, 500)"):
        read(path)
    data = read(path, isobaricInhPa="850")
    assert data.time.tolist() == [0, 6]
    assert data.frames(0)[:, 0, 0].tolist() == [850, 856]


def test_grib_with_messages_that_do_not_fit_together_is_read_by_variable(tmp_path):
    kinds = [("2t", "heightAboveGround", 2), ("10u", "heightAboveGround", 10), ("sp", "surface", 0)]
    messages = [(*kind, hour, 100 * hour) for kind in kinds for hour in (0, 1)]
    path = write_grib(tmp_path / "a.grib", messages)
    with pytest.raises(DataError, match=r"`variables` do not fit together\. .*`--var NAME`"):
        read(path)
    data = read(path, "t2m")
    assert data.frames(0)[:, 0, 0].tolist() == [0, 100]
    assert read(path, "10u").frames(0, slice(1, 2))[0, 3, 0] == 103
    with pytest.raises(DataError, match="`q` do not fit together"):
        read(path, "q")


def test_files_that_are_cut_short_are_refused(tmp_path):
    whole = {
        "a.nc": save(tmp_path / "four.nc", grid()),
        "b.nc": save(tmp_path / "three.nc", grid(), format="NETCDF3_CLASSIC"),
        "c.nc": save(tmp_path / "wide.nc", grid(), format="NETCDF3_64BIT"),
        "d.grib": write_grib(tmp_path / "g.grib", [("2t", "surface", 0, h, 0) for h in range(3)]),
    }
    for name, source in whole.items():
        content = source.read_bytes()
        for length in (0, 4, 20, len(content) // 2, len(content) - 16):
            (tmp_path / name).write_bytes(content[:length])
            with pytest.raises(DataError, match=r"`file` cannot be opened as .* cut short"):
                read(tmp_path / name)


def test_files_of_other_formats_are_refused(tmp_path, capfd):
    for name in ("a.nc", "a.grib"):
        (tmp_path / name).write_bytes(b"no weather today " * 50)
        with pytest.raises(DataError, match="cannot be opened"):
            read(tmp_path / name)
    (tmp_path / "a.zarr").mkdir()
    with pytest.raises(DataError, match="cannot be opened as Zarr"):
        read(tmp_path / "a.zarr")
    (tmp_path / "a.txt").write_text("hello")
    with pytest.raises(DataError, match="is neither NetCDF nor GRIB nor a Zarr folder"):
        read(tmp_path / "a.txt")
    assert "Traceback" not in capfd.readouterr().err


def test_damage_that_shows_only_in_the_values_is_refused(tmp_path):
    write_weatherbench(tmp_path / "a.zarr")
    chunk = next((tmp_path / "a.zarr" / "2m_temperature").glob("0*"))
    chunk.write_bytes(b"broken")
    with pytest.raises(DataError, match="`2m_temperature` cannot be read"):
        read(tmp_path / "a.zarr")
    shutil.copyfile(write_and_return(tmp_path / "b.nc"), tmp_path / "c.nc")
    data = read(tmp_path / "c.nc")
    (tmp_path / "c.nc").unlink()
    with pytest.raises(DataError, match="`values` cannot be read"):
        data.frames(0)


def write_and_return(path):
    write_era5(path)
    return path


def test_files_are_recognised_by_content_or_suffix(tmp_path):
    reader = READER
    write_weatherbench(tmp_path / "folder")
    save(tmp_path / "four.nc4", grid())
    save(tmp_path / "classic", grid(), format="NETCDF3_CLASSIC")
    write_grib(tmp_path / "message", [("2t", "surface", 0, 0, 0)])
    for name in ("a.nc", "a.cdf", "a.GRB2", "a.grib"):
        (tmp_path / name).write_bytes(b"")
    assert all(reader.recognises(path) for path in tmp_path.iterdir())
    save(tmp_path / "other.h5", grid())
    (tmp_path / "plain").mkdir()
    (tmp_path / "b.npy").write_bytes(b"")
    assert not any(reader.recognises(tmp_path / name) for name in ("other.h5", "plain", "b.npy"))


# Zarr that was written by others


def test_zeros_of_zarr_are_numbers_whatever_fills_missing_chunks(tmp_path):
    values = np.arange(-12, 24, dtype=np.int16).reshape(3, 3, 4)
    group = zarr.create_group(tmp_path / "a.zarr", zarr_format=2)

    def put(name, numbers, dims, fill, **attributes):
        array = group.create_array(
            name, shape=numbers.shape, chunks=numbers.shape, dtype=numbers.dtype,
            fill_value=fill, attributes={"_ARRAY_DIMENSIONS": dims, **attributes},
        )  # fmt: skip
        array[...] = numbers

    put("time", np.arange(3), ["time"], 0, units="hours since 2020-01-01")
    put("lat", np.array([-1.0, 0, 1]), ["lat"], 0.0, units="degrees_north")
    put("lon", np.arange(4.0), ["lon"], 0.0, units="degrees_east")
    put("rain", values, ["time", "lat", "lon"], 0, scale_factor=0.5)
    put("snow", values, ["time", "lat", "lon"], -12)
    data = read(tmp_path / "a.zarr")
    assert data.time.tolist() == [0, 1, 2]
    rain, snow = data.frames(0).transpose(2, 0, 1)
    np.testing.assert_array_equal(rain, 0.5 * values.reshape(3, 12))
    assert np.isnan(snow[0, 0])
    assert np.isfinite(snow).sum() == 35


def store_of_waves(path, fill, zarr_format, **how):
    """A store in chunks of two frames; the first four are zero, and the time starts there."""
    values = np.random.default_rng(0).normal(size=(8, 3, 4))
    values[:4] = 0
    group = zarr.create_group(path, zarr_format=zarr_format)
    axes = {"time": np.arange(8.0), "y": np.arange(3.0), "x": np.arange(4.0)}
    for name, numbers in {**axes, "u": values, "v": values + 1}.items():
        dims = [name] if name in axes else ["time", "y", "x"]
        named = {"dimension_names": dims} if zarr_format == 3 else {}
        chunks = (1,) if name == "time" else (2, *numbers.shape[1:])
        array = group.create_array(
            name, shape=numbers.shape, chunks=chunks, dtype=numbers.dtype, fill_value=fill,
            attributes={"_ARRAY_DIMENSIONS": dims}, **named, **how,
        )  # fmt: skip
        array[...] = numbers
    return values


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_chunks_that_are_not_there_are_not_read_as_zeros(tmp_path, zarr_format):
    path = tmp_path / "a.zarr"
    values = store_of_waves(path, 0, zarr_format)
    with pytest.raises(DataError, match=r"`u` lacks 2 of 4 chunks, which would be read as 0\."):
        read(path)
    chosen = read(path, "v")
    assert chosen.time[0] == 0
    np.testing.assert_allclose(chosen.frames(0)[..., 0], values.reshape(8, 12) + 1, rtol=1e-6)
    chunk = next(file for file in sorted((path / "v").rglob("*")) if file.name[0] in "0c")
    (
        next(file for file in chunk.rglob("*") if file.is_file()) if chunk.is_dir() else chunk
    ).unlink()
    with pytest.raises(DataError, match=r"`v` lacks 1 of 4 chunks"):
        read(path, "v")


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_zeros_that_were_written_out_are_read(tmp_path, zarr_format):
    path = tmp_path / "a.zarr"
    values = store_of_waves(path, 0, zarr_format, config={"write_empty_chunks": True})
    np.testing.assert_allclose(read(path, "u").frames(0)[..., 0], values.reshape(8, 12), rtol=1e-6)


def test_the_command_in_the_error_about_missing_chunks_writes_them(tmp_path):
    path = tmp_path / "a.zarr"
    values = store_of_waves(path, 0, 2)
    with pytest.raises(DataError) as refusal:
        read(path)
    code = re.search(r'python -c "(.*)"', str(refusal.value))[1]
    with zarr.config.set({"array.write_empty_chunks": False}):
        exec(code)
    np.testing.assert_allclose(read(path, "u").frames(0)[..., 0], values.reshape(8, 12), rtol=1e-6)
