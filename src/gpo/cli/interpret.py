"""`gpo interpret`: measures what the particles, windows and modes of a trained run do."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from rich.progress import track
from rich.table import Table
from tyro.conf import FlagCreatePairsOff, Positional, arg

from gpo.cli.console import PlainConsole, say
from gpo.cli.query_flags import Velocity
from gpo.data.benchmarks import DATA_SETS
from gpo.data.coarsen import coarsen
from gpo.data.dataset import FieldData
from gpo.data.geometry import Geometry
from gpo.data.splits import TimeSlice
from gpo.forecast.examples import Example, TimeSliceExamples
from gpo.forecast.forecaster import Forecaster
from gpo.interpretation.diffusion import Viscosity
from gpo.interpretation.interpretation import interpret
from gpo.interpretation.results import Interpretation
from gpo.report.particles import save_other_data
from gpo.runs import open_other, open_run
from gpo.training.config import RunConfig
from gpo.training.run_folder import Run
from gpo.training.setup import split_of


@dataclass(frozen=True)
class InterpretCommand:
    """Measures what particles, windows and modes of a trained gpo do; writes interpret.json."""

    folder: Positional[Path]
    """Run folder."""
    examples: int = 8
    """Number of test examples, evenly chosen; the run time is proportional to it."""
    other: Annotated[Path | None, arg(metavar="PATH", help_behavior_hint="")] = None
    """Other data of the same variables, such as another viscosity, to measure the drift of particles."""
    same_as: Annotated[tuple[Path, ...], arg(metavar="RUN [...]", help_behavior_hint="")] = ()
    """Runs with the same configuration and other seeds, to compare what they depend on."""
    velocity: Velocity = ()
    """Variables of the velocity along x, y, z, or eastward and northward."""
    viscosity: Annotated[
        float | None,
        arg(metavar="X", help_behavior_hint="(default: that of the benchmark's solver)"),
    ] = None
    """True viscosity, in squared units of the domain per unit of time."""
    scales_of: Annotated[Path | None, arg(metavar="RUN", help_behavior_hint="")] = None
    """Run of the same sizes on other data, such as another viscosity, whose scales are a control."""
    quiet: FlagCreatePairsOff[bool] = False
    """Hide progress bars."""

    def run(self) -> None:
        """Interprets the run, writes the file and prints a summary."""
        if self.examples < 1:
            raise ValueError(f"--examples must be at least 1, got {self.examples}.")
        if self.viscosity is not None and not 0 < self.viscosity < math.inf:
            raise ValueError(f"--viscosity must be a positive number, got {self.viscosity:g}.")
        Run(self.folder).check_no_links()
        run = open_run(self.folder)
        forecaster = _trained(self.folder)
        flag = self.viscosity
        true = known_viscosity(run.config) if flag is None else Viscosity(flag, "--viscosity")
        same = {str(path): _same_but_seed(path, run.config) for path in self.same_as}
        other = None
        if self.other is not None:
            data = _other(self.other, run.config, forecaster)
            split = split_of(data, run.config)
            other = data, (*split.training, *split.validation, *split.test)

        def tracked(items: Sequence[Any], label: str) -> Iterable[Any]:
            return items if self.quiet else track(items, label, transient=True)

        result = interpret(
            forecaster, run.data, run.split.test, num_examples=self.examples, other=other,
            same=same, velocity=self.velocity, viscosity=true,
            scales_of=None if self.scales_of is None else _trained(self.scales_of), track=tracked,
        )  # fmt: skip
        path = result.save(self.folder)
        if other is not None:
            sets = {"test split": (run.data, run.split.test), "other data": other}
            reconstructs = forecaster.task.lead == 0
            rows = {name: _last(*pair, reconstructs=reconstructs) for name, pair in sets.items()}
            save_other_data(forecaster, rows, self.folder / "figures")
        PlainConsole(wraps=True).print(_table(result))
        say(f"numbers: {path}; gpo report {self.folder} draws them")


def known_viscosity(config: RunConfig) -> Viscosity | None:
    """Returns the viscosity of the solver that made the data of a benchmark, if it has one."""
    name = config.data.benchmark if config.data.data is None else None
    solver = None if name is None else DATA_SETS[name].solvers.get(config.data.preset)
    value = getattr(solver, "viscosity", None)
    return Viscosity(float(value), f"the solver of {name}") if value else None


def _last(
    data: FieldData, samples: Sequence[TimeSlice], *, reconstructs: bool
) -> tuple[Example, Geometry]:
    """Returns the last example and its geometry."""
    example = TimeSliceExamples(data, samples[-1:], reconstructs=reconstructs)[0]
    return example, data.geometry(samples[-1].sample)


def _trained(folder: Path) -> Forecaster:
    forecaster = Forecaster.load(Run(folder).trained_model())
    if forecaster.model.operator is None:
        raise ValueError(
            f"{folder} is a run of {Run(folder).config().model.name}, which has no "
            "particles, windows or modes to interpret. Train gpo on the same data: gpo run ... "
            "--model gpo"
        )
    return forecaster


def _same_but_seed(folder: Path, config: RunConfig) -> Forecaster:
    """Returns the model of a run that differs in its seed only."""
    run = Run(folder)
    if not run.config_file.exists():
        raise ValueError(f"{folder} is not a run folder: it has no {run.config_file.name}. --same-as takes run folders.")  # fmt: skip
    other = RunConfig.load(run.config_file)
    names = [name for name in config.differences(other) if name != "seed"]
    if names:
        raise ValueError(
            f"{folder} must differ in its seed only, got other settings of {', '.join(names)}. "
            "Train a run with the same flags and another --seed."
        )
    return _trained(folder)


def _other(path: Path, config: RunConfig, forecaster: Forecaster) -> FieldData:
    data = coarsen(open_other(path, config, forecaster.task), config.data.coarsen)
    dim, expected = data.geometry().domain.dim, forecaster.model.problem.domain.dim
    if dim != expected:
        raise ValueError(
            f"{path}: --other must have {expected} coordinates like the run, got {dim}."
        )
    return data


def _table(result: Interpretation) -> Table:
    table = Table(title=f"{result.num_examples} test examples, variant {result.variant}")
    table.add_column("question")
    table.add_column("number", justify="right")
    table.add_column("compare with", justify="right")
    for row in result.summary():
        table.add_row(*row)
    return table
