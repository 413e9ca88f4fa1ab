"""The configuration of a run: parts, presets, files and what is refused."""

import sys
from typing import get_args

import pytest
import yaml

from gpo import Domain, LossWeights, OperatorConfig, Problem
from gpo.model.config import PaperAblation
from gpo.model.former_options import FORMER_OPTIONS
from gpo.model.model import build_model
from gpo.model.presets import ABLATIONS
from gpo.model.registry import MODELS, listed_models
from gpo.training.config import RunConfig, default_config
from gpo.transforms.waves import wave_limits
from tests.processes import finish

OURS = ("gpo", "gpo-paper")


def test_a_configuration_round_trips_and_refuses_unknown_fields(tmp_path):
    config = RunConfig.of(benchmark="ns2d", var=("u", "v"), budget_cpu=3.5)
    config.save(tmp_path / "config.yaml")
    assert RunConfig.load(tmp_path / "config.yaml") == config
    stored = yaml.safe_load((tmp_path / "config.yaml").read_text())
    (tmp_path / "config.yaml").write_text(yaml.safe_dump({**stored, "colour": 1}))
    with pytest.raises(ValueError, match=r"config.yaml: field `colour` is unknown"):
        RunConfig.load(tmp_path / "config.yaml")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"epochs": 0}, "`epochs` must be at least 1, got 0"),
        ({"rollout": 0}, "`rollout` must be at least 1, got 0"),
        ({"learning_rate": 0.0}, "`learning_rate` must be positive"),
        ({"budget_cpu": -1.0}, "`budget_cpu` must be positive"),
        ({"steps": 0}, "`steps` must be positive, got 0"),
        ({"ema": 1.0}, "`ema` must be at least 0 and below 1, got 1.0"),
        ({"noise": -0.1}, "`noise` must be zero or more"),
        ({"noise": float("inf")}, "`noise` must be zero or more, got inf"),
        ({"learning_rate": float("nan")}, "`learning_rate` must be positive, got nan"),
        ({"seed": -1}, "`seed` must be from 0 to 4294967295, got -1"),
        ({"noise_fraction": 0.0}, "`noise_fraction` must be above 0 and at most 1, got 0.0"),
        (
            {"model": "fno", "phase": "field"},
            "`phase` must be operator, but for --model gpo-paper, got field",
        ),
    ],
)
def test_impossible_runs_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        RunConfig.of(**{"data": "x", **changes})


def test_a_configuration_file_holds_only_what_differs(tmp_path):
    path = tmp_path / "run.yaml"
    path.write_text("budget: {epochs: 3}\ndata: {var: [u, v]}\n")
    changed = RunConfig.of(data="x", seed=5).updated_from_file(path)
    assert (changed.budget.epochs, changed.data.var, changed.optimizer.seed) == (3, ("u", "v"), 5)
    for text, message in (
        ("colour: 1", "field `colour` is unknown"),
        ("budget: {epochs: many}", "field `budget.epochs` must be int, got 'many'"),
        ("model: {widths: 3}", "field `model.widths` is unknown"),
        ("epochs: 3", "belongs to a section: `budget: {epochs: ...}`"),
        ("budget: 3", "field `budget` must be a mapping, got 3"),
        ("- epochs", "must be a YAML mapping, got list"),
        ("epochs: [", "must be YAML"),
    ):
        path.write_text(text)
        with pytest.raises(ValueError, match=message):
            RunConfig.of(data="x").updated_from_file(path)


def test_the_paper_preset_is_the_papers_recipe():
    config = default_config("paper", benchmark="ns2d")
    sizes, how = config.model.config, config.optimizer
    assert config.model.name == "gpo-paper"
    assert (sizes.hidden_dim, sizes.num_layers, sizes.num_gaussians) == (128, 8, 32)
    assert (config.learning_rate, how.schedule, config.budget.epochs) == (1e-3, "step", 500)
    # Stated, so that no range test lowers it.
    assert how.learning_rate == 1e-3
    assert (config.task.predict, sizes.centers, sizes.readout) == ("state", "absolute", "linear")
    assert (sizes.nearest_images, sizes.integer_frequencies) == (False, False)
    assert not config.task.blend
    assert default_config("quick").budget.budget_cpu == 240


def test_the_paper_preset_keeps_the_sizes_of_a_benchmark_whose_data_are_in_a_file():
    for name in ("ns2d", "ns2d-1e-5"):
        config = RunConfig.of(preset="paper", benchmark=name, data="mine.mat")
        sizes = config.model.config
        assert (sizes.hidden_dim, sizes.num_layers, sizes.num_heads) == (128, 8, 8)
        assert (config.name, config.data.data) == (f"{name}-gpo-paper-paper", "mine.mat")


FROZEN = {"data": "x", "model": "gpo-paper", "init": "field", "freeze": "field", "predict": "state"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": "gpo"}, "`freeze` must be left out, but for operators of gpo-paper, got field"),
        ({"phase": "field"}, "`freeze` must be left out, but for operators of gpo-paper"),
        ({"init": None}, "`freeze` must be given with --init FIELD, got field"),
        ({"predict": "increment"}, "`predict` must be state where the field is frozen"),
        ({"num_layers": 0}, "`num_layers` must be at least 1 where only layers learn, got 0"),
    ],
)
def test_a_field_is_frozen_where_a_trained_one_and_layers_exist(changes, message):
    assert RunConfig.of(**FROZEN).learning_rate == 1e-3
    with pytest.raises(ValueError, match=message):
        RunConfig.of(**{**FROZEN, **changes})


def test_run_folders_of_gpo_0_8_keep_what_their_version_did(tmp_path):
    path = tmp_path / "config.yaml"
    former = {**FORMER_OPTIONS, "readout": "softplus"}
    RunConfig.of(data="x", model="gpo-paper", **former).save(path)
    stored = yaml.safe_load(path.read_text())
    stored["model"] = {k: v for k, v in stored["model"].items() if k not in former}
    stored["model"]["signed_readout"] = False
    del stored["optimizer"]["freeze"]
    path.write_text(yaml.safe_dump(stored))
    assert RunConfig.load(path) == RunConfig.of(data="x", model="gpo-paper", **former)


OLD = """benchmark: ns2d
data: null
var: []
preset: quick
model: gpo
variant: geometric
hidden_dim: null
operator: []
stage: operator
learning_rate: null
"""
"""The beginning of a configuration that gpo 0.1.0 wrote."""


def test_a_configuration_of_an_older_version_is_refused_by_its_version(tmp_path):
    (tmp_path / "config.yaml").write_text(OLD)
    with pytest.raises(ValueError, match=r"config.yaml was written by gpo 0\.1\.0, which can open"):
        RunConfig.load(tmp_path / "config.yaml")


@pytest.mark.parametrize("model", OURS)
def test_a_run_has_the_defaults_of_the_model(model):
    assert RunConfig.of(model=model).model.config == MODELS[model].config()
    assert LossWeights.of(RunConfig.of(model=model).model.config) == LossWeights()


def test_configurations_of_models_do_not_import_torch():
    script = "import sys, gpo.training.config, gpo.model.config; assert 'torch' not in sys.modules"
    finish([sys.executable, "-c", script])


def test_rows_of_the_papers_ablation_are_choices():
    assert set(get_args(PaperAblation)) == set(ABLATIONS)


def test_flags_of_a_run_have_names_of_their_own():
    for model in OURS:
        parts = vars(RunConfig.of(model=model))
        names = [name for part in parts.values() for name in vars(part)]
        names += vars(parts["model"].config)
        assert len(names) == len(set(names))


def test_the_optimizer_is_that_of_the_model_unless_it_is_set():
    names = {name: RunConfig.of(data="x", model=name).optimizer_name for name in listed_models()}
    assert {name for name, optimizer in names.items() if optimizer == "muon"} == {"gpo"}
    assert RunConfig.of(data="x", optimizer="adamw").optimizer_name == "adamw"
    assert RunConfig.of(data="x", model="fno", optimizer="muon").optimizer_name == "muon"
    assert default_config("paper", model="gpo").optimizer_name == "adamw"


@pytest.mark.parametrize("model", OURS)
def test_run_folders_of_gpo_0_6_and_0_7_have_adamw(tmp_path, model):
    path = tmp_path / "config.yaml"
    RunConfig.of(data="x", model=model).save(path)
    stored = yaml.safe_load(path.read_text())
    assert stored["optimizer"].pop("optimizer") is None
    path.write_text(yaml.safe_dump(stored))
    assert RunConfig.load(path) == RunConfig.of(data="x", model=model, optimizer="adamw")
    for name in ("fourier_seed", "num_nodes"):
        stored["model"].pop(name, None)
    path.write_text(yaml.safe_dump(stored))
    assert RunConfig.load(path) == RunConfig.of(data="x", model=model, optimizer="adamw")
    del stored["optimizer"]["seed"]
    path.write_text(yaml.safe_dump(stored))
    with pytest.raises(ValueError, match=r"field `optimizer\.seed` is missing"):
        RunConfig.load(path)


def test_a_waves_setting_takes_the_place_of_what_the_grid_resolves():
    domain = Domain.unit_box(2, periodic=True)
    problem = Problem(1, 1, domain, (32, 32))
    assert build_model("gpo", problem).waves.limits == wave_limits(domain, None, (32, 32))
    assert build_model("gpo", problem, OperatorConfig(num_waves=3)).waves.limits == (3, 3)


def test_a_run_of_another_model_has_the_settings_of_that_model(tmp_path):
    config = RunConfig.of(data="x", model="gpo-paper", num_heads=2, loss_basis=0.1)
    config.save(tmp_path / "config.yaml")
    assert RunConfig.load(tmp_path / "config.yaml") == config
    assert LossWeights.of(config.model.config) == LossWeights(basis=0.1)
    with pytest.raises(ValueError, match="`num_heads` is not a setting of a run of gpo"):
        RunConfig.of(data="x", num_heads=2)
    with pytest.raises(ValueError, match="`model` must be one of gpo, gpo-paper, fno"):
        RunConfig.of(data="x", model="fnn")


def test_runs_that_differ_are_described_by_the_names_of_their_flags():
    one, other = RunConfig.of(data="x"), RunConfig.of(data="x", seed=1, num_gaussians=2)
    assert one.differences(other) == {"seed": (0, 1), "num_gaussians": (4, 2)}
    assert one.differences(one) == {}


def test_several_files_are_kept_in_the_configuration(tmp_path):
    config = RunConfig.of(data=("m/a_1.nc", "m/b.nc"), test_files=1, periodic=("x",))
    assert config.name == "a_1-default"
    config.save(tmp_path / "config.yaml")
    assert RunConfig.load(tmp_path / "config.yaml") == config
    assert RunConfig.of(data=("a.nc",)) == RunConfig.of(data="a.nc")
    assert RunConfig.of(data="runs/*.nc").name == "runs-default"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"validation_from": "2020-01-01"}, "`validation_from` must be given with test_from"),
        ({"test_files": 0}, "`test_files` must be at least 1, got 0"),
        ({"test_files": 1, "test_from": "3"}, "a split has one rule"),
    ],
)
def test_splits_that_cannot_be_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        RunConfig.of(data="a.nc", **settings)


@pytest.mark.parametrize("value", [-1.0, float("nan"), float("inf")])
@pytest.mark.parametrize("name", ["loss_center", "loss_scale", "loss_input", "loss_basis"])
def test_a_weight_that_would_reward_errors_is_refused(name, value):
    with pytest.raises(ValueError, match=f"`{name}` must be zero or more, got"):
        RunConfig.of(data="x", model="gpo-paper", **{name: value})
