import torch

from gpo.data.splits import split_time_slices
from gpo.forecast.examples import TimeSliceExamples, collate
from gpo.parallel.partition import SitePartition
from gpo.training.config import RunConfig
from gpo.training.objective import draw_noise
from tests.core.training.series import decaying_waves

DATA = decaying_waves()
WINDOWS = split_time_slices(DATA).training


def batch_of(count, partition=SitePartition()):
    examples = TimeSliceExamples(DATA, WINDOWS, partition=partition)
    return collate([examples[number % len(examples)] for number in range(count)])


def test_noise_is_normal_with_the_configured_standard_deviation():
    noise = draw_noise(batch_of(40), size=0.3, fraction=1.0, seeds=range(40))
    assert noise.shape == (40, DATA.geometry().num_points, 2)
    assert abs(noise.mean()) < 0.02
    assert abs(noise.std() - 0.3) < 0.02
    assert noise.reshape(40, -1).unique(dim=0).shape[0] == 40


def test_a_part_of_the_examples_gets_noise_and_the_others_none():
    noise = draw_noise(batch_of(400), size=0.3, fraction=0.25, seeds=range(400))
    is_noisy = (noise != 0).flatten(1)
    assert torch.equal(is_noisy.any(1), is_noisy.all(1))
    assert 75 < is_noisy.any(1).sum() < 125


def test_processes_that_share_examples_or_sites_have_the_noise_of_one():
    settings = {"size": 0.3, "fraction": 0.5}
    alone = draw_noise(batch_of(8), seeds=range(8), **settings)
    shares = [draw_noise(batch_of(4), seeds=range(start, 8, 2), **settings) for start in (0, 1)]
    assert torch.equal(torch.stack(shares, 1).flatten(0, 1), alone)
    parts = []
    for rank in range(3):
        partition = SitePartition.of(
            DATA.geometry().num_points, DATA.geometry().grid_shape, rank, 3
        )
        parts.append(
            draw_noise(batch_of(8, partition), seeds=range(8), partition=partition, **settings)
        )
    assert len({part.shape for part in parts}) <= 2
    assert torch.equal(torch.cat(parts, 1), alone)


def test_forecasts_are_learned_with_noise_where_nothing_else_is_said():
    assert RunConfig.of(data="x").optimizer.noise_on(is_forecast=True) == 0.06
    assert RunConfig.of(data="x").optimizer.noise_on(is_forecast=False) == 0.0
    assert RunConfig.of(data="x", noise=0.0).optimizer.noise_on(is_forecast=True) == 0.0
    assert RunConfig.of(data="x", noise=0.1).optimizer.noise_on(is_forecast=False) == 0.1
