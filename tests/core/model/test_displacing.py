"""Displacements that are replaced from outside: one mechanism for every kind of site."""

import pytest
import torch

from gpo import Ablation
from gpo.model.scales import MULTILINEAR
from tests.conftest import DOMAINS, make_model, random_points

ZERO = Ablation(displacing=lambda layer, own: torch.zeros_like(own))


def sites_of(kind, domain):
    """Values, coordinates and weights of a grid, of a masked one, or of unstructured points."""
    if kind == "points":
        coords = random_points(domain, 60)
        return torch.randn(2, 60, 2).double(), coords, None
    shape = (6, 8, 5)[: domain.dim - domain.is_sphere]
    coords, weights = (part.double() for part in domain.grid(*shape))
    if kind == "masked":
        # So many that masked sites are left out.
        weights = torch.where(torch.arange(len(weights)) % 3 == 0, 0.0, weights)
    return torch.randn(2, len(coords), 2).double(), coords, weights


@pytest.fixture(params=["grid", "masked", "points"])
def inputs(request, domain):
    model = make_model(domain, variant="waves", num_waves=2, num_transports=2)
    values, coords, weights = sites_of(request.param, domain)
    return model, values, coords, weights


def without_scales(inputs):
    """The same with the multilinear kernel: particles without displacement do not diffuse."""
    for number in inputs[0].transports:
        inputs[0].layers[number].log_scale.data.fill_(MULTILINEAR)
    return inputs


def predict(inputs, ablation=Ablation()):
    model, values, coords, weights = inputs
    with torch.no_grad(), ablation.applied(model):
        output = model(values, coords, weights=weights)
    return output if weights is None else output[:, weights > 0]


def test_a_models_own_displacements_give_its_own_output(inputs):
    displacements = {}

    def keep(layer, own):
        displacements[layer] = own
        return own

    intact = predict(inputs)
    torch.testing.assert_close(predict(inputs, Ablation(displacing=keep)), intact)
    model, values, *_ = inputs
    assert sorted(displacements) == [0, 1]
    shape = (values.shape[1], 2, model.config.num_gaussians, model.problem.num_axes)
    assert {tuple(own.shape) for own in displacements.values()} == {shape}
    again = Ablation(displacing=lambda layer, _: displacements[layer])
    torch.testing.assert_close(predict(inputs, again), intact)


def test_particles_without_displacement_contribute_as_much_as_ablated_ones(inputs):
    inputs = without_scales(inputs)
    none = Ablation(gaussians=frozenset(range(inputs[0].config.num_gaussians)))
    at_rest, ablated = predict(inputs, ZERO), predict(inputs, none)
    torch.testing.assert_close(at_rest, ablated)
    assert (at_rest - predict(inputs)).norm() > 1e-6


def test_particles_have_the_displacements_that_replace_their_own():
    domain = DOMAINS["torus"]
    model = make_model(domain, variant="waves", num_layers=1, num_waves=2)
    coords, weights = (part.double() for part in domain.grid(8, 8))
    values = torch.randn(1, 64, 2).double()
    way = torch.tensor([0.1, -0.05], dtype=torch.double)
    ablation = Ablation(displacing=lambda layer, own: way.expand_as(own))
    with torch.no_grad(), ablation.applied(model):
        (particles,) = model.trace(values, coords, weights=weights).particles
    expected = (coords - way)[None, :, None].expand_as(particles.centers)
    torch.testing.assert_close(particles.centers, expected)


def test_replaced_displacements_do_not_depend_on_chunks():
    model = make_model(DOMAINS["square"], variant="waves", num_waves=2)
    values, coords, _ = sites_of("points", DOMAINS["square"])
    shifted = Ablation(displacing=lambda layer, own: own.roll(1, dims=0))
    whole = predict((model, values, coords, None), shifted)
    model.execution.chunk_size = 14
    torch.testing.assert_close(predict((model, values, coords, None), shifted), whole)


def test_without_gates_and_displacements_layers_leave_the_state_as_it_is(inputs):
    inputs = without_scales(inputs)
    model = inputs[0]
    numbers = frozenset(range(model.config.num_layers))
    neither = predict(inputs, Ablation(gates=numbers, displacing=ZERO.displacing))
    without_layers = predict(inputs, Ablation(layers=numbers))
    torch.testing.assert_close(neither, without_layers)
    only_transport = predict(inputs, Ablation(gates=numbers))
    assert (only_transport - without_layers).norm() > 1e-6


def test_a_query_at_a_site_is_the_site_without_gates_too():
    domain = DOMAINS["torus"]
    model = make_model(domain, variant="waves", num_waves=2)
    values, coords, weights = sites_of("grid", domain)
    ablation = Ablation(gates=frozenset({1}), displacing=ZERO.displacing)
    with torch.no_grad(), ablation.applied(model):
        at_sites = model(values, coords, weights=weights)
        at_queries = model(values, coords, weights=weights, queries=coords[::5])
    torch.testing.assert_close(at_queries, at_sites[:, ::5])


@pytest.mark.parametrize("ablation", [ZERO, Ablation(gates=frozenset({0}))], ids=["zero", "gate"])
def test_the_papers_operator_has_neither_gates_nor_displacements(ablation):
    model = make_model(DOMAINS["torus"])
    with (
        pytest.raises(ValueError, match="must be left out in the paper's operator"),
        ablation.applied(model),
    ):
        pass


def test_a_gate_that_is_not_there_is_named():
    model = make_model(DOMAINS["torus"], variant="waves")
    with (
        pytest.raises(ValueError, match=r"`ablation.gates` must be from 0 to 1, got 2"),
        Ablation(gates=frozenset({2})).applied(model),
    ):
        pass
