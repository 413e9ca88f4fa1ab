"""Data that is not kept in memory gives the numbers that data in memory gives."""

import multiprocessing
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

from gpo.data import frame_cache
from gpo.data.frame_chunks import frame_chunks
from gpo.data.readers.registry import open_data
from gpo.data.splits import TimeSlice, split_time_slices, used_frames
from gpo.forecast import statistics as normalize
from gpo.forecast.examples import TimeSliceExamples, collate, prefetch_settings
from gpo.forecast.statistics import Normalizer, training_statistics
from gpo.runs import Run
from gpo.training.config import RunConfig
from gpo.training.fit import train
from tests.contracts.samples import npy_folder, well
from tests.core.data.readers.synthetic_weather import write_era5, write_weatherbench
from tests.core.evaluation.test_references import climatology_of
from tests.core.training.series import decaying_waves
from tests.core.training.test_training import TINY


def in_one_go(data, windows):
    """Statistics with whole trajectories in memory, frame by frame and change by change."""
    frames = [
        (data.frames(number)[chosen], data.geometry(number).weights)
        for number, chosen in used_frames(windows).items()
    ]
    changes = [
        (data.frames(w.sample)[[w.target]] - data.frames(w.sample)[[w.last]], data.geometry(w.sample).weights)
        for w in windows
    ]  # fmt: skip
    return Normalizer.fit(frames), Normalizer.fit(changes)


@pytest.mark.parametrize("portion", [1, 100, 10_000])
@pytest.mark.parametrize(("history", "lead"), [(1, 1), (2, 3), (1, 4)])
@pytest.mark.parametrize("num_trajectories", [2, 8])
def test_statistics_do_not_depend_on_how_much_is_read_at_a_time(
    monkeypatch, portion, history, lead, num_trajectories
):
    data = decaying_waves(num_trajectories, num_times=120, missing=slice(3, 5))
    windows = split_time_slices(data, history=history, lead=lead).training
    windows = [window for window in windows if window.target not in (14, 15, 22)]
    expected, steps = in_one_go(data, windows)
    monkeypatch.setattr(frame_chunks, "__defaults__", (portion,))
    monkeypatch.setattr(normalize, "MAX_NUMBERS", portion)
    found, _, changes = training_statistics(data, windows)
    np.testing.assert_allclose(found.mean, expected.mean, rtol=1e-12)
    np.testing.assert_allclose(found.std, expected.std, rtol=1e-10)
    wanted = np.sqrt(steps.std**2 + steps.mean**2) / expected.std
    np.testing.assert_allclose(changes, wanted, rtol=1e-10)


def test_statistics_read_every_frame_once_and_few_at_a_time():
    data = decaying_waves(2, num_times=120)
    asked = []

    def fetch(number, times):
        asked.append((number, times))
        return data.fetch(number, times)

    watched = type(data)(**{**vars(data), "fetch": fetch})
    windows = split_time_slices(data, history=2, lead=3).training
    parts = frame_chunks(watched, used_frames(windows), most=5 * 48)
    for part in parts:
        part.read(watched)
    read = [(number, frame) for number, times in asked for frame in range(times.start, times.stop)]
    wanted = [(number, n) for number, chosen in used_frames(windows).items() for n in chosen]
    assert read == wanted
    assert max(times.stop - times.start for _, times in asked) == 5
    asked.clear()
    training_statistics(watched, windows)
    assert sum(times.stop - times.start for _, times in asked) == len(wanted)


def test_climatology_does_not_depend_on_how_much_is_read_at_a_time(monkeypatch):
    data = decaying_waves(1, num_times=80, missing=2)
    windows = split_time_slices(data).training
    expected = climatology_of(data, windows)
    monkeypatch.setattr(frame_chunks, "__defaults__", (1,))
    torch.testing.assert_close(climatology_of(replace(data), windows).means, expected.means)


def weather(folder, write, name):
    write(folder / name)
    return folder / name


FILES = {
    "netcdf": lambda folder: weather(folder, write_era5, "weather.nc"),
    "zarr": lambda folder: weather(folder, write_weatherbench, "weather.zarr"),
    "hdf5": well,
    "npy": npy_folder,
}


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("file", "start"), [*((name, "fork") for name in FILES), ("zarr", "spawn")]
)
def test_a_worker_process_reads_what_the_first_process_reads(tmp_path, monkeypatch, file, start):
    data = open_data(FILES[file](tmp_path))
    windows = [TimeSlice(0, first, first, first + 1) for first in range(len(data.time) - 1)]
    expected = [collate([example]) for example in TimeSliceExamples(data, windows)]
    monkeypatch.setattr(frame_cache, "MAX_CACHED_BYTES", 0)
    lazy = TimeSliceExamples(data, windows)
    settings = prefetch_settings(lazy)
    assert settings["num_workers"] == 1
    # The file was read before, so that whatever its library keeps is copied by a fork.
    assert data.frames(0).size
    context = multiprocessing.get_context(start)
    loader = DataLoader(lazy, 1, collate_fn=collate, multiprocessing_context=context, **settings)
    for _ in range(2):
        for got, wanted in zip(loader, expected, strict=True):
            torch.testing.assert_close(got.frames, wanted.frames, rtol=0, atol=0)
            torch.testing.assert_close(got.targets, wanted.targets, rtol=0, atol=0)
            torch.testing.assert_close(got.weights, wanted.weights, rtol=0, atol=0)


def test_data_in_memory_needs_no_worker():
    data = decaying_waves()
    assert prefetch_settings(TimeSliceExamples(data, split_time_slices(data).training)) == {}


@pytest.mark.thorough
def test_training_on_data_that_is_read_ahead_gives_the_same_model(tmp_path, monkeypatch):
    config = RunConfig.of(**TINY, epochs=2)
    outcomes = []
    for name, limit in (("kept", 2**30), ("lazy", 0)):
        monkeypatch.setattr(frame_cache, "MAX_CACHED_BYTES", limit)
        run = Run(tmp_path / name)
        outcomes.append(train(decaying_waves(), config, run.folder, is_quiet=True).state_dict())
    for key, values in outcomes[0].items():
        torch.testing.assert_close(outcomes[1][key], values, rtol=0, atol=0)
