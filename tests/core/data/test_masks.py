"""Masks by a variable of the file or of another, constant or changing in time."""

import numpy as np
import pytest
import xarray as xr

from gpo import DataError, RunConfig
from gpo.cli.data import Reading, open_file
from gpo.data.masks import Condition
from gpo.forecast.examples import TimeSliceExamples, collate
from gpo.runs import read_data, with_absolute_paths
from gpo.training.setup import split_of

Y, X, T = np.arange(4.0), np.arange(5.0), np.arange(24)
GENERATOR = np.random.default_rng(0)
FIELD = GENERATOR.normal(size=(24, 4, 5))
LAND = (X > 2.5)[None] & (Y > -1)[:, None]
ICE = GENERATOR.uniform(size=(24, 4, 5))
ICE[:, 0, 0] = 0.9


def write(path, times=T, **variables):
    coords = {"time": times, "y": Y, "x": X}
    arrays = {
        name: (("time", "y", "x")[-values.ndim :], values) for name, values in variables.items()
    }
    dataset = xr.Dataset(arrays, coords)
    dataset["time"].attrs["units"] = "hours since 2020-01-01"
    dataset.to_netcdf(path)
    return path


@pytest.fixture
def files(tmp_path):
    own = write(tmp_path / "own.nc", v10=FIELD, lsm=LAND.astype(float), ice=ICE)
    write(tmp_path / "land.nc", times=T[:0], lsm=LAND.astype(float))
    write(tmp_path / "ice.nc", ice=ICE)
    return own


def read(path, mask, **settings):
    return read_data(RunConfig.of(data=str(path), var=("v10",), mask=mask, **settings))


@pytest.mark.parametrize("other", [None, "land.nc"])
def test_a_constant_mask_of_this_file_or_another_takes_weight_and_values_away(files, other):
    mask_from = other and str(files.with_name(other))
    data = read(files, "lsm<0.5", mask_from=mask_from)
    geometry, frames = data.geometry(), data.frames(0)[..., 0].reshape(24, 4, 5)
    np.testing.assert_array_equal(geometry.is_masked.reshape(4, 5), LAND)
    np.testing.assert_allclose(geometry.weights.sum(), 1)
    np.testing.assert_array_equal(np.isnan(frames), np.broadcast_to(LAND, frames.shape))
    np.testing.assert_allclose(frames[:, ~LAND], FIELD[:, ~LAND])
    assert read(files, "lsm", mask_from=mask_from).geometry().is_masked.reshape(4, 5)[0, 0]


@pytest.mark.parametrize("other", [None, "ice.nc"])
def test_a_mask_that_changes_in_time_takes_values_away_at_its_times(files, other):
    mask_from = other and str(files.with_name(other))
    data = read(files, "ice<0.5", mask_from=mask_from)
    frames = data.frames(0)[..., 0].reshape(24, 4, 5)
    np.testing.assert_array_equal(np.isnan(frames), ICE >= 0.5)
    masked = data.geometry().is_masked.reshape(4, 5)
    np.testing.assert_array_equal(masked, (ICE >= 0.5).all(0))
    assert masked[0, 0]
    # What is masked at a target has no weight there.
    config = RunConfig.of(data=str(files), var=("v10",), mask="ice<0.5")
    examples = TimeSliceExamples(data, split_of(data, config).training)
    batch = collate([examples[0]])
    has_weight = (batch.weights[0] > 0).reshape(4, 5).numpy()
    assert not has_weight[ICE[1] >= 0.5].any()
    assert has_weight[(ICE[:2] < 0.5).all(0)].all()


def test_parts_of_frames_and_coarse_grids_have_the_same_mask(files):
    data = read(files, "ice<0.5")
    whole = data.frames(0)
    np.testing.assert_array_equal(data.frames(0, slice(2, 5), slice(3, 9)), whole[2:5, 3:9])
    coarse = read(files, "lsm<0.5", coarsen=2)
    np.testing.assert_array_equal(coarse.geometry().is_masked.reshape(2, 3), LAND[::2, ::2])


def test_a_mask_is_not_predicted_unless_it_is_named(files):
    data = open_file((files,), Reading(mask="ice<0.5"))
    assert [part.name for part in data.variables] == ["v10"]
    named = open_file((files,), Reading(var=("v10", "ice"), mask="ice<0.5"))
    assert [part.name for part in named.variables] == ["v10", "ice"]


def test_paths_of_masks_are_kept_absolute(files):
    config = RunConfig.of(data="x.nc", mask="lsm", mask_from="land.nc")
    assert with_absolute_paths(config).data.mask_from.startswith("/")
    with pytest.raises(ValueError, match="`mask_from` must be given with mask"):
        RunConfig.of(data="x.nc", mask_from="land.nc")


@pytest.mark.parametrize(
    ("mask", "message"),
    [
        ("lsm<land", "--mask must be a variable, or one compared with a number"),
        ("<0.5", "--mask must be a variable, or one compared with a number"),
        ("lsm>2", "`lsm` leaves no site: lsm>2 holds nowhere"),
        ("orog", "`orog` cannot be a mask: it is not in the file"),
    ],
)
def test_masks_that_cannot_be_are_refused(files, mask, message):
    with pytest.raises(ValueError, match=message):
        read(files, mask)


def test_a_mask_with_other_times_is_refused(files, tmp_path):
    other = write(tmp_path / "later.nc", times=T + 1, ice=ICE)
    with pytest.raises(DataError, match="`ice` must have the times of the data, or none"):
        read(files, "ice<0.5", mask_from=str(other))


def test_missing_values_of_a_mask_are_not_active():
    values = np.array([0.0, 0.2, 1.0, np.nan])
    expected = {"m": [0, 1, 1, 0], "m>=0.2": [0, 1, 1, 0], "m = 1": [0, 0, 1, 0], "m<=0": [1, 0, 0, 0]}  # fmt: skip
    for text, active in expected.items():
        np.testing.assert_array_equal(Condition.parse(text).holds(values), active)
