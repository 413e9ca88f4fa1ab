"""Filling of values that are missing in some frames."""

import numpy as np
import torch

from gpo.data.gaps import fill_gaps
from gpo.data.geometry import Geometry
from gpo.data.splits import TimeSlice
from gpo.forecast.examples import TimeSliceExamples, collate
from gpo.forecast.forecaster import Forecaster
from gpo.parallel.partition import SitePartition
from gpo.training.objective import training_losses
from tests.conftest import make_model
from tests.core.training.series import decaying_waves
from tests.core.training.test_training import task


def torus(size=8):
    return Geometry.rectilinear([np.arange(size) / size] * 2, periodic=True)


def test_a_single_missing_site_is_the_mean_of_its_periodic_neighbours():
    frames = np.random.default_rng(0).normal(size=(1, 64, 2))
    frames[0, 0, 1] = np.nan
    filled = fill_gaps(frames, torus())
    grid = frames[0, :, 1].reshape(8, 8)
    around = [grid[i, j] for i in (-1, 0, 1) for j in (-1, 0, 1) if (i, j) != (0, 0)]
    np.testing.assert_allclose(filled[0, 0, 1], np.mean(around))
    np.testing.assert_array_equal(filled[0, 1:], frames[0, 1:])
    assert filled[0, 0, 0] == frames[0, 0, 0]


def test_a_large_gap_is_filled_from_its_edge_inwards():
    frames = np.full((1, 64, 1), 2.5)
    frames[0, :40] = np.nan
    np.testing.assert_allclose(fill_gaps(frames, torus()), 2.5)


def test_masked_sites_are_not_filled_and_do_not_fill_others():
    is_land = np.zeros(64, dtype=bool)
    is_land[1] = True
    frames = np.where(is_land[:, None], 1e6, 1.0)[None]
    frames[0, 0] = np.nan
    filled = fill_gaps(frames, torus().masked(is_land))
    assert filled[0, 0, 0] == 1
    frames[0, 1] = np.nan
    assert np.isnan(fill_gaps(frames, torus().masked(is_land))[0, 1, 0])


def test_values_missing_at_all_sites_stay_missing():
    assert np.isnan(fill_gaps(np.full((1, 64, 1), np.nan), torus())).all()


def test_a_range_of_sites_is_filled_from_sites_in_the_range():
    frames = np.arange(64.0).reshape(1, 64, 1)
    frames[0, 16] = np.nan
    filled = fill_gaps(frames[:, 16:32], torus(), slice(16, 32))
    # Neighbours in the previous row are outside the range.
    np.testing.assert_allclose(filled[0, 0, 0], np.mean([17, 23, 24, 25, 31]))


def holed_series():
    """A series in which each frame has another missing site."""
    whole = decaying_waves()
    values = np.stack([whole.frames(number) for number in range(whole.num_samples)])
    for time in range(values.shape[1]):
        values[:, time, (5 * time) % 24] = np.nan
    return decaying_waves(values=values)


def test_examples_with_different_gaps_share_sites_and_score_only_finite_values():
    data = holed_series()
    windows = [TimeSlice(0, time, time, time + 1) for time in range(4)]
    examples = TimeSliceExamples(data, windows)
    batch = collate([examples[number] for number in range(4)])
    assert batch.frames.isfinite().all()
    assert (batch.site_weights == batch.site_weights[:1]).all()
    assert (batch.site_weights > 0).all()
    for time, weights in enumerate(batch.weights):
        missing = {(5 * time) % 24, 5 * (time + 1) % 24}
        assert set((weights == 0).nonzero().flatten().tolist()) == missing


def test_a_part_of_an_example_with_gaps_is_that_part_of_the_weights():
    data, window = holed_series(), [TimeSlice(0, 0, 0, 1)]
    whole = TimeSliceExamples(data, window)[0]
    part = TimeSliceExamples(data, window, partition=SitePartition(1, 2))[0]
    assert torch.equal(part.weights, whole.weights[:, 12:])
    assert torch.equal(part.site_weights, whole.site_weights[:, 12:])


def test_the_loss_ignores_missing_values_and_a_batch_shares_one_transform():
    data = holed_series()
    examples = TimeSliceExamples(data, [TimeSlice(0, time, time, time + 1) for time in range(4)])
    batch = collate([examples[number] for number in range(4)])
    model = make_model(
        data.geometry().domain, variant="geometric", num_waves=3, in_channels=2, out_channels=2
    ).float()
    forecaster = Forecaster(model, task())
    losses = training_losses(forecaster, batch)
    assert len(model.execution.cache._last.weights) == 1
    batch.targets[(batch.weights == 0)[:, None]] = 1e6
    assert torch.equal(training_losses(forecaster, batch)["total"], losses["total"])
