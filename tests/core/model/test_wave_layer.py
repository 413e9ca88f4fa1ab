"""The default operator: its layers of waves, and what they do not depend on."""

import math

import pytest
import torch

from gpo import Domain, GaussianParticleOperator, OperatorConfig, Problem, unit_vectors
from gpo.model.features import describe_points
from gpo.model.mode_filter import LR_MULTIPLIER, ModeFilter
from gpo.numerics.products import BoundedUpdate
from gpo.transforms.transform import GridTransform
from tests.conftest import DOMAINS, make_model, random_points

CHANGES = {"variant": "waves", "num_waves": 3}
PLANES = {name: DOMAINS[name] for name in ("square", "torus", "channel")}


def fields(coords, domain, channels=2):
    """Smooth fields: a few long waves of the domain itself."""
    unit = domain.embed(coords)
    return torch.stack([torch.sin(2 * unit.sum(-1) + shift) for shift in range(channels)], -1)


def test_axes_may_have_waves_of_their_own():
    model = make_model(DOMAINS["torus"], **{**CHANGES, "num_waves": (2, 5)})
    numbers = model.waves.numbers
    assert [int(axis.max()) for axis in numbers] == [2, 5]
    coords, weights = DOMAINS["torus"].grid(12, 14)
    values = torch.randn(1, 168, 2, dtype=torch.double)
    assert model(values, coords, weights=weights).shape[:2] == (1, 168)
    with pytest.raises(ValueError, match=r"one for each of the 2 axes, got \(2, 5, 3\)"):
        make_model(DOMAINS["torus"], **{**CHANGES, "num_waves": (2, 5, 3)})


@pytest.mark.parametrize("name", PLANES)
def test_a_grid_and_the_same_sites_as_points_agree_on_smooth_fields(name):
    domain = PLANES[name]
    model = make_model(domain, **CHANGES)
    coords, weights = (part.double() for part in domain.grid(14, 13))
    values = fields(coords, domain)[None]
    on_grid = model(values, coords, weights=weights)
    extra = domain.from_unit(torch.tensor([[0.33, 0.77]], dtype=torch.double))
    outside = torch.cat([coords, extra]), torch.cat([weights, weights.new_zeros(1)])
    padded = torch.cat([values, values[:, :1]], 1)
    as_points = model(padded, outside[0], weights=outside[1])[:, :-1]
    error = (as_points - on_grid).norm() / on_grid.norm()
    assert error < (1e-5 if name == "torus" else 0.02), error


@pytest.mark.parametrize("name", DOMAINS)
def test_sites_may_come_in_any_order(name):
    domain = DOMAINS[name]
    model = make_model(domain, **CHANGES)
    coords, values = random_points(domain, 500), torch.randn(2, 500, 2, dtype=torch.double)
    order = torch.randperm(500)
    straight = model(values, coords)[:, order]
    torch.testing.assert_close(model(values[:, order], coords[order]), straight)


def test_nodes_of_a_grid_may_come_in_any_order():
    domain = DOMAINS["channel"]
    model = make_model(domain, **CHANGES)
    coords, weights = (part.double() for part in domain.grid(9, 8))
    values, order = torch.randn(1, 72, 2, dtype=torch.double), torch.randperm(72)
    straight = model(values, coords, weights=weights)[:, order]
    torch.testing.assert_close(
        model(values[:, order], coords[order], weights=weights[order]), straight
    )
    assert isinstance(model.execution.cache._last.geometry.transform, GridTransform)


@pytest.mark.parametrize("name", DOMAINS)
def test_masked_sites_change_nothing(name):
    domain = DOMAINS[name]
    model = make_model(domain, **CHANGES)
    coords, values = random_points(domain, 40), torch.randn(2, 40, 2, dtype=torch.double)
    weights = torch.rand(40, dtype=torch.double)
    weights[30:] = 0
    other = values.clone()
    other[:, 30:] = 7.0
    first, second = (model(part, coords, weights=weights)[:, :30] for part in (values, other))
    torch.testing.assert_close(first, second)
    alone = model(values[:, :30], coords[:30], weights=weights[:30])
    torch.testing.assert_close(first, alone)


@pytest.mark.parametrize("name", DOMAINS)
def test_a_site_doubled_at_half_its_weight_changes_nothing(name):
    domain = DOMAINS[name]
    model = make_model(domain, **CHANGES)
    coords, values = random_points(domain, 500), torch.randn(1, 500, 2, dtype=torch.double)
    weights = 0.5 + torch.rand(500, dtype=torch.double)
    halved = weights.clone()
    halved[:3] /= 2
    twice = torch.cat([torch.arange(500), torch.arange(3)])
    doubled = model(values[:, twice], coords[twice], weights=halved[twice])
    torch.testing.assert_close(doubled[:, :500], model(values, coords, weights=weights))


def test_masked_nodes_of_a_grid_change_nothing():
    domain = DOMAINS["torus"]
    model = make_model(domain, **CHANGES)
    coords, weights = (part.double() for part in domain.grid(8, 8))
    weights[::3] = 0
    values = torch.randn(1, 64, 2, dtype=torch.double)
    other = torch.where(weights[:, None] > 0, values, 9.0)
    first, second = (model(part, coords, weights=weights) for part in (values, other))
    torch.testing.assert_close(first[:, weights > 0], second[:, weights > 0])


@pytest.mark.parametrize("name", DOMAINS)
def test_queries_do_not_change_each_other_and_sites_are_queries(name):
    domain = DOMAINS[name]
    model = make_model(domain, **CHANGES)
    coords, values = random_points(domain, 40), torch.randn(2, 40, 2, dtype=torch.double)
    torch.testing.assert_close(model(values, coords, queries=coords), model(values, coords))
    queries = random_points(domain, 9)
    together = model(values, coords, queries=queries)
    torch.testing.assert_close(model(values, coords, queries=queries[4:5]), together[:, 4:5])


def test_samples_with_sites_of_their_own_do_not_change_each_other():
    domain = DOMAINS["torus"]
    model = make_model(domain, **CHANGES)
    coords = random_points(domain, 3, 40)
    values = torch.randn(3, 40, 2, dtype=torch.double)
    together = model(values, coords)
    for number in range(3):
        alone = model(values[number : number + 1], coords[number : number + 1])
        torch.testing.assert_close(together[number : number + 1], alone)


def test_a_translated_field_is_translated():
    """Without position features, a model on a periodic grid commutes with translations."""
    domain = Domain.unit_box(2, periodic=True)
    model = make_model(domain, **CHANGES, features="none")
    coords, weights = (part.double() for part in domain.grid(8, 8))
    values = torch.randn(1, 8, 8, 2, dtype=torch.double)
    moved = values.roll((3, 5), (1, 2))
    first = model(values.flatten(1, 2), coords, weights=weights).unflatten(1, (8, 8))
    second = model(moved.flatten(1, 2), coords, weights=weights).unflatten(1, (8, 8))
    torch.testing.assert_close(first.roll((3, 5), (1, 2)), second)


@pytest.mark.parametrize("features", ["fourier", "mlp", "none"])
@pytest.mark.parametrize("name", ["torus", "channel"])
def test_only_features_depend_on_the_position_along_a_periodic_axis(name, features):
    """Without them, the output moves with a field along a periodic axis."""
    domain = DOMAINS[name]
    model = make_model(domain, **CHANGES, features=features)
    coords, weights = (part.double() for part in domain.grid(8, 9))
    values = torch.randn(1, 8, 9, 2, dtype=torch.double)

    def predict(field):
        return model(field.flatten(1, 2), coords, weights=weights).unflatten(1, (8, 9))

    difference = predict(values).roll(3, 1) - predict(values.roll(3, 1))
    assert (difference.abs().max() < 1e-12) == (features == "none")


def test_doubling_the_resolution_of_a_smooth_field_changes_little():
    domain = Domain.unit_box(2, periodic=True)
    model = make_model(domain, **CHANGES)
    outputs = []
    for size in (16, 32):
        coords, weights = (part.double() for part in domain.grid(size, size))
        output = model(fields(coords, domain)[None], coords, weights=weights)
        step = size // 16
        outputs.append(output.unflatten(1, (size, size))[:, ::step, ::step])
    assert (outputs[0] - outputs[1]).norm() < 0.02 * outputs[0].norm()


def test_a_body_fitted_mesh_has_its_waves_on_its_indices():
    domain = DOMAINS["square"]
    model = make_model(domain, **CHANGES, mesh_shape=(6, 5))
    coords, values = random_points(domain, 2, 30), torch.randn(2, 30, 2, dtype=torch.double)
    model(values, coords)
    assert isinstance(model.execution.cache._last.geometry.transform, GridTransform)
    torch.testing.assert_close(
        model(values, coords, queries=coords), model(values, coords), rtol=1e-6, atol=1e-9
    )
    with pytest.raises(ValueError, match="must be the 6 x 5 nodes of the mesh"):
        model(values[:, :29], coords[:, :29])


def test_a_layer_is_its_equation():
    domain = DOMAINS["torus"]
    model = make_model(domain, **CHANGES, num_layers=1, num_transports=0)
    coords, weights = (part.double() for part in domain.grid(7, 7))
    values = torch.randn(1, 49, 2, dtype=torch.double)
    trace = model.trace(values, coords, weights=weights)
    layer, before = model.layers[0], trace.states[0][0]
    tokens = torch.complex(*trace.tokens[0][:, :, 0])
    response = torch.complex(*layer.filter.transfer())
    filtered = response * (tokens @ layer.filter.mix.to(tokens))
    waves = model.waves
    phase = 2 * math.pi * waves.positions(coords) @ waves.vectors.double().T
    functions = waves.multiplicities.double() * torch.exp(1j * phase)
    gate, carried = ((functions @ filtered).real + before @ layer.local).chunk(2, -1)
    after = before + (gate.tanh() * carried) @ layer.out
    torch.testing.assert_close(trace.states[1][0], after)
    torch.testing.assert_close(trace.output, model.decoder.layers(trace.states[1]))


def test_a_filter_is_its_packets_in_a_gaussian():
    """One packet in the middle: its neighbours have a Gaussian of it, in both parts."""
    filters = ModeFilter((9, 7), 3, 5, (0.4, 0.6)).double()
    with torch.no_grad():
        filters.packets.zero_()
        filters.packets[1, 0, 4 * 7 + 3] = 1.0
    real, imaginary = filters.transfer().reshape(2, 9, 7, 5)
    assert imaginary.abs().max() == 0
    assert real[..., [0, 2, 3, 4]].abs().max() == 0
    gaussian = real[..., 1] / real[4, 3, 1]
    squares = (torch.arange(9) - 4)[:, None] ** 2 + (torch.arange(7) - 3) ** 2
    # Rows at the ends have less than a whole Gaussian and are scaled up to length one.
    torch.testing.assert_close(
        gaussian[2:7, 2:5],
        torch.exp(-squares / (2 * 0.6**2))[2:7, 2:5].double(),
        rtol=1e-2,
        atol=0,
    )


def test_a_model_that_was_saved_has_its_filters(tmp_path):
    model = make_model(DOMAINS["torus"], **CHANGES)
    model.save_pretrained(tmp_path)
    again = GaussianParticleOperator.from_pretrained(tmp_path)
    values, (coords, weights) = torch.randn(1, 64, 2), DOMAINS["torus"].grid(8, 8)
    expected = model.float()(values, coords, weights=weights)
    torch.testing.assert_close(again.float()(values, coords, weights=weights), expected)


def test_filters_begin_as_large_as_if_modes_were_alone():
    filters = ModeFilter((25, 13), 32, 64, (0.4, 0.6, 1.0, 1.6))
    spread = (filters.transfer().std() / (LR_MULTIPLIER * filters.packets.std())).item()
    assert spread == pytest.approx(1, abs=0.05)


@pytest.mark.parametrize("name", DOMAINS)
def test_gradients_reach_every_parameter(name):
    domain = DOMAINS[name]
    model = make_model(domain, **CHANGES)
    model(
        torch.randn(2, 40, 2, dtype=torch.double), random_points(domain, 40)
    ).square().sum().backward()
    assert all(part.grad is not None and part.grad.abs().sum() > 0 for part in model.parameters())


def test_the_number_of_waves_suits_the_dimension():
    counts = {}
    for dim in (1, 2, 3):
        problem = Problem(1, 1, Domain.unit_box(dim))
        counts[dim] = GaussianParticleOperator(problem, OperatorConfig()).num_modes
    assert counts == {1: 33, 2: 17 * 9, 3: 9 * 9 * 5}
    sphere = GaussianParticleOperator(Problem(1, 1, Domain.sphere()), OperatorConfig())
    assert sphere.num_modes == 17 * 9
    assert sphere.num_parameters < 120_000


def test_a_geometry_that_was_found_in_inference_mode_serves_in_training():
    domain = DOMAINS["torus"]
    model = make_model(domain, **CHANGES)
    coords, values = random_points(domain, 40), torch.randn(3, 40, 2, dtype=torch.double)
    with torch.inference_mode():
        model(values, coords)
    fitted = model.execution.cache._last
    model(values[:2], coords).sum().backward()
    assert model.execution.cache._last is fitted, "another number of samples has the same sites"
    model.float()(values.float(), coords.float())
    assert model.execution.cache._last is not fitted


def test_the_bounded_update_has_the_derivative_of_tanh():
    state, fields, out = (
        torch.randn(*shape, dtype=torch.double, requires_grad=True)
        for shape in ((5, 2, 3), (5, 2, 6), (3, 3))
    )
    gate, carried = fields.chunk(2, dim=-1)
    expected = state + (torch.tanh(gate) * carried) @ out
    torch.testing.assert_close(BoundedUpdate.apply(state, fields, out), expected)
    assert torch.autograd.gradcheck(BoundedUpdate.apply, (state, fields, out))


def test_a_globe_from_north_to_south_is_a_grid_in_order():
    """Files begin at the north pole and at longitude 0, or at -180."""
    domain = Domain.sphere()
    model = make_model(domain, **CHANGES)
    north_to_south = torch.linspace(90, -90, 9, dtype=torch.double)
    for first in (0, -180):
        longitudes = first + torch.arange(12, dtype=torch.double) * 30
        degrees = torch.cartesian_prod(north_to_south, longitudes)
        coords = unit_vectors(degrees[:, 1], degrees[:, 0]).float()
        model.float()(torch.randn(1, 108, 2), coords)
        transform = model.execution.cache._last.geometry.transform
        assert transform.shape == (9, 12)
        assert transform.order is None


def test_sites_that_samples_share_are_described_once():
    model = make_model(DOMAINS["square"], **CHANGES)
    coords, values = random_points(DOMAINS["square"], 30), torch.randn(2, 30, 2, dtype=torch.double)
    features, lift = model.lift.features, model.lift.linear

    def describe(coords):
        return describe_points(features, values, model.sites(values, coords).geometry.coords)

    shared = describe(coords)
    for same in (coords.expand(2, -1, -1), torch.stack([coords, coords])):
        assert describe(same).position.shape[0] == shared.position.shape[0] == 1
    apart = describe(torch.stack([coords, coords.flip(0)]))
    assert apart.position.shape[0] == 2
    whole = torch.cat([values, shared.position.expand(2, -1, -1)], dim=-1)
    torch.testing.assert_close(shared.project(lift), lift(whole))
    torch.testing.assert_close(apart.project(lift)[:1], lift(whole)[:1])
