"""The numbers of gpo 0.1.0 and 0.6.0, recorded before code was rearranged, on every kind of site."""

import json
from pathlib import Path

import pytest
import torch
from torch.nn.functional import normalize

from gpo import (
    Domain,
    GaussianParticleOperator,
    LossWeights,
    OperatorConfig,
    PaperConfig,
    Problem,
    operator_losses,
)
from gpo.model.scales import MULTILINEAR

RECORDED = json.loads((Path(__file__).parent / "recorded.json").read_text())
ALL_TERMS = LossWeights(input_reconstruction=0.3, target_reconstruction=0.2, basis=0.1)


def kinds_of_sites():
    """Domain, sites, quadrature weights, queries and the shape of a body-fitted mesh, by name."""
    generator = torch.Generator().manual_seed(5)

    def rand(*shape):
        return torch.rand(*shape, generator=generator, dtype=torch.double)

    def box(dim, periodic=False):
        return Domain.unit_box(dim, periodic=periodic)

    kinds = {}
    coords, weights = box(2, True).grid(16, 16)
    kinds["grid"] = box(2, True), coords, weights, rand(9, 2), ()
    coords, weights = box(2).grid(16, 12)
    kinds["open"] = box(2), coords, weights, rand(9, 2), ()
    is_sea = rand(192) > 0.3
    kinds["masked"] = box(2), coords, weights * is_sea, rand(9, 2), ()
    coords, weights = Domain.sphere().grid(12, 24)
    queries = normalize(torch.randn(9, 3, generator=generator, dtype=torch.double), dim=-1)
    kinds["sphere"] = Domain.sphere(), coords, weights, queries, ()
    kinds["scattered"] = box(2), rand(300, 2), None, rand(9, 2), ()
    kinds["scattered-many"] = box(2, True), rand(700, 2), None, rand(9, 2), ()
    along, across = torch.cartesian_prod(
        torch.linspace(0, 1, 14, dtype=torch.double), torch.linspace(0, 1, 10, dtype=torch.double)
    ).unbind(-1)
    radii = [1 + size * across for size in (1.0, 1.2, 0.9)]
    turns = torch.stack([torch.cos(3 * along), torch.sin(3 * along)], -1)
    fitted = torch.stack([radius[:, None] * turns for radius in radii])
    around = Domain.around(fitted.flatten(0, 1))
    kinds["fitted"] = around, fitted, None, fitted[0, :9] * 1.01, (14, 10)
    coords, weights = box(1, True).grid(64)
    kinds["line"] = box(1, True), coords, weights, rand(9, 1), ()
    coords, weights = box(1).grid(64)
    kinds["open-line"] = box(1), coords, weights, rand(9, 1), ()
    coords, weights = box(3, True).grid(8, 8, 8)
    kinds["cube"] = box(3, True), coords, weights, rand(9, 3), ()
    kinds["cloud"] = box(3), rand(900, 3), None, rand(9, 3), ()
    return kinds


@pytest.mark.parametrize("kind", RECORDED)
def test_outputs_and_three_training_steps_are_those_of_the_first_version(kind):
    domain, coords, weights, queries, _ = kinds_of_sites()[kind]
    coords, weights = coords.double(), None if weights is None else weights.double()
    torch.manual_seed(1)
    config = PaperConfig(
        num_layers=3, hidden_dim=16, num_heads=4, num_gaussians=6, centers="displacement"
    )
    model = GaussianParticleOperator(Problem(2, 2, domain), config).double()
    generator = torch.Generator().manual_seed(9)
    shape = (3, coords.shape[-2], 2)
    values = torch.randn(shape, generator=generator, dtype=torch.double)
    target = torch.randn(shape, generator=generator, dtype=torch.double)
    recorded = RECORDED[kind]
    with torch.no_grad():
        output = model(values, coords, weights=weights)
        at_queries = model(values, coords, weights=weights, queries=queries)
    assert output.norm().item() == pytest.approx(recorded["output"], rel=1e-9)
    assert at_queries.norm().item() == pytest.approx(recorded["queries"], rel=1e-9)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for expected in recorded["steps"]:
        optimizer.zero_grad()
        losses = operator_losses(
            model, values, coords, target, weights=weights, loss_weights=ALL_TERMS
        )
        losses["total"].backward()
        optimizer.step()
        assert losses["total"].item() == pytest.approx(expected, rel=1e-8)


PARAMETER_NORMS = {
    "lift.linear.weight": 3.3179519326,
    "layers.0.out": 1.6193654096,
    "layers.1.arrive": 1.6804931594,
    "layers.1.waves.filter.mix": 8.0340464622,
    "decoder.layers.2.weight": 0.5820510480,
}
"""Of the default operator with the seed below, in gpo 0.6.0."""


def test_at_equal_seeds_the_default_operator_is_that_of_gpo_0_6():
    domain = Domain.unit_box(2, periodic=True)
    torch.manual_seed(1)
    model = GaussianParticleOperator(
        Problem(2, 1, domain), OperatorConfig(num_waves=3, num_layers=2, num_transports=1)
    )
    # Before 0.8 particles had the multilinear kernel.
    model.layers[1].log_scale.data.fill_(MULTILINEAR)
    state = model.state_dict()
    for name, norm in PARAMETER_NORMS.items():
        assert state[name].double().norm().item() == pytest.approx(norm, rel=1e-9), name
    coords, weights = domain.grid(8, 8)
    values = torch.randn(1, 64, 2, generator=torch.Generator().manual_seed(9))
    with torch.no_grad():
        output = model(values, coords, weights=weights)
    assert output.double().norm().item() == pytest.approx(1.2701381730, rel=1e-5)
