"""Experiments run once, resume after a kill and report failures; tested without training."""

import json
import re
from collections import Counter
from dataclasses import asdict, replace
from itertools import product
from pathlib import Path

import pytest
from filelock import FileLock

from gpo.cli import main
from gpo.evaluation.results import Results
from gpo.model.losses import LossWeights
from gpo.model.problem import Problem
from gpo.training.config import RunConfig
from gpo.training.setup import new_model
from gpo_bench import experiment as experiment_module
from gpo_bench import protocol
from gpo_bench.ablation import ROWS, ablation_experiments, ablation_table, separation
from gpo_bench.benchmarks import BENCHMARKS
from gpo_bench.columns import COLUMNS, PAPER, NoDataError
from gpo_bench.command import GridOptions
from gpo_bench.curves import (
    collect_convergence,
    collect_rollouts,
    collect_spectra,
    convergence_table,
    rollout_table,
    spectrum_table,
    transfer_table,
)
from gpo_bench.experiment import Experiment, ExperimentError, Outcome
from gpo_bench.experiment_grid import ExperimentGrid
from gpo_bench.protocol import LEARNING_RATES, MODELS, OPTIMIZERS, Candidate, Protocol
from gpo_bench.table1 import table1, table1_experiments
from tests.contracts.samples import ns2d
from tests.processes import finish_forked

PROTOCOL = Protocol("budget", 60.0)
BETTER_RATE = 8e-3
CHOSEN = ("model", "optimizer", "learning_rate")
ERRORS = {"gpo": 0.02, "fno": 0.03, "lno": 0.5}


@pytest.fixture
def calls(monkeypatch):
    """Replaces `gpo` by a function that writes the files of a run; returns the list of its calls."""
    calls = []

    def call(command, settings, out, threads):
        calls.append((command, settings))
        model, rate = settings["model"], settings["learning_rate"]
        if model == "cno":
            raise ExperimentError("cno cannot take these sites: needs a grid")
        log = out / "log" / "version_0"
        log.mkdir(parents=True)
        RunConfig.of(**settings).save(out / "config.yaml")
        score = {LEARNING_RATES[1]: 0.1, BETTER_RATE: 0.05}.get(rate, 0.2)
        # Muon is better for fno and worse for the others.
        score *= {"adamw": 1.0, "muon": 0.9 if model == "fno" else 1.1}[settings["optimizer"]]
        lines = [
            "epoch,step,validation/rmse_over_std,cpu_seconds",
            f"0,20,{2 * score},7.5",
            f"1,41,{score},60.2",
        ]
        log.joinpath("metrics.csv").write_text("\n".join(lines))
        if command == "run":
            error = ERRORS.get(model, 0.9)
            spectrum = {"w": {"label": "wave number", "quantity": "kinetic energy", "wavenumbers": [0, 1, 2], "truth at the end": [0, 2, 1],
                              "model at the end": [0, 1, 1], "errors": {"low": error, "middle": 1.0, "high": 1.0}}}  # fmt: skip
            Results(
                7, {"model": {"relative_l2": error}, "persistence": {"relative_l2": 0.3}}, {},
                rollout={"model": [error * (1 + settings["seed"]), None], "persistence": [0.3, 0.6]}, spectrum=spectrum,
                model={"parameters": 12},
                resolution={"1x": {"model": error}, "2x": {"model": 1.25 * error}, "random 70% of the sites": {"reason": "needs a grid"}},
            ).save(out)  # fmt: skip

    monkeypatch.setattr(experiment_module, "run_gpo", call)
    return calls


def make(tmp_path, models=("gpo", "fno", "cno")):
    experiments, missing = table1_experiments(models, ("ns2d", "carra"), PROTOCOL, tmp_path, (0, 1))
    grid = ExperimentGrid(tmp_path / "runs", str(PROTOCOL))
    grid.run(experiments, jobs=2)
    return experiments, missing, grid


def test_every_model_has_the_same_protocol(tmp_path, calls):
    make(tmp_path)
    runs = [settings for command, settings in calls if command == "run"]
    assert {settings["model"] for settings in runs} == {"gpo", "fno"}
    varying = {"model", "seed", "optimizer", "learning_rate"}
    rules = [{k: v for k, v in settings.items() if k not in varying} for settings in runs]
    assert all(rule == rules[0] for rule in rules)
    assert rules[0]["budget_cpu"] == 60
    tuning = [settings for command, settings in calls if command == "train"]
    short, long = ([s for s in tuning if s["budget_cpu"] == amount] for amount in (10, 30))
    assert len(short) + len(long) == len(tuning)
    # All seeds of a model share one choice, and all models have the same candidates.
    tried = [tuple(s[name] for name in CHOSEN) for s in short if s["model"] != "cno"]
    assert sorted(tried) == sorted(product(("gpo", "fno"), OPTIMIZERS, LEARNING_RATES))
    # The best rate of each optimizer, three times as long.
    finals = [tuple(s[name] for name in CHOSEN) for s in long]
    assert sorted(finals) == sorted(product(("gpo", "fno"), OPTIMIZERS, LEARNING_RATES[1:2]))


def test_the_pair_of_optimizer_and_rate_with_the_best_validation_score_is_taken(tmp_path, calls):
    _, _, grid = make(tmp_path)
    best = {("gpo", "adamw", LEARNING_RATES[1]), ("fno", "muon", LEARNING_RATES[1])}
    assert {
        tuple(run[name] for name in CHOSEN) for command, run in calls if command == "run"
    } == best
    assert {(row, *asdict(each[0].candidate).values()) for (row, _), each in grid.outcomes.items()} == best  # fmt: skip


def test_scores_and_outcomes_of_earlier_versions_are_those_of_adamw(tmp_path, calls, monkeypatch):
    with monkeypatch.context() as earlier:
        earlier.setattr(protocol, "OPTIMIZERS", ("adamw",))
        experiments, _, grid = make(tmp_path, ["fno"])
    grid.save(tmp_path / "experiments.json")
    outcomes = [experiment.folder(grid.root) / "outcome.json" for experiment in experiments]
    for path in (tmp_path / "experiments.json", *outcomes):
        path.write_text(re.sub(r',\s*"optimizer": "adamw"', "", path.read_text()))
    scores = experiments[0].tuning(grid.root).folder / "scores.json"
    assert list(json.loads(scores.read_text())) == ["0.0005", "0.002", "0.006"]
    again = ExperimentGrid(grid.root, str(PROTOCOL))
    again.take_earlier(tmp_path / "experiments.json")
    assert again.outcomes == grid.outcomes
    # Only Muon is tried, and runs again because it is better.
    calls.clear()
    make(tmp_path, ["fno"])
    assert Counter((command, settings["optimizer"]) for command, settings in calls) == {("train", "muon"): 4, ("train", "adamw"): 1, ("run", "muon"): 2}  # fmt: skip
    assert list(json.loads(scores.read_text()))[3:] == ["muon 0.0005", "muon 0.002", "muon 0.006"]


def test_a_finished_experiment_is_not_repeated(tmp_path, calls):
    make(tmp_path)
    before = len([command for command, settings in calls if settings["model"] != "cno"])
    make(tmp_path)
    assert len([command for command, settings in calls if settings["model"] != "cno"]) == before


@pytest.mark.parametrize(("added", "then"), [(9e-3, []), (BETTER_RATE, ["run", "run"])])
def test_an_experiment_tries_what_was_added_to_the_learning_rates(
    tmp_path, calls, monkeypatch, added, then
):
    make(tmp_path, ["gpo"])
    before = len(calls)
    monkeypatch.setattr(protocol, "LEARNING_RATES", (*LEARNING_RATES, added))
    _, _, grid = make(tmp_path, ["gpo"])
    # The new rate is tried once for both seeds; only where it is better they run again.
    trials = ["train"] * (4 if then else 2)
    assert sorted(command for command, _ in calls[before:]) == [*then, *trials]
    assert {settings["learning_rate"] for _, settings in calls[before:]} == {added}
    best = added if then else LEARNING_RATES[1]
    assert {outcome.learning_rate for outcome in grid.outcomes["gpo", "ns2d"]} == {best}


def test_missing_scores_are_computed_when_they_are_needed(tmp_path, calls, monkeypatch):
    experiments, _, _ = make(tmp_path, ["gpo"])
    root, scored = tmp_path / "runs", []
    path = experiments[0].run_folder(root).results_file
    whole = Results.load(path)
    replace(whole, rollout={}, scope="one-step").save(path.parent)

    def evaluate(run, threads):
        scored.append((run, threads))
        whole.save(run)

    monkeypatch.setattr(experiment_module, "evaluate", evaluate)
    for experiment in experiments[:1] * 2:
        assert experiment.results(root).rollout == whole.rollout
    assert scored == [(path.parent, 1)]


def test_two_grids_do_not_run_the_same_experiment(tmp_path, calls):
    experiments, _ = table1_experiments(["gpo"], ["ns2d"], PROTOCOL, tmp_path, [0])
    folder = experiments[0].folder(tmp_path / "runs")
    folder.mkdir(parents=True)
    with FileLock(folder / "experiment.lock"):
        _, _, grid = make(tmp_path, ["gpo"])
    assert "another gpo bench is running this experiment" in grid.failures["gpo", "ns2d"]
    assert {settings["seed"] for command, settings in calls if command == "run"} == {1}


def test_other_settings_are_another_experiment():
    experiments = [Experiment("gpo", "ns2d", {"seed": seed}, Protocol(amount=amount)) for seed, amount in ((0, 60.0), (1, 60.0), (0, 61.0))]  # fmt: skip
    assert len({experiment.folder(Path()) for experiment in experiments}) == 3
    # All seeds share the choice of the learning rate.
    assert len({experiment.tuning(Path()).folder for experiment in experiments}) == 2


def test_the_table_has_scores_references_reasons_and_the_papers_numbers(tmp_path, calls):
    _, missing, grid = make(tmp_path)
    columns = ("ns2d", "ns2d-1e-5", "carra")
    text = table1(grid, ("gpo", "gpo-paper", "fno", "cno", "lno"), columns, missing, PROTOCOL).markdown()  # fmt: skip
    rows = {line.split("|")[1].strip(): line for line in text.splitlines() if line.startswith("|")}
    assert (
        rows["model"] == "| model | ns2d | ns2d-1e-5 | ns2d-1e-5 (paper) | carra | carra (paper) |"
    )
    assert rows["gpo"] == "| gpo | **0.02 ± 0 (42)** | - (not run) | - | - | - |"
    assert rows["gpo-paper"] == "| gpo-paper | - (not run) | - (not run) | 0.0302 | - | 0.297 |"
    assert rows["fno"] == "| fno | *0.03 ± 0 (42)* | - (not run) | 0.0324 | - | 0.35 |"
    assert rows["cno"] == "| cno | - (needs a grid) | - (not run) | 0.0927 | - | 0.689 |"
    assert rows["lno"] == "| lno | - (not run) | - (not run) | 0.0481 | - | 0.436 |"
    assert rows["persistence"] == "| persistence | 0.3 | - | - | - | - |"
    assert "carra: - (no carra.* in the folder of --files)." in text
    assert "60 CPU seconds of training for every model" in text
    assert "better on validation data: ns2d fno. All others have AdamW." in text
    assert "Test examples: ns2d 7" in text


def test_outcomes_and_failures_are_stored(tmp_path, calls):
    _, _, grid = make(tmp_path)
    grid.save(tmp_path / "experiments.json")
    stored = json.loads((tmp_path / "experiments.json").read_text())
    assert [(entry["row"], len(entry["seeds"])) for entry in stored["outcomes"]] == [("fno", 2), ("gpo", 2)]  # fmt: skip
    assert stored["failures"][0]["reason"] == "cno cannot take these sites: needs a grid"


def test_missing_rows_come_from_an_earlier_grid(tmp_path, calls):
    make(tmp_path)[2].save(tmp_path / "experiments.json")
    _, missing, grid = make(tmp_path, ["gpo"])
    grid.take_earlier(tmp_path / "experiments.json")
    text = table1(grid, ("gpo", "fno", "cno"), ("ns2d", "carra"), missing, PROTOCOL).markdown()
    assert "| gpo | **0.02 ± 0 (42)** |" in text
    assert "| fno | *0.03 ± 0 (42)* |" in text
    assert "| cno | - (needs a grid) |" in text
    (tmp_path / "experiments.json").write_text("{}")
    with pytest.raises(
        ValueError, match=r"experiments.json: must be an experiments.json of gpo bench table1"
    ):
        grid.take_earlier(tmp_path / "experiments.json")


def test_experiments_with_another_protocol_stay_marked(tmp_path, calls):
    _, missing, before = make(tmp_path)
    before.rules = "half the learning rates"
    before.save(tmp_path / "experiments.json")
    grid = make(tmp_path, ["gpo"])[2]
    grid.take_earlier(tmp_path / "experiments.json")
    grid.save(tmp_path / "both.json")
    again = ExperimentGrid(tmp_path / "runs", str(PROTOCOL))
    again.take_earlier(tmp_path / "both.json")
    for marked in (grid, again):
        text = table1(marked, ("gpo", "fno"), ("ns2d", "carra"), missing, PROTOCOL).markdown()
        assert "| gpo | **0.02 ± 0 (42)** |" in text
        assert "| fno | *0.03 ± 0 (42, other rules)* |" in text
        assert "Protocol of entries marked other rules: half the learning rates." in text


def test_experiments_of_a_column_that_has_other_settings_now_are_marked(
    tmp_path, calls, monkeypatch
):
    _, missing, before = make(tmp_path, ["fno"])
    before.save(tmp_path / "experiments.json")
    changed = replace(COLUMNS["ns2d"], settings={"history": 3})
    monkeypatch.setitem(COLUMNS, "ns2d", changed)
    grid = make(tmp_path, ["gpo"])[2]
    grid.take_earlier(tmp_path / "experiments.json")
    text = table1(grid, ("gpo", "fno"), ("ns2d", "carra"), missing, PROTOCOL).markdown()
    assert "| gpo | **0.02 ± 0 (42)** |" in text
    assert "| fno | *0.03 ± 0 (42, other rules)* |" in text
    assert "Settings of columns: ns2d history=3." in text


def test_a_table_of_finished_experiments_runs_nothing(tmp_path, calls):
    make(tmp_path, ["gpo"])
    num_calls = len(calls)
    experiments, _ = table1_experiments(["gpo", "fno"], ["ns2d"], PROTOCOL, tmp_path, (0, 1))
    grid = GridOptions(amount=60.0, runs=tmp_path / "runs", finished=True).run(experiments)
    assert list(grid.outcomes) == [("gpo", "ns2d")]
    assert len(calls) == num_calls
    with pytest.raises(ValueError, match="needs finished experiments in"):
        GridOptions(amount=60.0, runs=tmp_path / "empty", finished=True).run(experiments)


def test_curves_end_where_a_model_diverges(tmp_path, calls):
    experiments, _, grid = make(tmp_path)
    curves = collect_rollouts(experiments, grid.root)
    # The mean over two seeds; the references are the same for all.
    assert curves["gpo"] == ([1.0], [0.03])
    assert curves["persistence"] == ([1.0, 2.0], [0.3, 0.6])
    text = rollout_table(curves, "ns2d", PROTOCOL).markdown()
    assert "| gpo | **0.03** | - (diverged) |" in text
    spectra, about = collect_spectra(experiments, grid.root)
    assert spectra["truth"] == ([1, 2], [2, 1])
    assert about == {"quantity": "kinetic energy", "label": "wave number"}
    assert (
        "| gpo | **0.02** |" in spectrum_table(experiments, grid.root, "ns2d", PROTOCOL).markdown()
    )


def test_error_against_cpu_time_is_that_of_the_log(tmp_path, calls):
    experiments, _, grid = make(tmp_path, ["gpo"])
    curves = collect_convergence(experiments, grid.root)
    assert curves == {"gpo": ([7.5, 60.2], [0.2, 0.1])}
    text = convergence_table(curves, "ns2d", PROTOCOL).markdown()
    assert "| model | 7.5 s | 15 s | 30 s | 60 s |" in text
    # The last step ends a little after the budget.
    assert "| gpo | **0.2** | **0.2** | **0.2** | **0.1** |" in text


def test_errors_on_other_sites_are_multiples_of_the_error_at_home(tmp_path, calls):
    experiments, _, grid = make(tmp_path, ["gpo"])
    text = transfer_table(experiments, grid.root, "ns2d", PROTOCOL).markdown()
    assert "| model | 1x | 2x | random 70% of the sites |" in text
    assert "| gpo | **0.02** | **0.025 (1.25 of 1x)** | - (needs a grid) |" in text


def test_the_paper_is_quoted_for_its_models_and_every_benchmark():
    assert set(PAPER) < set(MODELS)
    assert all(set(row) == set(BENCHMARKS) for row in PAPER.values())
    assert PAPER["gpo-paper"]["planetswe"] == 8.01e-2


def test_published_files_of_a_benchmark_fill_its_column(tmp_path):
    with pytest.raises(NoDataError, match=r"no era5-temp.\* in the folder of --files"):
        COLUMNS["era5-temp"].source("era5-temp", tmp_path, "quick")
    (tmp_path / "era5-temp.nc").write_bytes(b"")
    source = COLUMNS["era5-temp"].source("era5-temp", tmp_path, "quick")
    path = str(tmp_path / "era5-temp.nc")
    assert source == {"benchmark": "era5-temp", "data": path, "var": ("t2m",)}
    with pytest.raises(NoDataError, match="no cylinder_channel in the folder of --files"):
        COLUMNS["channel"].source("channel", tmp_path, "quick")


def test_only_repeated_rows_get_all_seeds(tmp_path):
    rows = ("gpo", "fno", "lno")
    experiments, _ = table1_experiments(
        rows, ("ns2d",), PROTOCOL, tmp_path, (3, 4, 5), ("gpo", "fno")
    )
    assert [(experiment.row, experiment.settings["seed"]) for experiment in experiments] == [
        ("gpo", 3), ("fno", 3), ("lno", 3), ("gpo", 4), ("fno", 4), ("gpo", 5), ("fno", 5)
    ]  # fmt: skip
    with pytest.raises(ValueError, match="--repeated must be among gpo, gpo-paper, fno"):
        table1_experiments(rows, ("ns2d",), PROTOCOL, tmp_path, (0,), ("fnn",))


def test_unknown_models_and_columns_are_named(tmp_path):
    with pytest.raises(ValueError, match="--models must be among gpo, gpo-paper, fno"):
        table1_experiments(("fnn",), ("ns2d",), PROTOCOL, tmp_path, (0,))
    with pytest.raises(ValueError, match="--benchmarks must be among ns2d"):
        table1_experiments(("fno",), ("ns4d",), PROTOCOL, tmp_path, (0,))


@pytest.mark.parametrize("model", ROWS)
def test_every_ablation_is_a_run_that_can_be_built(tmp_path, calls, model):
    from gpo import Domain

    torus = Domain.unit_box(2, periodic=True)
    sizes = {}
    for experiment in ablation_experiments(model, "ns2d", PROTOCOL, tmp_path, (0,)):
        config = RunConfig.of(**{**experiment.settings, "coarsen": 1})
        built = new_model(config, Problem(1, 1, torus, (32, 32)))
        sizes[experiment.row] = sum(p.numel() for p in built.parameters())
        LossWeights.of(config.model.config)
    if model == "gpo-paper":
        assert sizes["shared layers"] < 0.5 * sizes[model]
        # The paper's rows are brought to the size of the full model.
        for row in ("without PG operator", "without Gaussian field", "1 Gaussian", "64 Gaussians"):
            assert sizes[row] == pytest.approx(sizes[model], rel=0.15), row
    grid = ExperimentGrid(tmp_path, str(PROTOCOL))
    grid.run(ablation_experiments(model, "ns2d", PROTOCOL, tmp_path, (0,)))
    text = ablation_table(grid, model, "ns2d", PROTOCOL).markdown()
    assert all(f"| {row} |" in text for row in ROWS[model])
    assert "Persistence: 0.3" in text
    assert ("(paper)" in text) == (model == "gpo-paper")


def test_rows_of_an_ablation_separate_by_two_standard_deviations(tmp_path):
    def outcomes(*errors):
        return [Outcome(error, {}, 1, 1, 2e-3, 7, 4) for error in errors]

    grid = ExperimentGrid(tmp_path, "")
    grid.outcomes[("gpo-paper", "ns2d")] = outcomes(0.2)
    assert separation(grid, "gpo-paper", "ns2d").startswith("One seed")
    # Standard deviations of 0.01 each: two of their difference are 0.0283.
    grid.outcomes[("gpo-paper", "ns2d")] = outcomes(0.19, 0.2, 0.21)
    grid.outcomes[("1 Gaussian", "ns2d")] = outcomes(0.218, 0.228, 0.238)
    assert separation(grid, "gpo-paper", "ns2d").endswith("over seeds: none.")
    grid.outcomes[("64 Gaussians", "ns2d")] = outcomes(0.16, 0.17, 0.18)
    assert separation(grid, "gpo-paper", "ns2d").endswith("over seeds: 64 Gaussians.")


def test_protocols_say_what_they_are():
    assert Protocol("steps", 600.0).settings()["steps"] == 600
    assert Protocol("steps", 600.0).tuning(6)["steps"] == 100
    assert "the best rate of each optimizer after 20 CPU" in str(Protocol())
    assert "the better one after 60, in addition to the 120" in str(Protocol())
    assert Protocol("paper").candidates == (Candidate("adamw", 1e-3),)
    assert Protocol("paper").settings()["schedule"] == "step"


@pytest.mark.thorough
def test_a_real_table_of_two_small_experiments(tmp_path, capsys, monkeypatch):
    """The whole way, with real runs: data, tuning, training, table."""
    original, calls = experiment_module._call, []

    def call(words, threads):
        """The first run is the process that users get; the others need not import all of it again."""
        calls.append(words[0])
        if len(calls) == 1:
            original(words, threads)
        else:
            finish_forked("gpo", *words)

    monkeypatch.setattr(experiment_module, "_call", call)
    ns2d(tmp_path).rename(tmp_path / "ns3d.mat")
    main(
        ["bench", "table1", "--models", "fno", "gnot", "--benchmarks", "ns3d", "--protocol", "steps",
         "--amount", "6", "--files", str(tmp_path), "--runs", str(tmp_path / "runs"), "--jobs", "2",
         "--out", str(tmp_path / "results")]
    )  # fmt: skip
    assert Counter(calls) == {"train": 16, "run": 2}
    text = (tmp_path / "results" / "table1" / "table.md").read_text()
    assert "| fno |" in text
    assert "(6)" in text
    assert "Command: `gpo" in text
    assert str(Path.home()) not in text
    for name in ("table.tex", "table.html", "experiments.json"):
        assert (tmp_path / "results" / "table1" / name).is_file()
