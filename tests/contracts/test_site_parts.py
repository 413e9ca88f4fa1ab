"""A part of the sites is that part of all, whatever the layout; `layouts.py` adds to samples."""

import pickle

import numpy as np
import pytest

from gpo.data.coarsen import sampled
from gpo.data.dataset import StaticMaps
from gpo.data.readers.base import ReadOptions
from gpo.data.readers.registry import open_data
from gpo.data.splits import TimeSlice
from gpo.forecast.examples import make_examples
from gpo.parallel.partition import SitePartition
from tests.contracts.layouts import LAYOUTS


@pytest.fixture(params=LAYOUTS.values(), ids=LAYOUTS.keys())
def data(request, tmp_path):
    found = request.param(tmp_path)
    path, select = found if isinstance(found, tuple) else (found, {})
    return open_data(path, ReadOptions(select=select))


def parts(num_points):
    """Ranges that begin and end within rows, cover a row, one site, none, and all."""
    middle = num_points // 2
    return [
        slice(0, middle), slice(middle, None), slice(1, num_points - 1), slice(middle, middle + 1),
        slice(3, 3), slice(num_points, num_points), slice(-2, None), slice(None),
    ]  # fmt: skip


def test_a_part_of_the_sites_is_that_part_of_all(data):
    if isinstance(data, StaticMaps):
        pytest.skip("a map is read as a whole")
    last = data.num_trajectories - 1
    for series in (data, sampled(data, 0.7)):
        for number, times in ((0, slice(None)), (last, slice(1, None, 2)), (last, slice(1, 1))):
            whole = series.frames(number, times)
            for sites in parts(whole.shape[1]):
                part = series.frames(number, times, sites)
                np.testing.assert_array_equal(part, whole[:, sites])


def test_examples_of_parts_together_are_the_example_of_all(data):
    members = [0] if isinstance(data, StaticMaps) else [TimeSlice(0, 0, 0, 1)]
    whole = make_examples(data, members)[0]
    pieces = [
        make_examples(data, members, partition=SitePartition(part, 3))[0] for part in range(3)
    ]
    for name, axis in (("frames", 2), ("targets", 2), ("coords", 1), ("weights", 1)):
        joined = np.concatenate([getattr(piece, name).numpy() for piece in pieces], axis)
        np.testing.assert_array_equal(joined, getattr(whole, name).numpy())


def test_another_process_can_be_told_what_to_read(data):
    again = pickle.loads(pickle.dumps(data))
    if isinstance(data, StaticMaps):
        for one, other in zip(again.sample(0), data.sample(0), strict=True):
            np.testing.assert_array_equal(one, other)
    else:
        sites = slice(1, 4)
        np.testing.assert_array_equal(
            again.frames(0, slice(None), sites), data.frames(0, slice(None), sites)
        )
        part = sampled(data, 0.7)
        np.testing.assert_array_equal(pickle.loads(pickle.dumps(part)).frames(0), part.frames(0))


def test_steps_between_sites_are_refused(data):
    if isinstance(data, StaticMaps):
        pytest.skip("a map is read as a whole")
    with pytest.raises(ValueError, match="`sites` must be a slice with step 1, got slice"):
        data.frames(0, slice(None), slice(None, None, 2))
