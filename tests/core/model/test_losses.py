from dataclasses import replace

import pytest
import torch

from gpo import Domain, LossWeights, Particles, operator_losses, relative_l2
from gpo.model.particle_losses import center_loss, scale_loss
from gpo.model.taps import Tap, tapped
from tests.conftest import make_model, random_points

ALL = LossWeights(input_reconstruction=0.3, target_reconstruction=0.2, basis=0.7)


def particles_at(centers, scales=None, weights=None):
    centers = torch.as_tensor(centers, dtype=torch.float64)
    shape = centers.shape[:-1]
    return Particles(
        centers,
        torch.full_like(centers, 0.1) if scales is None else scales,
        torch.full(shape, 1 / shape[-1], dtype=torch.float64) if weights is None else weights,
    )


def uniform(num_sites):
    return torch.full((1, num_sites), 1 / num_sites, dtype=torch.float64)


def test_center_loss_is_its_formula():
    centers, weights = torch.rand(1, 4, 3, 2).double(), torch.rand(1, 4, 3).double()
    weights = weights / weights.sum(-1, keepdim=True)
    coords = torch.rand(1, 4, 2).double()
    expected = 0.0
    for j in range(4):
        mean = sum(weights[0, j, i] * centers[0, j, i] for i in range(3))
        expected += ((mean - coords[0, j]) ** 2).sum() / 4
    particles = particles_at(centers, weights=weights)
    actual = center_loss(particles, coords, Domain.unit_box(2), uniform(4))
    torch.testing.assert_close(actual, expected)


def test_scale_loss_is_its_formula():
    scales = torch.tensor([[[[0.005, 0.5]], [[1.5, 0.01]]]], dtype=torch.float64)
    particles = particles_at(torch.zeros(1, 2, 1, 2), scales=scales)
    actual = scale_loss(particles, (0.01, 1.0), Domain.unit_box(2), uniform(2))
    assert actual.item() == pytest.approx((0.005 + 0.5) / 4)


def test_center_loss_takes_nearest_images():
    coords = torch.tensor([[[0.02]]], dtype=torch.float64)
    particles = particles_at([[[[0.99], [0.05]]]])
    periodic = center_loss(particles, coords, Domain.unit_box(1, periodic=True), uniform(1))
    assert periodic.item() == pytest.approx(0, abs=1e-12)
    assert center_loss(particles, coords, Domain.unit_box(1), uniform(1)).item() > 0.2


def test_center_loss_on_the_sphere_is_zero_for_a_ring_around_the_site():
    angles = torch.arange(6).double() * torch.pi / 3
    ring = torch.stack([0.6 * angles.cos(), 0.6 * angles.sin(), torch.full_like(angles, 0.8)], -1)
    site = torch.tensor([[[0.0, 0.0, 1.0]]], dtype=torch.float64)
    particles = particles_at(ring[None, None])
    assert center_loss(particles, site, Domain.sphere(), uniform(1)).item() < 1e-20
    assert center_loss(particles, -site, Domain.sphere(), uniform(1)).item() == pytest.approx(4)


def test_losses_do_not_depend_on_units():
    small, large = Domain.unit_box(2), Domain.box([0, 0], [1000, 10])
    lengths = torch.tensor([1000.0, 10.0], dtype=torch.float64)
    coords = random_points(small, 1, 4)
    centers, scales = torch.rand(1, 4, 3, 2).double(), 3 * torch.rand(1, 4, 3, 2).double()
    unit, metres = particles_at(centers, scales), particles_at(centers * lengths, scales * lengths)
    q = uniform(4)
    torch.testing.assert_close(center_loss(metres, coords * lengths, large, q), center_loss(unit, coords, small, q))  # fmt: skip
    torch.testing.assert_close(scale_loss(metres, (0.01, 1.0), large, q), scale_loss(unit, (0.01, 1.0), small, q))  # fmt: skip


def test_every_term_is_named_and_the_total_is_their_weighted_sum(domain):
    model = make_model(domain, in_channels=2, out_channels=2)
    values, target = torch.randn(2, 11, 2).double(), torch.randn(2, 11, 2).double()
    coords = random_points(domain, 2, 11)
    losses = operator_losses(model, values, coords, target, loss_weights=ALL)
    terms = {name: term for name, term in losses.items() if name != "total"}
    assert list(terms) == ["prediction", "center", "scale", "input_reconstruction", "target_reconstruction", "basis"]  # fmt: skip
    total = sum(getattr(ALL, name) * term for name, term in terms.items())
    torch.testing.assert_close(losses["total"], total)
    torch.testing.assert_close(losses["prediction"], relative_l2(model(values, coords), target))
    encoded = model.run(model.sites(target, coords), num_layers=0)
    reconstruction = relative_l2(encoded.at_sites(), target)
    torch.testing.assert_close(losses["target_reconstruction"], reconstruction)


def basis_loss(model, values, target, coords):
    loss_weights = LossWeights(basis=1.0)
    return operator_losses(model, values, coords, target, loss_weights=loss_weights)["basis"]


def test_basis_loss_is_the_relative_distance_to_the_encoded_target():
    domain = Domain.unit_box(2)
    model = make_model(domain, in_channels=2, out_channels=2)
    values, target = torch.randn(2, 11, 2).double(), torch.randn(2, 11, 2).double()
    coords = random_points(domain, 2, 11)
    encoded = model.particles(target, coords)[0].basis(coords, domain)
    expected = relative_l2(model.trace(values, coords).states[-1], encoded)
    torch.testing.assert_close(basis_loss(model, values, target, coords), expected)


def test_the_basis_loss_does_not_change_the_encoded_target():
    """Its gradient is that with the encoded target held fixed, so that it cannot make all alike."""
    domain = Domain.unit_box(2)
    model = make_model(domain, in_channels=2, out_channels=2)
    values, target = torch.randn(2, 11, 2).double(), torch.randn(2, 11, 2).double()
    coords, parameters = random_points(domain, 2, 11), list(model.lift.parameters())
    with torch.no_grad():
        encoded = model.particles(target, coords)[0].basis(coords, domain)
    expected = relative_l2(model.trace(values, coords).states[-1], encoded)
    expected = torch.autograd.grad(expected, parameters)
    actual = torch.autograd.grad(basis_loss(model, values, target, coords), parameters)
    for one, other in zip(actual, expected, strict=True):
        torch.testing.assert_close(one, other)


def test_the_basis_loss_ignores_the_size_of_both_bases():
    domain = Domain.unit_box(1)
    model = make_model(domain, in_channels=1, out_channels=1, num_layers=0)
    values, target = torch.randn(2, 11, 1).double(), torch.randn(2, 11, 1).double()
    coords = random_points(domain, 2, 11)
    before = basis_loss(model, values, target, coords)

    def halved(layer, particles):
        return replace(particles, weights=0.5 * particles.weights)

    with tapped([Tap("encode", halved)]):
        after = basis_loss(model, values, target, coords)
    torch.testing.assert_close(after, before)


def test_masked_sites_change_no_loss(domain):
    model = make_model(domain, in_channels=2, out_channels=2)
    values, target = torch.randn(2, 11, 2).double(), torch.randn(2, 11, 2).double()
    coords, weights = random_points(domain, 2, 11), torch.rand(2, 11).double()
    weights[:, 8:] = 0
    expected = operator_losses(
        model, values[:, :8], coords[:, :8], target[:, :8], weights=weights[:, :8], loss_weights=ALL
    )
    values[:, 8:], target[:, 9:] = float("nan"), float("nan")
    losses = operator_losses(model, values, coords, target, weights=weights, loss_weights=ALL)
    for name, value in losses.items():
        torch.testing.assert_close(value, expected[name])
    losses["total"].backward()
    assert all(p.grad.isfinite().all() for p in model.parameters() if p.grad is not None)


def test_reconstruction_of_different_channels_is_refused():
    model = make_model(Domain.unit_box(2), in_channels=2, out_channels=3)
    values, target = torch.randn(1, 4, 2).double(), torch.randn(1, 4, 3).double()
    with pytest.raises(ValueError, match=r"loss_weights.basis` must be 0.*in_channels=2, out_channels=3"):  # fmt: skip
        operator_losses(
            model, values, torch.rand(4, 2).double(), target, loss_weights=LossWeights(basis=1.0)
        )


def test_the_target_is_checked_like_an_input():
    model = make_model(Domain.unit_box(2), in_channels=2, out_channels=2)
    target = torch.full((1, 4, 2), float("nan")).double()
    with pytest.raises(ValueError, match="`target` must be finite"):
        operator_losses(model, torch.zeros(1, 4, 2).double(), torch.rand(4, 2).double(), target)
