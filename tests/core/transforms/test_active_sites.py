"""Masked sites of a grid are left out where there are many: the output stays the same."""

import pytest
import torch

from gpo import Ablation, Domain
from gpo.execution import geometry
from gpo.transforms.transform import MaskedGridTransform
from tests.conftest import DOMAINS, make_model

DOUBLE = torch.double
DOMAIN_NAMES = ("torus", "channel", "cube")


def masked_problem(name):
    """A model, and fields on a grid a third of which is masked."""
    torch.manual_seed(5)
    domain: Domain = DOMAINS[name]
    model = make_model(domain, variant="waves", num_waves=2)
    shape = (6, 5, 7)[: domain.dim] if domain.dim == 3 else (9, 8)
    coords, weights = (part.double() for part in domain.grid(*shape))
    weights = torch.where(torch.rand(len(weights)) < 0.35, 0.0, weights)
    # Two masked lines, so that a chunk holds no active site.
    weights[: 2 * len(weights) // shape[0]] = 0
    values = torch.randn(2, len(coords), 2, dtype=DOUBLE, requires_grad=True)
    return model, values, coords, weights


def outputs(model, values, coords, weights, queries):
    """The field at active sites, that at queries, and the gradients of both by all parameters."""
    field = model(values, coords, weights=weights)[:, weights > 0]
    at_queries = model(values, coords, weights=weights, queries=queries)
    loss = field.sin().sum() + at_queries.sin().sum()
    return [field, at_queries, *torch.autograd.grad(loss, [values, *model.parameters()])]


@pytest.mark.parametrize("chunk_size", [None, 20])
@pytest.mark.parametrize("name", DOMAIN_NAMES)
def test_leaving_out_masked_sites_does_not_change_the_output(name, chunk_size, monkeypatch):
    model, values, coords, weights = masked_problem(name)
    cache, queries = model.execution.cache, coords[weights > 0][:7] + 0.01
    monkeypatch.setattr(geometry, "MAX_ACTIVE_FRACTION", 0.0)
    expected = outputs(model, values, coords, weights, queries)
    assert cache._last.geometry.active is None
    monkeypatch.undo()
    cache._last, model.execution.chunk_size = None, chunk_size
    results = outputs(model, values, coords, weights, queries)
    active = cache._last.geometry.active
    assert torch.equal(active.index, (weights > 0).nonzero().flatten())
    assert isinstance(active.geometry.transform, MaskedGridTransform)
    for actual, reference in zip(results, expected, strict=True):
        torch.testing.assert_close(actual, reference, rtol=1e-9, atol=1e-11)


def test_the_output_is_zero_at_sites_that_are_left_out():
    model, values, coords, weights = masked_problem("torus")
    assert (model(values, coords, weights=weights)[:, weights == 0] == 0).all()


def test_traces_and_ablated_sites_agree_with_the_output_where_sites_are_left_out():
    model, values, coords, weights = masked_problem("torus")
    is_active = weights > 0
    output = model(values, coords, weights=weights)[:, is_active]
    trace = model.trace(values, coords, weights=weights)
    torch.testing.assert_close(trace.output[:, is_active], output)
    masked_site = Ablation(sites=frozenset({int((~is_active).nonzero()[0])}))
    with masked_site.applied(model):
        ablated = model(values, coords, weights=weights)
    torch.testing.assert_close(ablated[:, is_active], output)
