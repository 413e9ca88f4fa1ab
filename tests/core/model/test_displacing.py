"""Displacements that are not the model's own: one mechanism for every kind of site."""

import pytest
import torch

from gpo import Ablation
from tests.conftest import DOMAINS, make_model, random_points

STILL = Ablation(displacing=lambda layer, read: torch.zeros_like(read))


def sites_of(kind, domain):
    """Values, coordinates and weights of a grid, of a masked one, or of scattered points."""
    if kind == "points":
        coords = random_points(domain, 60)
        return torch.randn(2, 60, 2).double(), coords, None
    shape = (6, 8, 5)[: domain.dim - domain.is_sphere]
    coords, weights = (part.double() for part in domain.grid(*shape))
    if kind == "masked":
        # So many are masked that nothing is done there.
        weights = torch.where(torch.arange(len(weights)) % 3 == 0, 0.0, weights)
    return torch.randn(2, len(coords), 2).double(), coords, weights


@pytest.fixture(params=["grid", "masked", "points"])
def given(request, domain):
    model = make_model(domain, variant="geometric", num_waves=2, num_transports=2)
    values, coords, weights = sites_of(request.param, domain)
    return model, values, coords, weights


def answer(given, **settings):
    model, values, coords, weights = given
    with torch.no_grad():
        found = model(values, coords, weights=weights, **settings)
    return found if weights is None else found[:, weights > 0]


def test_a_model_given_its_own_displacements_answers_as_it_does(given):
    read = {}

    def keep(layer, own):
        read[layer] = own
        return own

    intact = answer(given)
    torch.testing.assert_close(answer(given, ablation=Ablation(displacing=keep)), intact)
    model, values, *_ = given
    config = model.config
    assert sorted(read) == [0, 1]
    shape = (values.shape[1], 2, config.num_gaussians, config.num_axes)
    assert {tuple(one.shape) for one in read.values()} == {shape}
    again = Ablation(displacing=lambda layer, _: read[layer])
    torch.testing.assert_close(answer(given, ablation=again), intact)


def test_particles_that_are_held_still_bring_what_ablated_ones_bring(given):
    none = Ablation(gaussians=frozenset(range(given[0].config.num_gaussians)))
    still, ablated = answer(given, ablation=STILL), answer(given, ablation=none)
    torch.testing.assert_close(still, ablated)
    assert (still - answer(given)).norm() > 1e-6


def test_particles_are_seen_where_they_are_put():
    domain = DOMAINS["torus"]
    model = make_model(domain, variant="geometric", num_layers=1, num_waves=2)
    coords, weights = (part.double() for part in domain.grid(8, 8))
    values = torch.randn(1, 64, 2).double()
    way = torch.tensor([0.1, -0.05], dtype=torch.double)
    ablation = Ablation(displacing=lambda layer, read: way.expand_as(read))
    with torch.no_grad():
        (found,) = model.trace(values, coords, weights=weights, ablation=ablation).particles
    expected = (coords - way)[None, :, None].expand_as(found.centers)
    torch.testing.assert_close(found.centers, expected)


def test_what_becomes_of_displacements_does_not_depend_on_chunks():
    model = make_model(DOMAINS["square"], variant="geometric", num_waves=2)
    values, coords, _ = sites_of("points", DOMAINS["square"])
    shifted = Ablation(displacing=lambda layer, read: read.roll(1, dims=0))
    whole = answer((model, values, coords, None), ablation=shifted)
    model.chunk_size = 14
    torch.testing.assert_close(answer((model, values, coords, None), ablation=shifted), whole)


def test_without_gates_and_displacements_layers_leave_the_state_as_it_is(given):
    model = given[0]
    numbers = frozenset(range(model.config.num_layers))
    still = Ablation(gates=numbers, displacing=STILL.displacing)
    layers = Ablation(layers=numbers)
    torch.testing.assert_close(answer(given, ablation=still), answer(given, ablation=layers))
    only = answer(given, ablation=Ablation(gates=numbers))
    assert (only - answer(given, ablation=layers)).norm() > 1e-6


def test_a_query_at_a_site_is_the_site_without_gates_too():
    domain = DOMAINS["torus"]
    model = make_model(domain, variant="geometric", num_waves=2)
    values, coords, weights = sites_of("grid", domain)
    ablation = Ablation(gates=frozenset({1}), displacing=STILL.displacing)
    with torch.no_grad():
        at_sites = model(values, coords, weights=weights, ablation=ablation)
        asked = model(values, coords, weights=weights, queries=coords[::5], ablation=ablation)
    torch.testing.assert_close(asked, at_sites[:, ::5])


@pytest.mark.parametrize("ablation", [STILL, Ablation(gates=frozenset({0}))], ids=["still", "gate"])
def test_the_papers_variant_has_neither_gates_nor_motion(ablation):
    model = make_model(DOMAINS["torus"])
    values, coords, weights = sites_of("grid", DOMAINS["torus"])
    with pytest.raises(ValueError, match="must be left out in the paper's variant"):
        model(values, coords, weights=weights, ablation=ablation)


def test_a_gate_that_is_not_there_is_named():
    model = make_model(DOMAINS["torus"], variant="geometric")
    values, coords, weights = sites_of("grid", DOMAINS["torus"])
    with pytest.raises(ValueError, match=r"`ablation.gates` must be from 0 to 1, got 2"):
        model(values, coords, weights=weights, ablation=Ablation(gates=frozenset({2})))
