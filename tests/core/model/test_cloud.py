"""Choosing, tracking and adding up particles."""

import pytest
import torch

from gpo import Domain, ParticleCloud, Particles
from gpo.inspect import cloud as cloud_module
from gpo_mixture import Tracks
from tests.conftest import DOMAINS, make_model, random_points

TORUS = DOMAINS["torus"]


def random_particles(domain, batch=2, num_sites=6, num_gaussians=3):
    shape = batch, num_sites, num_gaussians
    scales = 0.1 + torch.rand(*shape, domain.dim).double()
    return Particles(random_points(domain, *shape), scales, torch.rand(shape).double())


def random_cloud(domain=TORUS, **sizes):
    return random_particles(domain, **sizes).cloud(domain)


def rows(cloud):
    return list(zip(cloud.samples.tolist(), cloud.sites.tolist(), cloud.gaussians.tolist(), strict=True))  # fmt: skip


def test_a_cloud_knows_where_every_particle_comes_from(domain):
    particles = random_particles(domain)
    cloud = particles.cloud(domain)
    index = cloud.samples, cloud.sites, cloud.gaussians
    assert len(cloud) == 36
    torch.testing.assert_close(cloud.centers, particles.centers[index])
    assert torch.equal(cloud.scales, particles.scales[index])
    assert torch.equal(cloud.weights, particles.weights[index])


def test_centers_of_a_cloud_are_inside_a_periodic_box():
    particles = random_particles(TORUS)
    moved = Particles(particles.centers + 3, particles.scales, particles.weights)
    torch.testing.assert_close(moved.cloud(TORUS).centers, particles.centers.flatten(0, 2))


def test_choosing_leaves_those_named_in_all_columns():
    cloud = random_cloud()
    chosen = cloud.select(samples=[1], sites=range(2, 4), gaussians=torch.tensor([0, 2]))
    assert rows(chosen) == [(1, 2, 0), (1, 2, 2), (1, 3, 0), (1, 3, 2)]
    kept = [number for number, row in enumerate(rows(cloud)) if row in rows(chosen)]
    assert torch.equal(chosen.weights, cloud.weights[kept])
    assert torch.equal(chosen.centers, cloud.centers[kept])
    assert rows(cloud.select()) == rows(cloud)
    assert len(cloud.select(sites=[99])) == 0
    assert len(cloud.select(sites=[])) == 0


def test_particles_of_masked_sites_can_be_left_out():
    is_active = torch.tensor([1, 0, 1, 1, 0, 1]).bool()
    chosen = random_cloud().select(sites=is_active.nonzero().flatten())
    assert set(chosen.sites.tolist()) == {0, 2, 3, 5}


def test_above_a_weight_is_every_heavier_particle():
    cloud = random_cloud()
    limit = cloud.weights.median().item()
    chosen = cloud.above(limit)
    assert len(chosen) == (cloud.weights > limit).sum()
    assert chosen.weights.min() > limit


def test_the_heaviest_are_so_many_of_every_sample_in_order():
    cloud = random_cloud(batch=3)
    chosen = cloud.heaviest(4)
    assert chosen.samples.tolist() == [0] * 4 + [1] * 4 + [2] * 4
    for sample in range(3):
        weights = cloud.select(samples=[sample]).weights.sort(descending=True).values
        assert torch.equal(chosen.select(samples=[sample]).weights, weights[:4])
    assert len(cloud.heaviest(1000)) == len(cloud)
    assert len(cloud.above(2.0).heaviest(3)) == 0


def test_the_functions_of_a_cloud_are_the_basis_of_its_particles(domain):
    particles, coords = random_particles(domain), random_points(domain, 2, 6)
    basis = particles.basis(coords, domain)
    for sample, site in [(0, 0), (1, 4)]:
        owned = particles.cloud(domain).select(samples=[sample], sites=[site])
        derivatives = owned.derivatives(coords[sample, [site]])
        torch.testing.assert_close(derivatives.values[0], basis[sample, site])


def test_a_total_is_the_sum_over_particles_whatever_fits_at_once(domain, monkeypatch):
    cloud, points = random_cloud(domain, batch=1), random_points(domain, 11)
    each, total = cloud.derivatives(points), cloud.total(points)
    monkeypatch.setattr(cloud_module, "MAX_ENTRIES", 100)
    for derivatives in (total, cloud.total(points)):
        torch.testing.assert_close(derivatives.values, each.values.sum(1))
        torch.testing.assert_close(derivatives.gradients, each.gradients.sum(1))
        torch.testing.assert_close(derivatives.laplacians, each.laplacians.sum(1))
    assert total.gradients.shape == (11, domain.dim)


def test_no_particles_add_up_to_zero():
    total = random_cloud(batch=1).above(2.0).total(torch.rand(5, 2))
    assert torch.equal(total.gradients, torch.zeros(5, 2).double())


@pytest.mark.parametrize("variant", ["waves", "paper"])
def test_derivatives_reach_what_makes_particles(variant):
    """Particles stay differentiable: a Laplacian may enter a loss."""
    model = make_model(TORUS, variant=variant)
    values = torch.randn(1, 9, 2).double()
    cloud = model.particles(values, random_points(TORUS, 9))[0].cloud(TORUS)
    cloud.total(random_points(TORUS, 4)).laplacians.square().sum().backward()
    centers = model.layers[-1].local if variant == "waves" else model.lift.encoder.scales.out.weight  # fmt: skip
    assert centers.grad.abs().sum() > 0


def moving_particles(num_frames=3):
    """Particles of which everything changes by as much in every frame."""
    start = random_particles(TORUS, batch=1)
    frames = torch.arange(num_frames).double()[:, None, None]
    step = torch.tensor([0.3, -0.2]).double()
    return Particles(
        TORUS.wrap(start.centers + frames.unsqueeze(-1) * step),
        start.scales + 0.01 * frames.unsqueeze(-1),
        start.weights - 0.1 * frames,
    )


def test_tracks_take_the_shortest_way_across_the_seam():
    tracks = Tracks.of(moving_particles().cloud(TORUS))
    assert len(tracks.frames) == 2 * 18
    torch.testing.assert_close(tracks.displacements, torch.tensor([[0.3, -0.2]] * 36).double())
    torch.testing.assert_close(tracks.scale_changes, torch.full((36, 2), 0.01).double())
    torch.testing.assert_close(tracks.weight_changes, torch.full((36,), -0.1).double())


def test_tracks_match_by_site_and_gaussian_in_any_order_and_skip_what_is_missing():
    cloud = moving_particles().cloud(TORUS)
    shuffled = cloud.rows(torch.randperm(len(cloud)))
    is_left_out = (shuffled.samples == 1) & (shuffled.sites == 2) & (shuffled.gaussians == 1)
    tracks = Tracks.of(shuffled.rows(~is_left_out))
    assert len(tracks.frames) == 36 - 2
    torch.testing.assert_close(tracks.displacements, torch.tensor([[0.3, -0.2]] * 34).double())
    steps = zip(tracks.frames.tolist(), tracks.sites.tolist(), tracks.gaussians.tolist(), strict=True)  # fmt: skip
    left_out = {(0, 2, 1), (1, 2, 1)}
    assert set(steps) == {row for row in rows(cloud) if row[0] < 2} - left_out
    first = cloud.select(samples=[0], sites=[5], gaussians=[2]).centers[0]
    where = (tracks.frames == 0) & (tracks.sites == 5) & (tracks.gaussians == 2)
    torch.testing.assert_close(tracks.centers[where][0], first)


def test_frames_left_out_are_stepped_over():
    tracks = Tracks.of(moving_particles(5).cloud(TORUS).select(samples=[0, 2, 4]))
    assert set(zip(tracks.frames.tolist(), tracks.next_frames.tolist(), strict=True)) == {(0, 2), (2, 4)}  # fmt: skip
    torch.testing.assert_close(tracks.displacements, torch.tensor([[-0.4, -0.4]] * 36).double())


def test_displacements_on_the_sphere_are_chords():
    sphere = DOMAINS["sphere"]
    cloud = random_cloud(sphere)
    tracks = Tracks.of(cloud)
    chords = cloud.select(samples=[1]).centers - cloud.select(samples=[0]).centers
    torch.testing.assert_close(tracks.displacements, chords)


@pytest.mark.parametrize(
    ("mistake", "message"),
    [
        (lambda cloud: cloud.select(sites=[-1]), "`sites` must count from 0, got -1"),
        (lambda cloud: cloud.select(sites=torch.ones(6).bool()), r"`sites` must be a list of numbers.*nonzero"),
        (lambda cloud: cloud.heaviest(0), "`count` must be at least 1, got 0"),
        (lambda cloud: cloud.footprints(0.0), "`reach` must be positive"),
        (lambda cloud: cloud.total(torch.rand(3, 2)), r"got 2 samples. Choose one: select\(samples=\[0\]\)"),
        (lambda cloud: cloud.derivatives(torch.rand(3, 1)), r"`points` must have shape \(points, 2\)"),
        (lambda cloud: Tracks.of(cloud.select(samples=[0])), "at least two frames to be tracked, got 1"),
        (lambda cloud: ParticleCloud(cloud.centers, cloud.scales, cloud.weights, cloud.samples, cloud.sites, cloud.gaussians, Domain.unit_box(3)), r"`centers` must have shape \(36, 3\), got \(36, 2\)"),
    ],
)  # fmt: skip
def test_mistakes_are_named(mistake, message):
    with pytest.raises(ValueError, match=message):
        mistake(random_cloud())


def test_points_of_the_sphere_are_unit_vectors():
    with pytest.raises(ValueError, match=r"must be unit vectors.*unit_vectors\(lon, lat\)"):
        random_cloud(DOMAINS["sphere"]).derivatives(torch.full((3, 3), 40.0))
