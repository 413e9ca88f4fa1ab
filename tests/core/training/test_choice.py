"""Settings are chosen on validation data, within the budget, and what was tried is kept."""

import itertools
import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gpo.cli import main, parse
from gpo.data.dates import TimeOrigin
from gpo.evaluation.verdict import MIN_BLOCKS
from gpo.training.choice import Choice, Search, Trial, best_by_interval, reference_errors
from gpo.training.config import RunConfig
from gpo.training.run_folder import Run, TrainingRecord
from gpo.training.setup import split_of
from tests.contracts.samples import ns2d
from tests.core.training.series import decaying_waves, squares

TINY = {"data": "waves", "hidden_dim": 8, "num_layers": 1, "num_gaussians": 2}


@pytest.fixture
def scores(monkeypatch):
    """Stands for training: what a configuration scores, and a list of what was trained."""
    trained, table = [], {}

    def train(data, config, folder, *, is_quiet, fits_blend):
        assert not fits_blend
        differing = config.differences(RunConfig.of(**TINY))
        settings = {name: pair[0] for name, pair in differing.items()}
        seconds = settings.pop("budget_cpu")
        if settings.get("learning_rate") == 6e-3:
            del settings["learning_rate"]
        trained.append((settings, seconds))
        score = 1.0
        for name, value in settings.items():
            score *= table.get((name, value), 1.0)
        if {"relative_to", "noise"} <= settings.keys():
            score = table.get("both", score)
        if seconds > table.get("seconds to lose the lead", math.inf):
            score = 1.0
        Run(folder).folder.mkdir(parents=True, exist_ok=True)
        TrainingRecord(
            is_finished=True, reason="done", limits={}, learning_rate=1.0, best_score=score,
            best_epoch=1, epochs=1, steps=table.get("steps", 100), cpu_seconds=seconds,
        ).save(Run(folder).training_file)  # fmt: skip
        return score

    def errors(score, data, config):
        # Examples of one trajectory; those of another trial differ by chance.
        noise = np.random.default_rng(len(trained)).normal(size=24)
        spread = table.get("spread", 0.0)
        return {f"000000000:{n:09d}": score * (1 + spread * part) for n, part in enumerate(noise)}

    monkeypatch.setattr("gpo.training.choice.train", train)
    monkeypatch.setattr("gpo.training.choice.validation_errors", errors)
    return trained, table


def search(tmp_path, given=(), data=None, **settings):
    config = RunConfig.of(**{**TINY, "budget_cpu": 90.0, **settings})
    return Search(data or decaying_waves(), config, frozenset(given), Run(tmp_path))


def test_history_is_chosen_first_and_changes_that_help_go_together(tmp_path, scores):
    trained, table = scores
    table |= {("history", 2): 0.1, ("history", 3): 0.2, "spread": 0.05}
    table |= {("relative_to", "change"): 0.5, ("noise", 0.0): 0.7, ("learning_rate", 2e-3): 0.99}
    choice = search(tmp_path).choose()
    assert choice.settings == {"history": 2, "noise": 0.0, "relative_to": "change"}
    assert [settings for settings, _ in trained[:3]] == [{}, {"history": 2}, {"history": 3}]
    # A third of the budget goes into choosing, and what the chosen one took is not lost.
    spent = sum(trial.cpu_seconds for trial in choice.trials)
    assert spent <= 30.0 * 1.2
    assert choice.cpu_seconds < spent


def test_a_change_that_helps_little_is_not_taken(tmp_path, scores):
    _, table = scores
    table |= {("noise", 0.0): 0.98, "spread": 0.2}
    assert search(tmp_path).choose().settings == {}
    table |= {("noise", 0.0): 0.5}
    assert search(tmp_path / "other").choose().settings == {"noise": 0.0}


@pytest.mark.parametrize(
    ("errors", "taken"),
    [
        ([1.0, 0.97, 0.98], 0),
        ([1.0, 0.5, 0.49], 1),
        ([1.0, 0.97, 0.5], 2),
        ([1.0, 0.7, 0.3], 2),
        ([1.0, 1.0], 0),
        ([None, 5.0, 4.9], 1),
        ([None, None], 0),
        ([1.0, None, 0.1], 2),
    ],
)
def test_a_trial_goes_before_another_only_by_an_interval(errors, taken):
    trials = [
        Trial(
            settings={"history": n}, score=error, steps=50, cpu_seconds=1.0,
            errors=noisy(24, n, error),
        )
        for n, error in enumerate(errors, 1)
    ]  # fmt: skip
    assert best_by_interval(trials) is trials[taken]
    few = [replace(t, errors=dict(list(t.errors.items())[:3])) for t in trials if t.score]
    assert best_by_interval(few or trials) is (few or trials)[0]


def noisy(count, seed, mean):
    """Errors of examples with a spread of a fifth."""
    values = 1 + 0.2 * np.random.default_rng(seed).normal(size=count)
    return {f"000000000:{n:09d}": mean * value for n, value in enumerate(values)} if mean else {}


def test_the_cycles_of_the_calendar_are_tried_and_no_others():
    hourly = replace(
        decaying_waves(num_trajectories=1, num_times=60), first_hour=0.0,
        origin=TimeOrigin("2001-01-01 00:00:00"),
    )  # fmt: skip
    day, year = {"time_features": ("day",)}, {"time_features": ("year",)}

    def tried(data, **settings):
        searched = Search(data, RunConfig.of(**TINY, **settings), frozenset(), Run(Path("run")))
        return [
            change
            for change in searched._changes(100, is_forecast=True)
            if "time_features" in change
        ]

    assert tried(decaying_waves()) == []
    assert tried(hourly) == [day]
    assert tried(replace(hourly, time=np.arange(60) * 24.0)) == []
    assert tried(replace(hourly, time=np.arange(60) * 24.0 * 7)) == [year]
    assert tried(replace(hourly, time=np.arange(60) * 6.0 * 25)) == [year]
    assert tried(hourly, time_features=("day",)) == []


@pytest.mark.parametrize("steps", [10, 100])
def test_a_longer_history_that_helps_little_is_not_taken(tmp_path, scores, steps):
    _, table = scores
    table |= {"steps": steps, ("history", 2): 0.99, ("history", 3): 0.98, ("batch_size", 2): 1.1}
    table["spread"] = 0.2
    assert search(tmp_path).choose().settings == {}


def test_changes_that_help_no_more_together_than_one_alone_are_not_joined(tmp_path, scores):
    _, table = scores
    table |= {("relative_to", "change"): 0.5, ("noise", 0.0): 0.7}
    table |= {"both": 0.49, "spread": 0.1}
    assert search(tmp_path).choose().settings == {"relative_to": "change"}


def test_a_change_must_hold_its_lead_over_the_settings_without_it(tmp_path, scores):
    """Two lucky short runs do not keep the plain settings out of the longer ones."""
    trained, table = scores
    table |= {("relative_to", "change"): 0.7, ("noise", 0.0): 0.8, "seconds to lose the lead": 5.0}
    choice = search(tmp_path).choose()
    assert trained[-2][0] == {}
    assert choice.settings == {}


def test_what_the_user_set_is_not_searched(tmp_path, scores):
    trained, _ = scores
    search(tmp_path, given=("history", "noise"), history=1, noise=0.06).choose()
    assert not any({"history", "noise"} & settings.keys() - {"noise"} for settings, _ in trained)
    assert all(settings.get("noise") == 0.06 for settings, _ in trained)


def test_where_steps_are_slow_histories_alone_get_all_the_time_in_smaller_batches(tmp_path, scores):
    trained, table = scores
    table |= {"steps": 10, ("history", 3): 0.5}
    assert search(tmp_path).choose().settings == {"history": 3, "batch_size": 2}
    assert {name for settings, _ in trained for name in settings} == {"history", "batch_size"}
    assert trained[-1][1] == pytest.approx(10.0)
    assert search(tmp_path / "own", given=("batch_size",)).choose().settings == {"history": 3}


def test_where_steps_are_slow_no_short_run_is_better_than_the_chosen_one(tmp_path, scores):
    _, table = scores
    table |= {"steps": 10, ("history", 3): 0.5, ("batch_size", 2): 1.1}
    choice = search(tmp_path).choose()
    assert choice.settings == {"history": 3}
    assert min(trial.error for trial in choice.trials) == 0.5


def test_with_few_validation_examples_nothing_is_chosen(tmp_path, scores):
    trained, table = scores
    table |= {("history", 2): 0.1, ("noise", 0.0): 0.5}
    data = decaying_waves(num_trajectories=1, num_times=24)
    config = RunConfig.of(**TINY)
    assert len(split_of(data, config).validation) < MIN_BLOCKS
    assert search(tmp_path, data=data).choose().settings == {}
    assert [settings for settings, _ in trained] == [{}]


def test_static_maps_have_neither_history_nor_change(tmp_path, scores):
    trained, _ = scores
    choice = search(tmp_path, data=squares()).choose()
    names = {name for settings, _ in trained for name in settings}
    assert names == {"learning_rate"}
    assert list(choice.references) == ["training mean"]


def test_persistence_is_the_last_frame_on_validation_data():
    data = decaying_waves()

    def still(number, times):
        return np.repeat(data.fetch(number, slice(0, 1)), len(range(10)[times]), 0)

    config = RunConfig.of(**TINY)
    assert reference_errors(replace(data, fetch=still), config)["persistence"].mean() < 1e-12
    assert 0 < reference_errors(data, config)["persistence"].mean() < 1


def test_a_model_that_is_no_better_than_persistence_is_reported():
    trial = Trial(settings={}, score=0.5, steps=1, cpu_seconds=1.0)
    choice = Choice(
        asked={}, settings={}, trials=[trial], cpu_seconds=0.0,
        references={"climatology": 0.3, "persistence": 0.2},
    )  # fmt: skip
    assert choice.verdict(0.1) == ""
    assert "not better than persistence on validation data: 0.5 against 0.2" in choice.verdict(0.5)


@pytest.mark.parametrize(
    ("arguments", "chooses"),
    [
        (["--data", "x.nc"], True),
        (["--data", "x.nc", "--budget-cpu", "60", "--lead", "2", "--seed", "1"], True),
        (["--data", "x.nc", "--no-auto"], False),
        (["--data", "x.nc", "--model", "fno"], False),
        (["--data", "x.nc", "--hidden-dim", "16"], False),
        (["--data", "x.nc", "--learning-rate", "1e-3"], False),
        (["--data", "x.nc", "--learning-rate", "1e-3", "--auto"], True),
        (["--data", "x.nc", "--preset", "quick"], False),
        (["--data", "x.nc", "--epochs", "3"], False),
        (["ns2d"], False),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_choosing_is_the_default_for_a_file_without_settings(arguments, chooses):
    assert parse(["train", *arguments]).auto is chooses


@pytest.mark.thorough
def test_a_chosen_run_is_kept_with_its_table_and_goes_on(tmp_path, capsys, monkeypatch):
    """From data to report, by a clock that advances whenever it is read."""
    reads = itertools.count()
    for module in ("budget", "choice", "fit", "rates"):
        monkeypatch.setattr(f"gpo.training.{module}.process_time", lambda: 0.04 * next(reads))
    monkeypatch.setattr("gpo.training.choice.MIN_BUDGET", 1.0)
    folder = tmp_path / "run"
    sizes = ["--auto", "--hidden-dim", "8", "--num-layers", "1", "--quiet"]
    command = ["run", "--data", str(ns2d(tmp_path)), *sizes, "--out", str(folder)]
    main([*command, "--budget-cpu", "3"])
    printed = capsys.readouterr().out
    assert "trials on validation data" in printed
    stored = json.loads((folder / "auto.json").read_text())
    assert {"history": 2} in [trial["settings"] for trial in stored["trials"]]
    assert not (folder / "choice").exists()
    assert "Settings tried on validation data" in (folder / "report.html").read_text()
    main([*command, "--budget-cpu", "3"])
    assert "finished: nothing to do" in capsys.readouterr().out
    main([*command, "--budget-cpu", "4"])
    assert "continues after epoch" in capsys.readouterr().out
