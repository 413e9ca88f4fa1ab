"""A layer, a variant and a baseline from outside the package: one registration each, and all works."""

from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch
from torch import nn

from gpo import Domain, GaussianParticleOperator, Problem, operator_losses, register_model
from gpo.execution.memory import LayerSizes
from gpo.model.decoder import Decoder
from gpo.model.layer import AbstractLayer, Parts
from gpo.model.model import build_model, load_model
from gpo.model.registry import MODELS
from gpo.training.config import RunConfig

TORUS = Domain.unit_box(2, periodic=True)


@dataclass(frozen=True, kw_only=True)
class MeanConfig:
    """An operator whose points know the mean of the field."""

    MODEL: ClassVar[str] = "means"
    PARTS: ClassVar[str] = "tests.core.model.test_outside:build_means"

    hidden_dim: int = 8
    """Channels of the state."""
    num_layers: int = 2
    """Number of layers."""
    num_gaussians: int = 1
    """Has no particles."""
    query_neighbours: int = 4
    """Number of sites that are interpolated at a query."""


class Lift(AbstractLayer):
    """A linear map of the values."""

    def __init__(self, channels: int, hidden_dim: int) -> None:
        super().__init__()
        self.linear, self.sizes = nn.Linear(channels, hidden_dim), LayerSizes(hidden_dim)

    def couple(self, state, sites):
        """Returns nothing."""

    def update(self, state, points, coupled):
        """Returns the first state."""
        return self.linear(points.values).transpose(0, 1)


class MeanLayer(AbstractLayer):
    """Adds a map of the mean over all sites to every point."""

    def __init__(self, hidden_dim: int) -> None:
        super().__init__()
        self.linear, self.sizes = nn.Linear(2 * hidden_dim, hidden_dim), LayerSizes(hidden_dim)

    def couple(self, state, sites):
        """Returns the mean, which adds up over chunks and processes."""
        return sites.sum(weighted_sum, state)

    def update(self, state, points, mean):
        """Returns the state with what the mean adds."""
        return state + torch.tanh(self.linear(torch.cat([state, mean.expand_as(state)], -1)))


def weighted_sum(state, points):
    """Returns the sum over the sites of a chunk, with quadrature weights."""
    return (state * points.weights.T.unsqueeze(-1)).sum(0)


def build_means(problem: Problem, config: MeanConfig) -> Parts:
    """Builds lift, layers and decoder."""
    layers = [MeanLayer(config.hidden_dim) for _ in range(config.num_layers)]
    decoder = Decoder(config.hidden_dim, config.hidden_dim, problem.out_channels)
    return Parts(Lift(problem.in_channels, config.hidden_dim), layers, decoder)


@pytest.fixture
def _registered():
    register_model("means", GaussianParticleOperator, MeanConfig)
    yield
    del MODELS["means"]


@pytest.mark.usefixtures("_registered")
def test_a_variant_of_layers_from_outside_is_built_trained_saved_queried_and_chunked(tmp_path):
    model = build_model("means", Problem(2, 1, TORUS)).double()
    coords, weights = (part.double() for part in TORUS.grid(6, 6))
    values, target = torch.randn(3, 36, 2).double(), torch.randn(3, 36, 1).double()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    losses = []
    for _ in range(3):
        optimizer.zero_grad()
        loss = operator_losses(model, values, coords, target, weights=weights)["total"]
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]
    expected = model(values, coords, weights=weights)
    model.execution.chunk_size = 20
    torch.testing.assert_close(model(values, coords, weights=weights), expected)
    at_sites = model(values, coords, weights=weights, queries=coords)
    torch.testing.assert_close(at_sites, expected)
    model.save_pretrained(tmp_path)
    torch.testing.assert_close(
        load_model(tmp_path).double()(values, coords, weights=weights), expected
    )


@pytest.mark.usefixtures("_registered")
def test_its_configuration_is_that_of_a_run():
    config = RunConfig.of(data="x.nc", model="means", hidden_dim=5)
    assert config.model.config == MeanConfig(hidden_dim=5)
    with pytest.raises(ValueError, match="The model 'means' is already registered"):
        register_model("means", GaussianParticleOperator, MeanConfig)


class Pointwise(nn.Module):
    """A baseline of one line."""

    def __init__(self, problem: Problem) -> None:
        super().__init__()
        self.linear = nn.Linear(problem.in_channels, problem.out_channels)

    def forward(self, values, coords, *, weights=None):
        return self.linear(values)


def test_a_baseline_from_outside_is_built_saved_and_loaded(tmp_path):
    register_model("pointwise", Pointwise)
    try:
        model = build_model("pointwise", Problem(2, 1, TORUS))
        assert model.operator is None
        assert model.num_parameters == 3
        model.save_pretrained(tmp_path)
        values, coords = torch.randn(1, 4, 2), torch.rand(4, 2)
        assert torch.equal(load_model(tmp_path)(values, coords), model(values, coords))
    finally:
        del MODELS["pointwise"]
