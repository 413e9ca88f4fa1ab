"""Ranges of sites are read correctly in all layouts of `layouts.py`."""

import pickle

import numpy as np
import pytest

from gpo.data.coarsen import sampled
from gpo.data.readers.base import ReadOptions
from gpo.data.readers.registry import open_data
from gpo.data.splits import TimeSlice
from gpo.forecast.examples import TimeSliceExamples
from gpo.parallel.partition import SitePartition
from tests.contracts.layouts import LAYOUTS


@pytest.fixture(params=LAYOUTS.values(), ids=LAYOUTS.keys())
def data(request, tmp_path):
    sample = request.param(tmp_path)
    path, select = sample if isinstance(sample, tuple) else (sample, {})
    return open_data(path, ReadOptions(select=select))


def parts(num_points):
    """Slices that begin and end within rows, cover a row, one site, none, and all."""
    middle = num_points // 2
    return [
        slice(0, middle), slice(middle, None), slice(1, num_points - 1), slice(middle, middle + 1),
        slice(3, 3), slice(num_points, num_points), slice(-2, None), slice(None),
    ]  # fmt: skip


def test_reading_a_range_of_sites_equals_slicing_all_sites(data):
    last = data.num_samples - 1
    for series in (data, sampled(data, 0.7)):
        for number, times in ((0, slice(None)), (last, slice(1, None, 2)), (last, slice(1, 1))):
            whole = series.frames(number, times)
            for sites in parts(whole.shape[1]):
                part = series.frames(number, times, sites)
                np.testing.assert_array_equal(part, whole[:, sites])


def test_examples_of_all_parts_concatenate_to_the_whole_example(data):
    examples = [TimeSlice(0, 0, 0, int(data.has_time))]
    whole = TimeSliceExamples(data, examples)[0]
    pieces = [
        TimeSliceExamples(data, examples, partition=SitePartition(part, 3))[0] for part in range(3)
    ]
    for name, axis in (("frames", 2), ("targets", 2), ("coords", 1), ("weights", 1)):
        joined = np.concatenate([getattr(piece, name).numpy() for piece in pieces], axis)
        np.testing.assert_array_equal(joined, getattr(whole, name).numpy())


def test_data_can_be_pickled_and_read_in_another_process(data):
    again = pickle.loads(pickle.dumps(data))
    sites = slice(1, 4)
    np.testing.assert_array_equal(
        again.frames(0, slice(None), sites), data.frames(0, slice(None), sites)
    )
    part = sampled(data, 0.7)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(part)).frames(0), part.frames(0))


def test_steps_between_sites_are_refused(data):
    with pytest.raises(ValueError, match="`sites` must be a slice with step 1, got slice"):
        data.frames(0, slice(None), slice(None, None, 2))
