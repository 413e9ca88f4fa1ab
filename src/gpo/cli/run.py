"""`gpo run | train | evaluate | report`: from data to a scored, illustrated model."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from tyro.conf import Positional

from gpo.cli.data import assignments, make_data
from gpo.data.benchmarks import BENCHMARKS
from gpo.data.readers.base import ReadOptions
from gpo.data.readers.registry import open_data
from gpo.data.split import Split
from gpo.data.trajectories import Pairs, Trajectories
from gpo.evaluate.score import Results, evaluate
from gpo.report.run_report import write_report
from gpo.train.config import QUICK, RunConfig
from gpo.train.forecaster import Forecaster
from gpo.train.run_folder import Run, split_of


@dataclass(frozen=True)
class TrainCommand:
    """Trains on a benchmark or a file of time series or static maps."""

    config: RunConfig
    out: Path | None = None
    """Run folder; under runs/ when not given. The same command goes on with the same folder."""
    quiet: bool = False
    """Without progress bars, for logs."""

    def run(self) -> None:
        """Trains, or goes on training."""
        _train(self)


@dataclass(frozen=True)
class RunCommand:
    """Trains on a benchmark or a file, scores the model and writes a report."""

    training: TrainCommand

    def run(self) -> None:
        """Does everything that is not done yet."""
        run = _train(self.training)
        _evaluate(run)
        _report(run)


@dataclass(frozen=True)
class EvaluateCommand:
    """Scores a trained run on its test split, beside a reference that learns nothing."""

    folder: Positional[Path]
    """A run folder."""

    def run(self) -> None:
        """Writes results.json and prints it as a table."""
        _evaluate(OpenRun.of(self.folder))


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
    data: Trajectories | Pairs
    split: Split[Any]

    @classmethod
    def of(cls, path: Path) -> "OpenRun":
        """Opens an existing run folder and its data."""
        folder = Run(path)
        if not folder.config_file.exists():
            raise ValueError(f"{path} is no run: it has no {folder.config_file.name}.")
        config = RunConfig.load(folder.config_file)
        data = _read(config)
        return cls(folder, config, data, split_of(data, config))


def _train(command: TrainCommand) -> OpenRun:
    # Lightning takes seconds to import; the other commands do without.
    from gpo.train.fit import train

    config = command.config
    if config.preset == "quick":
        unset = {key: value for key, value in QUICK.items() if getattr(config, key) is None}
        config = replace(config, **unset)
    # Only what can be read and split gets a folder.
    data = _read(config)
    folder = Run(command.out or Path("runs") / f"{config.name}-{config.preset}")
    run = OpenRun(folder, config, data, split_of(data, config))
    folder.claim(config)
    _say(_summary(run))
    train(folder, data, config, is_quiet=command.quiet)
    _say(f"model: {folder.model_folder}")
    return run


def _evaluate(run: OpenRun) -> None:
    results = evaluate(Forecaster.load(run.folder.model_folder), run.data, run.split)
    results.save(run.folder.results_file)
    Console().print(_table(results))
    _say(f"results: {run.folder.results_file}")


def _report(run: OpenRun) -> None:
    results = run.folder.results_file
    if not results.exists():
        path = run.folder.folder
        raise ValueError(f"{path} has no results yet: gpo evaluate {path}")
    page = write_report(run.folder, run.config, run.data, run.split.test, Results.load(results))
    _say(f"report: {page}")


def _say(text: str) -> None:
    Console(soft_wrap=True, highlight=False).print(text, markup=False)


def _read(config: RunConfig) -> Trajectories | Pairs:
    variables, path = config.var, Path(config.data or "")
    if config.benchmark is not None:
        path = make_data(config.benchmark, config.preset)
        variables = variables or BENCHMARKS[config.benchmark].variables
    options = ReadOptions(variables=variables, select=assignments("select", config.select))
    return open_data(path, options)


def _summary(run: OpenRun) -> str:
    data, split, config = run.data, run.split, run.config
    if isinstance(data, Pairs):
        given, wanted = (", ".join(v.name for v in side) for side in (data.inputs, data.outputs))
        what = f"{wanted} from {given}"
    else:
        names = ", ".join(variable.name for variable in data.variables)
        step = f"{config.history} frame(s) predict the one {config.lead} step(s) later"
        what = f"{names}; {step} (as {config.predict})"
    sizes = f"{len(split.training)} / {len(split.validation)} / {len(split.test)}"
    return (
        f"{data.source}: {data.geometry().num_points:,} sites; {what}; "
        f"{sizes} examples to train / validate / test, split by {split.kind}"
    )


def _table(results: Results) -> Table:
    table = Table(title=f"{results.num_examples} test examples")
    table.add_column("")
    for name in results.one_step["model"]:
        table.add_column(name, justify="right")
    for who, scores in results.one_step.items():
        table.add_row(who, *(f"{value:.4g}" for value in scores.values()))
    return table
