"""What the documentation shows runs as printed."""

import re
from pathlib import Path

import numpy as np
import torch

from gpo import Domain
from gpo.baselines import REGISTRY, Problem

DOCS = Path(__file__).parent.parent / "docs"


def test_a_model_of_ones_own_is_registered_as_the_page_shows(monkeypatch):
    (block,) = re.findall(r"```python\n(.*?)```", (DOCS / "baselines.md").read_text(), re.DOTALL)
    assert len([line for line in block.splitlines() if line.strip()]) <= 10
    with monkeypatch.context() as patch:
        patch.setitem(REGISTRY, "mine", None)
        exec(compile(block, "baselines.md", "exec"), {})
        model = REGISTRY["mine"](Problem(2, 1, Domain.unit_box(2)))
    assert model(torch.zeros(1, 5, 2), torch.zeros(5, 2)).shape == (1, 5, 1)


def test_particles_are_chosen_measured_and_saved_as_the_page_shows(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (block,) = re.findall(r"```python\n(.*?)```", (DOCS / "particles.md").read_text(), re.DOTALL)
    names: dict = {}
    exec(compile(block, "particles.md", "exec"), names)
    assert len(names["heavy"]) == 200
    assert torch.equal(names["same"].centers, names["heavy"].centers)
    assert names["outlines"].shape == (200, 64, 2)
    assert names["there"].gradients.shape == (100, 2)
    assert len(names["steps"].frames) == 3 * len(names["cloud"]) // 4
    assert torch.equal(names["trace"].output, names["again"].output)
    files = {path.name for path in tmp_path.iterdir()}
    assert files == {"particles.nc", "particles.vtp", "particles.ply", "trace.zarr"}


def test_every_baseline_is_in_the_list_and_its_files_exist():
    text = (DOCS / "baselines.md").read_text()
    source = DOCS.parent / "src" / "gpo" / "baselines"
    for name in REGISTRY:
        (row,) = re.findall(rf"^\| `{name}` \|.*$", text, re.MULTILINE)
        files = re.findall(r"`(\w+\.py)`", row)
        assert files
        assert all((source / file).is_file() for file in files)


def test_every_flag_the_pages_name_exists():
    from gpo.cli.predict import PredictCommand
    from gpo.cli.run import TrainCommand
    from gpo.training.config import RunConfig
    from gpo.training.settings import GeometricSettings, PaperSettings

    parts = [type(part) for part in vars(RunConfig()).values()]
    known = {
        name.replace("_", "-")
        for cls in (*parts, GeometricSettings, PaperSettings, TrainCommand, PredictCommand)
        for name in cls.__dataclass_fields__
    } | {"model"}
    flags = set(re.findall(r"--([a-z][a-z-]+)", (DOCS / "training.md").read_text()))
    assert flags - {"nproc-per-node", "help"} <= known


def test_every_key_of_an_exported_description_and_every_flag_is_explained():
    from gpo.cli.export import ExportCommand, known_sites
    from gpo.data.places import Places
    from gpo.exporting.describe import describe_program
    from tests.training.series import decaying_waves
    from tests.training.test_training import task

    text, data = (DOCS / "export.md").read_text(), decaying_waves(missing=[3, 5])
    is_known, sites = known_sites(data, task(), 0), data.geometry()
    said = describe_program(
        task(), data, sites, is_known, queries=Places.of(sites.chosen(np.arange(4)))
    )
    assert said["sites"]["masked"] == [3, 5]
    assert said["input"]["units"] == ["K", ""]
    assert said["queries"]["points"][1] == [0.0416666667]
    assert all(f"`{key}`" in text for key in said)
    flags = {name for name in ExportCommand.__dataclass_fields__ if name != "folder"}
    assert set(re.findall(r"`--([a-z]+)", text)) == flags


def test_every_key_of_interpret_json_is_explained():
    from gpo.interpretation.interpretation import interpret
    from tests.interpretation.readings import series, untrained

    text = (DOCS / "interpret.md").read_text()
    data = series()
    for variant in ("geometric", "paper"):
        forecaster, members = untrained(data, variant=variant, num_layers=1)
        found = interpret(forecaster, data, members, num_examples=1)
        keys = {
            *found.structures,
            *found.windows,
            *found.causes,
            *found.stability["half_resolution"],
        }
        keys |= {
            *found.windows["layers"][0],
            *found.causes["faithfulness"],
            *found.causes["layers"][0],
        }
        keys |= {*found.causes["regions"]["effects"][0]}
        known = {"removed", "num_random", "num_modes", "layers"}
        assert {key for key in keys - known if f"`{key}`" not in text} == set()
