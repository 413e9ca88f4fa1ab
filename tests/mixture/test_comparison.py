"""Comparison of two mixtures: matching Gaussians, displacements and differences of fields."""

from dataclasses import replace

import pytest
import torch

from gpo_mixture import GaussianMixture, compare
from tests.mixture.fields import BOXES, grid, random_mixture

PLANE = BOXES["plane"]


def shuffled(mixture, order):
    return mixture.rows(torch.tensor(order))


@pytest.mark.parametrize("domain", BOXES.values(), ids=BOXES)
def test_a_mixture_in_another_order_is_the_same(domain):
    mixture = random_mixture(domain, size=0.1)
    comparison = compare(mixture, shuffled(mixture, [3, 1, 4, 0, 2]), mixture.centers)
    assert torch.equal(comparison.labels[:, 0], comparison.labels[:, 1])
    assert len(comparison.labels) == 5
    torch.testing.assert_close(comparison.similarities, torch.ones(5).double())
    assert float(comparison.displacements.abs().max()) == 0
    assert float(comparison.amplitude_changes.abs().max()) == 0
    assert comparison.difference == pytest.approx(0, abs=1e-12)


def test_displacements_are_those_of_a_mixture_moved_across_a_periodic_boundary():
    torus = BOXES["torus"]
    mixture = random_mixture(torus, size=0.1)
    shift = torch.tensor([0.03, -0.02], dtype=torch.float64)
    for center in (0.0, 0.99):
        first = replace(mixture, centers=torus.wrap(mixture.centers + center))
        second = replace(
            first, centers=torus.wrap(first.centers + shift), amplitudes=3 * first.amplitudes
        )
        comparison = compare(first, second, first.centers)
        assert torch.equal(comparison.labels[:, 0], comparison.labels[:, 1])
        torch.testing.assert_close(comparison.displacements, shift.expand(5, 2))
        torch.testing.assert_close(comparison.amplitude_changes, 2 * first.amplitudes)


def test_similarity_is_the_cosine_between_the_contributions_of_two_gaussians():
    coords, weights = grid(PLANE, 401, 401)
    both = random_mixture(PLANE, count=2, channels=1, size=0.06)
    both = replace(both, centers=torch.tensor([[1.0, 0.0], [1.05, 0.02]]).double(), offset=torch.zeros(1).double(), amplitudes=torch.tensor([[2.0], [-0.3]]).double())  # fmt: skip
    first, second = both.rows(torch.tensor([0])), both.rows(torch.tensor([1]))
    u, v = first(coords)[:, 0], second(coords)[:, 0]
    expected = weights @ (u * v) / ((weights @ u**2) * (weights @ v**2)).sqrt()
    assert -0.95 < expected < -0.3
    comparison = compare(first, second, coords, weights, min_similarity=-1.0)
    # A fine trapezoidal rule; both Gaussians vanish at the boundary.
    torch.testing.assert_close(comparison.similarities, expected[None], rtol=1e-6, atol=0)


def test_opposite_gaussians_do_not_match():
    mixture = random_mixture(PLANE)
    opposite = replace(mixture, amplitudes=-mixture.amplitudes)
    comparison = compare(mixture, opposite, mixture.centers)
    assert len(comparison.labels) == 0 or float(comparison.similarities.min()) >= 0.5
    assert not (comparison.labels[:, 0] == comparison.labels[:, 1]).any()


def test_matches_do_not_depend_on_the_units_of_a_variable():
    mixture = random_mixture(PLANE, size=0.4)
    other = random_mixture(PLANE, size=0.4, seed=1)
    units = torch.tensor([1e5, 1e-3], dtype=torch.float64)
    first, second = (
        replace(part, amplitudes=part.amplitudes * units, offset=part.offset * units)
        for part in (mixture, other)
    )
    plain = compare(mixture, other, mixture.centers, min_similarity=-1.0)
    scaled = compare(first, second, mixture.centers, min_similarity=-1.0)
    assert torch.equal(plain.labels, scaled.labels)
    torch.testing.assert_close(plain.similarities, scaled.similarities)


def test_the_difference_of_fields_ignores_masked_sites():
    coords, weights = grid(PLANE, 11, 11)
    mixture = random_mixture(PLANE)
    other = replace(mixture, offset=mixture.offset + 1)
    weights[coords[:, 0] < 1] = 0
    expected = (weights.sum() * 2 / (weights @ mixture(coords).square()).sum()).sqrt()
    comparison = compare(mixture, other, coords, weights)
    assert comparison.difference == pytest.approx(float(expected))


def test_mixtures_of_other_domains_or_variables_are_refused():
    mixture = random_mixture(PLANE)
    with pytest.raises(ValueError, match="must have the same domain, got"):
        compare(mixture, random_mixture(BOXES["torus"]), mixture.centers)
    with pytest.raises(ValueError, match=r"same variables, got 2 without names and 1 without"):
        compare(mixture, random_mixture(PLANE, channels=1), mixture.centers)
    named = GaussianMixture(**{**vars(mixture), "variables": ("a", "b")})
    with pytest.raises(ValueError, match=r"2 \(a, b\) and 2 without names"):
        compare(named, mixture, mixture.centers)
    with pytest.raises(ValueError, match=r"`min_similarity` must be from -1 to 1, got 2\.0"):
        compare(mixture, mixture, mixture.centers, min_similarity=2.0)
