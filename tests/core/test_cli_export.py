"""`gpo export` from a run folder to a file, and what it says where it cannot."""

import json

import numpy as np
import pytest
import torch

from gpo.cli import main
from gpo.data.readers.registry import open_data
from gpo.forecast.forecaster import Forecaster
from tests.contracts.samples import ns2d
from tests.core.data.readers.synthetic_weather import write_era5
from tests.core.test_cli import failure

pytestmark = pytest.mark.usefixtures("untyped")

SIZES = ["--hidden-dim", "8", "--num-layers", "1", "--num-gaussians", "2",
         "--epochs", "1", "--quiet"]  # fmt: skip


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """A run on a periodic grid, and one of a baseline."""
    folder = tmp_path_factory.mktemp("runs")
    data = str(ns2d(folder))
    for name, flags in {
        "run": [*SIZES, "--no-blend"],
        "fno": ["--model", "fno", "--epochs", "1", "--quiet"],
    }.items():
        main(["train", "--data", data, *flags, "--out", str(folder / name)])
    return folder


def loaded(path):
    """Returns the program of a file and its description."""
    extra = {"gpo.json": ""}
    program = torch.export.load(path, extra_files=extra)
    return program.module(), json.loads(extra["gpo.json"])


@pytest.mark.thorough
def test_a_file_predicts_on_the_sites_of_the_run_and_says_what_it_needs(runs, capsys):
    path = runs / "programs" / "model.pt2"
    main(["export", str(runs / "run"), "--output", str(path)])
    assert "model.pt2 (" in capsys.readouterr().out
    program, said = loaded(path)
    data, forecaster = open_data(runs / "ns.mat"), Forecaster.load(runs / "run" / "model")
    sites = data.geometry()
    assert said["input"]["variables"] == said["output"]["variables"] == ["vorticity"]
    assert said["input"]["history"] == said["lead"] == 1
    assert said["output"]["axes"] == ["batch", "sites", "variables"]
    assert said["sites"]["grid_shape"] == list(sites.grid_shape)
    axes = [axis["values"] for axis in said["sites"]["axes"]]
    np.testing.assert_allclose(np.meshgrid(*axes, indexing="ij")[1].ravel(), sites.coords[:, 1])
    frames = torch.from_numpy(data.frames(0, slice(-1, None)).astype(np.float32))[None]
    coords, weights = (torch.from_numpy(part.astype(np.float32)) for part in (sites.coords, sites.weights))  # fmt: skip
    expected = forecaster(frames, coords, weights=weights)
    torch.testing.assert_close(program(frames), expected)


@pytest.mark.thorough
def test_queries_are_in_the_file(tmp_path):
    data = tmp_path / "weather.nc"
    write_era5(data, num_times=60)
    main(["train", "--data", str(data), *SIZES, "--history", "2", "--time-features", "day",
          "--out", str(tmp_path / "run")])  # fmt: skip
    (tmp_path / "towns.csv").write_text("lon lat\n2.3 48.8\n-0.1 51.5\n")
    main(["export", str(tmp_path / "run"), "--output", str(tmp_path / "towns.pt2"),
          "--queries", str(tmp_path / "towns.csv")])  # fmt: skip
    program, said = loaded(tmp_path / "towns.pt2")
    np.testing.assert_allclose(said["queries"]["points"], [[2.3, 48.8], [-0.1, 51.5]], atol=1e-5)
    assert said["output"]["axes"] == ["batch", "queries", "variables"]
    sites, names = said["sites"]["count"], said["input"]["variables"]
    assert names == ["day_cos", "day_sin", *said["output"]["variables"]]
    assert program(torch.zeros(3, 2, sites, len(names))).shape == (3, 2, len(names) - 2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("nowhere", "--output", "x.pt2"), "nowhere is not a run folder: it has no config.yaml. Create one with gpo run."),
        (("run", "--output", "x.pth"), "must end in .pt2 or .onnx, got 'x.pth'"),
        (("run", "--output", "there.pt2"), "there.pt2 exists. Choose another name, or delete it."),
        (("run", "--output", "x.pt2", "--sample", "99"), "`sample` must be from 0 to"),
        (("run", "--output", "x.pt2", "--grid", "4", "4", "4"), "--grid takes 2 counts"),
        (("run", "--output", "x.pt2", "--queries", "a", "--grid", "4", "4"), "Give either --queries or --grid"),
        (("fno", "--output", "x.pt2"), "The model must be gpo or gpo-paper, got fno"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, tuple) else "",
)  # fmt: skip
def test_what_is_wrong_is_said_in_one_line(runs, arguments, message, capsys, monkeypatch):
    monkeypatch.chdir(runs)
    (runs / "there.pt2").touch()
    code, printed = failure(capsys, "export", *arguments)
    assert code == 1
    assert message in printed
    assert "Traceback" not in printed
    assert not list(runs.glob("*x.p*"))
