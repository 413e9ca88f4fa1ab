"""Run and model folders of strangers: nothing runs, nothing hangs, nothing damaged goes unnoticed."""

import json
import os
import pickle
import random
import shutil
import zipfile

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from gpo.evaluation.example import ReportExample
from gpo.evaluation.results import Results
from gpo.forecast.forecaster import Forecaster
from gpo.settings_files import CheckpointError
from gpo.training import checkpoints
from gpo.training.choice import Choice
from gpo.training.config import RunConfig
from gpo.training.fit import train
from gpo.training.run_folder import Run, TrainingRecord, read_log
from tests.core.data.test_untrusted_files import Touch
from tests.core.training.series import decaying_waves

TINY = {"data": "waves", "hidden_dim": 8, "num_layers": 1, "num_gaussians": 2, "epochs": 1}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run") / "run"
    train(decaying_waves(), RunConfig.of(**TINY), folder, is_quiet=True)
    return folder


@pytest.fixture
def run(trained, tmp_path):
    shutil.copytree(trained, tmp_path / "run")
    return Run(tmp_path / "run")


@pytest.mark.parametrize(
    ("name", "path", "value"),
    [
        ("task.json", ("output_mean", 0), 1e6),
        ("config.json", ("problem", "domain", "upper", 0), 2.0),
    ],
)
def test_a_number_of_a_model_that_was_changed_is_noticed(run, name, path, value):
    file = run.model_folder / name
    content = json.loads(file.read_text())
    part = content
    for key in path[:-1]:
        part = part[key]
    part[path[-1]] = value
    file.write_text(json.dumps(content))
    with pytest.raises(CheckpointError, match=f"{name}: is not what was saved"):
        Forecaster.load(run.model_folder)


def test_weights_of_any_size_are_not_read(run):
    with (run.model_folder / "model.safetensors").open("r+b") as file:
        file.truncate(2**40)
    with pytest.raises(CheckpointError, match=r"model.safetensors: must have at most .* bytes"):
        Forecaster.load(run.model_folder)


LOADERS = {
    "training.json": lambda run: TrainingRecord.load(run.training_file),
    "results.json": lambda run: Results.load(run.results_file),
    "example.npz": lambda run: ReportExample.load(run.folder),
    "auto.json": lambda run: Choice.load(run.folder),
    "model/task.json": lambda run: Forecaster.load(run.model_folder),
    "model/config.json": lambda run: Forecaster.load(run.model_folder),
}
CONTENTS = {
    "deep": b"[" * 100_000,
    "a list": b"[1, 2]",
    "text": b'"text"',
    "nothing": b"",
    "empty": b"{}",
    "another": b'{"a": {"b": [1]}}',
    "bytes": b"\xff\xfe\x00",
    "a pickle": b"\x80\x04K\x01.",
}


@pytest.mark.parametrize("content", CONTENTS.values(), ids=CONTENTS)
@pytest.mark.parametrize("name", LOADERS)
def test_a_foreign_file_of_a_run_is_refused_in_words(run, name, content):
    (run.folder / name).write_bytes(content)
    with pytest.raises(ValueError, match=name.split("/")[-1]):
        LOADERS[name](run)


@pytest.mark.parametrize("name", [*LOADERS, "model/model.safetensors"])
def test_a_pipe_in_a_run_is_refused_and_not_waited_for(run, name):
    (run.folder / name).unlink(missing_ok=True)
    os.mkfifo(run.folder / name)
    with pytest.raises(ValueError, match="is not a regular file"):
        LOADERS.get(name, LOADERS["model/config.json"])(run)


@pytest.mark.parametrize(
    "content", ["a,b\n1,2\n", "epoch,x\n1,two\n", "epoch\n0,1,2\n", "epoch\nnan\n"]
)
def test_a_log_that_is_none_is_refused_in_words_and_a_pipe_not_waited_for(run, content):
    path = next((run.folder / "log").rglob("metrics.csv"))
    path.write_text(content)
    with pytest.raises(ValueError, match=r"metrics\.csv: must be a log written by gpo train"):
        read_log(run)
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(ValueError, match=r"metrics\.csv is not a regular file"):
        read_log(run)


def test_a_pipe_in_place_of_a_checkpoint_is_left_out(run, caplog):
    (run.checkpoints / "last.ckpt").unlink()
    os.mkfifo(run.checkpoints / "last.ckpt")
    assert checkpoints.newest_checkpoint(run).name == "best.ckpt"
    assert "is not a regular file" in caplog.text


def test_a_checkpoint_runs_no_code(run, tmp_path):
    target = run.checkpoints / "last.ckpt"
    torch.save({"state_dict": Touch(tmp_path / "ran")}, target)
    assert checkpoints.newest_checkpoint(run).name == "best.ckpt"
    target.write_bytes(pickle.dumps(Touch(tmp_path / "ran")))
    assert checkpoints.newest_checkpoint(run).name == "best.ckpt"
    assert not (tmp_path / "ran").exists()


def test_a_checkpoint_that_unpacks_to_more_is_left_out_before_it_is_unpacked(run, caplog):
    path = run.checkpoints / "last.ckpt"
    with zipfile.ZipFile(path) as whole:
        members = {name: whole.read(name) for name in whole.namelist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, content in members.items():
            packed.writestr(name, content)
    assert checkpoints.newest_checkpoint(run).name == "best.ckpt"
    assert "its entries must not be compressed" in caplog.text


def test_a_stored_example_that_unpacks_to_too_much_is_refused(run, monkeypatch):
    nothing = np.zeros((2**16, 1), np.float32)
    np.savez_compressed(run.folder / "example.npz", predicted=nothing, activations=nothing.T, windows=nothing.T)  # fmt: skip
    assert ReportExample.load(run.folder).predicted.shape == (2**16, 1)
    monkeypatch.setenv("GPO_MAX_BYTES", str(2**19))
    with pytest.raises(ValueError, match=r"example\.npz: .* would take .* of memory at once"):
        ReportExample.load(run.folder)


def test_flipped_bits_anywhere_in_a_checkpoint_are_noticed_or_change_nothing(run):
    path, chance = run.checkpoints / "last.ckpt", random.Random(0)
    content = path.read_bytes()
    whole = torch.load(path, weights_only=True)["state_dict"]
    num_noticed = 0
    for _ in range(60):
        changed = bytearray(content)
        changed[chance.randrange(len(changed))] ^= 1 << chance.randrange(8)
        path.write_bytes(changed)
        if not checkpoints.is_readable(path):
            num_noticed += 1
            continue
        # Names and padding of the archive stand twice or say nothing.
        state = torch.load(path, weights_only=True)["state_dict"]
        assert all(torch.equal(state[name], whole[name]) for name in whole)
    assert num_noticed > 30


@pytest.mark.parametrize("spoil", [lambda t: t * np.nan, lambda t: t.to(torch.int32)])
def test_weights_that_are_not_finite_or_no_real_numbers_are_refused_by_name(run, spoil):
    path = run.model_folder / "model.safetensors"
    state = load_file(path)
    name = next(name for name, values in state.items() if values.is_floating_point())
    save_file({**state, name: spoil(state[name])}, path)
    with pytest.raises(ValueError, match=f"tensor `{name}` must be"):
        Forecaster.load(run.model_folder)


@pytest.mark.parametrize("field", ["input_mean", "output_std"])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), "0", None, {}])
def test_statistics_that_are_no_numbers_are_refused_by_name(run, field, value):
    path = run.model_folder / "task.json"
    stored = json.loads(path.read_text())
    if field not in stored:
        pytest.skip(f"a task keeps no {field}")
    path.write_text(json.dumps({**stored, field: [value] * len(stored[field])}))
    with pytest.raises(ValueError, match=field):
        Forecaster.load(run.model_folder)


@pytest.mark.parametrize(
    "text",
    [
        "!!python/object/apply:os.mkdir [{ran}]",
        "model: !!python/object/new:os.system [mkdir {ran}]",
        "a: &a {{b: *a}}",
    ],
)
def test_settings_run_no_code_and_hold_no_references(run, tmp_path, text):
    run.config_file.write_text(text.format(ran=tmp_path / "ran"))
    with pytest.raises(ValueError, match=r"config\.yaml"):
        run.config()
    assert not (tmp_path / "ran").exists()
