"""What every registered model promises, on every kind of sites it takes."""

import json
import math
from dataclasses import dataclass, fields, replace

import pytest
import torch

from gpo import (
    Domain,
    Problem,
    RunConfig,
    UnsupportedGeometryError,
    register_model,
    relative_l2,
    unit_vectors,
)
from gpo.model.model import RegisteredModel, build_model, load_model
from gpo.model.registry import MODELS, ModelEntry, listed_models
from gpo.registry import resolve
from gpo_bench.baselines.base import AbstractSizedConfig, check_sizes
from gpo_bench.plugin import NETWORKS

SITES = {
    "line": Problem(2, 1, Domain.unit_box(1, periodic=True), (16,)),
    "grid": Problem(2, 1, Domain.box([0, -1], [2, 1], periodic=[True, False]), (16, 16)),
    "cube": Problem(2, 1, Domain.unit_box(3), (8, 8, 8)),
    "sphere grid": Problem(2, 1, Domain.sphere(), (16, 16)),
    "points": Problem(2, 1, Domain.box([0, 0], [3, 1])),
    "sphere points": Problem(2, 1, Domain.sphere()),
}

BASELINES = list(NETWORKS)
TINY = {
    "width": 16,
    "latent_size": 16,
    "num_layers": 2,
    "num_cycles": 1,
    "num_residuals": 1,
    "num_bottleneck_residuals": 1,
}
SMALL = {"lno": {"num_modes": 8, "num_layers": 2}}
"""Sizes with which a model overfits quickly: hundreds of modes start out alike."""


def takes(name, kind):
    """Whether a baseline declares that it takes a kind of sites."""
    return resolve(MODELS[name].network).takes(SITES[kind])


def config_of(name):
    """The smallest sizes that a baseline names, or its default ones."""
    config = MODELS[name].config
    return config(size="small") if issubclass(config, AbstractSizedConfig) else config()


def tiny(name):
    """The architecture of a baseline with fewer and thinner layers."""
    config = config_of(name)
    return replace(config, **{part: TINY[part] for part in TINY if hasattr(config, part)})


def field_on(problem, batch=2):
    shape, domain = problem.grid_shape, problem.domain
    if shape:
        coords, weights = domain.grid(*shape)
    elif domain.is_sphere:
        coords = unit_vectors(360 * torch.rand(40), 80 * (2 * torch.rand(40) - 1))
        weights = torch.full((40,), 1 / 40)
    else:
        coords = domain.from_unit(torch.rand(40, domain.dim))
        weights = torch.full((40,), 1 / 40)
    return torch.randn(batch, len(coords), 2), coords, weights


CASES = [(name, kind) for name in BASELINES for kind in SITES if takes(name, kind)]


def test_all_models_are_registered():
    assert listed_models() == ["gpo", "gpo-paper", *NETWORKS]


@pytest.mark.parametrize(
    ("name", "kind"),
    [(name, kind) for name in BASELINES for kind in SITES if not takes(name, kind)],
)
def test_a_geometry_that_a_model_cannot_take_is_refused_with_a_short_reason(name, kind):
    with pytest.raises(UnsupportedGeometryError, match=f"{name} cannot take these sites: needs ") as refused:  # fmt: skip
        build_model(name, SITES[kind])
    assert len(str(refused.value)) < 120


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_shapes_and_a_round_trip(name, kind, tmp_path):
    problem = SITES[kind]
    model = build_model(name, problem, tiny(name))
    values, coords, weights = field_on(problem)
    output = model(values, coords, weights=weights)
    assert output.shape == (2, len(coords), 1)
    model.eval()
    model.save_pretrained(tmp_path)
    again = RegisteredModel.from_pretrained(tmp_path).eval()
    assert again.name == name
    assert torch.equal(again(values, coords, weights=weights), model(values, coords, weights=weights))  # fmt: skip


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_every_parameter_gets_a_gradient_and_every_layer_changes_the_output(name, kind):
    problem = SITES[kind]
    network = build_model(name, problem, tiny(name)).double().network
    values, coords, weights = field_on(problem)

    def output():
        # Points are sampled at random in amg.
        torch.manual_seed(0)
        return network(values.double(), coords, weights=weights)

    output().square().mean().backward()
    for parameter_name, parameter in network.named_parameters():
        has_gradient = parameter.grad is not None and bool((parameter.grad != 0).any())
        assert has_gradient != (parameter_name in network.unused), parameter_name
    network.eval()
    with torch.no_grad():
        before = output()
        for layer_name, layer in network.named_modules():
            named = layer.named_parameters(layer_name, recurse=False)
            parameters = [part for part_name, part in named if part_name not in network.unused]
            kept = [part.clone() for part in parameters]
            for part in parameters:
                part.add_(0.1 * torch.randn_like(part))
            assert not parameters or not torch.equal(output(), before), layer_name
            for part, values_before in zip(parameters, kept, strict=True):
                part.copy_(values_before)


@pytest.mark.thorough
@pytest.mark.parametrize("name", BASELINES)
def test_a_model_overfits_one_batch(name):
    problem = Problem(2, 1, Domain.unit_box(2), (8, 8))
    config = replace(config_of(name), **SMALL.get(name, {}))
    model = build_model(name, problem, config)
    coords, weights = problem.domain.grid(8, 8)
    x, y = coords.unbind(-1)
    # In gnot, the values at a site reach the output only through sums over all sites, so that it
    # separates two samples slowly: it gets one.
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


@pytest.mark.parametrize("name", BASELINES)
def test_wrong_input_is_named(name):
    problem = SITES["grid"]
    model = build_model(name, problem, tiny(name))
    values, coords, _ = field_on(problem)
    with pytest.raises(ValueError, match="`values` must have in_channels=2 channels, got 1"):
        model(values[..., :1], coords)
    with pytest.raises(ValueError, match="`values` must be finite"):
        model(torch.full_like(values, torch.nan), coords)


def test_a_model_from_outside_is_registered_in_one_line(tmp_path, monkeypatch):
    class Pointwise(torch.nn.Module):
        def __init__(self, problem):
            super().__init__()
            self.layer = torch.nn.Linear(problem.in_channels, problem.out_channels)

        def forward(self, values, coords, *, weights=None):
            return self.layer(values)

    # Undone after the test.
    monkeypatch.setitem(MODELS, "pointwise", MODELS["fno"])
    del MODELS["pointwise"]
    register_model("pointwise", Pointwise)
    with pytest.raises(ValueError, match="The model 'pointwise' is already registered"):
        register_model("pointwise", Pointwise)
    model = build_model("pointwise", SITES["points"])
    values, coords, _ = field_on(SITES["points"])
    model.save_pretrained(tmp_path)
    again = load_model(tmp_path)
    assert torch.equal(again(values, coords), model(values, coords))
    del MODELS["pointwise"]
    with pytest.raises(ValueError, match="A model of your own must be registered before it is loaded"):  # fmt: skip
        load_model(tmp_path)


def test_a_model_from_outside_may_have_sizes(tmp_path, monkeypatch):
    @dataclass(frozen=True, kw_only=True)
    class WideConfig:
        width: int = 4

    class Wide(torch.nn.Module):
        def __init__(self, problem, config):
            super().__init__()
            sizes = problem.in_channels, config.width, problem.out_channels
            self.layers = torch.nn.Sequential(
                torch.nn.Linear(*sizes[:2]), torch.nn.Linear(*sizes[1:])
            )

        def forward(self, values, coords, *, weights=None):
            return self.layers(values)

    monkeypatch.setitem(MODELS, "wide", ModelEntry(Wide, WideConfig))
    model = build_model("wide", SITES["points"], WideConfig(width=7))
    model.save_pretrained(tmp_path)
    again = load_model(tmp_path)
    assert again.config == WideConfig(width=7)
    values, coords, _ = field_on(SITES["points"])
    assert torch.equal(again(values, coords), model(values, coords))


def test_sizes_are_saved_and_kept_on_another_grid(tmp_path):
    config = MODELS["fno"].config(widths=(4, 4, 4), modes=(3, 3), padding=2)
    model = build_model("fno", SITES["grid"], config)
    model.save_pretrained(tmp_path)
    again = load_model(tmp_path)
    assert again.config == config == again.on_grid((24, 24)).config
    assert again.problem == SITES["grid"]
    values, coords, _ = field_on(SITES["grid"])
    assert torch.equal(again(values, coords), model(values, coords))


@pytest.mark.parametrize("name", BASELINES)
def test_every_setting_has_a_default_and_an_unknown_one_is_refused(name):
    assert RunConfig.of(model=name).model.config == MODELS[name].config()
    with pytest.raises(ValueError, match=f"`depth` is not a setting of a run of {name}"):
        RunConfig.of(model=name, depth=3)


@pytest.mark.parametrize("name", BASELINES)
def test_sizes_that_nothing_can_be_built_with_are_refused(name):
    for field in fields(MODELS[name].config):
        if type(field.default) is int:
            with pytest.raises(ValueError, match=f"`{field.name}` must be at least .*, got -1"):
                RunConfig.of(model=name, **{field.name: -1})


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("m2no", {"sweeps": (1, 0)}, r"`sweeps` must be at least 1, got \(1, 0\)"),
        ("amg", {"sampled_fraction": 0.0}, "`sampled_fraction` must be above 0 and at most 1"),
    ],
)
def test_sizes_must_fit_each_other(name, settings, message):
    with pytest.raises(ValueError, match=message):
        RunConfig.of(model=name, **settings)


def test_a_pair_must_be_two_numbers():
    @dataclass(frozen=True)
    class Pair:
        modes: tuple[int, int]

    check_sizes(Pair((12, 12)))
    with pytest.raises(ValueError, match=r"`modes` must be 2 numbers, got \(12,\)"):
        check_sizes(Pair((12,)))


def test_a_setting_of_another_type_is_refused():
    with pytest.raises(ValueError, match=r"field `model.width` must be int, got 'wide'"):
        RunConfig.of(model="gnot", width="wide")
    with pytest.raises(ValueError, match="`model` must be one of gpo, gpo-paper, fno"):
        build_model("fnn", SITES["grid"])


def as_written_by_0_1_0(folder):
    """Its `config.json` had the fields of the problem and no sizes."""
    path = folder / "config.json"
    stored = json.loads(path.read_text())
    path.write_text(json.dumps({"model_type": stored["model_type"], **stored["problem"]}))


def test_a_folder_without_sizes_has_the_default_ones(tmp_path):
    model = build_model("fno", SITES["grid"])
    model.save_pretrained(tmp_path)
    as_written_by_0_1_0(tmp_path)
    again = load_model(tmp_path)
    assert again.config == model.config
    values, coords, _ = field_on(SITES["grid"])
    assert torch.equal(again(values, coords), model(values, coords))


def test_a_folder_without_sizes_whose_weights_have_others_is_refused(tmp_path):
    config = MODELS["fno"].config(head=(16,))
    build_model("fno", SITES["grid"], config).save_pretrained(tmp_path)
    as_written_by_0_1_0(tmp_path)
    with pytest.raises(ValueError, match=r"must have shape .* gpo 0\.1\.0, which can load it"):
        load_model(tmp_path)


def test_a_folder_with_an_incomplete_config_is_refused(tmp_path):
    build_model("fno", SITES["grid"]).save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    stored = json.loads(path.read_text())
    del stored["config"]["head"]
    path.write_text(json.dumps(stored))
    with pytest.raises(ValueError, match=r"config.json: config: field `head` is missing"):
        load_model(tmp_path)
