"""What a step takes is told before it is taken, and refused where there is not as much memory."""

import json

import numpy as np
import pytest

from gpo import Domain, Problem
from gpo.cli import main
from gpo.data.dataset import DataError
from gpo.data.readers.base import ReadOptions
from gpo.data.readers.registry import open_data
from gpo.execution.memory import KEPT_BYTES
from gpo.model.model import build_model
from gpo.training.config import RunConfig
from gpo.training.setup import training_memory
from tests.core.test_cli import failure

SIZES = ["--no-auto", "--hidden-dim", "8", "--num-layers", "1", "--epochs", "1", "--quiet"]


def npz(folder):
    """Writes a short series on unstructured points."""
    random, path = np.random.default_rng(0), folder / "points.npz"
    fields = {name: random.normal(size=(30, 20)) for name in "uv"}
    np.savez(path, coords=random.random((20, 2)), time=np.arange(30.0), **fields)
    return path


def need(num_sites, *, dim=2, samples=1, is_grid=False, trains=True):
    operator = build_model("gpo", Problem(1, 1, Domain.unit_box(dim)))
    needed_bytes = operator.execution.needed_bytes
    return needed_bytes(num_sites, samples, is_grid=is_grid, trains=trains)


def test_scattered_sites_take_what_was_measured():
    # Peak resident memory of a step above that of the model, in MB.
    measured = {(20_000, 2, 1): 223, (100_000, 2, 1): 1048, (100_000, 2, 4): 1633, (30_000, 3, 1): 753}  # fmt: skip
    for (sites, dim, samples), megabytes in measured.items():
        assert 0.7 < need(sites, dim=dim, samples=samples) / (megabytes * 2**20) < 2


def test_grids_take_less_and_forecasts_no_more_than_training():
    assert need(10**5, is_grid=True) < need(10**5) / 2
    assert need(10**6, trains=False) <= need(10**6)
    assert need(10**6, samples=64) > KEPT_BYTES


def test_a_million_sites_are_refused_before_they_take_memory(tmp_path, monkeypatch):
    coords = np.random.default_rng(0).random((10**6, 2))
    np.savez(tmp_path / "many.npz", coords=coords, time=np.arange(2.0), u=np.zeros((2, 10**6), np.float32))  # fmt: skip
    data = open_data(tmp_path / "many.npz", ReadOptions())
    config = RunConfig.of(data="many.npz", batch_size=8)
    monkeypatch.setenv("GPO_MAX_BYTES", str(2**30))
    with pytest.raises(
        DataError, match=r"1,000,000 sites would take about .* GiB of memory at once"
    ):
        training_memory(data, config)
    monkeypatch.setenv("GPO_MAX_BYTES", str(2**40))
    assert training_memory(data, config) > 2**30


def test_run_and_predict_say_what_allows_it(tmp_path, monkeypatch, capsys):
    path, run = npz(tmp_path), tmp_path / "run"
    main(["train", "--data", str(path), *SIZES, "--out", str(run)])
    monkeypatch.setenv("GPO_MAX_BYTES", "20000")
    _, said = failure(
        capsys, "train", "--data", str(path), *SIZES, "--out", str(tmp_path / "other")
    )
    assert "20 sites would take about" in said
    assert "allow it: GPO_MAX_BYTES=" in said
    _, said = failure(capsys, "predict", str(run), "--input", str(path), "--output", str(tmp_path / "f.nc"))  # fmt: skip
    assert "20 sites would take about" in said


@pytest.mark.parametrize(("field", "value", "message"), [
    ("lead", 2, "field `task.lead` must be 2, as in the trained model, got 1"),
    ("output_std", [0.0, 1.0], "field `output_std` must be above 0"),
])  # fmt: skip
def test_a_forecast_with_another_task_than_that_of_the_run_is_refused(
    tmp_path, capsys, field, value, message
):
    path, run = npz(tmp_path), tmp_path / "run"
    main(["train", "--data", str(path), *SIZES, "--out", str(run)])
    stored = json.loads((run / "model/task.json").read_text())
    del stored["content_sha256"]
    (run / "model/task.json").write_text(json.dumps(stored | {field: value}))
    _, said = failure(capsys, "predict", str(run), "--input", str(path), "--output", str(tmp_path / "f.nc"))  # fmt: skip
    assert message in said
