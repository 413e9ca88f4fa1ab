"""`gpo run | train | evaluate | report`: from data to a scored, illustrated model."""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console
from rich.table import Table
from tyro.conf import Positional

from gpo.assignments import assignments
from gpo.cli.data import data_file, make_data
from gpo.data.benchmarks import DATA_SETS
from gpo.data.coarsen import coarsen
from gpo.data.dataset import StaticMaps, Trajectories
from gpo.data.forcings import TimeFeatures
from gpo.data.readers.base import ReadOptions
from gpo.data.readers.registry import open_data
from gpo.data.splits import Split
from gpo.evaluation.example import FILE_NAME, ShownExample, last_example
from gpo.evaluation.results import Results, Scope
from gpo.evaluation.score import evaluate
from gpo.forecast.forecaster import Forecaster
from gpo.forecast.sharded import SharedForecaster
from gpo.parallel.processes import global_rank, world_size
from gpo.parallel.shard import DistributedShard
from gpo.report.run_report import ReportInputs, write_report
from gpo.runs import Run, read_log, split_of
from gpo.training.config import RunConfig, recipe


@dataclass(frozen=True)
class TrainCommand:
    """Trains on a benchmark or a file of time series or static maps."""

    settings: RunConfig
    config: Path | None = None
    """YAML file with settings that differ from the preset; flags given here go before it."""
    out: Path | None = None
    """Run folder; under runs/ when not given. The same command goes on with the same folder."""
    devices: int = 1
    """Processes, or GPUs, that train together; `torchrun` works too."""
    space_shards: int = 1
    """How many of them share the sites of every sample; the others share every batch."""
    tensorboard: bool = False
    """Logs for TensorBoard beside the CSV file (needs the extra tensorboard)."""
    quiet: bool = False
    """Without progress bars, for logs."""

    def run(self) -> None:
        """Trains, or goes on training."""
        _train(self)


@dataclass(frozen=True)
class RunCommand:
    """Trains on a benchmark or a file, scores the model and writes a report."""

    training: TrainCommand
    scope: Scope = "all"
    """one-step: scores one step alone and writes no report; gpo evaluate and gpo report do the rest."""

    def run(self) -> None:
        """Does everything that is not done yet."""
        run = _train(self.training)
        if global_rank() == 0:
            _evaluate(run, scope=self.scope, is_quiet=self.training.quiet)
            if self.scope == "all":
                _report(run)


def starting_point(command: TrainCommand) -> RunConfig:
    """Returns the settings that flags change: those of the preset, then of the file."""
    given, untouched = command.settings, RunConfig()
    if command.config is None:
        return recipe(given.preset, given.benchmark)
    stored = untouched.changed_by(command.config)
    preset = stored.preset if given.preset == untouched.preset else given.preset
    return recipe(preset, given.benchmark or stored.benchmark).changed_by(command.config)


@dataclass(frozen=True)
class EvaluateCommand:
    """Scores a trained run on its test split, beside a reference that learns nothing.

    Processes that `torchrun` starts share the sites.
    """

    folder: Positional[Path]
    """A run folder."""

    def run(self) -> None:
        """Writes results.json and prints it as a table."""
        run = OpenRun.of(self.folder)
        if world_size(1) == 1:
            _evaluate(run)
            return
        import torch.distributed as dist

        dist.init_process_group("gloo")
        assert dist.group.WORLD is not None
        try:
            _evaluate(run, DistributedShard(dist.group.WORLD))
        finally:
            dist.destroy_process_group()


@dataclass(frozen=True)
class ReportCommand:
    """Draws the figures of an evaluated run and writes report.html."""

    folder: Positional[Path]
    """A run folder."""

    def run(self) -> None:
        """Writes the page."""
        _report(OpenRun.of(self.folder))


@dataclass(frozen=True)
class OpenRun:
    """A run folder together with what it was made from."""

    folder: Run
    config: RunConfig
    data: Trajectories | StaticMaps
    split: Split[Any]

    @classmethod
    def of(cls, path: Path) -> "OpenRun":
        """Opens an existing run folder and its data."""
        folder = Run(path)
        if not folder.config_file.exists():
            raise ValueError(
                f"{path} is no run: it has no {folder.config_file.name}. gpo run makes one."
            )
        config = RunConfig.load(folder.config_file)
        data = _read(config)
        return cls(folder, config, data, split_of(data, config))


def _train(command: TrainCommand) -> OpenRun:
    # Lightning takes seconds to import; the other commands do without.
    from gpo.training.fit import train

    config = command.settings
    name = config.name
    folder = Run(command.out or Path("runs") / name)
    # Only what can be read and split gets a folder.
    data = _read(config)
    run = OpenRun(folder, config, data, split_of(data, config))
    if global_rank() == 0:
        folder.claim(config)
        _say(_summary(run))
    train(
        folder, data, config, devices=command.devices, space_shards=command.space_shards,
        is_quiet=command.quiet, logs_tensorboard=command.tensorboard,
    )  # fmt: skip
    if global_rank() == 0:
        _say(f"model: {folder.model_folder}")
    return run


def _evaluate(
    run: OpenRun,
    shards: DistributedShard | None = None,
    *,
    scope: Scope = "all",
    is_quiet: bool = False,
) -> None:
    factor, finer = run.config.coarsen, None
    if factor > 1 and factor % 2 == 0:
        finer = _read(run.config, factor // 2)
    forecaster = Forecaster.load(run.folder.trained_model())
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
        _say(f"{count} of {results.num_rollouts} rollouts diverged, the first at step {first}")
    _say(f"results: {run.folder.results_file}")


def _report(run: OpenRun) -> None:
    results, folder = run.folder.results_file, run.folder.folder
    if not results.exists():
        raise ValueError(f"{folder} has no results yet: gpo evaluate {folder}")
    forecaster, members = Forecaster.load(run.folder.trained_model()).eval(), run.split.test
    if (folder / FILE_NAME).exists():
        shown = ShownExample.load(folder)
    else:
        # One step alone was scored, or several processes shared the sites.
        shown = ShownExample.of(forecaster, last_example(forecaster, run.data, members))
    inputs = ReportInputs(
        name=run.config.name,
        settings=yaml.safe_load(run.folder.config_file.read_text(encoding="utf-8")),
        log=read_log(run.folder),
        results=Results.load(results),
        data=run.data,
        members=members,
        shown=shown,
    )
    _say(f"report: {write_report(folder, inputs, forecaster)}")


def _say(text: str) -> None:
    Console(soft_wrap=True, highlight=False).print(text, markup=False)


def _read(config: RunConfig, factor: int | None = None) -> Trajectories | StaticMaps:
    variables, path = config.var, Path(config.data or "")
    if config.benchmark is not None:
        path = _data_of(config.benchmark, config.preset)
        variables = variables or DATA_SETS[config.benchmark].variables
    options = ReadOptions(variables=variables, select=assignments("select", config.select))
    return coarsen(telling_time(open_data(path, options), config.clock), factor or config.coarsen)


def telling_time(data: Trajectories | StaticMaps, clock: TimeFeatures) -> Trajectories | StaticMaps:
    """Returns data whose frames tell the time, where they shall."""
    if isinstance(data, Trajectories):
        return data.with_time_features(clock)
    if clock != "none":
        raise ValueError(f"`clock` must be none, got {clock}: {data.source} holds static maps.")
    return data


def _data_of(benchmark: str, preset: str) -> Path:
    """Returns the file of a benchmark; the first process makes it, others wait."""
    if global_rank() > 0:
        path = data_file(benchmark, preset)
        while not path.exists():
            time.sleep(0.5)
        return path
    return make_data(benchmark, preset)


def _summary(run: OpenRun) -> str:
    data, split, config = run.data, run.split, run.config
    if isinstance(data, StaticMaps):
        given, wanted = (", ".join(v.name for v in side) for side in (data.inputs, data.outputs))
        what = f"{wanted} from {given}"
    else:
        names = ", ".join(variable.name for variable in data.variables)
        told = " and the time of day" * (config.clock == "day")
        step = f"{config.history} frame(s){told} predict the one {config.lead} step(s) later"
        what = f"{names}; {step} (as {config.predict})"
        if config.stage == "field":
            what = f"{names}; reconstructed through particles, nothing is forecast"
    sizes = f"{len(split.training)} / {len(split.validation)} / {len(split.test)}"
    return (
        f"{data.source}: {data.geometry().num_points:,} sites; {what}; "
        f"{sizes} examples to train / validate / test, split by {split.kind}; model {config.model}"
    )


def _table(results: Results) -> Table:
    table = Table(title=f"{results.num_examples} test examples")
    table.add_column("")
    for name in results.one_step["model"]:
        table.add_column(name, justify="right")
    for who, scores in results.one_step.items():
        table.add_row(who, *(f"{value:.4g}" for value in scores.values()))
    return table
