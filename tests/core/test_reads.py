"""A run opens its file, reads its frames and loads its model a few times, not once for each use."""

from dataclasses import replace

import numpy as np
import pytest
from xarray.backends.file_manager import CachingFileManager
from xarray.backends.netCDF4_ import NetCDF4ArrayWrapper

from gpo.cli import main
from gpo.data import frame_cache
from gpo.data.dataset import JoinedFiles
from gpo.data.readers.registry import open_data
from gpo.forecast.forecaster import Forecaster
from tests.core.data.readers.synthetic_weather import write_era5
from tests.core.test_cli_run import SIZES

NUM_FRAMES = 60


@pytest.fixture
def file(tmp_path):
    write_era5(tmp_path / "era5.nc", num_times=NUM_FRAMES, shape=(7, 12))
    return tmp_path / "era5.nc"


@pytest.fixture
def counts(monkeypatch):
    """Counts opened files, frames of each variable that were read, and loaded models."""
    counts = {"opens": 0, "frames": 0, "models": 0}
    read, load = NetCDF4ArrayWrapper._getitem, Forecaster.load
    manage = CachingFileManager.__init__

    def count_opens(self, opener, *arguments, **settings):
        def opened(*places, **options):
            counts["opens"] += 1
            return opener(*places, **options)

        manage(self, opened, *arguments, **settings)

    def count_read(self, key):
        values = read(self, key)
        counts["frames"] += len(values) if values.ndim == 3 else 0
        return values

    def count_load(folder):
        counts["models"] += 1
        return load(folder)

    monkeypatch.setattr(CachingFileManager, "__init__", count_opens)
    monkeypatch.setattr(NetCDF4ArrayWrapper, "_getitem", count_read)
    monkeypatch.setattr(Forecaster, "load", count_load)
    return counts


@pytest.mark.thorough
@pytest.mark.usefixtures("small_pictures")
def test_a_run_opens_its_file_three_times_at_most_and_loads_no_model(file, tmp_path, counts):
    main(["run", "--data", str(file), *SIZES, "--out", str(tmp_path / "run")])
    assert (tmp_path / "run" / "report.html").exists()
    assert counts["opens"] <= 3
    # Two variables, once to find missing values and once to keep them.
    assert counts["frames"] <= 2 * 2 * NUM_FRAMES
    assert counts["models"] == 0


def test_frames_are_read_once_whatever_is_asked_for(file, counts):
    data, plain = open_data(file), open_data(file).fetch.read.data
    counts.update(opens=0)
    whole = data.frames(0)
    for times in (slice(3, 9, 2), slice(-1, None), slice(5, 5), slice(7, 2, -1)):
        for sites in (slice(None), slice(10, 30)):
            np.testing.assert_array_equal(data.frames(0, times, sites), whole[times, sites])
    assert counts["opens"] == 1
    np.testing.assert_array_equal(whole, plain.frames(0))


def test_what_is_done_to_frames_does_not_change_those_in_memory(file):
    data = open_data(file)
    expected = data.frames(0, slice(2, 4)).copy()
    data.frames(0, slice(2, 4))[:] = 0
    np.testing.assert_array_equal(data.frames(0, slice(2, 4)), expected)


def test_frames_of_blocks_are_those_of_the_file(file, monkeypatch):
    whole = open_data(file).frames(0)
    monkeypatch.setattr(frame_cache, "MAX_CHUNK_VALUES", 7 * whole[0].size)
    data = open_data(file)
    for times in (slice(5, 23), slice(40, 3, -3), slice(None)):
        np.testing.assert_array_equal(data.frames(0, times), whole[times])


@pytest.mark.parametrize("limit", ["constant", "variable"])
def test_frames_of_large_data_are_not_kept(file, counts, monkeypatch, limit):
    data = open_data(file)
    if limit == "constant":
        monkeypatch.setattr(frame_cache, "MAX_CACHED_BYTES", 1000)
    else:
        monkeypatch.setenv("GPO_MAX_BYTES", "1000")
    counts.update(opens=0, frames=0)
    for _ in range(3):
        data.frames(0, slice(4, 6))
    assert counts["opens"] == 3
    assert counts["frames"] == 3 * 2 * 2
    assert not data.fetch.read.blocks


def test_blocks_do_not_reach_into_other_files(file):
    joined = replace(open_data(file), files=JoinedFiles("series", (0, 12, 30)))
    cache = frame_cache.FrameCache(joined)
    cache(0, slice(10, 20), slice(None))
    blocks = {first: len(values) for (_, first, *_), values in cache.blocks.items()}
    assert blocks == {0: 12, 12: 18}
