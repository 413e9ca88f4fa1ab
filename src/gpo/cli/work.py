"""Training, evaluation and reports of a run, with messages for a terminal."""

import math
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from rich.box import SIMPLE_HEAD
from rich.table import Table

from gpo.cli.console import PlainConsole, say
from gpo.cli.data import make_data
from gpo.data.dataset import DataError, FieldData, check_same_kind
from gpo.data.inputs import notes
from gpo.data.precision import precision_notes
from gpo.data.splits import all_time_slices
from gpo.data.summary import value_notes
from gpo.evaluation.diagnosis import TrainingCurve
from gpo.evaluation.example import FILE_NAME, ReportExample, last_example
from gpo.evaluation.results import (
    COLUMNS,
    VALIDATION_CAVEAT,
    Results,
    Scope,
    divergence_message,
    format_score,
)
from gpo.evaluation.score import evaluate
from gpo.forecast.blend import sentence
from gpo.forecast.compatibility import convert_to_training_units
from gpo.forecast.resolution import with_means_at
from gpo.forecast.sharded import DistributedForecaster
from gpo.limits import format_bytes
from gpo.parallel.partition import SitePartition
from gpo.parallel.processes import global_rank, num_processes, world_size
from gpo.parallel.shard import DistributedShard, all_processes
from gpo.report.run_report import ReportInputs, write_report
from gpo.runs import OpenRun, open_other_coarsened, open_run, read_data, with_absolute_paths
from gpo.settings_files import read_yaml
from gpo.training.config import RunConfig
from gpo.training.parts import BudgetConfig
from gpo.training.run_folder import SCORE, Run, read_log
from gpo.training.setup import split_of, training_memory

if TYPE_CHECKING:
    from gpo.training.choice import Choice

REPORTED_BYTES = 2**30
"""Memory of a training step above which it is printed before training."""


def train_run(
    config: RunConfig,
    out: Path | None,
    *,
    devices: int,
    space_shards: int,
    is_quiet: bool,
    logs_tensorboard: bool,
    chooses: bool = False,
    given: frozenset[str] = frozenset(),
) -> OpenRun:
    """Trains, or resumes training, and returns the run.

    Args:
        config: The configuration.
        out: The run folder (None: a folder in `runs/`).
        devices: Number of processes or GPUs.
        space_shards: Number of processes that share the points of a sample.
        is_quiet: Whether to hide the progress bar.
        logs_tensorboard: Whether to log to TensorBoard as well.
        chooses: Whether to tune unset settings on validation data.
        given: Names of the settings that the user set.
    """
    # Importing Lightning takes seconds, and other commands do not need it.
    from gpo.training.choice import with_features
    from gpo.training.fit import train

    folder = Run(out or Path("runs") / config.name)
    folder.check_no_links()
    config = with_absolute_paths(config)
    is_generated = config.data.benchmark is not None and config.data.data is None
    if is_generated and global_rank() == 0:
        make_data(str(config.data.benchmark), config.data.preset)
    # Read and split before the folder is created.
    data = read_data(config)
    needed = training_memory(data, config, space_shards=space_shards)
    if needed > REPORTED_BYTES and global_rank() == 0:
        say(f"a step on {data.geometry().num_points:,} points takes about {format_bytes(needed)}")
    # Check before tuning, which takes long.
    num_processes(devices, space_shards)
    SitePartition.of(data.geometry().num_points, data.geometry().grid_shape, 0, space_shards)
    requested, choice = config, None
    if chooses:
        choice = _choose(data, requested, given, folder)
    if choice is not None:
        config = choice.applied(requested)
        data = with_features(data, choice.settings)
    run = OpenRun(folder, config, data, split_of(data, config))
    is_finished = folder.is_finished(config)
    if global_rank() == 0:
        folder.check(config)
        done = f"finished: nothing to do; continue with {_larger_budget(folder, requested.budget)}"
        say(done if is_finished else _summary(run))
        bounded = config.task.non_negative
        for note in (*notes(data), *precision_notes(data), *value_notes(data, bounded)):
            say(f"note: {note}")
    if is_finished:
        return run
    trained = train(
        data, config, folder.folder, devices=devices, space_shards=space_shards,
        is_quiet=is_quiet, logs_tensorboard=logs_tensorboard,
    )  # fmt: skip
    if global_rank() == 0:
        record = folder.record()
        if choice is not None and record is not None and choice.verdict(record.best_score):
            say(choice.verdict(record.best_score))
        made_of = sentence(trained.task)
        if made_of:
            say(made_of)
        say(f"model: {folder.model_folder}")
    return replace(run, trained=trained.cpu())


def _larger_budget(folder: Run, limits: BudgetConfig) -> str:
    """Returns the flag that continues a finished run: the limit that ended it, made larger."""
    record = folder.record()
    reason = "" if record is None else record.reason
    if limits.budget_cpu is not None and "CPU seconds" in reason:
        return f"--budget-cpu {10 * limits.budget_cpu:g}"
    if limits.steps is not None and reason.endswith("steps are done"):
        return f"--steps {2 * limits.steps}"
    return f"--epochs {2 * limits.epochs}"


def _choose(
    data: FieldData,
    config: RunConfig,
    given: frozenset[str],
    run: Run,
) -> "Choice | None":
    """Returns the tuned settings of a run, tuning them now if it is new; None without time for it."""
    from gpo.training.choice import MIN_BUDGET, Choice, Search, adopt_trial, requested_settings

    choice, seconds = Choice.load(run.folder), config.budget.budget_cpu
    if choice is None and (
        run.config_file.exists() or (seconds is not None and seconds < MIN_BUDGET)
    ):
        return None
    if choice is None:
        run.check(config)
        say("tuning settings on validation data (skip with --no-auto) ...")
        choice = Search(data, config, given, run).choose()
        choice.save(run.folder)
        PlainConsole(wraps=True).print(_choice_table(choice))
    elif choice.asked != requested_settings(config):
        raise ValueError(
            f"{run.folder} has a run with other settings: {choice.asked} there and "
            f"{requested_settings(config)} here. Choose another --out, or delete it."
        )
    if not run.config_file.exists():
        choice.applied(config).save(run.config_file)
    adopt_trial(run, choice)
    return choice


def evaluate_folder(path: Path, other: Path | None = None) -> None:
    """Evaluates the run in a folder; processes started by `torchrun` share the points.

    Args:
        path: The run folder.
        other: File to evaluate on, instead of the test split.
    """
    run = open_run(path)
    if other is not None:
        evaluate_on(run, other)
        return
    if world_size(1) == 1:
        evaluate_run(run)
        return
    with all_processes() as shard:
        evaluate_run(run, shard)


def evaluate_on(run: OpenRun, path: Path) -> None:
    """Evaluates a trained run on another file; writes `on-NAME/results.json` in its folder."""
    run.folder.check_no_links()
    forecaster = run.forecaster()
    task = forecaster.task
    data, converted = convert_to_training_units(
        open_other_coarsened(path, run.config, task), task.trained_on
    )
    for note in converted:
        say(note)
    _check_kind(data, run.data)
    forecaster = with_means_at(forecaster, data.geometry())
    lead = run.split.test[0].lead
    samples = all_time_slices(data, history=task.history, lead=lead)
    split = replace(run.split, test=samples)
    results = evaluate(forecaster, data, split, trained_on=run.data, is_quiet=False)
    folder = run.folder.folder / f"on-{path.stem}"
    folder.mkdir(exist_ok=True)
    results.save(folder)
    print_results(results)
    say(f"results: {folder / run.folder.results_file.name}")


def _check_kind(data: FieldData, trained_on: FieldData) -> None:
    """Raises an error if the kind of data or their variables differ from training."""
    check_same_kind(trained_on, data)
    for side in ("inputs", "outputs"):
        expected, names = ([v.name for v in getattr(each, side)] for each in (trained_on, data))
        if expected != names:
            problem = f"must be {', '.join(expected)}, as in training, got {', '.join(names)}."
            raise DataError(data.source, side, problem)


def is_evaluated(run: OpenRun, scope: Scope) -> bool:
    """Returns whether there are results of at least this scope."""
    path = run.folder.results_file
    return path.exists() and Results.load(path).scope in ("all", scope)


def evaluate_run(
    run: OpenRun,
    shards: DistributedShard | None = None,
    *,
    scope: Scope = "all",
    is_quiet: bool = False,
) -> None:
    """Evaluates a trained run, writes `results.json` and prints a table.

    Args:
        run: The run.
        shards: The processes that share the points (None: this process only).
        scope: Which scores to compute.
        is_quiet: Whether to hide the progress bar.
    """
    run.folder.check_no_links()
    coarsen, finer = run.config.data.coarsen, None
    if coarsen > 1 and coarsen % 2 == 0:
        finer = read_data(run.config, coarsen // 2)
    forecaster = run.forecaster()
    if shards is not None:
        forecaster, is_quiet = (
            DistributedForecaster(forecaster, shards),
            is_quiet or shards.rank > 0,
        )
    results = evaluate(
        forecaster, run.data, run.split, finer=finer, scope=scope, is_quiet=is_quiet,
        curve=_curve(run.folder),
    )  # fmt: skip
    if shards is not None and shards.rank > 0:
        return
    if shards is None and scope == "all":
        example = last_example(forecaster, run.data, run.split.test)
        ReportExample.of(forecaster, example).save(run.folder.folder)
    # Written last, so that an interrupted evaluation is repeated.
    results.save(run.folder.folder)
    print_results(results)
    say(f"results: {run.folder.results_file}")


def _curve(run: Run) -> TrainingCurve | None:
    """Returns the validation scores of training, None without a record."""
    record = run.record()
    if record is None:
        return None
    scores = [row[SCORE] for row in read_log(run) if SCORE in row]
    return TrainingCurve(num_steps=record.steps, scores=scores)


def print_results(results: Results) -> None:
    """Prints the errors of every variable and, last, the verdict."""
    PlainConsole(wraps=True).print(_table(results))
    if results.num_unknown:
        say(f"{results.num_unknown} more test examples have no values")
    if results.diverged_at:
        say(divergence_message(results))
    say(f"verdict: {results.verdict}")
    if results.blend:
        say(results.blend)
    if results.validation:
        say(f"on validation data: {results.validation['verdict']} {VALIDATION_CAVEAT}")
    for reason in results.reasons.values():
        say(reason)


def report_run(run: OpenRun) -> None:
    """Draws the figures of an evaluated run and writes `report.html`."""
    run.folder.check_no_links()
    path, results = run.folder.folder, run.folder.results_file
    if not results.exists():
        raise ValueError(f"{path} has no results yet. Evaluate it: gpo evaluate {path}")
    forecaster, samples = run.forecaster().eval(), run.split.test
    if (path / FILE_NAME).exists():
        shown = ReportExample.load(path)
    else:
        # Evaluations of one step, or by several processes, store no example.
        shown = ReportExample.of(forecaster, last_example(forecaster, run.data, samples))
    inputs = ReportInputs(
        name=path.resolve().name,
        settings=read_yaml(run.folder.config_file),
        log=read_log(run.folder),
        events=_events(run),
        choice=_trials(run),
        results=Results.load(results),
        data=run.data,
        samples=samples,
        shown=shown,
    )
    say(f"report: {write_report(path, inputs, forecaster)}")


def _events(run: OpenRun) -> tuple[str, ...]:
    """Returns the events of training, as sentences."""
    record = run.folder.record()
    return () if record is None else (*record.events, f"ended: {record.reason}")


def _trials(run: OpenRun) -> dict[str, dict[str, float]]:
    """Returns the table of tuning trials; empty if settings were not tuned."""
    if not (run.folder.folder / "auto.json").exists():
        return {}
    from gpo.training.choice import Choice

    choice = Choice.load(run.folder.folder)
    return {} if choice is None else choice.rows()


def _summary(run: OpenRun) -> str:
    data, split, task = run.data, run.split, run.config.task
    inputs, outputs = (", ".join(v.name for v in side) for side in (data.inputs, data.outputs))
    forcings = "".join(f" and {variable.name}" for variable in data.forcings)
    step = f"{task.history} frame(s){forcings} predict the one {task.lead} step(s) later"
    what = f"{outputs}; {step} (as {task.predict})"
    if task.phase == "field":
        what = f"{outputs}; reconstructed from particles, no forecast"
    elif split.training[0].lead == 0:
        what = f"{outputs} from {inputs}"
    sizes = f"{len(split.training)} / {len(split.validation)} / {len(split.test)}"
    return (
        f"{data.source}: {data.geometry().num_points:,} points; {what}; "
        f"{sizes} examples to train / validate / test, split by {split.kind}; "
        f"model {run.config.model.name}"
    )


def _choice_table(choice: "Choice") -> Table:
    rows = choice.rows()
    table = Table(title="trials on validation data (RMSE / std), best last")
    table.add_column("")
    columns = list(dict.fromkeys(key for row in rows.values() for key in row))
    for name in columns:
        table.add_column(name, justify="right")
    for name, row in rows.items():
        table.add_row(name, *(f"{row[key]:.4g}" if key in row else "" for key in columns))
    return table


def _table(results: Results) -> Table:
    """Returns the errors by variable and forecast, which fit a terminal of 80 columns."""
    table = Table(title=f"{results.num_examples} test examples", box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("variable", overflow="fold")
    table.add_column("", no_wrap=True)
    # Bias and anomaly correlation are in the report and in results.json.
    shown_keys = ("relative_l2", "rmse", "rmse_over_std")
    for column in (*(COLUMNS[key] for key in shown_keys), "skill over it"):
        table.add_column(column, justify="right", min_width=9)
    for name, scores in results.variables.items():
        units = results.units.get(name, "")
        for who, numbers in scores.items():
            label = (f"{name} ({units})" if units else name) if who == next(iter(scores)) else ""
            skill = scores[results.written].get(f"skill_{who}")
            shown = [format_score(numbers.get(key, math.nan)) for key in shown_keys]
            table.add_row(label, who, *shown, "" if skill is None else format_score(skill))
    return table
