from dataclasses import replace

import numpy as np
import pytest
import torch

from gpo.data.splits import split_time_slices
from gpo.evaluation.references import Climatology
from tests.core.training.series import decaying_waves


def daily(num_days=12, per_day=4, units="h", length=24.0):
    """A series that repeats every day."""
    data = decaying_waves(num_trajectories=1, num_times=num_days * per_day)
    hours = np.arange(num_days * per_day) % per_day
    values = np.broadcast_to(hours[:, None, None], (len(hours), 24, 2)).astype(float)
    return replace(
        data, time=np.arange(len(hours)) * length / per_day, time_units=units,
        fetch=lambda number, times: values[times],
    )  # fmt: skip


@pytest.mark.parametrize(("units", "length"), [("h", 24.0), ("s", 86400.0), ("d", 1.0)])
def test_the_climatology_is_by_time_of_day(units, length):
    data = daily(units=units, length=length)
    climatology = Climatology.of(data, split_time_slices(data).training)
    assert climatology.at([0, 5, 6, 7])[:, 0, 0].tolist() == [0, 1, 2, 3]


def test_without_units_of_time_it_is_the_mean_over_training_frames():
    data = daily(units="")
    time_slices = split_time_slices(data).training
    climatology = Climatology.of(data, time_slices)
    used = sorted({frame for part in time_slices for frame in (*part.inputs, part.target)})
    expected = np.mean([frame % 4 for frame in used])
    torch.testing.assert_close(climatology.at([3, 4])[0, 0, 0].item(), expected, rtol=1e-6, atol=0)


def test_it_uses_training_frames_only():
    data = daily()
    split = split_time_slices(data)
    first = min(window.first for window in split.validation)
    values = data.fetch(0, slice(None)).copy()
    values[first:] = 1e9
    spoiled = replace(data, fetch=lambda number, times: values[times])
    means = [Climatology.of(series, split.training).means for series in (data, spoiled)]
    assert torch.equal(*means)


def test_missing_values_are_left_out_of_the_mean():
    data = daily(units="")
    values = data.fetch(0, slice(None)).copy()
    values[0, 3] = np.nan
    holed = replace(data, fetch=lambda number, times: values[times])
    time_slices = split_time_slices(data).training
    used = sorted({frame for part in time_slices for frame in (*part.inputs, part.target)})
    expected = np.mean([frame % 4 for frame in used if frame > 0])
    mean = Climatology.of(holed, time_slices).at([0])[0, 3, 0].item()
    assert mean == pytest.approx(expected, rel=1e-6)


def test_series_shorter_than_a_day_have_a_mean_for_each_time_since_their_start():
    data = decaying_waves()
    split = split_time_slices(data)
    climatology = Climatology.of(data, split.training)
    trained = sorted({window.sample for window in split.training})
    expected = np.mean([data.frames(number) for number in trained], 0)
    np.testing.assert_allclose(climatology.at(range(len(data.time))).numpy(), expected, rtol=1e-12)
