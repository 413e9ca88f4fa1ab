"""The learned encoder: it learns shapes, refines, knows neither doubled sites nor their order."""

import math

import pytest
import torch

from gpo import Domain, GaussianMixture
from gpo.mixture.encoder import MixtureEncoder
from tests.mixture.fields import BOXES, grid, random_mixture

TORUS = Domain.unit_box(2, True)
SLANTED = torch.tensor([[0.15, 0.0], [0.12, 0.08]], dtype=torch.float64)
"""A factor of ellipses that lie obliquely."""


def slanted(count, seed):
    """Returns fields of three oblique blobs each, at random places."""
    generator = torch.Generator().manual_seed(seed)
    coords, weights = grid(TORUS, 20, 20)
    heights = torch.tensor([[1.0], [-1.5], [2.0]], dtype=torch.float64)
    fields = [
        GaussianMixture(
            torch.rand(3, 2, generator=generator, dtype=torch.float64), SLANTED.expand(3, 2, 2),
            heights, torch.zeros(1, dtype=torch.float64), torch.arange(3), TORUS,
        )(coords)
        for _ in range(count)
    ]  # fmt: skip
    return fields, coords, weights


def trained(fields, coords, weights, num_steps=60):
    torch.manual_seed(0)
    encoder = MixtureEncoder(2)
    encoder.train_on(fields, coords, weights, 3, domain=TORUS, num_steps=num_steps)
    return encoder


def mean_error(encoder, fields, coords, weights, **settings):
    made = [encoder.encode(one, coords, weights, 3, domain=TORUS, **settings) for one in fields]
    return sum(one.error(values, coords, weights) for one, values in zip(made, fields, strict=True))


def test_training_teaches_it_the_shape_of_fields_it_has_not_seen():
    fields, coords, weights = slanted(20, seed=1)
    unseen, *_ = slanted(6, seed=2)
    torch.manual_seed(0)
    before = mean_error(MixtureEncoder(2), unseen, coords, weights)
    encoder = trained(fields, coords, weights)
    assert mean_error(encoder, unseen, coords, weights) < 0.8 * before
    found = encoder.encode(unseen[0], coords, weights, 3, domain=TORUS)
    # Every blob is long in one oblique direction, and so are the Gaussians on them.
    assert (found.covariances[:, 0, 1] > 0).all()


def test_steps_of_the_plain_fit_bring_it_closer():
    fields, coords, weights = slanted(4, seed=3)
    encoder = trained(fields, coords, weights, num_steps=5)
    errors = [mean_error(encoder, fields, coords, weights, num_steps=n) for n in (0, 2, 8)]
    assert errors[0] > errors[1] > errors[2]


def test_doubled_sites_of_half_weight_and_their_order_change_nothing():
    fields, coords, weights = slanted(4, seed=4)
    encoder = trained(fields, coords, weights, num_steps=5)
    plain = encoder.encode(fields[0], coords, weights, 3, domain=TORUS)
    order = torch.randperm(800, generator=torch.Generator().manual_seed(0)) % 400
    twice = encoder.encode(fields[0][order], coords[order], weights[order] / 2, 3, domain=TORUS)
    torch.testing.assert_close(twice(coords), plain(coords), rtol=0, atol=1e-8)


@pytest.mark.parametrize("name", BOXES)
def test_it_reads_fields_of_every_domain(name):
    domain = BOXES[name]
    truth = random_mixture(domain, size=0.15, count=4)
    shape = {1: (60,), 2: (16, 16), 3: (8, 8, 8)}
    coords, weights = grid(domain, *((12, 24) if domain.is_sphere else shape[domain.dim]))
    values = truth(coords)
    torch.manual_seed(0)
    encoder = MixtureEncoder(domain.dim - domain.is_sphere, num_channels=2)
    found = encoder.encode(values, coords, weights, 6, domain=domain)
    assert len(found) == 6
    mean = values.sub(weights @ values / weights.sum()).square()
    flat = math.sqrt(float((weights @ mean).sum() / (weights @ values.square()).sum()))
    assert found.error(values, coords, weights) < flat, "closer than the mean"


def test_other_variables_than_it_was_made_for_are_refused():
    coords, weights = grid(TORUS, 8, 8)
    with pytest.raises(ValueError, match=r"must have the 1 variables .* got 2"):
        MixtureEncoder(2).encode(coords, coords, weights, 3, domain=TORUS)
