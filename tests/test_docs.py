"""The documentation is complete, its links and flags exist, and its code runs as printed."""

import ast
import contextlib
import functools
import io
import json
import re
from pathlib import Path

import numpy as np
import pytest
import torch

import gpo
from gpo import Domain, Problem
from gpo.cli import main
from gpo.model.registry import MODELS, listed_models

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
GUIDES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.glob("*.md"))]
SCRIPTS = sorted((ROOT / "examples").glob("*.py"))
PAGES = [*GUIDES, *sorted((ROOT / "benchmarks").glob("**/*.md"))]
FOREIGN_FLAGS = {"nproc-per-node", "nnodes", "max-restarts", "only", "help"}
"""Flags of torchrun and of benchmarks/scale.py."""
STOP_WORDS = {"abstract", "count", "error", "open", "read"}
"""Words of public names that mean what they mean in English."""


def python_blocks(path):
    return re.findall(r"```python\n(.*?)```", path.read_text(encoding="utf-8"), re.DOTALL)


def named(path):
    return str(path.relative_to(ROOT))


# The pages as a whole


@pytest.mark.parametrize("path", [*GUIDES, *SCRIPTS], ids=named)
def test_docs_and_examples_import_from_gpo_only(path):
    sources = python_blocks(path) if path.suffix == ".md" else [path.read_text(encoding="utf-8")]
    for source in sources:
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Import):
                modules = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                modules = [node.module or ""]
                if node.module == "gpo":
                    assert {alias.name for alias in node.names} <= set(gpo.__all__)
            else:
                continue
            assert not [module for module in modules if module.startswith("gpo.")]
    if path != ROOT / "CONTRIBUTING.md":
        assert not re.findall(r"(?:from|import) `?gpo\.\w+", path.read_text(encoding="utf-8"))


def test_notebooks_import_from_gpo_only():
    for path in (*ROOT.glob("docs/**/*.ipynb"), *ROOT.glob("examples/**/*.ipynb")):
        cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
        code = "".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
        assert not re.findall(r"(?:from|import) gpo\.", code)


@pytest.mark.parametrize("path", PAGES, ids=named)
def test_relative_links_lead_to_a_file_and_a_heading(path):
    for link in re.findall(r"\]\(([^)\s]+)\)", path.read_text(encoding="utf-8")):
        if "://" in link:
            continue
        file, _, anchor = link.partition("#")
        target = path.parent / file if file else path
        assert target.exists(), link
        if anchor:
            headings = re.findall(r"^#+ (.*)$", target.read_text(encoding="utf-8"), re.MULTILINE)
            assert anchor in {slug(heading) for heading in headings}, link


def slug(heading):
    """The anchor that a Markdown heading gets."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def test_every_guide_is_in_the_index():
    links = set(re.findall(r"\]\((\w+\.md)\)", (DOCS / "index.md").read_text(encoding="utf-8")))
    assert links == {path.name for path in DOCS.glob("*.md")} - {"index.md"}


@pytest.mark.parametrize("path", [*GUIDES, ROOT / "SECURITY.md"], ids=named)
def test_every_file_a_guide_names_exists(path):
    packages = "|".join(folder.name for folder in (ROOT / "src/gpo").iterdir() if folder.is_dir())
    text = path.read_text(encoding="utf-8")
    files = [
        ROOT / "src/gpo" / file for file in re.findall(rf"`((?:{packages})/[\w/]+\.py)`", text)
    ]
    files += [ROOT / file for file in re.findall(r"((?:src|tests|benchmarks)/[\w/]+\.py)", text)]
    for file in files:
        assert file.stem == "NAME" or file.is_file(), file


# The glossary


def glossary_entries():
    text = (DOCS / "glossary.md").read_text(encoding="utf-8")
    return re.findall(r"^\*\*(.+?)\*\* – ", text, re.MULTILINE)


def test_every_function_beside_the_file_of_an_equation_is_defined_there():
    text = (DOCS / "paper.md").read_text(encoding="utf-8")
    pairs = re.findall(r"`([\w/]+\.py)`((?:, `[\w.]+`)+)", text)
    assert len(pairs) >= 14
    for file, names in pairs:
        source = (ROOT / "src" / "gpo" / file).read_text(encoding="utf-8")
        for name in re.findall(r"[\w]+", names):
            assert re.search(rf"(class|def) {name}\b", source), f"{file}: {name}"


def test_the_glossary_is_alphabetical_and_says_everything_once():
    entries = [entry.lower() for entry in glossary_entries()]
    assert entries == sorted(set(entries))


def test_every_word_of_the_public_names_is_in_the_glossary():
    defined = {word.lower() for entry in glossary_entries() for word in re.findall(r"\w+", entry)}
    used = {word for name in gpo.__all__ for word in words(name)} - STOP_WORDS
    assert {word for word in used if not defined & {word, *singulars(word)}} == set()


def words(name):
    """The words of an identifier in either case; none of a name such as `__version__`."""
    parts = name.split("_") if name.islower() else re.findall(r"[A-Z][a-z0-9]*", name)
    return [] if name.startswith("__") else [part.lower() for part in parts]


def singulars(word):
    """What a plural may be the plural of."""
    return [word.removesuffix("s"), word.removesuffix("es"), re.sub("ies$", "y", word)]


# Commands and flags


@functools.cache
def help_of(*command):
    """What `gpo COMMAND --help` prints."""
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), pytest.raises(SystemExit) as stopped:
        main([*command, "--help"])
    assert stopped.value.code == 0
    return printed.getvalue()


@pytest.mark.parametrize("path", PAGES[: len(GUIDES) + 1], ids=named)
def test_every_command_a_page_shows_has_its_flags(path):
    text = path.read_text(encoding="utf-8")
    shown = re.findall(
        r"(?:^|`|-m )gpo ((?:data |bench )?[a-z0-9]+\b)([^`\n#]*)", text, re.MULTILINE
    )
    for command, rest in shown:
        # Flags depend on the model.
        words = [*command.split(), *re.findall(r"(--model) (\S+)", rest)[:1]]
        words = [word for part in words for word in ([part] if isinstance(part, str) else part)]
        for flag in re.findall(r"--([a-z][a-z-]+)", rest):
            assert f"--{flag}" in help_of(*words), f"gpo {command} --{flag}"


def test_every_flag_the_pages_name_exists():
    commands = ("run", "run --model gpo-paper", "run --model unet", "train", "evaluate", "predict", "export", "explore", "interpret", "represent", "data make",
                "data info", "data plot", "data fetch", "bench figures", "bench table1", "bench ablation", "bench rollout", "bench efficiency")  # fmt: skip
    known = set(re.findall(r"--([a-z][a-z-]+)", " ".join(help_of(*c.split()) for c in commands)))
    for path in DOCS.glob("*.md"):
        flags = set(re.findall(r"--([a-z][a-z-]+)", path.read_text(encoding="utf-8")))
        assert flags - FOREIGN_FLAGS <= known, path.name


# Code that runs as printed


def test_a_model_of_ones_own_is_registered_as_the_page_shows(monkeypatch):
    (block,) = python_blocks(DOCS / "baselines.md")
    assert len([line for line in block.splitlines() if line.strip()]) <= 10
    with monkeypatch.context() as patch:
        patch.setitem(MODELS, "mine", None)
        del MODELS["mine"]
        exec(compile(block, "baselines.md", "exec"), {})
        model = MODELS["mine"].build(Problem(2, 1, Domain.unit_box(2)))
    assert model(torch.zeros(1, 5, 2), torch.zeros(5, 2)).shape == (1, 5, 1)
    assert "mine" not in MODELS


def test_data_is_opened_as_the_page_shows(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    in_memory, block = python_blocks(DOCS / "data.md")
    names: dict = {}
    exec(compile(in_memory, "data.md", "exec"), names)
    assert names["data"].variables[0].name == "t2m"
    exec(compile(block, "data.md", "exec"), names)
    assert names["frames"].shape == (4, 32 * 16, 1)
    assert names["geometry"].num_points == 32 * 16
    assert names["coarse"].geometry().num_points == 16 * 8


def test_the_names_of_the_index_can_be_imported():
    (block,) = python_blocks(DOCS / "index.md")
    exec(compile(block, "index.md", "exec"), {})


def test_a_run_is_configured_as_the_page_shows(tmp_path):
    (block,), names = python_blocks(DOCS / "training.md"), {}
    exec(compile(block, "training.md", "exec"), names)
    (stored,) = re.findall(r"```yaml\n(.*?)```", (DOCS / "training.md").read_text(), re.DOTALL)
    (tmp_path / "run.yaml").write_text(stored)
    same = gpo.RunConfig.of().updated_from_file(tmp_path / "run.yaml")
    assert same == names["config"]


def test_particles_are_chosen_measured_and_saved_as_the_page_shows(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (block,) = python_blocks(DOCS / "particles.md")
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


def test_a_field_is_represented_pruned_and_compared_as_the_page_shows():
    (block,) = python_blocks(DOCS / "represent.md")
    names: dict = {}
    exec(compile(block, "represent.md", "exec"), names)
    given = names["values"], names["coords"], names["weights"]
    error, fewer = names["mixture"].error(*given), names["fewer"]
    assert error < 0.1
    assert fewer.error(*given) <= 1.5 * error * (1 + 1e-6)
    assert names["derivatives"].gradients.shape == (5, 1, 2)
    assert 0 < len(names["comparison"].labels) <= len(fewer)


# Tables that list what code has


def test_every_baseline_is_in_the_list_and_its_files_exist():
    text = (DOCS / "baselines.md").read_text(encoding="utf-8")
    source = DOCS.parent / "src" / "gpo_bench" / "baselines"
    for name in listed_models()[2:]:
        (row,) = re.findall(rf"^\| `{name}` \|.*$", text, re.MULTILINE)
        files = re.findall(r"`(\w+\.py)`", row)
        assert files
        assert all((source / file).is_file() for file in files)


def test_every_key_of_an_exported_description_and_every_flag_is_explained():
    from gpo.cli.export import ExportCommand
    from gpo.data.query_points import QueryPoints
    from gpo.exporting.describe import describe_program
    from gpo.exporting.export import active_sites
    from tests.core.training.series import decaying_waves
    from tests.core.training.test_training import task

    text, data = (DOCS / "export.md").read_text(), decaying_waves(missing=[3, 5])
    is_known, sites = active_sites(data, task(), 0), data.geometry()
    said = describe_program(
        task(), data, sites, is_known, queries=QueryPoints.of(sites.chosen(np.arange(4)))
    )
    assert said["sites"]["masked"] == [3, 5]
    assert said["input"]["units"] == ["K", ""]
    assert said["queries"]["points"][1] == pytest.approx([1 / 24])
    assert all(f"`{key}`" in text for key in said)
    flags = {name for name in ExportCommand.__dataclass_fields__ if name != "folder"}
    assert set(re.findall(r"`--([a-z]+)", text)) == flags


def test_every_key_of_interpret_json_is_explained():
    from gpo.interpretation.interpretation import interpret
    from tests.core.interpretation.readings import series, untrained

    text = (DOCS / "interpret.md").read_text()
    data = series()
    for variant in ("geometric", "paper"):
        forecaster, samples = untrained(data, variant=variant, num_layers=1)
        found = interpret(forecaster, data, samples, num_examples=1)
        keys = {
            *found.structures,
            *found.windows,
            *found.ablations,
            *found.stability["half_resolution"],
        }
        keys |= {
            *found.windows["layers"][0],
            *found.ablations["faithfulness"],
            *found.ablations["layers"][0],
        }
        keys |= {*found.ablations["regions"]["effects"][0]}
        motion = found.motion
        if variant == "geometric":
            keys |= {
                *motion,
                *motion["particles"][0],
                *motion["controls"],
                *motion["budget"]["parts"],
            }
        known = {"removed", "num_random", "num_modes", "layers"}
        assert {key for key in keys - known if f"`{key}`" not in text} == set()
