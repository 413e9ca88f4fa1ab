import numpy as np
import pytest

from gpo.data.dataset import DataError
from tests.data.files import real_file
from tests.data.readers.gridded_files import grid, read, save


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
def test_dates_tell_the_hour_of_the_first_frame(tmp_path, units, times, hour, calendar):
    data = dated(tmp_path / "a.nc", units, times, calendar=calendar)
    assert data.first_hour == pytest.approx(hour, abs=1e-6)


def test_era5_begins_at_midnight_or_at_noon():
    assert read(real_file("era5", "era5-2mt-2019-03-uk.grib")).first_hour == 0
    assert read(real_file("era5", "era5_u10v10sst_med_daily12z_2022-01.nc")).first_hour == 12


def test_input_frames_begin_with_the_daily_cycle(tmp_path):
    hours = np.arange(49)
    data = dated(tmp_path / "a.nc", "hours since 2020-01-01 06:00", hours).with_time_features("day")
    inputs, angle = data.input_frames(0), 2 * np.pi * (hours + 6) / 24
    assert [variable.name for variable in data.forcings] == ["day_cos", "day_sin"]
    assert inputs.shape == (49, 12, 3)
    for number, feature in enumerate((np.cos(angle), np.sin(angle))):
        np.testing.assert_allclose(inputs[..., number], np.tile(feature[:, None], 12), atol=1e-6)
    np.testing.assert_array_equal(inputs[..., 2:], data.frames(0))
    np.testing.assert_allclose(inputs[:25, :, :2], inputs[24:, :, :2], atol=1e-6)
    np.testing.assert_array_equal(data.input_frames(0, slice(7, 30, 5)), inputs[7:30:5])


def test_without_time_features_inputs_are_the_frames(tmp_path):
    data = dated(tmp_path / "a.nc", "hours since 2020-01-01", (0, 1))
    assert data.forcings == ()
    np.testing.assert_array_equal(data.input_frames(0), data.frames(0))


@pytest.mark.parametrize("units", ["h", "", "1"])
def test_frames_without_dates_have_no_time_features(tmp_path, units):
    data = dated(tmp_path / "a.nc", units, (0, 1), standard_name="time")
    assert data.first_hour is None
    with pytest.raises(DataError, match=r"`time` has no dates, such as hours since 2019-03-01"):
        data.with_time_features("day")
