"""Gaussians of a series keep their labels, and their tracks follow a moving blob."""

import pytest
import torch

from gpo import Domain
from gpo_mixture import MixtureSeries, export, fit, fit_series, load, save
from tests.mixture.fields import grid, random_mixture

TORUS = Domain.unit_box(2, True)
SPEED = torch.tensor([0.04, -0.03], dtype=torch.float64)


def blobs(coords, time):
    """Returns a blob that moves across a periodic boundary, and one at rest."""
    first = torch.tensor([0.85, 0.2], dtype=torch.float64) + time * SPEED
    moving = torch.exp(-TORUS.offset(coords, first).square().sum(-1) / 0.01)
    resting = torch.exp(-TORUS.offset(coords, torch.tensor([0.4, 0.6]).double()).square().sum(-1) / 0.02)  # fmt: skip
    return (moving - 0.5 * resting)[:, None]


@pytest.fixture(scope="module")
def series():
    coords, weights = grid(TORUS, 24, 24)
    frames = [blobs(coords, time) for time in range(5)]
    return fit_series(frames, coords, weights, 2, domain=TORUS, times=[0.0, 1.0, 2.0, 3.0, 4.0], num_steps=20, variables=["u"])  # fmt: skip


def test_gaussians_keep_their_labels(series):
    assert all(torch.equal(mixture.labels, series[0].labels) for mixture in series.mixtures)
    assert series[4].variables == ("u",)


def test_a_track_follows_a_moving_blob_across_a_periodic_boundary(series):
    tracks = series.tracks()
    mover = series[0].labels[series[0].amplitudes[:, 0].argmax()]
    displacements = tracks.displacements[tracks.sites == mover]
    assert len(displacements) == 4
    torch.testing.assert_close(displacements, SPEED.expand(4, 2), rtol=0, atol=1e-3)
    still = tracks.displacements[tracks.sites != mover]
    torch.testing.assert_close(still, torch.zeros(4, 2).double(), rtol=0, atol=1e-3)


def test_a_file_gives_back_all_frames(series, tmp_path):
    save(series, tmp_path / "series.nc", time_units="s")
    loaded = load(tmp_path / "series.nc")
    assert loaded.times == series.times
    for mixture, original in zip(loaded.mixtures, series.mixtures, strict=True):
        assert torch.equal(mixture.centers, original.centers)
        assert torch.equal(mixture.offset, original.offset)
    export(series, tmp_path / "series.ply")
    assert b"element vertex 10" in (tmp_path / "series.ply").read_bytes()


def test_new_gaussians_get_labels_that_no_earlier_frame_had():
    coords, weights = grid(TORUS, 24, 24)
    first, second = (random_mixture(TORUS, count=12, channels=1, seed=seed, size=0.05)(coords) for seed in (1, 2))  # fmt: skip
    series = fit_series([first, second, first], coords, weights, 6, domain=TORUS, num_steps=3)
    for number, mixture in enumerate(series.mixtures):
        labels = mixture.labels
        assert len(labels.unique()) == 6
        if number:
            earlier = torch.cat([other.labels for other in series.mixtures[:number]])
            new = labels[~torch.isin(labels, series[number - 1].labels)]
            assert (new > earlier.max()).all()


def test_a_fit_from_a_start_has_as_many_gaussians():
    coords, weights = grid(TORUS, 8, 8)
    start = fit(coords, coords, weights, 5, domain=TORUS, num_steps=1)
    assert len(fit(coords, coords, weights, start=start, num_steps=1)) == 5


def test_a_start_of_another_domain_and_an_empty_series_are_refused():
    coords, weights = grid(TORUS, 8, 8)
    other = random_mixture(Domain.unit_box(2))
    with pytest.raises(ValueError, match="`start` must have the domain of the field"):
        fit(coords, coords, weights, 5, domain=TORUS, start=other)
    with pytest.raises(ValueError, match="at least one frame"):
        MixtureSeries(())
