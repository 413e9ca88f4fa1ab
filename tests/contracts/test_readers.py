"""The contract of all readers; a new reader is tested once `samples.py` has a file of it."""

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from gpo.cli.describe import describe
from gpo.data.dataset import DataError
from gpo.data.readers.base import ReadOptions
from gpo.data.readers.registry import READERS, load_reader, open_data
from gpo.data.summary import summarise
from gpo.report.contact_sheet import draw_contact_sheet
from tests.contracts.samples import SAMPLES
from tests.processes import finish

PROJECT = Path(__file__).parents[2]


@pytest.fixture(params=SAMPLES.values(), ids=SAMPLES.keys())
def sample(request, tmp_path):
    reader, make = request.param
    return reader, make(tmp_path)


def all_values(data):
    return [data.frames(number) for number in range(data.num_samples)]


def test_every_reader_has_a_sample():
    assert {reader for reader, _ in SAMPLES.values()} | {"mesh-series"} == set(READERS)


def test_every_reader_is_registered_by_its_name():
    assert [load_reader(name).name for name in READERS] == list(READERS)


def test_the_reader_of_a_file_is_recognised_by_its_content(sample):
    reader, path = sample
    assert open_data(path).layout == reader
    assert open_data(path, reader=reader).layout == reader


def test_sites_weights_and_times_are_valid(sample):
    data = open_data(sample[1])
    for geometry in data.geometries:
        assert geometry.weights.sum() == pytest.approx(1)
        assert (geometry.weights >= 0).all()
        assert np.isfinite(geometry.coords).all()
        assert geometry.coords.shape == (geometry.num_points, geometry.domain.dim)
        if geometry.grid_shape:
            assert np.prod(geometry.grid_shape) == geometry.num_points
        if geometry.domain.is_sphere:
            np.testing.assert_allclose(np.linalg.norm(geometry.coords, axis=1), 1)
        else:
            low, high = np.array(geometry.domain.lower), np.array(geometry.domain.upper)
            slack = 1e-9 * (high - low)
            assert (geometry.coords >= low - slack).all()
            assert (geometry.coords <= high + slack).all()
    assert (np.diff(data.time) > 0).all()


def test_reading_twice_gives_the_same_numbers(sample):
    first, second = all_values(open_data(sample[1])), all_values(open_data(sample[1]))
    for before, after in zip(first, second, strict=True):
        np.testing.assert_array_equal(before, after)


def test_reading_a_slice_of_frames_equals_slicing_all_frames(sample):
    data = open_data(sample[1])
    whole = data.frames(data.num_samples - 1)
    part = data.frames(data.num_samples - 1, slice(1, None, 2))
    np.testing.assert_array_equal(part, whole[1::2])


def test_one_variable_can_be_chosen_and_a_missing_one_is_refused_by_name(sample):
    data = open_data(sample[1])
    with pytest.raises(DataError, match="`phlogiston`"):
        open_data(sample[1], ReadOptions(variables=("phlogiston",)))
    if data.has_time:
        last = data.variables[-1].name
        chosen = open_data(sample[1], ReadOptions(variables=(last,)))
        np.testing.assert_array_equal(chosen.frames(0)[..., 0], data.frames(0)[..., -1])


@pytest.mark.thorough
def test_data_can_be_described_and_plotted(sample, tmp_path):
    data = open_data(sample[1])
    labels = [label for label, _ in describe(data)]
    assert {"file", "layout", "sites", "domain", "weights", "training"} <= set(labels)
    for row in summarise(data).ranges:
        assert row.minimum <= row.mean <= row.maximum
    picture = draw_contact_sheet(data, tmp_path / "sheet" / "sheet.png")
    assert picture.stat().st_size > 5_000


def test_missing_files_and_unknown_layouts_are_refused(tmp_path):
    with pytest.raises(DataError, match=r"nowhere.nc: `file` does not exist"):
        open_data(tmp_path / "nowhere.nc")
    letter = tmp_path / "letter.txt"
    letter.write_text("Dear reader")
    with pytest.raises(DataError, match=r"has an unknown layout.*Known layouts: ns2d \("):
        open_data(letter)
    with pytest.raises(DataError, match=r"`reader` must be one of ns2d, .*, got 'cdf'"):
        open_data(letter, reader="cdf")


@pytest.mark.thorough
def test_damaged_files_of_every_layout_are_refused_or_read_as_they_were(tmp_path):
    """`benchmarks/results/fuzz` has thousands, and explains undetectable damage."""
    command = [sys.executable, "-m", "tests.contracts.fuzz", "300", "7", str(tmp_path)]
    *unexplained, last = finish(command, cwd=PROJECT).splitlines()
    outcomes = json.loads(last)
    assert sum(outcomes.values()) >= 300
    assert outcomes["refused"] > 150
    # Values without a checksum may change in place; all other damage must be detected.
    assert unexplained == []
