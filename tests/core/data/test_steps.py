"""Calendar months are equal steps, and forecasts follow the calendar."""

from dataclasses import replace

import numpy as np
import pytest

from gpo.cli import main
from gpo.data.dates import TimeOrigin
from gpo.data.readers.base import ReadOptions
from gpo.data.readers.registry import open_data
from gpo.data.splits import split_time_slices
from gpo.data.steps import MONTH, even_steps, format_step, usual_step
from gpo.forecast.compatibility import check_time
from gpo.forecast.task import TrainedOn
from tests.core.evaluation.test_references import climatology_of, means_at
from tests.core.test_cli import failure
from tests.core.test_cli_other_files import make_run, write_sea
from tests.core.training.series import decaying_waves

ORIGIN = TimeOrigin("1999-01-01 00:00:00", "noleap")
LENGTHS = np.array([31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31])


def test_steps_shorter_than_an_hour_are_written_in_minutes():
    assert format_step(5 / 60, "h") == "5 min"
    assert [format_step(step, "h") for step in (1.0, 6.0, MONTH)] == ["1 h", "6 h", "1 month"]
    assert format_step(0.1, "s") == "0.1 s"


def starts(num_years=4):
    """Returns the hours of the first day of each month, without leap years."""
    return 24.0 * np.concatenate([[0], np.cumsum(np.tile(LENGTHS, num_years))])[:-1]


def middles(num_years=4):
    return starts(num_years) + 12.0 * np.tile(LENGTHS, num_years)


def monthly(time=None, values=None):
    """Returns a monthly series, by default of the numbers of the months."""
    time = starts() if time is None else time
    if values is None:
        values = ORIGIN.months(time).astype(float)
    frames = np.broadcast_to(values[:, None, None], (len(time), 24, 2))
    waves = decaying_waves(num_trajectories=1, num_times=len(time))
    return replace(
        waves, time=time, time_units="h", first_hour=0.0, origin=ORIGIN,
        fetch=lambda number, times: frames[times],
    )  # fmt: skip


@pytest.mark.parametrize("time", [starts(), middles(), starts() + 5 * 24])
def test_every_month_is_a_step_and_a_missing_month_is_a_gap(time):
    assert even_steps(time, ORIGIN).all()
    assert usual_step(time, ORIGIN) == MONTH
    assert even_steps(np.delete(time, 20), ORIGIN).tolist() == [n != 19 for n in range(46)]
    assert len(split_time_slices(monthly(time), history=3).training) == 29


def test_steps_of_one_length_are_no_months_and_times_without_dates_neither():
    thirty = 720.0 * np.arange(20)
    assert usual_step(thirty, ORIGIN) == 720
    assert even_steps(thirty, ORIGIN).all()
    assert even_steps(starts(), None).sum() < 40
    assert usual_step(np.array([0.0, 1.0, 2.0, 30.0]), ORIGIN) == 1


@pytest.mark.parametrize(
    ("steps", "usual"),
    [
        ([1, 2, 1, 3, 1, 5, 1, 2, 2, 3], 1),
        ([1, 1, 1, 2, 2, 2], 1),
        ([24, 24, 168, 24], 24),
        ([0.9999, 1.0, 1.0001, 5, 5, 7, 8, 9], 1),
    ],
)
def test_the_most_frequent_of_uneven_steps_are_kept(steps, usual):
    time = np.concatenate([[0.0], np.cumsum(steps)])
    assert usual_step(time, None) == pytest.approx(usual)
    expected = [abs(step - usual) < 1e-3 for step in steps]
    assert even_steps(time, None).tolist() == expected


@pytest.mark.parametrize(
    ("start", "later"),
    [("1999-11-15 06:00", "1999-12-15 06:00 2000-01-15 06:00 2000-02-15 06:00"),
     ("1999-01-31", "1999-02-28 1999-03-31 1999-04-30"),
     ("1999-12-30", "2000-01-30 2000-02-28 2000-03-30")],
)  # fmt: skip
def test_months_follow_the_calendar_and_the_last_day_stays_the_last(start, later):
    labels = ORIGIN.labels(ORIGIN.months_later(ORIGIN.hours(start), np.array([1, 2, 3])))
    assert " ".join(labels) == later


def test_forcings_beyond_the_end_belong_to_the_months_that_follow():
    data = monthly().with_time_features(["year"])
    beyond = data.forcing_frames(0, np.array([46, 47, 48, 60]))[:, 0]
    # The following December and January have the forcings of those in the file.
    first = data.forcing_frames(0, np.array([46, 47, 0, 0]))[:, 0]
    np.testing.assert_allclose(beyond, first, atol=1e-9)


def test_frames_31_days_apart_are_months_for_a_monthly_model():
    trained = TrainedOn.of(monthly())
    check_time(monthly(starts()[6:8]), trained)
    with pytest.raises(ValueError, match=r"must have a step of 1 month.*got 24 h"):
        check_time(monthly(24.0 * np.arange(9)), trained)
    with pytest.raises(ValueError, match=r"must have a step of 24 h.*got 1 month"):
        check_time(monthly(), TrainedOn.of(monthly(24.0 * np.arange(9))))


def test_climatology_over_years_is_monthly():
    data = monthly()
    climatology = climatology_of(data, split_time_slices(data).training)
    assert means_at(climatology, data, range(48))[:, 0, 0].tolist() == [*range(12)] * 4
    other = monthly(starts()[5:20])
    assert means_at(climatology, other, [0, 14])[:, 0, 0].tolist() == [5, 7]
    # A year and a half of training frames does not contain every month twice.
    short = monthly(starts(3)[:28])
    assert len(climatology_of(short, split_time_slices(short).training).means) == 1


def test_climatology_of_hourly_data_over_years_is_by_month_and_hour():
    time = 6.0 * np.arange(3 * 4 * 365)
    values = ORIGIN.months(time) + 0.1 * (np.arange(len(time)) % 4)
    data = monthly(time, values)
    climatology = climatology_of(data, split_time_slices(data).training)
    np.testing.assert_allclose(means_at(climatology, data, range(len(time)))[:, 0, 0], values)
    later = monthly(time[401:500], values[401:500])
    later = replace(later, first_hour=6.0)
    np.testing.assert_allclose(means_at(climatology, later, [0, 98])[:, 0, 0], values[[401, 499]])


def test_a_forecast_of_months_is_of_the_months_that_follow(tmp_path, capsys):
    path = write_sea(tmp_path / "sea.nc", num_frames=48, calendar="noleap", since="1999-01-01", times=middles())  # fmt: skip
    make_run(tmp_path, path)
    output = str(tmp_path / "next.nc")
    main(
        ["predict", str(tmp_path / "run"), "--input", str(path), "--output", output, "--steps", "3"]
    )
    assert open_data(output, ReadOptions()).time_labels(range(3)) == ["2003-01-16 12:00", "2003-02-16 12:00", "2003-03-16 12:00"]  # fmt: skip
    main(["data", "info", str(path)])
    assert "one every 1 month; from 1999-01-16 12:00" in capsys.readouterr().out


def test_a_forecast_does_not_start_from_frames_with_a_gap_between_them(tmp_path, capsys):
    times = 24.0 * np.delete(np.arange(41), 20)
    path = write_sea(tmp_path / "sea.nc", since="1987-02-01", times=times)
    make_run(tmp_path, path, history=2)
    command = ("predict", str(tmp_path / "run"), "--input", str(path), "--output", str(tmp_path / "a.nc"))  # fmt: skip
    code, message = failure(capsys, *command, "--start", "1987-02-22")
    assert code == 1
    assert "must have a step of 24 h over the 2 input frames" in message
    assert "got a step from 1987-02-20 to 1987-02-22." in message
    assert "The latest usable start before it: --start 1987-02-20T00:00:00" in message
    main([*command, "--start", "1987-02-23"])
