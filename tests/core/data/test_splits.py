from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpo.data.dataset import FieldData, Variable
from gpo.data.geometry import Geometry
from gpo.data.splits import split_range, split_time_slices
from gpo.forecast.statistics import Normalizer

SITES = Geometry.rectilinear([np.arange(3.0)])


def series(num_trajectories, time, values=None):
    time = np.asarray(time, dtype=float)
    if values is None:
        values = np.zeros((num_trajectories, len(time), 3, 1))
    return FieldData(
        "test", Path("test"), (Variable("u"),), (SITES,), time, "s", num_trajectories,
        lambda number, times: values[number, times],
    )  # fmt: skip


def frames_used(time_slices):
    return {(w.sample, frame) for w in time_slices for frame in (*w.inputs, w.target)}


@given(st.integers(1, 12), st.integers(12, 80), st.integers(1, 3), st.integers(1, 3))
def test_no_frame_serves_two_splits(num_trajectories, num_frames, history, lead):
    data = series(num_trajectories, range(num_frames))
    usable = num_frames - 2 * (history + 1) * lead
    shortest = num_frames if num_trajectories >= 3 else round(0.1 * usable)
    if shortest <= history * lead:
        with pytest.raises(ValueError, match=r"Choose a shorter history or lead|Add frames"):
            split_time_slices(data, history=history, lead=lead)
        return
    split = split_time_slices(data, history=history, lead=lead)
    used = [frames_used(part) for part in (split.training, split.validation, split.test)]
    assert all(used)
    for first in range(3):
        for second in range(first + 1, 3):
            assert not used[first] & used[second]
    if split.kind == "trajectory":
        trajectories = [{trajectory for trajectory, _ in part} for part in used]
        assert not (
            trajectories[0] & trajectories[1]
            | trajectories[0] & trajectories[2]
            | trajectories[1] & trajectories[2]
        )
    else:
        ends = [(min(f for _, f in part), max(f for _, f in part)) for part in used]
        assert ends[1][0] - ends[0][1] > max(history + lead, history * lead)
        assert ends[2][0] - ends[1][1] > max(history + lead, history * lead)


def test_times_that_are_not_even_are_named_where_few_examples_are_left():
    time = np.cumsum(np.random.default_rng(0).integers(1, 30, 40))
    with pytest.raises(
        ValueError, match=r"\d+ of 39 steps are not \d+ s long\. Interpolate to regular"
    ):
        split_time_slices(series(1, time))


def test_a_time_slice_is_history_then_lead():
    split = split_time_slices(series(3, range(9)), history=2, lead=3)
    first = split.training[0]
    assert (first.sample, list(first.inputs), first.target) == (0, [0, 3], 6)
    assert len(split.training) == 3


def test_time_slices_never_cross_a_gap_in_time():
    time = [*range(20), *range(25, 60)]
    split = split_time_slices(series(1, time), history=2, lead=1)
    for piece in (*split.training, *split.validation, *split.test):
        assert time[piece.target] - time[piece.first] == 2


@given(st.integers(3, 1000))
def test_no_split_is_empty_and_none_overlap(count):
    ranges = split_range(count, (0.8, 0.1, 0.1))
    assert [number for part in ranges for number in part] == list(range(count))
    assert all(len(part) for part in ranges)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"history": 0}, "`history` and `lead` must be at least 1, got history=0"),
        ({"fractions": (0.5, 0.5, 0.5)}, "sum to 1"),
        ({"lead": 9}, "enough frames for history=1 and lead=9.*Choose a shorter"),
    ],
)
def test_impossible_splits_are_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        split_time_slices(series(1, range(10)), **arguments)


def statistics(values):
    data = series(6, range(8), values)
    split = split_time_slices(data)
    numbers = sorted({piece.sample for piece in split.training})
    return Normalizer.fit((data.frames(n), data.geometry().weights) for n in numbers), split


def test_statistics_come_from_training_data_only():
    values = np.random.default_rng(0).normal(size=(6, 8, 3, 1))
    before, split = statistics(values)
    changed = values.copy()
    for piece in (*split.validation, *split.test):
        changed[piece.sample] = 1e6
    after, _ = statistics(changed)
    np.testing.assert_array_equal(before.mean, after.mean)
    np.testing.assert_array_equal(before.std, after.std)


def test_normalised_fields_have_zero_mean_and_unit_variance():
    generator = np.random.default_rng(0)
    fields = generator.normal(size=(20, 30, 2)) * [3, 1e-4] + [1e5, -2]
    weights = generator.random(30)
    normalizer = Normalizer.fit((fields[i : i + 6], weights) for i in range(0, 20, 6))
    out = normalizer.apply(fields)
    weighted = weights / weights.sum() / 20
    np.testing.assert_allclose(np.einsum("tnc,n->c", out, weighted), 0, atol=1e-6)
    np.testing.assert_allclose(np.einsum("tnc,n->c", out**2, weighted), 1, rtol=1e-6)
    np.testing.assert_allclose(out * normalizer.std + normalizer.mean, fields, rtol=1e-12)


def test_missing_values_and_masked_sites_do_not_count():
    fields = np.random.default_rng(0).normal(size=(4, 6, 1))
    expected = Normalizer.fit([(fields[:, :4], np.ones(4))])
    dirty = fields.copy()
    dirty[:, 4] = np.nan
    dirty[:, 5] = 1e9
    normalizer = Normalizer.fit([(dirty, np.array([1.0, 1, 1, 1, 1, 0]))])
    np.testing.assert_allclose(normalizer.mean, expected.mean)
    np.testing.assert_allclose(normalizer.std, expected.std)


def test_a_constant_is_only_shifted_and_empty_data_are_refused():
    normalizer = Normalizer.fit([(np.full((2, 3, 1), 5.0), np.ones(3))])
    assert normalizer.std == [1.0]
    with pytest.raises(ValueError, match="must have at least one value"):
        Normalizer.fit([(np.full((2, 3, 1), np.nan), np.ones(3))])
