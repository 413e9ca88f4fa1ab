"""Values that a model would learn although they mean something else are told."""

import io
import zipfile
from pathlib import Path

import numpy as np
import pytest

from gpo.cli.describe import describe
from gpo.data.dataset import DataError
from gpo.data.readers.registry import open_data
from gpo.data.summary import value_notes


def stations(folder: Path, values, coords=None):
    coords = np.random.default_rng(1).random((40, 2)) if coords is None else coords
    np.savez(folder / "a.npz", coords=coords, u=values)
    return open_data(folder / "a.npz")


def noise():
    return np.random.default_rng(0).standard_normal((60, 40))


@pytest.mark.parametrize("code", [-9999, 9999.9, np.float32(1e20), -32767])
@pytest.mark.parametrize("where", [np.s_[:, 5], np.s_[3, 5]])
def test_a_code_of_missing_values_is_told(tmp_path, code, where):
    values = noise()
    values[where] = code
    data = stations(tmp_path, values)
    (note,) = value_notes(data)
    count = values[where].size
    assert f"{code:g} at {count} of 2,400 places and -3." in note
    assert any("write NaN in its place" in text for _, text in describe(data))


def test_values_near_others_are_no_codes(tmp_path):
    assert value_notes(stations(tmp_path, noise())) == []
    assert value_notes(stations(tmp_path, np.linspace(9000, 9999, 2400).reshape(60, 40))) == []
    assert value_notes(stations(tmp_path, np.full((60, 40), -9999.0))) == []


def test_points_at_one_position_with_different_values_are_told(tmp_path):
    coords, values = np.random.default_rng(1).random((40, 2)), noise()
    coords[7] = coords[3]
    (note,) = value_notes(stations(tmp_path, values, coords))
    assert "sites 3 and 7 (from 0) are at one position with different values" in note
    values[:, 7] = values[:, 3]
    assert value_notes(stations(tmp_path, values, coords)) == []


@pytest.mark.parametrize("second", ["u.npy", "u"])
def test_an_archive_with_two_arrays_of_one_name_is_refused(tmp_path, second):
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        for name, number in (("u.npy", 0.0), (second, 1.0)):
            content = io.BytesIO()
            np.save(content, np.full((6, 8, 12), number))
            if name in archive.namelist():
                with pytest.warns(UserWarning, match="Duplicate name"):
                    archive.writestr(name, content.getvalue())
            else:
                archive.writestr(name, content.getvalue())
    with pytest.raises(DataError, match="`u` is in the file more than once"):
        open_data(tmp_path / "a.npz")
