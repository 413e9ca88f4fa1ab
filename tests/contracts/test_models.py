"""What every registered model promises, on every kind of sites it takes."""

import math

import pytest
import torch

from gpo import Domain, relative_l2, unit_vectors
from gpo.baselines import REGISTRY, Problem, RegisteredModel, UnsupportedGeometryError
from gpo.baselines.lno import LNO

PLACES = {
    "line": Problem(2, 1, Domain.unit_box(1, periodic=True), (16,)),
    "grid": Problem(2, 1, Domain.box([0, -1], [2, 1], periodic=[True, False]), (16, 16)),
    "cube": Problem(2, 1, Domain.unit_box(3), (8, 8, 8)),
    "sphere grid": Problem(2, 1, Domain.sphere(), (16, 16)),
    "points": Problem(2, 1, Domain.box([0, 0], [3, 1])),
    "sphere points": Problem(2, 1, Domain.sphere()),
}

TAKES = {
    "fno": {"line", "grid", "cube", "sphere grid"},
    "geo-fno": {"grid", "sphere grid", "points"},
    "cno": {"grid", "sphere grid"},
    "lsm": {"grid", "sphere grid", "points"},
    "m2no": {"grid", "sphere grid"},
    "amg": set(PLACES),
    "galerkin": set(PLACES),
    "gnot": set(PLACES),
    "transolver": set(PLACES),
    "ono": set(PLACES),
    "lno": set(PLACES),
}


def sites(problem, batch=2):
    shape, domain = problem.grid_shape, problem.domain
    if (shape and not domain.is_sphere) or shape:
        coords, weights = domain.grid(*shape)
    elif domain.is_sphere:
        coords = unit_vectors(360 * torch.rand(40), 80 * (2 * torch.rand(40) - 1))
        weights = torch.full((40,), 1 / 40)
    else:
        coords = domain.from_unit(torch.rand(40, domain.dim))
        weights = torch.full((40,), 1 / 40)
    return torch.randn(batch, len(coords), 2), coords, weights


CASES = [(name, place) for name in REGISTRY for place in PLACES if place in TAKES[name]]


def test_all_rivals_are_registered():
    assert list(REGISTRY) == ["fno", "geo-fno", "cno", "lsm", "m2no", "amg", "galerkin", "gnot", "transolver", "ono", "lno"]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "place"),
    [(name, place) for name in REGISTRY for place in PLACES if place not in TAKES[name]],
)
def test_a_geometry_that_a_model_cannot_take_is_refused_with_a_short_reason(name, place):
    with pytest.raises(UnsupportedGeometryError, match=f"{name} cannot take these sites: needs ") as refused:  # fmt: skip
        RegisteredModel(name, PLACES[place])
    assert len(str(refused.value)) < 120


@pytest.mark.parametrize(("name", "place"), CASES)
def test_shapes_gradients_and_a_round_trip(name, place, tmp_path):
    problem = PLACES[place]
    model = RegisteredModel(name, problem)
    values, coords, weights = sites(problem)
    output = model(values, coords, weights=weights)
    assert output.shape == (2, len(coords), 1)
    output.square().mean().backward()
    unused = getattr(model.network, "UNUSED", frozenset())
    for parameter_name, parameter in model.network.named_parameters():
        has_gradient = parameter.grad is not None and bool((parameter.grad != 0).any())
        assert has_gradient != (parameter_name in unused), parameter_name
    model.eval()
    model.save_pretrained(tmp_path)
    again = RegisteredModel.from_pretrained(tmp_path).eval()
    assert again.name == name
    assert torch.equal(again(values, coords, weights=weights), model(values, coords, weights=weights))  # fmt: skip


@pytest.mark.thorough
@pytest.mark.parametrize("name", REGISTRY)
def test_a_batch_is_learned_by_heart(name):
    problem = Problem(2, 1, Domain.unit_box(2), (8, 8))
    # Hundreds of modes start out alike, and only thousands of steps tell them apart.
    model = LNO(problem, num_modes=8, num_layers=2) if name == "lno" else REGISTRY[name](problem)
    coords, weights = problem.domain.grid(8, 8)
    x, y = coords.unbind(-1)
    # What a site of gnot holds reaches the answer through sums over all sites alone, so that
    # two samples are slow to be told apart: it gets one.
    phases = torch.tensor([[0.3], [1.7]])[: 1 if name == "gnot" else 2]
    waves = torch.sin(6 * x + phases), torch.cos(3 * y - phases)
    values, target = torch.stack(waves, -1), (waves[0] * waves[1]).unsqueeze(-1)
    rate = 3e-3 if name == "lno" else 1e-3
    optimizer = torch.optim.Adam(model.parameters(), lr=rate)
    errors = []
    for step in range(400):
        for group in optimizer.param_groups:
            group["lr"] = (
                rate * min(1.0, (step + 1) / 50) * (1 + math.cos(math.pi * step / 400)) / 2
            )
        loss = relative_l2(model(values, coords, weights=weights), target, weights[None])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        errors.append(loss.item())
        if loss.item() < 0.1:
            return
    pytest.fail(f"the error is still {min(errors):.3f}")


@pytest.mark.parametrize("name", REGISTRY)
def test_wrong_input_is_named(name):
    problem = PLACES["grid"]
    model = RegisteredModel(name, problem)
    values, coords, _ = sites(problem)
    with pytest.raises(ValueError, match="`values` must have in_channels=2 channels, got 1"):
        model(values[..., :1], coords)
    with pytest.raises(ValueError, match="`values` must be finite"):
        model(torch.full_like(values, torch.nan), coords)


def test_a_model_of_ones_own_joins_with_one_line(tmp_path, monkeypatch):
    class Mine(torch.nn.Module):
        def __init__(self, problem):
            super().__init__()
            self.layer = torch.nn.Linear(problem.in_channels, problem.out_channels)

        def forward(self, values, coords, *, weights=None):
            return self.layer(values)

    monkeypatch.setitem(REGISTRY, "mine", Mine)
    model = RegisteredModel("mine", PLACES["points"])
    values, coords, _ = sites(PLACES["points"])
    model.save_pretrained(tmp_path)
    again = RegisteredModel.from_pretrained(tmp_path)
    assert torch.equal(again(values, coords), model(values, coords))
    monkeypatch.delitem(REGISTRY, "mine")
    with pytest.raises(ValueError, match="A model of your own must be registered before it is loaded"):  # fmt: skip
        RegisteredModel.from_pretrained(tmp_path)
