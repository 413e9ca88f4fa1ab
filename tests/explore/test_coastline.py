"""The coastlines that lie over maps of the Earth."""

import json
from importlib.resources import files

import numpy as np
import pytest

from gpo.data.readers.registry import open_data
from gpo_explore.coastlines import projected_coastlines, stored_coastlines
from tests.core.data.readers.synthetic_weather import CARRA_ORIGIN, lambert_to_true, write_carra

STORED = files("gpo_explore") / "static" / "coastline.json"


@pytest.fixture(scope="module")
def lines():
    stored = json.loads(STORED.read_text())
    return [stored["unit"] * np.array(steps_in(line, stored["digits"])).reshape(-1, 2).cumsum(0)
            for line in stored["lines"]]  # fmt: skip


def steps_in(line, digits):
    """Reads the numbers of a line as the file says they are written."""
    steps, places = [], []
    for digit in map(digits.index, line):
        places.append(digit % 32)
        if digit < 32:
            size = sum(place * 32**power for power, place in enumerate(places))
            steps.append(-(size + 1) // 2 if size % 2 else size // 2)
            places = []
    return steps


def test_the_file_is_small_and_says_where_it_comes_from():
    stored = json.loads(STORED.read_text())
    assert len(STORED.read_bytes()) < 62_000
    assert "Natural Earth" in stored["origin"]
    assert stored["licence"] == "Public domain."


def test_coastlines_lie_on_the_globe_and_no_line_crosses_the_whole_map(lines):
    points = np.concatenate(lines)
    assert np.abs(points[:, 0]).max() <= 180.05
    assert np.abs(points[:, 1]).max() <= 90
    assert max(np.abs(np.diff(line, axis=0)).max() for line in lines) < 30


@pytest.mark.parametrize(
    ("name", "longitude", "latitude", "is_coast"),
    [
        ("Land's End", -5.72, 50.07, True),
        ("Gibraltar", -5.35, 36.13, True),
        ("Cape of Good Hope", 18.47, -34.36, True),
        ("middle of the Pacific", -125.0, -35.0, False),
        ("middle of Siberia", 95.0, 62.0, False),
    ],
)
def test_coasts_are_where_they_are_on_earth(lines, name, longitude, latitude, is_coast):
    offset = np.concatenate(lines) - [longitude, latitude]
    assert (np.hypot(*offset.T).min() < 0.4) == is_coast, name


def test_the_stored_lines_are_read_in_the_same_way_by_the_server(lines):
    assert len(stored_coastlines()) == len(lines)
    for one, other in zip(stored_coastlines(), lines, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-9)


def test_coastlines_on_a_projected_grid_are_those_of_the_map_projection(tmp_path, lines):
    """Every point that is placed in the plane has the degrees of a point of the coast."""
    write_carra(tmp_path / "a.nc", shape=(24, 30))
    geometry = open_data(tmp_path / "a.nc").geometry()
    placed = np.concatenate([np.reshape(line, (-1, 2)) for line in projected_coastlines(geometry)])
    # The file lists y first.
    latitude, longitude = lambert_to_true(placed[:, 1], placed[:, 0])
    east = np.cos(np.deg2rad(CARRA_ORIGIN[0]))
    coast = np.concatenate(lines)
    for along, up in list(zip(longitude, latitude, strict=True))[::7]:
        distance = np.hypot(east * (coast[:, 0] - along), coast[:, 1] - up).min()
        assert distance < 0.05, "degrees"
    inside = (abs(coast[:, 0] - CARRA_ORIGIN[1]) < 10) & (abs(coast[:, 1] - CARRA_ORIGIN[0]) < 3)
    assert 10 < inside.sum() < len(placed)


def test_a_plane_without_degrees_has_no_coastlines(tmp_path):
    np.savez(
        tmp_path / "a.npz",
        t=np.arange(5.0),
        x=np.arange(9.0),
        y=np.arange(8.0),
        u=np.ones((5, 9, 8)),
    )
    assert projected_coastlines(open_data(tmp_path / "a.npz").geometry()) == []
