"""Two mixtures: equal ones are found equal, moved ones moved, and opposite ones are not paired."""

from dataclasses import replace

import pytest
import torch

from gpo_mixture import GaussianMixture
from tests.mixture.fields import BOXES, grid, random_mixture

PLANE = BOXES["plane"]


def shuffled(mixture, order):
    return mixture.rows(torch.tensor(order))


@pytest.mark.parametrize("domain", BOXES.values(), ids=BOXES)
def test_a_mixture_in_another_order_is_the_same(domain):
    mixture = random_mixture(domain, size=0.1)
    found = mixture.compare(shuffled(mixture, [3, 1, 4, 0, 2]), mixture.centers)
    assert torch.equal(found.labels[:, 0], found.labels[:, 1])
    assert len(found.labels) == 5
    torch.testing.assert_close(found.similarities, torch.ones(5).double())
    assert float(found.displacements.abs().max()) == 0
    assert float(found.amplitude_changes.abs().max()) == 0
    assert found.difference == pytest.approx(0, abs=1e-12)


def test_a_moved_mixture_has_the_way_that_it_moved_across_the_seam():
    torus = BOXES["torus"]
    mixture = random_mixture(torus, size=0.1)
    way = torch.tensor([0.03, -0.02], dtype=torch.float64)
    for center in (0.0, 0.99):
        first = replace(mixture, centers=torus.wrap(mixture.centers + center))
        second = replace(
            first, centers=torus.wrap(first.centers + way), amplitudes=3 * first.amplitudes
        )
        found = first.compare(second, first.centers)
        assert torch.equal(found.labels[:, 0], found.labels[:, 1])
        torch.testing.assert_close(found.displacements, way.expand(5, 2))
        torch.testing.assert_close(found.amplitude_changes, 2 * first.amplitudes)


def test_similarity_is_the_cosine_between_what_two_gaussians_add():
    coords, weights = grid(PLANE, 401, 401)
    both = random_mixture(PLANE, count=2, channels=1, size=0.06)
    both = replace(both, centers=torch.tensor([[1.0, 0.0], [1.05, 0.02]]).double(), offset=torch.zeros(1).double(), amplitudes=torch.tensor([[2.0], [-0.3]]).double())  # fmt: skip
    first, second = both.rows(torch.tensor([0])), both.rows(torch.tensor([1]))
    one, other = first(coords)[:, 0], second(coords)[:, 0]
    expected = weights @ (one * other) / ((weights @ one**2) * (weights @ other**2)).sqrt()
    assert -0.95 < expected < -0.3
    found = first.compare(second, coords, weights, min_similarity=-1.0)
    # A fine trapezoid rule, and nothing reaches the ends.
    torch.testing.assert_close(found.similarities, expected[None], rtol=1e-6, atol=0)


def test_opposite_gaussians_at_one_place_are_no_pair():
    mixture = random_mixture(PLANE)
    opposite = replace(mixture, amplitudes=-mixture.amplitudes)
    found = mixture.compare(opposite, mixture.centers)
    assert len(found.labels) == 0 or float(found.similarities.min()) >= 0.5
    assert not (found.labels[:, 0] == found.labels[:, 1]).any()


def test_units_of_a_variable_do_not_decide_which_gaussians_are_alike():
    mixture = random_mixture(PLANE, size=0.4)
    other = random_mixture(PLANE, size=0.4, seed=1)
    units = torch.tensor([1e5, 1e-3], dtype=torch.float64)
    first, second = (
        replace(one, amplitudes=one.amplitudes * units, offset=one.offset * units)
        for one in (mixture, other)
    )
    plain = mixture.compare(other, mixture.centers, min_similarity=-1.0)
    scaled = first.compare(second, mixture.centers, min_similarity=-1.0)
    assert torch.equal(plain.labels, scaled.labels)
    torch.testing.assert_close(plain.similarities, scaled.similarities)


def test_the_difference_of_fields_counts_masked_sites_not_at_all():
    coords, weights = grid(PLANE, 11, 11)
    mixture = random_mixture(PLANE)
    other = replace(mixture, offset=mixture.offset + 1)
    weights[coords[:, 0] < 1] = 0
    expected = (weights.sum() * 2 / (weights @ mixture(coords).square()).sum()).sqrt()
    found = mixture.compare(other, coords, weights)
    assert found.difference == pytest.approx(float(expected))


def test_what_cannot_be_compared_is_refused():
    mixture = random_mixture(PLANE)
    with pytest.raises(ValueError, match="`other` must live on the domain of this mixture"):
        mixture.compare(random_mixture(BOXES["torus"]), mixture.centers)
    with pytest.raises(ValueError, match=r"must have the variables of this mixture, 2 without"):
        mixture.compare(random_mixture(PLANE, channels=1), mixture.centers)
    named = GaussianMixture(**{**vars(mixture), "variables": ("a", "b")})
    with pytest.raises(ValueError, match=r"2 \(a, b\), got 2 without names"):
        named.compare(mixture, mixture.centers)
    with pytest.raises(ValueError, match=r"`min_similarity` must be from -1 to 1, got 2\.0"):
        mixture.compare(mixture, mixture.centers, min_similarity=2.0)
