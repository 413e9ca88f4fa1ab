"""Settings that would take all memory, or for ever, are refused before anything is built."""

import json
import os

import pytest

from gpo.limits import MAX_BYTES
from gpo.model.config import OperatorConfig
from gpo.model.operator import GaussianParticleOperator
from gpo.model.problem import Problem
from gpo.numerics.domain import Domain
from gpo.settings_files import CheckpointError, read_yaml
from gpo.training.config import RunConfig, read_parts
from gpo_bench.baselines.fno import FNOConfig
from gpo_bench.baselines.m2no import M2NOConfig
from gpo_bench.baselines.transolver import TransolverConfig


def test_references_in_yaml_are_refused(tmp_path):
    path, first = tmp_path / "a.yaml", "a0: &a0 [x, x, x, x, x, x, x, x, x, x]"
    more = [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]
    path.write_text("\n".join([first, *more]))
    with pytest.raises(ValueError, match=r"must repeat settings instead of the alias `\*a0`"):
        read_parts(path)


@pytest.mark.parametrize("text", ["[" * 20_000, "a: " + "{a: " * 20_000, "- " * 20_000])
def test_yaml_that_is_nested_without_end_is_refused(tmp_path, text):
    (tmp_path / "a.yaml").write_text(text)
    with pytest.raises(ValueError, match="nested at most 20 deep"):
        read_parts(tmp_path / "a.yaml")


def test_yaml_that_is_no_file_of_settings_is_refused(tmp_path):
    (tmp_path / "a.yaml").write_text("# long\n" * 2**18)
    with pytest.raises(ValueError, match="at most 1048576 bytes"):
        read_yaml(tmp_path / "a.yaml")
    os.mkfifo(tmp_path / "b.yaml")
    with pytest.raises(ValueError, match="is not a regular file"):
        read_yaml(tmp_path / "b.yaml")
    with pytest.raises(ValueError, match="is a folder, must be a file"):
        read_yaml(tmp_path)


def test_a_million_layers_in_a_file_of_settings_are_refused(tmp_path):
    (tmp_path / "a.yaml").write_text("model: {num_layers: 1000000}")
    with pytest.raises(
        ValueError, match="`num_layers` must be at most 1000, got num_layers=1000000"
    ):
        RunConfig().updated_from_file(tmp_path / "a.yaml")


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (TransolverConfig, "num_layers"),
        (OperatorConfig, "num_layers"),
    ],
)
def test_no_model_takes_a_million_layers(kind, name):
    with pytest.raises(ValueError, match=f"`{name}` must be at most 1000"):
        kind(**{name: 10**6})


def test_repeated_sweeps_are_bounded_too():
    with pytest.raises(ValueError, match="`sweeps` must be at most 1000"):
        M2NOConfig(sweeps=(1, 1, 10**6))


def test_a_width_says_what_memory_it_would_take(monkeypatch):
    monkeypatch.setenv(MAX_BYTES, str(2**30))
    message = r"`hidden_dim` is too large: hidden_dim=65536 would take 64 GiB.*GPO_MAX_BYTES="
    with pytest.raises(ValueError, match=message):
        OperatorConfig(hidden_dim=2**16)
    with pytest.raises(ValueError, match="`width` is too large"):
        TransolverConfig(width=2**16)
    with pytest.raises(ValueError, match="`widths` is too large"):
        FNOConfig(widths=(16, 2**16, 16, 16, 16))
    monkeypatch.setenv(MAX_BYTES, str(2**37))
    assert OperatorConfig(hidden_dim=2**16).hidden_dim == 2**16


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("num_waves", 10**18, "from 1 to 10000"),
        ("packet_widths", (1e-308,), "from 0.001 to 1000"),
        ("packet_widths", (1.0, float("nan")), "from 0.001 to 1000"),
    ],
)
def test_waves_and_widths_without_bounds_are_refused(name, value, expected):
    with pytest.raises(ValueError, match=f"`{name}` must be {expected}"):
        OperatorConfig(**{name: value})


def test_a_model_folder_that_says_a_million_layers_is_refused(tmp_path):
    GaussianParticleOperator(Problem(1, 1, Domain.unit_box(1))).save_pretrained(tmp_path)
    file = tmp_path / "config.json"
    stored = json.loads(file.read_text())
    stored["config"]["num_layers"] = 10**6
    file.write_text(json.dumps(stored))
    with pytest.raises(CheckpointError, match="`num_layers` must be at most 1000"):
        GaussianParticleOperator.from_pretrained(tmp_path)
