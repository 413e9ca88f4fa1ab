import contextlib
import hashlib
import json
import shutil
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from gpo import CheckpointError, Domain, GaussianParticleOperator, Problem, gaussian_field
from gpo.model.former_options import FORMER_OPTIONS
from gpo.model.model import RegisteredModel, build_model
from gpo.settings_files import checksum_of
from gpo_bench.baselines.fno import FNOConfig
from tests.conftest import make_config, make_field, make_model, make_problem, random_points


@pytest.fixture
def folder(tmp_path):
    make_model(Domain.unit_box(2, periodic=True)).save_pretrained(tmp_path / "model")
    return tmp_path / "model"


def edit_config(folder, **changes):
    """Changes fields, those of problem and configuration too; an ellipsis removes one."""
    path = folder / "config.json"
    stored = json.loads(path.read_text())
    for name, value in changes.items():
        parts = [stored, stored["problem"], stored["config"]]
        part = next((part for part in parts if name in part), stored)
        part[name] = value
        if value is ...:
            del part[name]
    stored["content_sha256"] = checksum_of(stored)
    path.write_text(json.dumps(stored))


def edit_weights(folder, change):
    """Changes every tensor of a model, as someone would who also updates the checksum."""
    path = folder / "model.safetensors"
    save_file({name: change(tensor) for name, tensor in load_file(path).items()}, path)
    edit_config(folder, weights_sha256=hashlib.sha256(path.read_bytes()).hexdigest())


def test_round_trip_is_bitwise(tmp_path, domain):
    options = {"has_biases": True, "token_width": 8, "layer_norm": True, "learns_temperature": True, "input_coordinates": True}  # fmt: skip
    for changes in ({}, {"share_layers": True}, {"features": "mlp", "learns_mixing": True}, {"has_gaussian_field": False}, options):  # fmt: skip
        model = make_model(domain, **changes)
        model.save_pretrained(tmp_path)
        loaded = GaussianParticleOperator.from_pretrained(tmp_path)
        values, coords = torch.randn(1, 9, 2).double(), random_points(domain, 1, 9)
        assert (loaded.config, loaded.problem) == (model.config, model.problem)
        assert torch.equal(loaded(values, coords), model(values, coords))
        assert loaded.training == model.training


def test_a_field_is_saved_by_its_name_as_an_operator_without_layers(tmp_path):
    field = make_field(Domain.sphere())
    field.save_pretrained(tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["model_type"] == "gaussian-field"
    loaded = GaussianParticleOperator.from_pretrained(tmp_path)
    assert (loaded.name, len(loaded.layers)) == ("gaussian-field", 0)
    values, coords = torch.randn(1, 9, 2), random_points(Domain.sphere(), 1, 9)
    assert torch.equal(loaded(values, coords), field(values, coords))
    with pytest.raises(CheckpointError, match=r"config.json: field `model_type` must be that of a RegisteredModel, got 'gaussian-field'"):  # fmt: skip
        RegisteredModel.from_pretrained(tmp_path)


def test_every_model_of_ours_has_a_name_of_its_own():
    problem = make_problem(Domain.unit_box(2))
    models = [
        gaussian_field(problem, make_config()),
        GaussianParticleOperator(problem, make_config()),
        GaussianParticleOperator(problem, make_config(variant="waves")),
    ]
    assert [model.name for model in models] == ["gaussian-field", "gpo-paper", "gpo"]


def test_the_files_are_those_of_the_hub(folder):
    assert sorted(path.name for path in folder.iterdir()) == ["config.json", "model.safetensors"]
    from huggingface_hub.constants import CONFIG_NAME, SAFETENSORS_SINGLE_FILE

    assert (folder / CONFIG_NAME).is_file()
    assert (folder / SAFETENSORS_SINGLE_FILE).is_file()


def test_the_hubs_own_client_loads_the_weights(folder):
    from huggingface_hub import PyTorchModelHubMixin

    class FromHub(torch.nn.Module, PyTorchModelHubMixin):
        """A class of another package: built by the hub's mixin, filled from our file."""

        def __init__(self, config: dict, problem: dict, **rest: object) -> None:
            super().__init__()
            domain = Domain.unit_box(2, periodic=True)
            self.model = make_model(domain, **config)

        def load_state_dict(self, state, *args, **kwargs):  # type: ignore[override]
            return self.model.load_state_dict(state, *args, **kwargs)

        def state_dict(self, *args, **kwargs):
            return self.model.state_dict(*args, **kwargs)

    loaded = FromHub.from_pretrained(str(folder)).model
    expected = GaussianParticleOperator.from_pretrained(folder).state_dict()
    assert all(torch.equal(expected[name], tensor) for name, tensor in loaded.state_dict().items())


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"colour": 1}, "config.json: field `colour` is unknown"),
        ({"problem": ...}, "config.json: field `problem` is missing"),
        ({"config": ...}, "config.json: field `config` is missing"),
        ({"config": [1]}, "config.json: field `config` is missing"),
        ({"in_channels": ...}, "config.json: problem: field `in_channels` is missing"),
        ({"readout": ...}, "config.json: config: field `readout` is missing"),
        ({"in_channels": "two"}, "config.json: problem: field `in_channels` must be int, got 'two'"),
        ({"num_layers": True}, "field `num_layers` must be int, got True"),
        ({"centers": "both"}, "config.json: config: field `centers` must be one of 'absolute', 'displacement', got 'both'"),
        ({"hidden_dim": 7}, "config.json: config: `hidden_dim` must be a multiple of `num_heads`"),
        ({"domain": {"lower": [0.0, 0.0]}}, "config.json: problem: domain: field `is_sphere` is missing"),
        ({"domain": {"lower": "x"}}, "domain: field `lower` must be .*, got 'x'"),
        ({"num_layers": 3}, r"model.safetensors: tensor `layers.2\.\S+` is missing"),
        ({"num_layers": 1}, r"model.safetensors: tensor `layers.1\.\S+` is not part of this config"),
        ({"hidden_dim": 16}, r"model.safetensors: tensor `\S+` must have shape .*16.*, got .*8"),
        ({"model_type": ...}, "field `model_type` must be one of gpo, .*, got 'None'"),
        ({"model_type": "GaussianParticleOperator"}, "was written by gpo 0.1.0, .*gpo 0.1.0 loads it"),
        ({"gpo_version": "0.2.0"}, "was written by gpo 0.2.0, .*gpo 0.2.0 loads it"),
    ],
)  # fmt: skip
def test_a_changed_configuration_is_refused_by_field(folder, changes, message):
    edit_config(folder, **changes)
    with pytest.raises(CheckpointError, match=message):
        GaussianParticleOperator.from_pretrained(folder)


FORMER = {**FORMER_OPTIONS, "readout": "softplus", "centers": "displacement"}
"""Options of the paper's operator that gpo 0.8 had, or whose values nobody could change."""


def as_written_by_0_8(folder):
    """Rewrites a folder as gpo 0.8 wrote it: without options of today, the readout as a flag."""
    stored = json.loads((folder / "config.json").read_text())
    config = {name: value for name, value in stored["config"].items() if name not in FORMER_OPTIONS}
    if "readout" in config:
        config["signed_readout"] = config.pop("readout") == "linear"
    stored |= {"config": config, "gpo_version": "0.8.0"}
    stored.pop("content_sha256", None)
    (folder / "config.json").write_text(json.dumps(stored))


@pytest.mark.parametrize("readout", ["softplus", "linear"])
@pytest.mark.parametrize("make", [make_model, make_field])
def test_a_folder_of_gpo_0_8_gives_the_same_model(tmp_path, make, readout):
    domain = Domain.unit_box(2, periodic=True)
    model = make(domain, **{**FORMER, "readout": readout})
    model.save_pretrained(tmp_path)
    as_written_by_0_8(tmp_path)
    loaded = GaussianParticleOperator.from_pretrained(tmp_path)
    assert (loaded.config, loaded.problem) == (model.config, model.problem)
    values, coords = torch.randn(1, 20, 2, dtype=model.dtype), random_points(domain, 1, 20)
    assert torch.equal(loaded(values, coords), model(values, coords))


NESTED = (
    "num_gaussians", "centers", "features", "num_frequencies", "fourier_std", "fourier_seed",
    "sigma_min", "sigma_max", "has_gaussian_field",
)  # fmt: skip
"""Fields of the encoder of the paper's operator in gpo 0.6."""


def as_written_by_0_6(folder):
    """Rewrites a folder as gpo 0.6 wrote it: one flat configuration, and names of tensors of then."""
    as_written_by_0_8(folder)
    stored = json.loads((folder / "config.json").read_text())
    name, config, problem = stored["model_type"], stored["config"], stored["problem"]
    flat = {key: problem[key] for key in ("in_channels", "out_channels", "domain")}
    if name == "gpo":
        flat |= {**config, "mesh_shape": problem["grid_shape"]}
    else:
        is_field = name == "gaussian-field"
        kept = {"hidden_dim", "query_neighbours"} if is_field else config.keys() - {"ablation"}
        flat |= {k: config[k] for k in kept if k not in NESTED and not k.startswith("loss_")}
        flat["encoder"] = {key: config[key] for key in NESTED}
    tensors, num_layers = {}, config["num_layers"]
    first = num_layers - config.get("num_transports", 0)
    with_transport = tuple(f"layers.{number}." for number in range(first, num_layers))
    for key, tensor in load_file(folder / "model.safetensors").items():
        former = f"operator.{key}" if name == "gaussian-field" else key
        if name == "gpo" and key.startswith(with_transport):
            layers, number, rest = key.split(".", 2)
            former = f"{layers}.{number}.transport.{rest.replace('source', 'content')}"
            former = former.replace("transport.waves.", "")
        tensors[former] = tensor
    save_file(tensors, folder / "model.safetensors")
    checksum = hashlib.sha256((folder / "model.safetensors").read_bytes()).hexdigest()
    about = {"model_type": name, "gpo_version": "0.6.0", "weights_sha256": checksum}
    (folder / "config.json").write_text(json.dumps(about | flat))


@pytest.mark.parametrize(
    "changes",
    [
        {"variant": "waves"},
        {"variant": "waves", "mesh_shape": (4, 5)},
        {"variant": "waves", "num_transports": 2, "num_layers": 3},
        {"share_layers": True},
        {"num_layers": 0, "num_heads": 1},
    ],
)
def test_a_folder_of_gpo_0_6_gives_the_same_model(tmp_path, changes):
    domain = Domain.unit_box(2)
    make = make_field if changes.get("num_layers") == 0 else make_model
    model = make(domain, **{**FORMER, **changes})
    model.save_pretrained(tmp_path)
    as_written_by_0_6(tmp_path)
    loaded = GaussianParticleOperator.from_pretrained(tmp_path)
    assert (loaded.config, loaded.problem) == (model.config, model.problem)
    values, coords = torch.randn(1, 20, 2, dtype=model.dtype), random_points(domain, 1, 20)
    assert torch.equal(loaded(values, coords), model(values, coords))


def test_missing_files_and_folders_are_named(folder, tmp_path):
    with pytest.raises(CheckpointError, match=r"nowhere.config.json: cannot be read: .*A model folder holds"):  # fmt: skip
        GaussianParticleOperator.from_pretrained(tmp_path / "nowhere")
    (folder / "model.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"model.safetensors: cannot be read"):
        GaussianParticleOperator.from_pretrained(folder)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 a zip", b"\x80\x04pickle", b"\xff" * 64])
@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_other_files_are_refused(folder, name, content):
    (folder / name).write_bytes(content)
    with pytest.raises(CheckpointError, match=f"{name}: must be"):
        GaussianParticleOperator.from_pretrained(folder)


@pytest.mark.thorough
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.data())
def test_a_truncated_or_mutated_file_never_loads_silently_or_crashes(folder, tmp_path, data):
    name = data.draw(st.sampled_from(["config.json", "model.safetensors"]))
    whole = (folder / name).read_bytes()
    copy = tmp_path / "copy"
    shutil.copytree(folder, copy, dirs_exist_ok=True)
    if data.draw(st.booleans()):
        (copy / name).write_bytes(whole[: data.draw(st.integers(0, len(whole) - 2))])
        with pytest.raises(CheckpointError, match=name):
            GaussianParticleOperator.from_pretrained(copy)
    else:
        # A flipped byte in the header or the configuration: refused, or harmless.
        position = data.draw(st.integers(0, min(len(whole), 3000) - 1))
        mutated = bytearray(whole)
        mutated[position] ^= data.draw(st.integers(1, 255))
        (copy / name).write_bytes(bytes(mutated))
        with contextlib.suppress(CheckpointError):
            GaussianParticleOperator.from_pretrained(copy)


def test_an_interrupted_save_leaves_the_old_model_whole(folder, monkeypatch):
    before = (folder / "model.safetensors").read_bytes()

    def fail(path, content):
        with open(path, "wb") as file:
            file.write(content[:100])
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", fail)
    with pytest.raises(OSError, match=r"model.safetensors: cannot be written: No space left on"):
        make_model(Domain.unit_box(2, periodic=True)).save_pretrained(folder)
    assert (folder / "model.safetensors").read_bytes() == before
    assert len(list(folder.iterdir())) == 2


def test_weights_of_another_type_keep_it(folder):
    edit_weights(folder, lambda tensor: tensor.float())
    assert GaussianParticleOperator.from_pretrained(folder).dtype == torch.float32


@pytest.mark.parametrize("kind", [torch.int64, torch.int8, torch.bool, torch.complex64])
def test_weights_that_are_other_numbers_are_refused(folder, kind):
    edit_weights(folder, lambda tensor: tensor.to(kind))
    with pytest.raises(
        CheckpointError, match=r"model.safetensors: tensor `\S+` must be float32, got"
    ):
        GaussianParticleOperator.from_pretrained(folder)


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
def test_weights_that_are_not_finite_are_refused(folder, value):
    edit_weights(folder, lambda tensor: tensor.flatten().index_fill(0, torch.tensor([0]), value).view_as(tensor))  # fmt: skip
    with pytest.raises(CheckpointError, match=r"must be finite, but 1 of .* Train the model again"):
        GaussianParticleOperator.from_pretrained(folder)


def test_one_flipped_bit_anywhere_in_the_weights_is_noticed(folder):
    path = folder / "model.safetensors"
    whole = path.read_bytes()
    for place in (len(whole) - 1, len(whole) - 1000, len(whole) // 2):
        flipped = bytearray(whole)
        flipped[place] ^= 1
        path.write_bytes(flipped)
        with pytest.raises(CheckpointError, match=r"is not what was saved.*`weights_sha256`"):
            GaussianParticleOperator.from_pretrained(folder)
    path.write_bytes(whole)
    GaussianParticleOperator.from_pretrained(folder)


def test_weights_of_another_baseline_of_the_same_sizes_are_noticed(tmp_path):
    problem = Problem(1, 1, Domain.unit_box(2), (8, 8))
    folders = [tmp_path / name for name in "ab"]
    for folder in folders:
        build_model("fno", problem, FNOConfig(widths=(4, 4), modes=(3,))).save_pretrained(folder)
    RegisteredModel.from_pretrained(folders[0])
    shutil.copy(folders[1] / "model.safetensors", folders[0] / "model.safetensors")
    with pytest.raises(CheckpointError, match=r"is not what was saved.*`weights_sha256`"):
        RegisteredModel.from_pretrained(folders[0])
