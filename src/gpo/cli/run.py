"""`gpo run`: data, training, scores and a report in one command."""

from dataclasses import dataclass, replace
from pathlib import Path

from rich.console import Console
from rich.table import Table

from gpo.cli.data import assignments, make_data
from gpo.data.benchmarks import BENCHMARKS
from gpo.data.errors import DataError
from gpo.data.readers.base import ReadOptions
from gpo.data.readers.registry import open_data
from gpo.data.split import Split
from gpo.data.trajectories import Trajectories
from gpo.evaluate.score import Results, evaluate
from gpo.report.run_report import write_report
from gpo.train.config import QUICK, RunConfig
from gpo.train.fit import Run, split_of, train


@dataclass(frozen=True)
class RunCommand:
    """Trains on a benchmark or a file of time series, scores it and writes a report."""

    config: RunConfig
    out: Path | None = None
    """Run folder; under runs/ when not given. The same command goes on with the same folder."""
    quiet: bool = False
    """Without progress bars, for logs."""

    def run(self) -> None:
        """Does everything that is not done yet."""
        config = self.config
        if config.preset == "quick":
            unset = {key: value for key, value in QUICK.items() if getattr(config, key) is None}
            config = replace(config, **unset)
        console = Console(soft_wrap=True, highlight=False)
        run = Run(self.out or Path("runs") / f"{config.name}-{config.preset}")
        run.claim(config)
        data = _read(config)
        split = split_of(data, config)
        console.print(_summary(data, split, config), markup=False)
        forecaster = train(run, data, config, is_quiet=self.quiet)
        results = evaluate(forecaster, data, split.test)
        results.save(run.results_file)
        report = write_report(run, config, data, split.test, results)
        console.print(_table(results))
        console.print(f"report: {report}", markup=False)


def _read(config: RunConfig) -> Trajectories:
    variables, path = config.var, Path(config.data or "")
    if config.benchmark is not None:
        path = make_data(config.benchmark, config.preset)
        variables = variables or BENCHMARKS[config.benchmark].variables
    options = ReadOptions(variables=variables, select=assignments("select", config.select))
    data = open_data(path, options)
    if not isinstance(data, Trajectories):
        raise DataError(path, "file", "holds static maps, and only time series can be trained yet.")
    return data


def _summary(data: Trajectories, split: Split, config: RunConfig) -> str:
    step = f"{config.history} frame(s) predict the one {config.lead} step(s) later"
    sizes = f"{len(split.training)} / {len(split.validation)} / {len(split.test)}"
    names = ", ".join(variable.name for variable in data.variables)
    return (
        f"{data.source}: {names} at {data.geometry().num_points:,} sites; {step} "
        f"(as {config.predict}); {sizes} examples to train / validate / test, split by {split.kind}"
    )


def _table(results: Results) -> Table:
    table = Table(title=f"one step ahead, {results.num_examples} test examples")
    table.add_column("")
    for name in results.one_step["model"]:
        table.add_column(name, justify="right")
    for who, scores in results.one_step.items():
        table.add_row(who, *(f"{value:.4g}" for value in scores.values()))
    return table
