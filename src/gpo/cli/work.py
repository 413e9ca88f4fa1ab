"""What the commands of a run do: train, evaluate and report, with words for a terminal."""

from pathlib import Path
from typing import TYPE_CHECKING

import yaml
from rich.console import Console
from rich.table import Table

from gpo.cli.data import make_data
from gpo.data.dataset import StaticMaps, Trajectories
from gpo.evaluation.example import FILE_NAME, ShownExample, last_example
from gpo.evaluation.results import Results, Scope
from gpo.evaluation.score import evaluate
from gpo.forecast.sharded import SharedForecaster
from gpo.parallel.processes import global_rank, world_size
from gpo.parallel.shard import DistributedShard, all_processes
from gpo.report.run_report import ReportInputs, write_report
from gpo.runs import OpenRun, from_anywhere, open_run, read_data
from gpo.training.config import RunConfig
from gpo.training.run_folder import Run, read_log
from gpo.training.setup import split_of

if TYPE_CHECKING:
    from gpo.training.choice import Choice


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
        config: Everything that decides the outcome.
        out: The run folder; under `runs/` when not given.
        devices: Processes that train together.
        space_shards: How many of them share the sites of a sample.
        is_quiet: Without a progress bar.
        logs_tensorboard: Whether TensorBoard gets the losses too.
        chooses: Whether settings that the user did not set are chosen on validation data.
        given: Names of those that the user set.
    """
    # Lightning takes seconds to import; the other commands do without.
    from gpo.training.fit import train

    folder = Run(out or Path("runs") / config.name)
    config = from_anywhere(config)
    if config.data.benchmark is not None and global_rank() == 0:
        make_data(config.data.benchmark, config.data.preset)
    # Only what can be read and split gets a folder.
    data = read_data(config)
    asked, choice = config, None
    if chooses:
        choice = _choose(data, asked, given, folder)
    if choice is not None:
        config = choice.applied(asked)
    run = OpenRun(folder, config, data, split_of(data, config))
    if global_rank() == 0:
        folder.check(config)
        if not folder.is_finished(config):
            say(_summary(run))
        else:
            more = 10 * (asked.budget.budget_cpu or 60)
            say(f"finished: nothing to do; more with --budget-cpu {more:g}")
            return run
    train(
        data, config, folder.folder, devices=devices, space_shards=space_shards,
        is_quiet=is_quiet, logs_tensorboard=logs_tensorboard,
    )  # fmt: skip
    if global_rank() == 0:
        record = folder.record()
        if choice is not None and record is not None and choice.verdict(record.best_score):
            say(choice.verdict(record.best_score))
        say(f"model: {folder.model_folder}")
    return run


def _choose(
    data: Trajectories | StaticMaps,
    config: RunConfig,
    given: frozenset[str],
    run: Run,
) -> "Choice | None":
    """Returns what was chosen for a run, now or when it was begun; None where there is no time."""
    from gpo.training.choice import LEAST, Choice, Search, asked_settings, take_over

    choice, seconds = Choice.load(run.folder), config.budget.budget_cpu
    if choice is None and (run.config_file.exists() or (seconds is not None and seconds < LEAST)):
        return None
    if choice is None:
        run.check(config)
        say("choosing settings on validation data (--no-auto trains at once) ...")
        choice = Search(data, config, given, run).choose()
        choice.save(run.folder)
        Console().print(_choice_table(choice))
    elif choice.asked != asked_settings(config):
        raise ValueError(
            f"{run.folder} holds a run that was asked for with other settings: {choice.asked} there "
            f"and {asked_settings(config)} here. Choose another --out, or delete it."
        )
    if not run.config_file.exists():
        choice.applied(config).save(run.config_file)
    take_over(run, choice)
    return choice


def evaluate_folder(path: Path) -> None:
    """Scores the run in a folder; processes that `torchrun` starts share the sites."""
    run = open_run(path)
    if world_size(1) == 1:
        evaluate_run(run)
        return
    with all_processes() as shard:
        evaluate_run(run, shard)


def is_evaluated(run: OpenRun, scope: Scope) -> bool:
    """Tells whether there are results of as much as a command asks for."""
    path = run.folder.results_file
    return path.exists() and Results.load(path).scope in ("all", scope)


def evaluate_run(
    run: OpenRun,
    shards: DistributedShard | None = None,
    *,
    scope: Scope = "all",
    is_quiet: bool = False,
) -> None:
    """Scores a trained run, writes `results.json` and prints a table.

    Args:
        run: The run.
        shards: Processes that share the sites; this one alone when not given.
        scope: How much is scored.
        is_quiet: Without a progress bar.
    """
    coarsen, finer = run.config.data.coarsen, None
    if coarsen > 1 and coarsen % 2 == 0:
        finer = read_data(run.config, coarsen // 2)
    forecaster = run.forecaster()
    if shards is not None:
        forecaster, is_quiet = SharedForecaster(forecaster, shards), is_quiet or shards.rank > 0
    results = evaluate(forecaster, run.data, run.split, finer=finer, scope=scope, is_quiet=is_quiet)
    if shards is not None and shards.rank > 0:
        return
    results.save(run.folder.folder)
    if shards is None and scope == "all":
        example = last_example(forecaster, run.data, run.split.test)
        ShownExample.of(forecaster, example).save(run.folder.folder)
    Console().print(_table(results))
    if results.diverged_at:
        count, first = len(results.diverged_at), min(results.diverged_at)
        say(f"{count} of {results.num_rollouts} rollouts diverged, the first at step {first}")
    say(f"results: {run.folder.results_file}")


def report_run(run: OpenRun) -> None:
    """Draws the figures of an evaluated run and writes `report.html`."""
    path, results = run.folder.folder, run.folder.results_file
    if not results.exists():
        raise ValueError(f"{path} has no results yet: gpo evaluate {path}")
    forecaster, members = run.forecaster().eval(), run.split.test
    if (path / FILE_NAME).exists():
        shown = ShownExample.load(path)
    else:
        # One step alone was scored, or several processes shared the sites.
        shown = ShownExample.of(forecaster, last_example(forecaster, run.data, members))
    inputs = ReportInputs(
        name=path.resolve().name,
        settings=yaml.safe_load(run.folder.config_file.read_text(encoding="utf-8")),
        log=read_log(run.folder),
        events=_events(run),
        choice=_chosen(run),
        results=Results.load(results),
        data=run.data,
        members=members,
        shown=shown,
    )
    say(f"report: {write_report(path, inputs, forecaster)}")


def _events(run: OpenRun) -> tuple[str, ...]:
    """Returns what happened in training, in sentences."""
    record = run.folder.record()
    return () if record is None else (*record.events, f"ended: {record.reason}")


def _chosen(run: OpenRun) -> dict[str, dict[str, float]]:
    """Returns the table of what was tried before training; nothing where nothing was."""
    if not (run.folder.folder / "auto.json").exists():
        return {}
    from gpo.training.choice import Choice

    choice = Choice.load(run.folder.folder)
    return {} if choice is None else choice.rows()


def say(text: str) -> None:
    """Prints a line as it is, however long."""
    Console(soft_wrap=True, highlight=False).print(text, markup=False)


def _summary(run: OpenRun) -> str:
    data, split, task = run.data, run.split, run.config.task
    if isinstance(data, StaticMaps):
        given, wanted = (", ".join(v.name for v in side) for side in (data.inputs, data.outputs))
        what = f"{wanted} from {given}"
    else:
        names = ", ".join(variable.name for variable in data.variables)
        told = " and the time of day" * (task.time_features == "day")
        step = f"{task.history} frame(s){told} predict the one {task.lead} step(s) later"
        what = f"{names}; {step} (as {task.predict})"
        if task.phase == "field":
            what = f"{names}; reconstructed through particles, nothing is forecast"
    sizes = f"{len(split.training)} / {len(split.validation)} / {len(split.test)}"
    return (
        f"{data.source}: {data.geometry().num_points:,} sites; {what}; "
        f"{sizes} examples to train / validate / test, split by {split.kind}; "
        f"model {run.config.model.name}"
    )


def _choice_table(choice: "Choice") -> Table:
    rows = choice.rows()
    table = Table(title="tried on validation data (relative L2), best last")
    table.add_column("")
    columns = list(dict.fromkeys(key for row in rows.values() for key in row))
    for name in columns:
        table.add_column(name, justify="right")
    for name, row in rows.items():
        table.add_row(name, *(f"{row[key]:.4g}" if key in row else "" for key in columns))
    return table


def _table(results: Results) -> Table:
    table = Table(title=f"{results.num_examples} test examples")
    table.add_column("")
    for name in results.one_step["model"]:
        table.add_column(name, justify="right")
    for who, scores in results.one_step.items():
        table.add_row(who, *(f"{value:.4g}" for value in scores.values()))
    return table
