"""Tables keep all digits and columns, and do not exhaust memory."""

import numpy as np
import pytest

from gpo.data.dataset import DataError
from gpo.data.readers.registry import open_data


def lines(value=lambda x, t: x + t):
    """A series on four points of a line, as text."""
    rows = [f"{t},{x},{value(x, t)!r},{x * t}" for t in range(5) for x in range(4)]
    return ["time,x,u,v", *rows]


def write(folder, rows):
    path = folder / "a.csv"
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return path


@pytest.mark.parametrize(("mean", "size"), [(1e5, 0.05), (0.0, 1e-50), (-1e30, 1e20)])
def test_values_keep_all_their_digits(tmp_path, mean, size):
    path = write(tmp_path, lines(lambda x, t: mean + size * (x + t)))
    expected = [[mean + size * (x + t) for x in range(4)] for t in range(5)]
    np.testing.assert_array_equal(open_data(path).frames(0)[..., 0], expected)


@pytest.mark.parametrize("wrong", ["1.2x", "NULL", "1..5", "\ufffd2", "1,5"])
def test_a_damaged_number_is_an_error_and_not_a_column_of_text(tmp_path, wrong):
    rows = lines()
    time, x, _, v = rows[7].split(",")
    rows[7] = f'{time},{x},"{wrong}",{v}'
    with pytest.raises(DataError, match=r"`u` must hold numbers, got .* in line 7 after the names"):
        open_data(write(tmp_path, rows))


def test_empty_entries_are_missing_and_columns_of_text_are_no_variables(tmp_path):
    rows = lines()
    rows[7] = ",".join([*rows[7].split(",")[:2], "", "2"])
    rows = [f"{row},{'name' if n == 0 else f'buoy {n}'}" for n, row in enumerate(rows)]
    data = open_data(write(tmp_path, rows))
    assert [variable.name for variable in data.variables] == ["u", "v"]
    assert np.isnan(data.frames(0)).sum() == 1


def test_one_long_entry_does_not_take_all_memory(tmp_path, monkeypatch):
    rows = lines()
    rows[7] = rows[7].replace(",", "," + "0" * 100_000, 1)
    path = write(tmp_path, rows)
    monkeypatch.setenv("GPO_MAX_BYTES", str(2**22))
    with pytest.raises(DataError, match=r"`file` would take .* MiB of memory at once"):
        open_data(path)


def test_a_constant_column_is_a_static_field_not_a_variable(tmp_path):
    names, *rows = lines()
    rows = [f"{row},{7 * int(row.split(',')[1])}" for row in rows]
    data = open_data(write(tmp_path, [f"{names},elevation", *rows]))
    assert [variable.name for variable in data.variables] == ["u", "v"]
    (candidate,) = data.candidates
    assert (candidate.variable.name, candidate.kind) == ("elevation", "static")
    np.testing.assert_array_equal(candidate.read(), [0, 7, 14, 21])


@pytest.mark.parametrize(
    ("dates", "hours", "first"),
    [
        (["2021-03-01", "2021-03-02", "2021-03-04"], [0, 24, 72], "2021-03-01 00:00:00"),
        (["20210228", "20210301"], [0, 24], "2021-02-28 00:00:00"),
        (["2021-03-01 06:00", "2021-03-01T07:30:00Z"], [0, 1.5], "2021-03-01 06:00:00"),
        # The clock is put back by an hour, the time is not.
        (
            ["2021-10-31T02:30:00+02:00", "2021-10-31T02:30:00+01:00", "2021-10-31T03:30:00+01:00"],
            [0, 1, 2],
            "2021-10-31 00:30:00",
        ),
        (["2021-03-01 00:00:00.5", "2021-03-01 00:00:02.5"], [0, 2 / 3600], "2021-03-01 00:00:00"),
    ],
)
def test_dates_are_read_in_common_formats(tmp_path, dates, hours, first):
    rows = [f"{date},{x},{x + n}" for n, date in enumerate(dates) for x in range(4)]
    data = open_data(write(tmp_path, ["date,x,u", *rows]))
    np.testing.assert_allclose(data.time - data.time[0], hours, atol=1e-9)
    assert data.origin.date == first


def test_dates_in_other_formats_are_refused(tmp_path):
    rows = [f"0{n}/03/2021 06:00,{x},{x + n}" for n in range(1, 4) for x in range(4)]
    with pytest.raises(DataError, match=r"`date` must hold dates .* not written as 2000-01-24 12"):
        open_data(write(tmp_path, ["date,x,u", *rows]))
