"""The command line: one file per command, one typed configuration each."""

import os
import sys
from dataclasses import dataclass
from typing import Annotated, Any

import tyro
from rich.console import Console
from tyro.conf import OmitArgPrefixes, OmitSubcommandPrefixes, subcommand

from gpo.cli.baselines import Baselines
from gpo.cli.bench import (
    BenchAblation,
    BenchConvergence,
    BenchEfficiency,
    BenchExport,
    BenchRollout,
    BenchScaling,
    BenchSpectrum,
    BenchTable1,
    BenchTransfer,
)
from gpo.cli.data import DataInfo, DataMake, DataPlot
from gpo.cli.explore import ExploreCommand
from gpo.cli.export import ExportCommand
from gpo.cli.interpret import InterpretCommand
from gpo.cli.predict import PredictCommand
from gpo.cli.presets import Presets
from gpo.cli.run import (
    EvaluateCommand,
    ReportCommand,
    RunCommand,
    TrainCommand,
    starting_point,
)
from gpo.files import MissingPackageError
from gpo.training.config import RunConfig


@dataclass(frozen=True)
class Data:
    """Makes, describes and draws data files."""

    action: (
        Annotated[DataMake, subcommand("make")]
        | Annotated[DataInfo, subcommand("info")]
        | Annotated[DataPlot, subcommand("plot")]
    )

    def run(self) -> None:
        """Runs the chosen action."""
        self.action.run()


@dataclass(frozen=True)
class Bench:
    """Makes the paper's tables and figures, with all models under the same rules."""

    what: (
        Annotated[BenchTable1, subcommand("table1")]
        | Annotated[BenchAblation, subcommand("ablation")]
        | Annotated[BenchEfficiency, subcommand("efficiency")]
        | Annotated[BenchRollout, subcommand("rollout")]
        | Annotated[BenchConvergence, subcommand("convergence")]
        | Annotated[BenchSpectrum, subcommand("spectrum")]
        | Annotated[BenchTransfer, subcommand("transfer")]
        | Annotated[BenchScaling, subcommand("scaling")]
        | Annotated[BenchExport, subcommand("export")]
    )

    def run(self) -> None:
        """Makes the chosen one."""
        self.what.run()


def main(arguments: list[str] | None = None) -> None:
    """Runs the command that the arguments name.

    Exit codes: 0 done, 1 the input or the data is at fault (the message says how), 2 the
    arguments make no sense, 130 interrupted.
    """
    try:
        _parse(arguments).run()
        sys.stdout.flush()
    except BrokenPipeError:
        # Whoever read our output has seen enough; what is left goes nowhere.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (ValueError, OSError, MissingPackageError) as error:
        Console(stderr=True, soft_wrap=True, highlight=False).print(f"error: {error}", markup=False)
        sys.exit(1)
    except KeyboardInterrupt:
        Console(stderr=True).print("interrupted: the same command goes on from here.")
        sys.exit(130)


def _parse(arguments: list[str] | None) -> Any:
    """Returns the command. Flags that were not given follow the preset and the --config file."""
    command = _parse_onto(RunConfig(), arguments)
    training = command.training if isinstance(command, RunCommand) else command
    if isinstance(training, TrainCommand):
        return _parse_onto(starting_point(training), arguments)
    return command


def _parse_onto(settings: RunConfig, arguments: list[str] | None) -> Any:
    training = TrainCommand(settings)
    command = (
        Annotated[RunCommand, subcommand("run", default=RunCommand(training))]
        | Annotated[TrainCommand, subcommand("train", default=training)]
        | Annotated[EvaluateCommand, subcommand("evaluate")]
        | Annotated[ReportCommand, subcommand("report")]
        | Annotated[PredictCommand, subcommand("predict")]
        | Annotated[ExportCommand, subcommand("export")]
        | Annotated[ExploreCommand, subcommand("explore")]
        | Annotated[InterpretCommand, subcommand("interpret")]
        | Annotated[Data, subcommand("data")]
        | Annotated[Presets, subcommand("presets")]
        | Annotated[Baselines, subcommand("baselines")]
        | Annotated[Bench, subcommand("bench")]
    )
    return tyro.cli(
        OmitSubcommandPrefixes[OmitArgPrefixes[command]],  # type: ignore[valid-type]
        prog="gpo",
        description="Gaussian Particle Operator: PDE fields as particles that can be drawn.",
        args=arguments,
    )
