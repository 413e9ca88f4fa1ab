"""Masked sites of a grid are left out where many are: answers stay the same."""

import pytest
import torch

from gpo import Domain
from gpo.model.ablation import Ablation
from gpo.transforms import site_geometry
from gpo.transforms.transform import MaskedGridTransform
from tests.conftest import DOMAINS, make_model

DOUBLE = torch.double
DOMAIN_NAMES = ("torus", "channel", "cube")


def masked_problem(name):
    """A model, and fields on a grid a third of which is land."""
    torch.manual_seed(5)
    domain: Domain = DOMAINS[name]
    model = make_model(domain, variant="geometric", num_waves=2)
    shape = (6, 5, 7)[: domain.dim] if domain.dim == 3 else (9, 8)
    coords, weights = (part.double() for part in domain.grid(*shape))
    weights = torch.where(torch.rand(len(weights)) < 0.35, 0.0, weights)
    # Two lines on land, so that a chunk holds nothing.
    weights[: 2 * len(weights) // shape[0]] = 0
    values = torch.randn(2, len(coords), 2, dtype=DOUBLE, requires_grad=True)
    return model, values, coords, weights


def answers(model, values, coords, weights, queries):
    """The field where sites count, that at queries, and the gradients of both by all parameters."""
    field = model(values, coords, weights=weights)[:, weights > 0]
    asked = model(values, coords, weights=weights, queries=queries)
    loss = field.sin().sum() + asked.sin().sum()
    return [field, asked, *torch.autograd.grad(loss, [values, *model.parameters()])]


@pytest.mark.parametrize("chunk_size", [None, 20])
@pytest.mark.parametrize("name", DOMAIN_NAMES)
def test_leaving_out_masked_sites_changes_no_answer(name, chunk_size, monkeypatch):
    model, values, coords, weights = masked_problem(name)
    queries = coords[weights > 0][:7] + 0.01
    monkeypatch.setattr(site_geometry, "MANY_COUNTED", 0.0)
    expected = answers(model, values, coords, weights, queries)
    assert model.chunker.geometry._last.geometry.counted is None
    monkeypatch.undo()
    model.chunker.geometry._last, model.chunk_size = None, chunk_size
    found = answers(model, values, coords, weights, queries)
    counted = model.chunker.geometry._last.geometry.counted
    assert torch.equal(counted.index, (weights > 0).nonzero().flatten())
    assert isinstance(counted.geometry.transform, MaskedGridTransform)
    for actual, reference in zip(found, expected, strict=True):
        torch.testing.assert_close(actual, reference, rtol=1e-9, atol=1e-11)


def test_nothing_is_answered_at_sites_that_are_left_out():
    model, values, coords, weights = masked_problem("torus")
    assert (model(values, coords, weights=weights)[:, weights == 0] == 0).all()


def test_traces_and_ablated_sites_agree_with_answers_where_sites_are_left_out():
    model, values, coords, weights = masked_problem("torus")
    counted = weights > 0
    answer = model(values, coords, weights=weights)[:, counted]
    trace = model.trace(values, coords, weights=weights)
    torch.testing.assert_close(trace.output[:, counted], answer)
    nothing = Ablation(sites=frozenset({int((~counted).nonzero()[0])}))
    ablated = model(values, coords, weights=weights, ablation=nothing)
    torch.testing.assert_close(ablated[:, counted], answer)
