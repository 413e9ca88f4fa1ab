import math

import pytest
import torch

from gpo import Domain, GaussianParticleOperator
from gpo.model.encoder import REACH
from tests.conftest import DOMAINS, SEAMLESS, make_config, make_model, make_problem, random_points

NUM_SITES = 23


@pytest.fixture
def model(domain):
    return make_model(domain)


@pytest.fixture
def sample(domain):
    values = torch.randn(2, NUM_SITES, 2, dtype=torch.float64)
    weights = torch.rand(2, NUM_SITES, dtype=torch.float64) + 0.1
    return values, random_points(domain, 2, NUM_SITES), weights


def close(actual, expected):
    torch.testing.assert_close(actual, expected, rtol=1e-10, atol=1e-12)


def test_permuting_sites_permutes_the_output(model, sample):
    values, coords, weights = sample
    order = torch.randperm(NUM_SITES)
    permuted = model(values[:, order], coords[:, order], weights=weights[:, order])
    close(permuted, model(values, coords, weights=weights)[:, order])


def test_permuting_queries_permutes_the_output(model, sample, domain):
    values, coords, weights = sample
    queries, order = random_points(domain, 2, 9), torch.randperm(9)
    permuted = model(values, coords, weights=weights, queries=queries[:, order])
    close(permuted, model(values, coords, weights=weights, queries=queries)[:, order])


def test_the_output_at_a_query_does_not_depend_on_the_other_queries(model, sample, domain):
    values, coords, weights = sample
    queries = random_points(domain, 2, 9)
    together = model(values, coords, weights=weights, queries=queries)
    for m in range(9):
        alone = model(values, coords, weights=weights, queries=queries[:, m : m + 1])
        close(alone, together[:, m : m + 1])


@pytest.mark.parametrize("query_neighbours", [1, 8])
def test_queries_at_the_sites_reproduce_the_forward_pass(domain, sample, query_neighbours):
    values, coords, weights = sample
    model = make_model(domain, query_neighbours=query_neighbours)
    plain = model(values, coords, weights=weights)
    close(model(values, coords, weights=weights, queries=coords), plain)


def test_a_free_query_takes_particles_of_its_nearest_site_where_k_is_one(domain, sample):
    """The paper's rule: at a point, re-evaluate the particles of the site it belongs to."""
    values, coords, _ = sample
    model = make_model(domain, query_neighbours=1, num_layers=0, nearest_images=True)
    queries = random_points(domain, 2, 9)
    nearest = domain.offset(queries.unsqueeze(2), coords.unsqueeze(1)).norm(dim=-1).argmin(-1)
    (particles,) = model.particles(values, coords)
    for b in range(2):
        for m in range(9):
            j = nearest[b, m]
            offset = domain.offset(queries[b, m], particles.centers[b, j])
            kernel = torch.exp(-0.5 * (offset / particles.scales[b, j]).square().sum(-1))
            expected = model.decoder.layers((particles.weights[b, j] * kernel)[None, None])
            actual = model(values, coords, queries=queries)[b, m]
            close(actual, expected[0, 0])


def test_doubling_a_site_at_half_weight_changes_nothing(model, sample, domain):
    values, coords, weights = sample
    queries = random_points(domain, 2, 9)
    halved = weights.clone()
    halved[:, 4] /= 2
    doubled = (
        torch.cat([values, values[:, 4:5]], 1),
        torch.cat([coords, coords[:, 4:5]], 1),
        torch.cat([halved, halved[:, 4:5]], 1),
    )
    expected = model(values, coords, weights=weights)
    close(model(*doubled[:2], weights=doubled[2])[:, :NUM_SITES], expected)
    close(
        model(*doubled[:2], weights=doubled[2], queries=queries),
        model(values, coords, weights=weights, queries=queries),
    )


def test_masked_sites_change_nothing_even_with_nan(model, sample, domain):
    values, coords, weights = sample
    queries = random_points(domain, 2, 9)
    nans = torch.full((2, 5, 2), float("nan"), dtype=torch.float64)
    masked_coords = random_points(domain, 2, 5)
    masked_coords[:, 3:] = float("nan")
    padded = (torch.cat([nans, values], 1), torch.cat([masked_coords, coords], 1))
    masked = torch.cat([torch.zeros(2, 5, dtype=torch.float64), weights], 1)
    output = model(*padded, weights=masked)
    assert output.isfinite().all()
    close(output[:, 5:], model(values, coords, weights=weights))
    close(
        model(*padded, weights=masked, queries=queries),
        model(values, coords, weights=weights, queries=queries),
    )
    output.square().sum().backward()
    assert all(p.grad.isfinite().all() for p in model.parameters() if p.grad is not None)


def test_the_scale_of_the_weights_does_not_matter(model, sample):
    values, coords, weights = sample
    close(model(values, coords, weights=1e-9 * weights), model(values, coords, weights=weights))
    uniform = torch.full((NUM_SITES,), 7.0, dtype=torch.float64)
    close(model(values, coords, weights=uniform), model(values, coords))


def test_a_periodic_domain_has_no_seam(domain, sample):
    values, coords, weights = sample
    period = domain.unit_lengths(coords) * torch.tensor(domain.periodic)
    for changes in ({}, {"centers": "displacement"}, {"features": "mlp"}):
        model = make_model(domain, **SEAMLESS, **changes)
        queries = random_points(domain, 2, 9)
        close(
            model(values, coords + period, weights=weights, queries=queries - 2 * period),
            model(values, coords, weights=weights, queries=queries),
        )


def test_a_free_query_is_continuous_across_the_seam():
    domain = Domain.unit_box(2, periodic=True)
    model = make_model(domain, **SEAMLESS, centers="displacement")
    values = torch.randn(1, 60, 2, dtype=torch.float64)
    coords = random_points(domain, 1, 60)
    sides = torch.tensor([[1e-9, 0.4], [1 - 1e-9, 0.4]], dtype=torch.float64)
    left, right = model(values, coords, queries=sides)[0]
    torch.testing.assert_close(left, right, rtol=1e-5, atol=1e-6)


def test_shared_coordinates_are_those_of_every_sample(model, sample):
    values, coords, weights = sample
    shared = model(values, coords[0], weights=weights[0])
    close(shared, model(values, coords[:1].expand(2, -1, -1), weights=weights[:1].expand(2, -1)))


def test_a_displacement_encoder_commutes_with_translations():
    domain = Domain.unit_box(2, periodic=True)
    model = make_model(domain, centers="displacement", features="none")
    values = torch.randn(1, 30, 2, dtype=torch.float64)
    coords, shift = random_points(domain, 1, 30), torch.tensor([0.13, 0.71], dtype=torch.float64)
    (here,), (there,) = (model.particles(values, sites) for sites in (coords, coords + shift))
    close(there.centers, here.centers + shift)
    close(there.scales, here.scales)
    close(there.weights, here.weights)
    close(there.basis(coords + shift, domain), here.basis(coords, domain))


def test_particles_obey_the_papers_constraints(model, sample, domain):
    (particles,) = model.particles(*sample[:2])
    close(particles.weights.sum(-1), torch.ones(2, NUM_SITES, dtype=torch.float64))
    assert (particles.weights >= 0).all()
    assert (particles.scales > 0).all()
    if domain.is_sphere:
        close(particles.centers.norm(dim=-1), torch.ones(2, NUM_SITES, 5, dtype=torch.float64))


def test_a_trace_is_the_forward_pass(model, sample):
    values, coords, weights = sample
    trace = model.trace(values, coords, weights=weights)
    assert torch.equal(trace.output, model(values, coords, weights=weights))
    assert torch.equal(trace.particles[0].centers, model.particles(values, coords)[0].centers)
    assert len(trace.states) == 3
    assert trace.windows[0].shape == (2, 2, NUM_SITES, 5)
    assert trace.tokens[1].shape == (2, 2, 5, 4)
    assert trace.couplings[1].shape == (2, 2, 5, 5)


def test_coordinates_in_other_units_change_nothing():
    """A box in metres and the same box in kilometres are one model."""
    small, large = Domain.unit_box(2), Domain.box([1000, 0], [4000, 500])
    model, other = make_model(small), make_model(large)
    other.load_state_dict(model.state_dict())
    values, unit = torch.randn(1, 20, 2, dtype=torch.float64), random_points(small, 1, 20)
    close(other(values, large.from_unit(unit)), model(values, unit))
    scales = other.particles(values, large.from_unit(unit))[0].scales
    close(scales / torch.tensor([3000.0, 500.0]), model.particles(values, unit)[0].scales)


@pytest.mark.parametrize("query_neighbours", [1, 8])
def test_one_site_is_enough(domain, query_neighbours):
    model = make_model(domain, query_neighbours=query_neighbours)
    values, coords = torch.randn(2, 1, 2, dtype=torch.float64), random_points(domain, 2, 1)
    assert model(values, coords).shape == (2, 1, 3)
    assert model(values, coords, queries=random_points(domain, 2, 4)).isfinite().all()


def test_bfloat16_autocast_is_finite_and_close(domain):
    model = GaussianParticleOperator(make_problem(domain), make_config())
    values, coords = torch.randn(2, 40, 2), random_points(domain, 2, 40, dtype=torch.float32)
    queries = random_points(domain, 2, 4, dtype=torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        low = model(values, coords)
        assert model(values, coords, queries=queries).isfinite().all()
        low.float().square().mean().backward()
    torch.testing.assert_close(low.float(), model(values, coords), rtol=0.1, atol=0.1)
    assert all(p.grad.isfinite().all() for p in model.parameters() if p.grad is not None)


def test_a_model_in_half_the_precision_stays_in_it(domain):
    model = GaussianParticleOperator(make_problem(domain), make_config()).bfloat16()
    values = torch.randn(2, 40, 2, dtype=torch.bfloat16)
    coords, queries = (random_points(domain, 2, n, dtype=torch.float32) for n in (40, 5))
    assert model(values, coords).dtype == torch.bfloat16
    assert model(values, coords, queries=queries).isfinite().all()


def test_the_output_has_the_right_gradient_in_the_query(domain):
    model = make_model(domain, num_layers=1)
    values, coords = torch.randn(1, 12, 2).double(), random_points(domain, 1, 12)
    queries = random_points(domain, 1, 3)
    if domain.is_sphere:
        pytest.skip("a query off the sphere is brought back to it")
    queries.requires_grad_()
    assert torch.autograd.gradcheck(lambda q: model(values, coords, queries=q), queries)


def test_fourier_features_come_from_their_seed_alone():
    domain = Domain.unit_box(2)
    first = make_model(domain, fourier_seed=3).lift.encoder.features.frequencies
    torch.manual_seed(99)
    again = make_model(domain, fourier_seed=3).lift.encoder.features.frequencies
    other = make_model(domain, fourier_seed=4).lift.encoder.features.frequencies
    assert torch.equal(first, again)
    assert not torch.equal(first, other)


def test_a_model_without_particles_is_named_as_such(sample, domain):
    model = make_model(domain, has_gaussian_field=False)
    values, coords, weights = sample
    queries = random_points(domain, 2, 4)
    assert model(values, coords, weights=weights, queries=queries).shape == (2, 4, 3)
    with pytest.raises(ValueError, match="This model has no particles"):
        model.particles(values, coords)


def test_every_parameter_gets_a_gradient(domain, sample):
    values, coords, _ = sample
    for changes in (
        {},
        {"has_gaussian_field": False},
        {"learns_mixing": True},
        {"features": "mlp"},
    ):
        model = make_model(domain, **changes)
        model(values, coords).square().sum().backward()
        for name, parameter in model.named_parameters():
            assert parameter.grad is not None, name
            assert parameter.grad.abs().max() > 0, name


@pytest.mark.parametrize("name", ["square", "torus", "cube"])
def test_displaced_particles_reach_their_site(name):
    domain = DOMAINS[name]
    model = make_model(domain, centers="displacement")
    with torch.no_grad():
        model.lift.encoder.centers.out.weight.mul_(100)
    coords, values = random_points(domain, 40), 10 * torch.randn(1, 40, 2, dtype=torch.double)
    (particles,) = model.particles(values, coords)
    away = (particles.centers - coords[:, None]) / particles.scales
    assert away.abs().max() <= REACH + 1e-9
    assert away.abs().max() > 0.9 * REACH
    kernels = particles.basis(coords[None], domain) / particles.weights
    assert kernels.min() >= math.exp(-0.5 * domain.dim * REACH**2) - 1e-9
