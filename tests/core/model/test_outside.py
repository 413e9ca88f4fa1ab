"""A layer, an operator and a baseline of another package: one registration each, and all works."""

from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch
from torch import nn

from gpo import (
    Ablation,
    CheckpointError,
    GaussianParticleOperator,
    Problem,
    RunConfig,
    operator_losses,
    register_model,
    train,
)
from gpo.execution import execution
from gpo.execution.memory import LayerSizes
from gpo.execution.recompute import Keeps
from gpo.model.decoder import Decoder
from gpo.model.layer import AbstractLayer, Parts
from gpo.model.model import build_model, load_model
from gpo.model.registry import MODELS, listed_models
from tests.conftest import random_points
from tests.core.training.series import decaying_waves

NAME = "mean-field"


@dataclass(frozen=True, kw_only=True)
class MeanFieldConfig:
    """An operator whose points know each other through their mean only."""

    MODEL: ClassVar[str] = NAME
    PARTS: ClassVar[str] = f"{__name__}:build_parts"

    width: int = 6
    """Channels of the state."""
    depth: int = 2
    """Number of layers."""
    query_neighbours: int = 4
    """Number of sites that are interpolated at a query."""


class PointLift(AbstractLayer):
    """Lifts values and unit coordinates."""

    def __init__(self, problem, config):
        super().__init__()
        self.domain = problem.domain
        self.linear = nn.Linear(problem.in_channels + problem.domain.embedding_dim, config.width)
        self.sizes = LayerSizes(config.width, 2 * config.width)

    def couple(self, state, sites):
        return None

    def update(self, state, points, coupled):
        embedded = self.domain.embed(points.coords)
        embedded = embedded.expand(len(points.values), -1, -1)
        lifted = self.linear(torch.cat([points.values, embedded], -1))
        return lifted.transpose(0, 1).contiguous()


@dataclass(frozen=True)
class Mean:
    """What a layer takes from all sites."""

    value: torch.Tensor


class MeanLayer(AbstractLayer):
    r"""$h\leftarrow h+\tanh(hW+\bar h)$ with the mean $\bar h$ of the state over the domain."""

    def __init__(self, config):
        super().__init__()
        self.linear = nn.Linear(config.width, config.width)
        self.sizes = LayerSizes(config.width, 2 * config.width)

    def couple(self, state, sites):
        return Mean(sites.sum(weighted, state))

    def update(self, state, points, mean):
        return state + torch.tanh(self.linear(state) + mean.value)


def weighted(state, points):
    return (points.weights.T.unsqueeze(-1) * state).sum(0)


def build_parts(problem, config):
    layers = [MeanLayer(config) for _ in range(config.depth)]
    decoder = Decoder(config.width, config.width, problem.out_channels)
    return Parts(PointLift(problem, config), layers, decoder)


@pytest.fixture(autouse=True)
def _registered(monkeypatch):
    """Registers the model as another package would, and undoes it after the test."""
    monkeypatch.setitem(MODELS, NAME, MODELS["gpo"])
    del MODELS[NAME]
    register_model(NAME, GaussianParticleOperator, MeanFieldConfig)


@pytest.fixture
def model(domain):
    return build_model(NAME, Problem(2, 3, domain), MeanFieldConfig(width=5)).double()


@pytest.fixture
def inputs(domain):
    weights = torch.rand(2, 40, dtype=torch.double) + 0.1
    weights[:, ::7] = 0
    return torch.randn(2, 40, 2, dtype=torch.double), random_points(domain, 2, 40), weights


def predict(model, values, coords, weights, queries=None):
    return model(values, coords, weights=weights, queries=queries)


def test_it_is_built_by_its_name(model):
    assert isinstance(model, GaussianParticleOperator)
    assert (model.name, model.config, len(model.layers)) == (NAME, MeanFieldConfig(width=5), 2)
    assert NAME in listed_models()
    assert build_model(NAME, model.problem).config == MeanFieldConfig()
    with pytest.raises(ValueError, match=f"The model '{NAME}' is already registered"):
        register_model(NAME, GaussianParticleOperator, MeanFieldConfig)


def test_its_output_is_its_equation(model, inputs):
    values, coords, weights = inputs
    weights = (weights / weights.sum(1, keepdim=True)).unsqueeze(-1)
    lift, domain = model.lift, model.problem.domain.local
    local = model.problem.domain.to_local(coords)
    state = lift.linear(torch.cat([values, domain.embed(local)], -1))
    for layer in model.layers:
        mean = (weights * state).sum(1, keepdim=True)
        state = state + torch.tanh(layer.linear(state) + mean)
    expected, active = model.decoder.layers(state), inputs[2][0] > 0
    torch.testing.assert_close(predict(model, *inputs)[:, active], expected[:, active])


def test_it_is_trained_for_two_steps(model, inputs):
    values, coords, weights = inputs
    target = torch.randn(2, 40, 3, dtype=torch.double)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    losses = []
    for _ in range(3):
        optimizer.zero_grad()
        loss = operator_losses(model, values, coords, target, weights=weights)["total"]
        loss.backward()
        assert all(parameter.grad.abs().max() > 0 for parameter in model.parameters())
        optimizer.step()
        losses.append(loss.item())
    assert losses[2] < losses[1] < losses[0]


def test_it_is_saved_and_loaded_bit_by_bit(model, inputs, tmp_path):
    model.save_pretrained(tmp_path)
    for load in (load_model, GaussianParticleOperator.from_pretrained):
        loaded = load(tmp_path)
        assert (loaded.config, loaded.problem) == (model.config, model.problem)
        assert torch.equal(predict(loaded, *inputs), predict(model, *inputs))
    del MODELS[NAME]
    with pytest.raises(CheckpointError, match="must be registered before it is loaded"):
        load_model(tmp_path)


def test_it_is_evaluated_at_queries(model, inputs, domain):
    _, coords, weights = inputs
    queries = random_points(domain, 2, 9)
    together = predict(model, *inputs, queries)
    assert together.shape == (2, 9, 3)
    torch.testing.assert_close(predict(model, *inputs, queries[:, 4:5]), together[:, 4:5])
    active = weights[0] > 0
    at_sites = predict(model, *inputs, coords[:, active])
    torch.testing.assert_close(at_sites, predict(model, *inputs)[:, active])


@pytest.mark.parametrize("keeps", Keeps, ids=lambda keeps: keeps.name)
@pytest.mark.parametrize("has_queries", [False, True], ids=["sites", "queries"])
def test_chunks_and_recomputation_change_nothing(model, inputs, keeps, has_queries, monkeypatch):
    queries = random_points(model.problem.domain, 2, 9) if has_queries else None

    def gradients():
        values = inputs[0].clone().requires_grad_()
        output = predict(model, values, *inputs[1:], queries)
        return output, *torch.autograd.grad(output.sin().sum(), [values, *model.parameters()])

    expected = gradients()
    monkeypatch.setattr(execution, "choose_kept", lambda sizes, values: keeps)
    model.execution.chunk_size = 14
    assert len(model.sites(*inputs).chunks) == 6
    for actual, reference in zip(gradients(), expected, strict=True):
        torch.testing.assert_close(actual, reference, rtol=1e-10, atol=1e-12)


def test_its_layers_are_traced_and_ablated(model, inputs):
    values, coords, weights = inputs
    with Ablation(layers=frozenset({0})).applied(model):
        trace = model.trace(values, coords, weights=weights)
    assert torch.equal(trace.states[1], trace.states[0])
    assert not torch.allclose(trace.states[2], trace.states[1])
    assert trace.particles == ()
    with (
        pytest.raises(ValueError, match=r"`ablation.gaussians` must be left out"),
        Ablation(gaussians=frozenset({0})).applied(model),
    ):
        pass


def test_a_run_trains_it_by_its_name_and_settings(tmp_path):
    config = RunConfig.of(model=NAME, width=4, history=1, lead=1, steps=2, batch_size=4)
    assert config.model.config == MeanFieldConfig(width=4)
    forecaster = train(decaying_waves(), config, tmp_path / "run", is_quiet=True)
    assert (forecaster.model.name, forecaster.model.config.width) == (NAME, 4)
    with pytest.raises(ValueError, match=f"`colour` is not a setting of a run of {NAME}"):
        RunConfig.of(model=NAME, colour=4)


class Pointwise(nn.Module):
    """A baseline of one line."""

    def __init__(self, problem):
        super().__init__()
        self.linear = nn.Linear(problem.in_channels, problem.out_channels)

    def forward(self, values, coords, *, weights=None):
        return self.linear(values)


def test_a_baseline_from_outside_is_built_saved_and_loaded(tmp_path, domain):
    register_model("pointwise", Pointwise)
    try:
        model = build_model("pointwise", Problem(2, 1, domain))
        assert model.operator is None
        assert model.num_parameters == 3
        model.save_pretrained(tmp_path)
        values, coords = torch.randn(1, 4, 2), random_points(domain, 4).float()
        assert torch.equal(load_model(tmp_path)(values, coords), model(values, coords))
    finally:
        del MODELS["pointwise"]
