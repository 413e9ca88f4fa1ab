from dataclasses import replace

import numpy as np
import pytest
import torch

from gpo.data.dates import TimeOrigin
from gpo.data.forcings import Variable
from gpo.data.seasons import seasons_of
from gpo.data.splits import split_time_slices
from gpo.forecast.climatology import Climatology, DampedPersistence
from gpo.forecast.examples import TimeSliceExamples, collate
from gpo.forecast.references import Persistence, fit_references
from gpo.forecast.rollout import rollout
from tests.core.evaluation.fitted import inputs_of
from tests.core.training.series import decaying_waves

LENGTHS = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


def climatology_of(data, samples):
    return Climatology.fit(inputs_of(data, samples))


def means_at(climatology, data, frames):
    seasons = torch.from_numpy(seasons_of(data, frames))
    return climatology.at(climatology.coords, seasons[None])[0]


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
    climatology = climatology_of(data, split_time_slices(data).training)
    assert means_at(climatology, data, [0, 5, 6, 7])[:, 0, 0].tolist() == [0, 1, 2, 3]


def test_without_units_of_time_it_is_the_mean_over_training_frames():
    data = daily(units="")
    time_slices = split_time_slices(data).training
    climatology = climatology_of(data, time_slices)
    used = sorted({frame for part in time_slices for frame in (*part.inputs, part.target)})
    expected = np.mean([frame % 4 for frame in used])
    torch.testing.assert_close(
        means_at(climatology, data, [3, 4])[0, 0, 0].item(), expected, rtol=1e-6, atol=0
    )


def test_it_uses_training_frames_only():
    data = daily()
    split = split_time_slices(data)
    first = min(window.first for window in split.validation)
    values = data.fetch(0, slice(None)).copy()
    values[first:] = 1e9
    spoiled = replace(data, fetch=lambda number, times: values[times])
    means = [climatology_of(series, split.training).means for series in (data, spoiled)]
    assert torch.equal(*means)


def test_missing_values_are_left_out_of_the_mean():
    data = daily(units="")
    values = data.fetch(0, slice(None)).copy()
    values[0, 3] = np.nan
    holed = replace(data, fetch=lambda number, times: values[times])
    time_slices = split_time_slices(data).training
    used = sorted({frame for part in time_slices for frame in (*part.inputs, part.target)})
    expected = np.mean([frame % 4 for frame in used if frame > 0])
    mean = means_at(climatology_of(holed, time_slices), holed, [0])[0, 3, 0].item()
    assert mean == pytest.approx(expected, rel=1e-6)


def test_series_shorter_than_a_day_have_a_mean_for_each_time_since_their_start():
    data = decaying_waves()
    split = split_time_slices(data)
    climatology = climatology_of(data, split.training)
    trained = sorted({window.sample for window in split.training})
    expected = np.mean([data.frames(number) for number in trained], 0)
    np.testing.assert_allclose(
        means_at(climatology, data, range(len(data.time))).numpy(), expected, rtol=1e-12
    )


def test_anomalies_persist_by_the_fitted_fraction():
    """Every year has the same months; an anomaly of the whole field decays to 0.8 of it a month."""
    generator = np.random.default_rng(0)
    anomalies = np.zeros(1800)
    for month in range(1, 1800):
        anomalies[month] = 0.8 * anomalies[month - 1] + 0.1 * generator.normal()
    values = 10 * np.cos(2 * np.pi * np.arange(1800) / 12) + anomalies
    data = months(values)
    split = split_time_slices(data)
    inputs = inputs_of(data, split.training)
    damped, climatology = DampedPersistence.fit(inputs), Climatology.fit(inputs)
    assert damped.factor.item() == pytest.approx(0.8, abs=0.05)
    examples = TimeSliceExamples(data, split.test)
    batch = collate([examples[n] for n in range(len(examples))])

    def error(reference):
        guess = reference(batch.frames, batch.coords, seasons=batch.seasons)
        return (guess - batch.target).square().mean().sqrt().item()

    assert error(damped) == pytest.approx(0.1, rel=0.2)
    assert error(damped) < 0.75 * error(climatology)
    assert error(damped) < 0.1 * error(Persistence(inputs.task))


def test_a_rollout_of_damped_anomalies_ends_at_the_climatology():
    data = months(
        np.cos(2 * np.pi * np.arange(240) / 12) + np.random.default_rng(0).normal(size=240)
    )
    split = split_time_slices(data)
    damped = DampedPersistence.fit(inputs_of(data, split.training))
    frames = torch.from_numpy(data.frames(0, slice(200, 201)).astype(float))[None]
    seasons = torch.from_numpy(seasons_of(data, range(200, 231)))[None]
    steps = rollout(damped, frames, damped.coords, 30, seasons=seasons)[0]
    expected = damped.climatology.at(damped.coords, seasons[:, 1:])[0]
    first, last = ((steps - expected).abs().amax((1, 2))[n].item() for n in (0, -1))
    assert last < 1e-3 * max(first, 0.1)


def test_the_climatology_between_its_sites_is_interpolated():
    data = daily(units="")
    values = np.broadcast_to(np.arange(24.0)[:, None], (48, 24, 2))
    data = replace(data, fetch=lambda number, times: values[times])
    climatology = climatology_of(data, split_time_slices(data).training)
    coords = climatology.coords[5:7].mean(0, keepdim=True)
    between = climatology.at(torch.cat([climatology.coords[3:4], coords]), None)[0, 0, :, 0]
    assert between.tolist() == pytest.approx([3.0, 5.5])


def test_frames_without_dates_are_refused_where_the_climatology_needs_them():
    data = daily()
    climatology = climatology_of(data, split_time_slices(data).training)
    with pytest.raises(ValueError, match=r"must have dates or times of day.*--no-blend"):
        climatology.at(climatology.coords, None)


def test_no_reference_depends_on_validation_or_test_data():
    data = decaying_waves(num_trajectories=1, num_times=80)
    split = split_time_slices(data, history=2)
    first = min(window.first for window in split.validation)
    values = data.fetch(0, slice(None)).copy()
    values[first:] = 1e9
    spoiled = replace(data, fetch=lambda number, times: values[times])
    fits = [fit_references(inputs_of(each, split.training, history=2)) for each in (data, spoiled)]
    assert {"trend", "damped persistence", "linear map"} < set(fits[0])
    for name, reference in fits[0].items():
        others = fits[1][name].tensors()
        assert all(torch.equal(part, others[key]) for key, part in reference.tensors().items())


def test_references_are_judged_on_training_data_that_they_were_not_fitted_to():
    data = decaying_waves(num_trajectories=1, num_times=80)
    inputs = inputs_of(data, split_time_slices(data, history=2, lead=2).training, history=2, lead=2)
    fitted, held_out = inputs.earlier().samples, inputs.samples[-inputs.num_held_out :]
    assert len(held_out) > 5
    assert max(sample.target for sample in fitted) < min(sample.first for sample in held_out)
    counts = [replace(inputs, samples=inputs.samples[:n]).num_held_out for n in (1, 5, 18, 50)]
    assert counts == [0, 2, 8, 10]


def months(values):
    """A series of months at three sites."""
    time = np.cumsum([0, *[24.0 * days for days in LENGTHS] * (len(values) // 12)])[: len(values)]
    frames = np.repeat(values[:, None, None], 3, 1).astype(np.float32)
    return replace(
        decaying_waves(num_trajectories=1, num_times=len(values), num_points=3),
        variables=(Variable("sst", "K"),), time=time, time_units="h",
        origin=TimeOrigin("1979-01-01 00:00:00", "noleap"), first_hour=0.0,
        fetch=lambda number, times: frames[times],
    )  # fmt: skip


def test_the_climatology_is_averaged_once_for_the_same_data_and_samples():
    data, reads = daily(), []
    watched = replace(data, fetch=lambda number, times: reads.append(times) or data.fetch(number, times))  # fmt: skip
    samples = split_time_slices(data).training
    inputs = inputs_of(watched, samples)
    reads.clear()
    first = Climatology.fit(inputs)
    assert reads
    reads.clear()
    assert torch.equal(Climatology.fit(inputs).means, first.means)
    assert not reads
    Climatology.fit(replace(inputs, samples=samples[:-4]))
    assert reads
