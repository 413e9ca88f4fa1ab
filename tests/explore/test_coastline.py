"""The coastlines that lie over maps of the Earth."""

import json
from importlib.resources import files

import numpy as np
import pytest

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
