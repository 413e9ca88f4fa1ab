"""Gaussians in time keep their names, and their tracks follow what moves."""

import pytest
import torch

from gpo import Domain
from gpo_mixture import GaussianMixture, MixtureSeries
from tests.mixture.fields import grid, random_mixture

TORUS = Domain.unit_box(2, True)
SPEED = torch.tensor([0.04, -0.03], dtype=torch.float64)


def blobs(coords, time):
    """Returns a blob that moves across the seam, and one that rests."""
    first = torch.tensor([0.85, 0.2], dtype=torch.float64) + time * SPEED
    moving = torch.exp(-TORUS.offset(coords, first).square().sum(-1) / 0.01)
    resting = torch.exp(-TORUS.offset(coords, torch.tensor([0.4, 0.6]).double()).square().sum(-1) / 0.02)  # fmt: skip
    return (moving - 0.5 * resting)[:, None]


@pytest.fixture(scope="module")
def series():
    coords, weights = grid(TORUS, 24, 24)
    frames = [blobs(coords, time) for time in range(5)]
    return MixtureSeries.fit(frames, coords, weights, 2, domain=TORUS, times=[0.0, 1.0, 2.0, 3.0, 4.0], num_steps=20, variables=["u"])  # fmt: skip


def test_particles_keep_their_names(series):
    assert all(torch.equal(one.labels, series[0].labels) for one in series.mixtures)
    assert series[4].variables == ("u",)


def test_a_track_follows_a_moving_blob_across_the_seam(series):
    tracks = series.tracks()
    mover = series[0].labels[series[0].amplitudes[:, 0].argmax()]
    ways = tracks.displacements[tracks.sites == mover]
    assert len(ways) == 4
    torch.testing.assert_close(ways, SPEED.expand(4, 2), rtol=0, atol=1e-3)
    still = tracks.displacements[tracks.sites != mover]
    torch.testing.assert_close(still, torch.zeros(4, 2).double(), rtol=0, atol=1e-3)


def test_a_file_gives_back_all_frames(series, tmp_path):
    series.save(tmp_path / "series.nc", time_units="s")
    loaded = MixtureSeries.load(tmp_path / "series.nc")
    assert loaded.times == series.times
    for one, other in zip(loaded.mixtures, series.mixtures, strict=True):
        assert torch.equal(one.centers, other.centers)
        assert torch.equal(one.offset, other.offset)
    with pytest.raises(
        ValueError, match=r"holds 5 frames: open it with gpo_mixture.MixtureSeries.load"
    ):
        GaussianMixture.load(tmp_path / "series.nc")
    series.export(tmp_path / "series.ply")
    assert b"element vertex 10" in (tmp_path / "series.ply").read_bytes()


def test_a_particle_that_is_new_gets_a_name_that_none_had():
    coords, weights = grid(TORUS, 24, 24)
    first, second = (random_mixture(TORUS, count=12, channels=1, seed=seed, size=0.05)(coords) for seed in (1, 2))  # fmt: skip
    found = MixtureSeries.fit([first, second, first], coords, weights, 6, domain=TORUS, num_steps=3)
    for number, one in enumerate(found.mixtures):
        assert len(one.labels.unique()) == 6
        before = torch.cat([other.labels for other in found.mixtures[: number + 1]])
        new = one.labels[~torch.isin(one.labels, found[max(0, number - 1)].labels)]
        assert number == 0 or (new > before[: -len(one)].max()).all()


def test_a_start_of_another_domain_and_empty_series_are_refused():
    coords, weights = grid(TORUS, 8, 8)
    other = random_mixture(Domain.unit_box(2))
    with pytest.raises(ValueError, match="`start` must live on the domain of the field"):
        GaussianMixture.fit(coords, coords, weights, 5, domain=TORUS, start=other)
    with pytest.raises(ValueError, match="at least one frame"):
        MixtureSeries(())
