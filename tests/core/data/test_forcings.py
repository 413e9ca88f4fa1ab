from dataclasses import replace

import numpy as np
import pytest

from gpo.data.dataset import DataError
from gpo.data.dates import TimeOrigin
from gpo.data.forcings import solar_zenith_cosine
from tests.core.data.files import real_file
from tests.core.data.readers.gridded_files import grid, read, save


def dated(path, units, times, **attributes):
    dataset = grid(time=times)
    dataset["time"].attrs = {"units": units, **attributes}
    return read(save(path, dataset))


@pytest.mark.parametrize(
    ("units", "times", "hour"),
    [
        ("hours since 2020-01-01", (0, 1), 0.0),
        ("hours since 2020-01-01 06:30", (2, 3), 8.5),
        ("seconds since 1970-01-01", (7 * 3600, 8 * 3600), 7.0),
        ("days since 1950-01-01 12:00", (0.25, 1.25), 18.0),
        ("minutes since 2020-06-30 23:00", (90, 150), 0.5),
    ],
)
@pytest.mark.parametrize("calendar", ["standard", "360_day", "noleap"])
def test_dates_determine_the_hour_of_the_first_frame(tmp_path, units, times, hour, calendar):
    data = dated(tmp_path / "a.nc", units, times, calendar=calendar)
    assert data.first_hour == pytest.approx(hour, abs=1e-6)


def test_era5_begins_at_midnight_or_at_noon():
    assert read(real_file("era5", "era5-2mt-2019-03-uk.grib")).first_hour == 0
    assert read(real_file("era5", "era5_u10v10sst_med_daily12z_2022-01.nc")).first_hour == 12


def test_input_frames_begin_with_the_daily_cycle(tmp_path):
    hours = np.arange(49)
    data = dated(tmp_path / "a.nc", "hours since 2020-01-01 06:00", hours).with_time_features(
        ["day"]
    )
    inputs = data.input_frames(0, slice(None), 0)
    angle = 2 * np.pi * (hours + 6) / 24
    assert [variable.name for variable in data.forcings] == ["day_cos", "day_sin"]
    assert inputs.shape == (49, 12, 3)
    for number, feature in enumerate((np.cos(angle), np.sin(angle))):
        np.testing.assert_allclose(inputs[..., number], np.tile(feature[:, None], 12), atol=1e-6)
    np.testing.assert_array_equal(inputs[..., 2:], data.frames(0))
    np.testing.assert_allclose(inputs[:25, :, :2], inputs[24:, :, :2], atol=1e-6)
    np.testing.assert_array_equal(
        data.input_frames(0, slice(7, 30, 5), 3)[..., :2], inputs[10:33:5, :, :2]
    )


def test_without_time_features_inputs_are_the_frames(tmp_path):
    data = dated(tmp_path / "a.nc", "hours since 2020-01-01", (0, 1))
    assert data.forcings == ()
    np.testing.assert_array_equal(data.input_frames(0, slice(None), 1), data.frames(0))


@pytest.mark.parametrize(
    ("calendar", "date", "fraction"),
    [
        ("standard", "2019-07-02 12:00", 0.5),
        ("standard", "2020-07-02", 0.5),
        ("noleap", "2020-07-02 12:00", 0.5),
        ("360_day", "2020-07-01", 0.5),
        ("360_day", "2020-02-30", 59 / 360),
        ("standard", "2019-12-31 23:00", 1 - 1 / 8760),
    ],
)
def test_the_time_of_year_follows_the_calendar(tmp_path, calendar, date, fraction):
    data = dated(tmp_path / "a.nc", f"hours since {date}", (0, 1), calendar=calendar)
    values = data.with_time_features(["year"]).forcing_frames(0, np.array([0]))[0, 0]
    angle = 2 * np.pi * fraction
    np.testing.assert_allclose(values, [np.cos(angle), np.sin(angle)], atol=1e-6)


def test_the_solar_zenith_angle_agrees_with_almanacs():
    # Noon at equinox and solstices; solar noon differs from 12:00 by up to a quarter of an hour.
    def degrees(latitude, longitude, day, hour):
        fraction, hours = np.array([(day + hour / 24) / 365]), np.array([hour])
        up, along = (np.deg2rad(np.array([angle])) for angle in (latitude, longitude))
        return np.rad2deg(np.arccos(solar_zenith_cosine(up, along, fraction, hours)))[0]

    assert degrees(0, 0, 79, 12.12) == pytest.approx(0, abs=0.7)
    assert degrees(51.5, 0, 171, 12.03) == pytest.approx(51.5 - 23.44, abs=0.2)
    assert degrees(51.5, 0, 354, 11.97) == pytest.approx(51.5 + 23.44, abs=0.2)
    assert degrees(40, 90, 171, 6.03) == pytest.approx(40 - 23.44, abs=0.2)
    assert degrees(51.5, 0, 171, 0.0) == pytest.approx(90)


def test_the_sun_is_highest_at_local_noon(tmp_path):
    dataset = grid(time=range(24))
    dataset["time"].attrs = {"units": "hours since 2020-03-21"}
    data = read(save(tmp_path / "a.nc", dataset)).with_time_features(["solar"])
    geometry = data.geometry()
    heights = data.forcing_frames(0, np.arange(24))[..., 0]
    longitude = np.rad2deg(np.arctan2(geometry.coords[:, 1], geometry.coords[:, 0]))
    noon = (12 - longitude / 15) % 24
    late = (heights.argmax(0) - noon + 12) % 24 - 12
    assert np.abs(late).max() < 1


def test_the_solar_zenith_angle_needs_a_sphere():
    from tests.core.training.test_time_features import days

    data = replace(days(clock=()), origin=TimeOrigin("2020-01-01 05:00:00"))
    assert data.with_time_features(["year"]).forcings[0].name == "year_cos"
    with pytest.raises(
        DataError, match="`coords` must be longitudes and latitudes for the time feature solar"
    ):
        data.with_time_features(["solar"])


@pytest.mark.parametrize("units", ["h", "", "1"])
def test_frames_without_dates_have_no_time_features(tmp_path, units):
    data = dated(tmp_path / "a.nc", units, (0, 1), standard_name="time")
    assert data.first_hour is None
    with pytest.raises(DataError, match=r"`time` has no dates, such as hours since 2019-03-01"):
        data.with_time_features(["day"])
