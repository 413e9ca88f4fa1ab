"""Forecasts of files as people have them: dates of any calendar, masks, other units, steps, regions."""

import csv
import json
from dataclasses import replace

import cftime
import numpy as np
import pytest
import xarray as xr

from gpo.cli import main
from gpo.data.dataset import DataError, Variable
from gpo.data.dates import TimeOrigin
from gpo.data.geometry import Geometry
from gpo.data.index_grids import index_grid, scaled_to
from gpo.data.periodic import make_axes_periodic
from gpo.data.query_points import QueryPoints
from gpo.data.readers.base import ReadOptions
from gpo.data.readers.registry import open_data
from gpo.data.units import canonical, conversion
from gpo.data.writers.layout import ForecastLayout
from gpo.data.writers.netcdf import write_forecast
from gpo.data.writers.table import new_table
from gpo.data.writers.zarr import ForecastStore
from gpo.forecast.compatibility import convert_to_training_units
from gpo.forecast.task import TrainedOn
from gpo.runs import Run, read_data, split_of
from gpo.training.config import RunConfig
from gpo.training.fit import new_forecaster
from tests.core.test_cli import failure
from tests.core.training.series import decaying_waves
from tests.explore.sessions import lively

SIZES = {"hidden_dim": 8, "num_layers": 1, "num_gaussians": 4}
SEA = {"long_name": "sea surface temperature", "standard_name": "sea_surface_temperature"}


def write_sea(
    path,
    *,
    step=24,
    num_frames=40,
    calendar="360_day",
    since="1987-02-25 12:00:00",
    units="K",
    factor=1.0,
    offset=0.0,
    longitude=(10.0, 20.0),
    level=None,
    times=None,
):
    """A sea of waves with land in a corner, on a part of the sphere; `times` are hours."""
    lat, lon = np.linspace(30, 40, 8), np.linspace(*longitude, 9)
    t = np.arange(num_frames)
    place = lat[:, None] / 10 + lon / 10
    values = 280 + 5 * np.sin(place - 0.3 * t[:, None, None])
    values[:, :3, :3] = np.nan
    dims, extra = ("time", "lat", "lon"), {}
    if level is not None:
        values, dims = values[:, None], ("time", "level", "lat", "lon")
        extra = {"level": ("level", [level], {"units": "hPa", "positive": "down"})}
    hours = (step * t).astype(float) if times is None else times
    time = ("time", hours, {"units": f"hours since {since}", "calendar": calendar})  # fmt: skip
    xr.Dataset(
        {"sst": (dims, factor * values + offset, {"units": units, **SEA})},
        coords={
            "time": time,
            "lat": ("lat", lat, {"units": "degrees_north"}),
            "lon": ("lon", lon, {"units": "degrees_east"}),
            **extra,
        },
    ).to_netcdf(path)
    return path


def make_run(folder, path, **settings):
    """An untrained run of a file."""
    config = RunConfig.of(data=str(path), model="gpo", **SIZES, **settings)
    data = open_data(path, ReadOptions())
    run = Run(folder / "run")
    run.claim(config)
    lively(new_forecaster(data, split_of(data, config), config)).save(run.model_folder)
    return run.folder


@pytest.fixture(scope="module")
def sea(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sea")
    make_run(folder, write_sea(folder / "sea.nc"))
    return folder


def predict(sea, output, *more, given="sea.nc"):
    path = sea / given if isinstance(given, str) else given
    main(["predict", str(sea / "run"), "--input", str(path), "--output", str(output), *more])


@pytest.mark.parametrize("suffix", ["nc", "zarr"])
def test_a_forecast_is_read_back_as_what_its_input_is(sea, tmp_path, suffix, capsys):
    output = tmp_path / f"next.{suffix}"
    predict(sea, output, "--steps", "3")
    before, after = (open_data(path, ReadOptions()) for path in (sea / "sea.nc", output))
    assert after.variables == before.variables
    assert after.variables[0].attributes == {"units": "K", **SEA}
    assert after.origin.calendar == "360_day"
    # The last frame is 39 days of 24 h after the 25th of February; February has 30 days here.
    assert before.time_labels([0, 39]) == ["1987-02-25 12:00", "1987-04-04 12:00"]
    assert after.time_labels(range(3)) == ["1987-04-05 12:00", "1987-04-06 12:00", "1987-04-07 12:00"]  # fmt: skip
    assert after.time_step == before.time_step
    one, other = before.geometry(), after.geometry()
    assert other.domain == one.domain
    np.testing.assert_allclose(other.weights, one.weights)
    np.testing.assert_array_equal(other.is_masked, one.is_masked)
    main(["data", "info", str(output)])
    assert "from 1987-04-05 12:00 to 1987-04-07 12:00 (360_day calendar)" in capsys.readouterr().out


@pytest.mark.parametrize("calendar", ["noleap", "standard", "360_day"])
def test_times_of_a_forecast_have_units_and_the_calendar_of_the_file(tmp_path, calendar):
    make_run(tmp_path, write_sea(tmp_path / "sea.nc", calendar=calendar, since="2000-01-20"))
    predict(tmp_path, tmp_path / "next.nc", "--steps", "2")
    with xr.open_dataset(tmp_path / "next.nc", decode_times=False) as stored:
        attributes = stored["time"].attrs
        dates = cftime.num2date(stored["time"].values, attributes["units"], attributes["calendar"])
        assert attributes["calendar"] == calendar
        assert stored["lat"].attrs["standard_name"] == "latitude"
    days = {"noleap": "2000-03-01", "standard": "2000-02-29", "360_day": "2000-02-30"}
    assert dates[0].strftime("%Y-%m-%d") == days[calendar]


@pytest.mark.parametrize(
    ("changes", "order", "names"),
    [
        ({}, ("time", "lat", "lon"), {}),
        ({"step": 1 / 3, "calendar": "standard"}, ("lon", "time", "lat"), {}),
        (
            {"longitude": (355, 365)},
            ("time", "lat", "lon"),
            {"time": "valid_time", "lat": "nav_lat", "lon": "x"},
        ),
    ],
    ids=["as it is", "other order, every 20 minutes", "other names, across Greenwich"],
)
def test_a_forecast_minus_what_was_observed_has_the_dimensions_of_both(
    tmp_path, changes, order, names
):
    with xr.open_dataset(write_sea(tmp_path / "a.nc", **changes), decode_times=False) as stored:
        observed = stored.transpose(*order)
        if "step" in changes:
            minutes = np.round(60 * observed["time"].values).astype(int)
            units = observed["time"].attrs["units"].replace("hours", "minutes")
            observed["time"] = ("time", minutes, {"units": units, "calendar": "standard"})
        if "longitude" in changes:
            observed["lon"] = observed["lon"] % 360
            observed["lon"].attrs["units"] = "degrees_east"
        observed.rename(names).to_netcdf(tmp_path / "sea.nc")
    make_run(tmp_path, tmp_path / "sea.nc")
    start = open_data(tmp_path / "sea.nc", ReadOptions()).origin.texts(np.array([30 * changes.get("step", 24)]))[0]  # fmt: skip
    predict(tmp_path, tmp_path / "next.nc", "--start", start, "--steps", "3")
    with (
        xr.open_dataset(tmp_path / "next.nc") as forecast,
        xr.open_dataset(tmp_path / "sea.nc") as observed,
    ):
        error = forecast - observed
        assert set(error["sst"].dims) == set(observed["sst"].dims)
        assert sorted(error["sst"].shape) == [3, 8, 9]
        time = names.get("time", "time")
        later = observed.sel({time: forecast[time]}).reindex_like(forecast)
        np.testing.assert_array_equal(
            error["sst"].transpose(*forecast["sst"].dims), forecast["sst"] - later["sst"]
        )
        assert np.isfinite(error["sst"]).sum() == 3 * (72 - 9)


@pytest.mark.parametrize("suffix", ["nc", "zarr", "csv"])
def test_variables_with_the_names_of_axes_or_of_groups_are_written_as_they_are(tmp_path, suffix):
    names = ["x", "y", "u (m/s)", " v*", "time", "w\n"]
    grid = Geometry.rectilinear([np.arange(3.0), np.arange(4.0)])
    variables = tuple(Variable(name) for name in names)
    layout = ForecastLayout(QueryPoints.of(grid), variables, 1, np.array([5.0]))
    values, path = np.arange(72.0).reshape(1, 3, 4, 6), tmp_path / f"next.{suffix}"
    if suffix == "csv":
        with new_table(path, layout) as writer:
            writer.write(layout.index(0, 0, (slice(3), slice(4))), values[0])
        header = next(csv.reader(path.read_text().splitlines(keepends=True)[1:]))
        assert header == ["time", "axis_x", "axis_y", "x", "y", "u (m/s)", " v*", "time_", "w\n"]
        return
    if suffix == "nc":
        write_forecast(path, values.reshape(1, 1, 12, 6), grid, variables, np.array([5.0]))
    else:
        store = ForecastStore(path, layout, (3, 4), {})
        store.write(layout.index(0, 0, (slice(3), slice(4))), values[0])
        store.finish()
    with xr.open_dataset(path, engine={"nc": None, "zarr": "zarr"}[suffix]) as stored:
        expected = ["x", "y", "u (m_s)", "v*", "time_", "w_"]
        assert sorted(stored.data_vars) == sorted(expected)
        assert stored["x"].dims == ("time", "axis_x", "axis_y")
        assert stored["u (m_s)"].attrs["long_name"] == "u (m/s)"
        for number, name in enumerate(expected):
            np.testing.assert_array_equal(stored[name], values[..., number])


def test_a_curvilinear_grid_stays_one(tmp_path):
    y, x, t = np.arange(6.0), np.arange(7.0), np.arange(40)
    lat, lon = 50 + y[:, None] + 0.1 * x, 5 + 0.2 * y[:, None] + x
    values = np.sin(lat / 3 + lon / 2 - 0.2 * t[:, None, None])
    xr.Dataset(
        {"h": (("time", "y", "x"), values, {"units": "m"})},
        coords={
            "time": ("time", t, {"units": "days since 2001-01-01"}),
            "lat": (("y", "x"), lat, {"units": "degrees_north"}),
            "lon": (("y", "x"), lon, {"units": "degrees_east"}),
        },
    ).to_netcdf(tmp_path / "grid.nc")
    make_run(tmp_path, tmp_path / "grid.nc")
    for suffix in ("nc", "zarr"):
        predict(tmp_path, tmp_path / f"next.{suffix}", given="grid.nc")
        data = open_data(tmp_path / f"next.{suffix}", ReadOptions())
        assert data.geometry().grid_shape == (6, 7)
        first = open_data(tmp_path / "grid.nc", ReadOptions()).geometry()
        np.testing.assert_allclose(data.geometry().coords, first.coords, atol=1e-12)


def test_a_mesh_is_written_with_its_cells(tmp_path):
    coords = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    triangles = np.array([[0, 1, 2], [1, 3, 2]])
    geometry = Geometry.unstructured(coords, triangles)
    values = np.arange(8.0).reshape(1, 2, 4, 1)
    origin = TimeOrigin("2000-01-01 00:00:00", "noleap")
    times = np.array([0.0, 1.0])
    write_forecast(tmp_path / "a.nc", values, geometry, [Variable("p", "Pa")], times, "h", origin)
    layout = ForecastLayout(QueryPoints.of(geometry), (Variable("p", "Pa"),), 1, times, "h", origin)
    ForecastStore(tmp_path / "a.zarr", layout, (4,), {}).finish()
    for stored in (xr.open_dataset(tmp_path / "a.nc"), xr.open_zarr(tmp_path / "a.zarr")):
        with stored:
            where = {"mesh": "mesh", "location": "node", "cell_measures": "area: cell_area"}
            assert stored["p"].attrs == {"units": "Pa", **where}
            mesh = stored["mesh"].attrs
            assert (mesh["cf_role"], mesh["topology_dimension"]) == ("mesh_topology", 2)
            assert mesh["node_coordinates"] == "coordinate_x coordinate_y"
            np.testing.assert_array_equal(stored[mesh["face_node_connectivity"]], triangles)


def test_axes_keep_their_attributes(tmp_path):
    x, y, t = np.linspace(0, 5, 6), np.linspace(0, 7, 8), np.arange(40.0)
    values = np.sin(x[:, None] + y - 0.2 * t[:, None, None])
    named = {"units": "km", "standard_name": "projection_x_coordinate", "long_name": "easting"}
    xr.Dataset(
        {"q": (("time", "y", "x"), values, {"units": "kg kg-1"})},
        coords={
            "time": ("time", t, {"units": "hours since 2001-01-01"}),
            "x": ("x", y, named),
            "y": ("y", x, {"units": "km", "axis": "Y"}),
        },
    ).to_netcdf(tmp_path / "flat.nc")
    make_run(tmp_path, tmp_path / "flat.nc")
    predict(tmp_path, tmp_path / "next.nc", given="flat.nc")
    with xr.open_dataset(tmp_path / "next.nc") as stored:
        assert stored["x"].attrs == named
        assert stored["y"].attrs == {"units": "km", "axis": "Y"}
        assert stored["q"].attrs == {"units": "kg kg-1"}


def test_a_grid_and_queries_on_land_are_missing(sea, tmp_path):
    predict(sea, tmp_path / "fine.nc", "--grid", "16", "18")
    with xr.open_dataset(tmp_path / "fine.nc") as fine:
        found = fine["sst"].values[0]
        # From north to south: the land is in the south-west, a third of each axis or less.
        assert np.isnan(found[-4:, :4]).all()
        assert np.isfinite(found[:10]).all()
        assert np.isfinite(found[:, 10:]).all()
    (tmp_path / "points.csv").write_text("longitude,latitude\n10.5,30.5\n19,39\n")
    predict(sea, tmp_path / "points.nc", "--queries", str(tmp_path / "points.csv"))
    with xr.open_dataset(tmp_path / "points.nc") as points:
        assert np.isnan(points["sst"].values).ravel().tolist() == [True, False]


def test_a_name_with_csv_gets_a_table_with_dates(sea, tmp_path, capsys):
    (tmp_path / "points.csv").write_text("10.5 30.5\n19 39\n")
    queries = ("--queries", str(tmp_path / "points.csv"), "--steps", "2")
    predict(sea, tmp_path / "cities.csv", *queries)
    predict(sea, tmp_path / "cities.nc", *queries)
    head, *lines = (tmp_path / "cities.csv").read_text().splitlines()
    assert head.startswith("# time: dates of the 360_day calendar; ")
    assert head.endswith("sst: K")
    rows = list(csv.DictReader(lines))
    assert [row["time"] for row in rows] == ["1987-04-05T12:00:00"] * 2 + ["1987-04-06T12:00:00"] * 2  # fmt: skip
    assert [row["sst"] == "" for row in rows] == [True, False, True, False]
    with xr.open_dataset(tmp_path / "cities.nc") as stored:
        assert float(rows[3]["sst"]) == pytest.approx(float(stored["sst"][1, 1]), rel=1e-6)
    predict(sea, tmp_path / "sites.csv")
    assert len((tmp_path / "sites.csv").read_text().splitlines()) == 2 + 8 * 9
    code, message = failure(capsys, "predict", str(sea / "run"), "--input", str(sea / "sea.nc"), "--output", str(tmp_path / "a.txt"))  # fmt: skip
    assert code == 1
    assert "--output must be NetCDF, a table or Zarr, named .nc" in message


def test_a_forecast_starts_at_the_requested_frame(sea, tmp_path, capsys):
    predict(sea, tmp_path / "a.nc", "--start", "1987-02-30T12:00")
    write_sea(tmp_path / "short.nc", num_frames=6)
    predict(sea, tmp_path / "b.nc", given=tmp_path / "short.nc")
    first, second = (open_data(tmp_path / name, ReadOptions()) for name in ("a.nc", "b.nc"))
    assert first.time_labels([0]) == second.time_labels([0]) == ["1987-03-01 12:00"]
    np.testing.assert_array_equal(first.frames(0), second.frames(0))
    given = ("predict", str(sea / "run"), "--input", str(sea / "sea.nc"), "--output", str(tmp_path / "c.nc"))  # fmt: skip
    for start, problem in (
        ("1987-03-31", "must be a date of the 360_day calendar, such as 1987-02-25 12:00, got"),
        ("1987-03-01", "from 1987-02-25 12:00 to 1987-04-04 12:00, got 1987-03-01. The nearest is"),
        ("soon", "must be a date of the 360_day calendar"),
    ):
        code, message = failure(capsys, *given, "--start", start)
        assert code == 1
        assert problem in message


def test_other_units_are_converted_and_that_is_reported(sea, tmp_path, capsys):
    write_sea(tmp_path / "celsius.nc", units="degrees_Celsius", offset=-273.15)
    predict(sea, tmp_path / "a.nc")
    capsys.readouterr()
    predict(sea, tmp_path / "b.nc", given=tmp_path / "celsius.nc")
    assert "sst converted from degrees_Celsius to K, as in training" in capsys.readouterr().out
    first, second = (open_data(tmp_path / name, ReadOptions()) for name in ("a.nc", "b.nc"))
    assert second.variables[0].units == "K"
    np.testing.assert_allclose(first.frames(0), second.frames(0), atol=1e-3)


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"step": 6}, "`time` must have a step of 24 h, as in training, got 6 h. Write every 4th frame"),
        ({"step": 48}, "`time` must have a step of 24 h, as in training, got 48 h. Train a run on this file: gpo run --data"),
        ({"calendar": "noleap"}, "must be in the 360_day calendar, as in training, got noleap"),
        ({"longitude": (110.0, 120.0)}, "`longitude` must range from 10 to 20 degrees_east, as in training, got 110 to 120 degrees_east."),
        ({"units": "m s-1"}, "`sst` must be in K, as in training, got m s-1, which cannot be converted."),
    ],
    ids=["finer step", "coarser step", "calendar", "region", "units"],
)  # fmt: skip
def test_data_unlike_those_of_training_are_refused(sea, tmp_path, capsys, changes, problem):
    path = write_sea(tmp_path / "other.nc", **changes)
    for command in (
        ("predict", str(sea / "run"), "--input", str(path), "--output", str(tmp_path / "a.nc")),
        ("evaluate", str(sea / "run"), "--data", str(path)),
    ):
        code, message = failure(capsys, *command)
        assert code == 1
        assert problem in message
    assert not (tmp_path / "a.nc").exists()


def test_another_level_is_refused_and_the_error_names_its_own(tmp_path, capsys):
    make_run(tmp_path, write_sea(tmp_path / "sea.nc", level=500.0))
    predict(tmp_path, tmp_path / "next.nc", "--steps", "3")
    assert open_data(tmp_path / "next.nc", ReadOptions()).levels == {"level": "500"}
    predict(tmp_path, tmp_path / "after.nc", given="next.nc")
    path = write_sea(tmp_path / "other.nc", level=850.0)
    code, message = failure(capsys, "predict", str(tmp_path / "run"), "--input", str(path), "--output", str(tmp_path / "a.nc"))  # fmt: skip
    assert code == 1
    assert "`level` must be 500, as in training, got 850." in message


def test_a_frame_without_time_is_followed_after_the_step_of_training(sea, tmp_path):
    with xr.open_dataset(sea / "sea.nc", decode_times=False) as stored:
        stored.isel(time=7, drop=True).to_netcdf(tmp_path / "frame.nc")
        stored.isel(time=slice(8)).to_netcdf(tmp_path / "series.nc")
    predict(sea, tmp_path / "a.nc", "--steps", "2", given=tmp_path / "frame.nc")
    predict(sea, tmp_path / "b.nc", "--steps", "2", given=tmp_path / "series.nc")
    with (
        xr.open_dataset(tmp_path / "a.nc", decode_times=False) as alone,
        xr.open_dataset(tmp_path / "b.nc", decode_times=False) as other,
    ):
        np.testing.assert_array_equal(alone["sst"], other["sst"])
        assert alone["time"].values.tolist() == [24, 48]
        assert alone["time"].attrs["units"] == "h"


def test_after_an_uneven_last_step_a_usable_start_is_named(tmp_path, capsys):
    make_run(tmp_path, write_sea(tmp_path / "sea.nc", calendar="standard"), history=2)
    times = np.r_[24.0 * np.arange(12), 24.0 * 11 + 30]
    write_sea(tmp_path / "late.nc", calendar="standard", num_frames=13, times=times)
    arguments = ("predict", str(tmp_path / "run"), "--input", str(tmp_path / "late.nc"))
    _, message = failure(capsys, *arguments, "--output", str(tmp_path / "a.nc"))
    assert "The latest usable start before it: --start 1987-03-08T12:00:00" in message
    predict(tmp_path, tmp_path / "b.nc", "--start", "1987-03-08T12:00:00", given="late.nc")
    assert (tmp_path / "b.nc").exists()


def test_several_levels_are_read_and_written_as_variables(tmp_path):
    both = [write_sea(tmp_path / f"{n}.nc", level=n, factor=n / 500) for n in (500, 850)]
    levels = [xr.open_dataset(path, decode_times=False) for path in both]
    xr.concat(levels, "level").to_netcdf(tmp_path / "sea.nc")
    flags = ("level=500", "level=850")
    config = RunConfig.of(data=str(tmp_path / "sea.nc"), model="gpo", select=flags, **SIZES)
    run = Run(tmp_path / "run")
    run.claim(config)
    data = read_data(config)
    lively(new_forecaster(data, split_of(data, config), config)).save(run.model_folder)
    predict(tmp_path, tmp_path / "next.nc")
    predict(tmp_path, tmp_path / "after.nc", given=tmp_path / "next.nc")
    for name in ("next.nc", "after.nc"):
        with xr.open_dataset(tmp_path / name) as stored:
            assert list(stored.data_vars) == ["sst500", "sst850"]
            assert np.isfinite(stored["sst850"]).any()
            assert not any(key.startswith("_variable") for key in stored["sst500"].attrs)


def test_a_single_frame_is_followed_after_the_step_of_training(sea, tmp_path):
    write_sea(tmp_path / "one.nc", num_frames=1)
    predict(sea, tmp_path / "a.nc", given=tmp_path / "one.nc")
    data = open_data(tmp_path / "a.nc", ReadOptions())
    assert data.time_labels([0]) == ["1987-02-26 12:00"]


def test_longitudes_of_another_turn_are_the_same_region(sea, tmp_path):
    write_sea(tmp_path / "turned.nc", longitude=(370.0, 380.0))
    predict(sea, tmp_path / "a.nc", given=tmp_path / "turned.nc")
    assert (tmp_path / "a.nc").exists()


def test_the_whole_circle_is_one_region_wherever_it_begins():
    east, west = (
        Geometry.latitude_longitude(np.linspace(-80, 80, 9), np.arange(start, start + 360, 20.0))
        for start in (0.0, -180.0)
    )
    series = decaying_waves()
    one, other = (replace(series, geometries=(geometry,)) for geometry in (east, west))
    found, notes = convert_to_training_units(other, TrainedOn.of(one))
    assert (found, notes) == (other, [])


def test_another_resolution_of_a_region_is_welcome_and_other_lengths_are_not():
    coarse, fine, long = (
        Geometry.rectilinear([np.linspace(0, end, count)], units=[unit])
        for end, count, unit in ((1.0, 11, "km"), (1.0, 41, "km"), (1000.0, 11, "m"))
    )
    series = decaying_waves()
    trained = TrainedOn.of(replace(series, geometries=(coarse,)))
    convert_to_training_units(replace(series, geometries=(fine,)), trained)
    with pytest.raises(DataError, match="must range from 0 to 1 km, as in training, got 0 to 1000 m"):  # fmt: skip
        convert_to_training_units(replace(series, geometries=(long,)), trained)


def test_a_run_is_scored_on_all_of_another_file(sea, tmp_path, capsys):
    path = write_sea(tmp_path / "later.nc", since="1991-01-01", num_frames=12)
    main(["evaluate", str(sea / "run"), "--data", str(path)])
    results = json.loads((sea / "run" / "on-later" / "results.json").read_text())
    assert results["num_examples"] == 11
    references = {"persistence", "climatology", "damped persistence", "linear map"}
    assert set(results["one_step"]) == {"model", *references}
    assert results["verdict"] in capsys.readouterr().out.replace("\n", " ")
    assert not (sea / "run" / "results.json").exists()


def test_units_have_many_spellings():
    for spelled in ("m s-1", "m/s", "m s**-1", "m.s-1", "m s^-1", "meters / second"):
        assert canonical(spelled) == "m s-1"
    assert canonical("kg/m3") == canonical("kg m-3") == canonical("kg m**-3")
    assert canonical("W/m^2") == "W m-2"


@pytest.mark.parametrize(
    ("have", "want", "value", "expected"),
    [
        ("degC", "K", 0.0, 273.15),
        ("K", "celsius", 273.15, 0.0),
        ("degF", "degC", 212.0, 100.0),
        ("hPa", "Pa", 1013.25, 101325.0),
        ("km/h", "m s-1", 36.0, 10.0),
        ("knots", "km h-1", 1.0, 1.852),
        ("mm", "m", 5.0, 0.005),
        ("percent", "1", 50.0, 0.5),
        ("m/s", "m s**-1", 3.0, 3.0),
    ],
)
def test_units_are_converted(have, want, value, expected):
    factor, offset = conversion(have, want)
    assert value * factor + offset == pytest.approx(expected, abs=1e-9)


def test_units_of_other_quantities_are_not():
    assert conversion("m", "s") is None
    assert conversion("K", "m s-1") is None
    assert conversion("furlong", "m") is None


def test_dates_survive_rounding():
    origin = TimeOrigin("2000-01-01 00:00:00", "noleap")
    assert origin.labels(np.array([1 / 3, 24.0])) == ["2000-01-01 00:20", "2000-01-02 00:00"]
    assert origin.texts(np.array([1 / 3])) == ["2000-01-01T00:20:00"]
    assert origin.hours("2000-03-01") == 24 * 59


def test_grids_without_coordinates_cover_the_same_region_at_any_resolution():
    series = decaying_waves()
    trained = TrainedOn.of(replace(series, geometries=(index_grid([16, 9]),)))
    found, (note,) = convert_to_training_units(
        replace(series, geometries=(index_grid([31, 9]),)), trained
    )
    np.testing.assert_allclose(found.geometry().axes[0], np.linspace(0, 15, 31))
    np.testing.assert_allclose(found.geometry().axes[1], np.arange(9))
    assert found.geometry().domain.upper == (15, 8)
    assert "the 31 x 9 sites are taken for the region of the 16 x 9 of training" in note
    # With coordinates, other numbers are another region.
    stated = Geometry.rectilinear([np.arange(31.0), np.arange(9.0)])
    with pytest.raises(DataError, match="`x` must range from 0 to 15, as in training, got 0 to 30"):
        convert_to_training_units(replace(series, geometries=(stated,)), trained)


def test_periodic_grids_without_coordinates_have_one_period():
    coarse, fine = (
        make_axes_periodic(
            replace(decaying_waves(num_points=count), geometries=(index_grid([count]),)), ["x"]
        )
        for count in (24, 48)
    )
    found = scaled_to(fine.geometry(), [24])
    np.testing.assert_allclose(found.axes[0], np.arange(48) / 2)
    assert found.domain == coarse.geometry().domain
