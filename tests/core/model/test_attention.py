"""The attention of the paper's operator, beside plain loops."""

from dataclasses import replace
from itertools import pairwise

import pytest
import torch
from torch.autograd import gradcheck

from gpo import Domain
from gpo.execution.geometry import GeometryCache, PointGeometry
from gpo.execution.points import Chunked, Sites
from gpo.model import attention
from gpo.model.attention import AttentionModes, Basis, GaussianAttention, means, renormalise
from gpo.numerics.neighbours import NeighbourSearch
from tests.conftest import make_config, make_model, make_problem, random_points
from tests.core.model.reference import reference_basis, reference_layer, reference_operator

VARIANTS = {
    "default": {},
    "softplus": {"readout": "softplus"},
    "learned-mixing": {"learns_mixing": True, "mixing": 0.3},
    "no-renormalisation": {"renormalises": False},
    "displacement": {"centers": "displacement"},
    "nearest-images": {"nearest_images": True, "integer_frequencies": True},
    "no-gaussian-field": {"has_gaussian_field": False},
    "layer-norm": {"layer_norm": True},
    "sharp": {"temperature": 0.2},
    "learned-temperature": {"temperature": 0.5, "learns_temperature": True},
    "placed-windows": {"places_windows": True, "input_coordinates": True},
    "named-modes": {"names_modes": True},
    "shared-windows": {"shares_windows": True},
    "biases": {"has_biases": True},
    "token-network": {"token_width": 12},
    "coordinates": {"input_coordinates": True, "features": "none"},
    "learned-features": {"features": "mlp"},
    "shared-layers": {"share_layers": True},
}
VARIANTS["all"] = {
    name: value
    for key, changes in VARIANTS.items()
    if key not in ("no-gaussian-field", "coordinates", "learned-features")
    for name, value in changes.items()
} | {"input_coordinates": True}


def points_first(field):
    """States have points first, then samples."""
    return field.transpose(0, 1)


def sites_with(weights):
    """Sites of which nothing is used but their weights."""
    domain, coords = Domain.unit_box(1), weights.unsqueeze(-1)
    cache = GeometryCache(None, NeighbourSearch(domain, 1), num_nodes=None)
    return Sites(coords, PointGeometry(coords, weights), domain, cache, weights.dtype)


def apply(layer, basis, descriptor, weights):
    """A layer on all sites at once; its output, samples first, and its modes."""
    state = Chunked([Basis(points_first(basis), points_first(descriptor))])
    sites = sites_with(weights)
    modes = layer.couple(state, sites)
    (updated,) = sites.map(layer.update, state, modes)
    return points_first(updated.values), modes


def measure(windows, basis, weights):
    """What windows measure of a basis; everything samples first."""
    state = Basis(points_first(basis), points_first(basis[..., :0]))
    (points,) = sites_with(weights).chunks
    return attention.measure(state, points, windows.permute(2, 0, 1, 3))


def evaluate(windows, fields):
    """What modes make at points through windows: the update of a layer that keeps nothing else."""
    config = make_config(mixing=1.0, renormalises=False)
    layer = GaussianAttention(make_problem(Domain.unit_box(2)), config)
    weights = windows[:, 0, :, 0].detach()
    nothing = weights.new_zeros(*weights.shape, fields.shape[-1])
    state = Basis(points_first(nothing), points_first(nothing[..., :0]))
    modes = AttentionModes(fields, fields @ fields.mT, fields, fields, windows.permute(2, 0, 1, 3))
    (points,) = sites_with(weights).chunks
    return points_first(layer.update(state, points, modes).values)


def encoded(model, num_sites=7):
    """Sites, basis, descriptor and weights of one random field."""
    coords = random_points(model.problem.domain, 1, num_sites)
    values = torch.randn(1, num_sites, 2, dtype=torch.float64)
    (state,) = model.run(model.sites(values, coords), num_layers=0).state
    weights = torch.rand(1, num_sites, dtype=torch.float64)
    basis, descriptor = points_first(state.values), points_first(state.descriptor)
    return coords, values, basis, descriptor, weights / weights.sum()


@pytest.mark.parametrize("nearest_images", [False, True])
def test_basis_equals_the_plain_loop(domain, nearest_images):
    model = make_model(domain, nearest_images=nearest_images)
    coords, values, basis, descriptor, _ = encoded(model)
    (particles,) = model.particles(values, coords)
    measured = domain if nearest_images else replace(domain, periodic=(False,) * domain.dim)
    expected = reference_basis(particles, coords[0], measured)
    torch.testing.assert_close(basis[0], expected, rtol=1e-12, atol=1e-14)
    if not nearest_images:
        num_gaussians = basis.shape[-1]
        assert basis.shape[-1] + descriptor.shape[-1] == num_gaussians * (2 * domain.dim + 2)


@pytest.mark.parametrize("changes", VARIANTS.values(), ids=VARIANTS.keys())
def test_attention_equals_the_plain_loop_forward_and_backward(domain, changes):
    model = make_model(domain, num_layers=1, **changes)
    layer = model.layers[0]
    _, _, basis, descriptor, weights = encoded(model)
    basis, descriptor = basis.detach().requires_grad_(), descriptor.detach().requires_grad_()
    direction = torch.randn_like(basis)
    inputs = [basis, descriptor, *layer.parameters()]

    fast, _ = apply(layer, basis, descriptor, weights)
    slow = reference_layer(layer, basis[0], descriptor[0], weights[0]).unsqueeze(0)
    torch.testing.assert_close(fast, slow, rtol=1e-10, atol=1e-12)
    gradients = torch.autograd.grad((fast * direction).sum(), inputs)
    expected = torch.autograd.grad((slow * direction).sum(), inputs)
    for gradient, reference in zip(gradients, expected, strict=True):
        torch.testing.assert_close(gradient, reference, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("changes", VARIANTS.values(), ids=VARIANTS.keys())
def test_the_operator_equals_plain_loops_from_values_to_prediction(domain, changes):
    model = make_model(domain, **changes)
    coords = random_points(domain, 1, 7)
    values = torch.randn(1, 7, 2, dtype=torch.float64)
    expected = reference_operator(model, make_config(**changes), values[0], coords[0])
    torch.testing.assert_close(model(values, coords)[0], expected, rtol=1e-10, atol=1e-12)


def test_a_layer_is_the_boxed_matrix_identity():
    r"""With one head and its coupling frozen, $\tilde Z = A K \bar A^T (Z W_z) W_{out}$."""
    model = make_model(
        Domain.unit_box(2), num_layers=1, num_heads=1,
        mixing=1.0, renormalises=False,
    )  # fmt: skip
    layer = model.layers[0]
    _, _, basis, descriptor, weights = encoded(model, num_sites=11)
    update, modes = apply(layer, basis, descriptor, weights)
    assignment = modes.windows[0][:, 0, 0]
    tested = weights[0, :, None] * assignment
    tested = tested / tested.sum(0)
    kernel, value = modes.coupling[0, 0], layer.coupling.query_key_value[2, 0]
    expected = (
        assignment @ kernel @ tested.T @ (basis[0] @ layer.project[0]) @ value @ layer.readout[0]
    )
    torch.testing.assert_close(update[0], expected, rtol=1e-10, atol=1e-12)


def test_mass_is_kept_by_every_layer(domain):
    model = make_model(domain, num_layers=5, readout="softplus")
    coords = random_points(domain, 2, 30)
    trace = model.trace(torch.randn(2, 30, 2, dtype=torch.float64), coords)
    mass = trace.states[0].sum(-1)
    for before, after in pairwise(trace.states):
        torch.testing.assert_close(after.sum(-1), mass, rtol=1e-12, atol=0)
        assert (after >= 0).all()
        assert not torch.allclose(after, before)


def test_the_linear_readout_keeps_mass_but_no_sign(domain):
    model = make_model(domain, num_layers=5)
    coords = random_points(domain, 2, 30)
    trace = model.trace(torch.randn(2, 30, 2, dtype=torch.float64), coords)
    size = trace.states[-1].abs().sum(-1)
    difference = (trace.states[-1].sum(-1) - trace.states[0].sum(-1)).abs()
    assert (difference <= 1e-10 * size).all()
    assert (trace.states[-1] < 0).any()


def test_windows_sum_to_one_over_modes_and_tests_to_one_over_sites(domain):
    model = make_model(domain)
    trace = model.trace(torch.randn(2, 30, 2, dtype=torch.float64), random_points(domain, 2, 30))
    weights = torch.rand(2, 30, dtype=torch.float64)
    for windows, coupling in zip(trace.windows, trace.couplings, strict=True):
        ones = torch.ones_like(windows[..., 0])
        torch.testing.assert_close(windows.sum(-1), ones)
        torch.testing.assert_close(coupling.sum(-1), torch.ones_like(coupling[..., 0]))
        # The mean of a constant over any window is that constant.
        constant = torch.ones(2, 30, 1, dtype=torch.float64)
        measured = means(measure(windows, constant, weights))
        torch.testing.assert_close(measured, torch.ones_like(measured), rtol=1e-12, atol=0)


def test_measurement_ignores_sampling_density():
    windows = torch.rand(1, 2, 6, 3, dtype=torch.float64)
    basis = torch.rand(1, 6, 4, dtype=torch.float64)
    weights = torch.rand(1, 6, dtype=torch.float64)
    moments = measure(windows, basis, weights)
    twice = measure(
        torch.cat([windows, windows], 2), torch.cat([basis, basis], 1), torch.cat([weights, weights], 1) / 2
    )  # fmt: skip
    torch.testing.assert_close(twice, moments, rtol=1e-12, atol=1e-14)


def test_evaluation_is_the_adjoint_of_the_unnormalised_measurement():
    windows = torch.rand(1, 2, 6, 3, dtype=torch.float64)
    basis = torch.randn(1, 6, 4, dtype=torch.float64)
    modes = torch.randn(1, 2, 3, 4, dtype=torch.float64)
    weights = torch.full((1, 6), 1 / 6, dtype=torch.float64)
    left = (measure(windows, basis, weights)[..., :-1] * modes).sum()
    right = (basis * evaluate(windows, modes)).sum() / 6
    torch.testing.assert_close(left, right)


def test_primitives_pass_gradcheck():
    windows = torch.rand(1, 2, 4, 3, dtype=torch.float64, requires_grad=True)
    basis = torch.rand(1, 4, 5, dtype=torch.float64, requires_grad=True)
    modes = torch.rand(1, 2, 3, 5, dtype=torch.float64, requires_grad=True)
    weights = torch.rand(1, 4, dtype=torch.float64, requires_grad=True)
    assert gradcheck(measure, (windows, basis, weights))
    assert gradcheck(evaluate, (windows, modes))
    assert gradcheck(renormalise, (basis, basis.detach() + 1))


def test_a_signed_readout_whose_rows_cancel_stays_finite():
    """The literal row renormalisation divides by a sum that can be zero."""
    problem = make_problem(Domain.unit_box(2))
    config = make_config(mixing=1.0, num_layers=8)
    layers = [GaussianAttention(problem, config) for _ in range(8)]
    basis, descriptor = torch.rand(1, 9, 5), torch.randn(1, 9, 25)
    weights = torch.full((1, 9), 1 / 9)
    for layer in layers:
        with torch.no_grad():
            layer.readout.sub_(layer.readout.mean(-1, keepdim=True))
        basis, _ = apply(layer, basis, descriptor, weights)
        assert basis.isfinite().all()


@pytest.mark.parametrize("total", [0.0, 1e-30, -1e-30])
def test_renormalisation_never_divides_by_zero(total):
    blended = torch.tensor([[[1.0, -1.0, total]]])
    assert renormalise(blended, torch.ones(1, 1, 3)).isfinite().all()


def test_shared_layers_are_one_operator_applied_repeatedly():
    model = make_model(Domain.unit_box(2), share_layers=True, num_layers=3)
    assert len(model.layers) == 1
    _, _, basis, descriptor, weights = encoded(model)
    expected = basis
    for _ in range(3):
        expected, _ = apply(model.layers[0], expected, descriptor, weights)
    actual = basis
    for layer in model.applied_layers:
        actual, _ = apply(layer, actual, descriptor, weights)
    assert len(model.applied_layers) == 3
    assert torch.equal(actual, expected)
