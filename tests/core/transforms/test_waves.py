"""Waves as test functions: tokens of fields on any sites, and fields from tokens."""

import math

import pytest
import torch

from gpo import Domain, unit_vectors
from gpo.transforms.fit import fit_transform
from gpo.transforms.transform import GridTransform, PointTransform
from gpo.transforms.waves import Waves, wave_limits
from tests.conftest import DOMAINS, random_points

PLANES = {name: DOMAINS[name] for name in ("square", "torus", "channel")}


def waves_on(domain, num_waves=3):
    return Waves.on(domain, wave_limits(domain, num_waves))


def direct_tokens(waves, positions, field):
    """The inner products of a field with every wave, one by one."""
    tokens = []
    for vector in waves.vectors.double():
        phase = 2 * math.pi * (positions * vector).sum(-1)
        tokens.append(torch.stack([(field * phase.cos()).mean(), -(field * phase.sin()).mean()]))
    return torch.stack(tokens, 1)


def on_all_sites(waves, coords, tokens):
    weights = torch.full((1, len(coords)), 1 / len(coords), dtype=torch.double)
    return fit_transform(waves, waves.positions(coords[None]), weights).synthesise(tokens)


def test_on_a_periodic_grid_tokens_are_fourier_coefficients():
    domain = DOMAINS["torus"]
    coords, weights = (part.double() for part in domain.grid(12, 10))
    waves = waves_on(domain)
    field = torch.randn(120, dtype=torch.double)
    transform = fit_transform(waves, waves.positions(coords[None]), weights[None])
    assert isinstance(transform, GridTransform)
    tokens = transform.analyse(field[:, None, None])[..., 0, 0]
    expected = direct_tokens(waves, waves.positions(coords), field)
    torch.testing.assert_close(tokens, expected, rtol=1e-5, atol=1e-8)


@pytest.mark.parametrize("name", PLANES)
def test_a_field_of_waves_is_recovered_from_any_sites(name):
    domain = PLANES[name]
    waves = waves_on(domain)
    coords = random_points(domain, 400)
    weights = torch.full((1, 400), 1 / 400, dtype=torch.double)
    transform = fit_transform(waves, waves.positions(coords[None]), weights)
    assert isinstance(transform, PointTransform)
    field = transform.synthesise(torch.randn(2, waves.num_modes, 1, 2, dtype=torch.double))
    again = transform.synthesise(transform.analyse(field))
    error = (again - field).norm() / field.norm()
    assert error < (1e-5 if name == "torus" else 0.02), error


def test_a_grid_has_the_waves_that_it_resolves():
    # Three quarters of half the sites; an open axis is two thirds of its longest wave.
    assert wave_limits(DOMAINS["torus"], None, (32, 20)) == (12, 7)
    assert wave_limits(DOMAINS["square"], None, (16, 500)) == (9, 16)
    assert wave_limits(Domain.sphere(), None, (24, 40)) == (13, 15)
    assert wave_limits(Domain.unit_box(3), None, (2, 2, 2)) == (1, 1, 1)


def test_tokens_stay_bounded_where_sites_are_masked():
    """Half of a box is masked; a rough field there must not become a huge token."""
    domain = DOMAINS["torus"]
    waves = waves_on(domain)
    coords, weights = (part.double() for part in domain.grid(16, 16))
    weights = torch.where(coords[:, 0] < 0.5, weights, 0.0)
    transform = fit_transform(waves, waves.positions(coords[None]), weights[None] / weights.sum())
    tokens = transform.tokens(transform.analyse(torch.randn(256, 1, 50, dtype=torch.double)))
    assert transform.synthesise(tokens).abs().max() < 20
    smooth = torch.sin(2 * math.pi * coords[:, :1])[:, None]
    recovered = transform.synthesise(transform.tokens(transform.analyse(smooth)))
    error = (recovered - smooth)[coords[:, 0] < 0.5]
    assert error.abs().max() < 0.05


def test_few_sites_give_long_waves_as_well_as_many():
    """Random sites, hardly more than there are functions, and a field of long waves."""
    domain = DOMAINS["torus"]
    waves = waves_on(domain, 6)
    coords = domain.grid(14, 14)[0].double()
    long = waves.vectors.norm(dim=-1) < 2.5
    tokens = torch.randn(2, waves.num_modes, 1, 1, dtype=torch.double) * long[:, None, None]
    tokens[1, waves.vectors.norm(dim=-1) == 0] = 0
    chosen = torch.randperm(196, generator=torch.Generator().manual_seed(0))[:172]
    weights = torch.full((1, 172), 1 / 172, dtype=torch.double)
    some = fit_transform(waves, waves.positions(coords[None, chosen]), weights)
    assert isinstance(some, PointTransform)
    recovered = some.analyse(some.synthesise(tokens))
    error = (
        on_all_sites(waves, coords, recovered - tokens).norm()
        / on_all_sites(waves, coords, tokens).norm()
    )
    assert error < 0.01, error


def test_on_a_grid_that_is_too_coarse_the_longer_of_two_waves_is_taken():
    """Five waves and three look alike at eight sites."""
    circle = DOMAINS["circle"]
    waves = waves_on(circle, 6)
    positions = torch.arange(8, dtype=torch.double).reshape(1, 8, 1) / 8
    transform = fit_transform(waves, positions, torch.full((1, 8), 1 / 8, dtype=torch.double))
    tokens = transform.analyse(torch.cos(2 * math.pi * 3 * positions[0])[..., None])[0, :, 0, 0]
    assert tokens[3] > 0.9 * 0.5
    assert tokens[5].abs() < 0.1 * 0.5


def test_a_patch_may_lie_anywhere():
    for west, east, south, north in ((170, 200, -30, 10), (-40, 40, 50, 89), (80, 100, -90, -60)):
        longitude, latitude = torch.linspace(west, east, 9), torch.linspace(south, north, 9)
        points = torch.cartesian_prod(latitude, longitude).double()
        domain = Domain.sphere(unit_vectors(points[:, 1], points[:, 0]))
        positions = waves_on(domain).positions(unit_vectors(points[:, 1], points[:, 0])[None])
        # A pole has every longitude.
        positions = positions[:, points[:, 0].abs() < 90]
        assert positions.min() > -1e-4, (west, positions.min())
        assert positions.max() < 1 + 1e-4, (west, positions.max())


@pytest.mark.parametrize("shape", [(33, 49), (72, 144)])
def test_latitudes_and_longitudes_are_a_grid_whatever_their_rounding(shape):
    latitude, longitude = torch.linspace(62, 48, shape[0]), torch.linspace(-13, 5, shape[1])
    points = torch.cartesian_prod(latitude, longitude)
    coords = unit_vectors(points[:, 1], points[:, 0])
    weights = points[:, 0].deg2rad().cos()
    domain = Domain.sphere(coords)
    waves = waves_on(domain)
    positions = waves.positions(coords[None])
    assert positions.min() > -1e-4
    assert positions.max() < 1 + 1e-4
    assert isinstance(fit_transform(waves, positions, weights[None] / weights.sum()), GridTransform)
