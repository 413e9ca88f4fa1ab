"""`gpo interpret`: what a trained run can be seen to do, in numbers."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.progress import track
from rich.table import Table
from tyro.conf import Positional

from gpo.cli.console import PlainConsole, say
from gpo.data.coarsen import coarsen
from gpo.data.dataset import StaticMaps, Trajectories
from gpo.data.geometry import Geometry
from gpo.data.splits import owner
from gpo.forecast.examples import Example, make_examples
from gpo.forecast.forecaster import Forecaster
from gpo.interpretation.interpretation import interpret
from gpo.interpretation.results import Interpretation
from gpo.report.particles import save_other_data
from gpo.runs import open_like, open_run
from gpo.training.config import RunConfig
from gpo.training.run_folder import Run
from gpo.training.setup import split_of


@dataclass(frozen=True)
class InterpretCommand:
    """Tells what particles, windows and modes of a trained gpo do: writes interpret.json."""

    folder: Positional[Path]
    """A run folder."""
    examples: int = 8
    """Test examples to look at, evenly chosen; time grows with them."""
    other: Path | None = None
    """Data of the same variables but another kind, such as another viscosity: how far do particles drift?"""
    same_as: tuple[Path, ...] = ()
    """Runs of the same configuration but seed: do they rely on the same parts?"""
    velocity: tuple[str, ...] = ()
    """Variables that are the velocity along x, y, z, or to the east and north; found by their names where not given."""
    quiet: bool = False
    """Without progress bars, for logs."""

    def run(self) -> None:
        """Looks into the model, writes the file and prints what matters most."""
        if self.examples < 1:
            raise ValueError(f"--examples must be at least 1, got {self.examples}.")
        run = open_run(self.folder)
        forecaster = _trained(self.folder)
        same = {str(path): _of_other_seed(path, run.config) for path in self.same_as}
        other = None
        if self.other is not None:
            data = _other(self.other, run.config, forecaster)
            split = split_of(data, run.config)
            other = data, (*split.training, *split.validation, *split.test)

        def tracked(items: Sequence[Any], what: str) -> Iterable[Any]:
            return items if self.quiet else track(items, what, transient=True)

        found = interpret(
            forecaster, run.data, run.split.test, num_examples=self.examples, other=other,
            same=same, velocity=self.velocity, track=tracked,
        )  # fmt: skip
        path = found.save(self.folder)
        if other is not None:
            sets = {"test split": (run.data, run.split.test), "other data": other}
            reconstructs = forecaster.task.lead == 0 and isinstance(run.data, Trajectories)
            rows = {name: _last(*some, reconstructs=reconstructs) for name, some in sets.items()}
            save_other_data(forecaster, rows, self.folder / "figures")
        PlainConsole(wraps=True).print(_table(found))
        say(f"numbers: {path}; gpo report {self.folder} draws them")


def _last(
    data: Trajectories | StaticMaps, members: Sequence[Any], *, reconstructs: bool
) -> tuple[Example, Geometry]:
    """Returns the last example and where it lies."""
    example = make_examples(data, members[-1:], reconstructs=reconstructs)[0]
    return example, data.geometry(owner(members[-1]))


def _trained(folder: Path) -> Forecaster:
    forecaster = Forecaster.load(Run(folder).trained_model())
    if forecaster.model.operator is None:
        raise ValueError(
            f"{folder} is a run of {Run(folder).config().model.name}, which has no "
            "particles, windows or modes to look at. Train gpo on the same data: gpo run ... "
            "--model gpo"
        )
    return forecaster


def _of_other_seed(folder: Path, config: RunConfig) -> Forecaster:
    """Returns the model of a run that differs in its seed alone."""
    run = Run(folder)
    if not run.config_file.exists():
        raise ValueError(f"{folder} is no run: it has no {run.config_file.name}. --same-as takes run folders.")  # fmt: skip
    other = RunConfig.load(run.config_file)
    names = [name for name in config.differences(other) if name != "seed"]
    if names:
        raise ValueError(
            f"{folder} must differ in its seed alone, got other settings of {', '.join(names)}. "
            "Train one with the same flags and another --seed."
        )
    return _trained(folder)


def _other(path: Path, config: RunConfig, forecaster: Forecaster) -> Trajectories | StaticMaps:
    data = coarsen(open_like(path, config, forecaster.task), config.data.coarsen)
    dim, expected = data.geometry().domain.dim, forecaster.model.problem.domain.dim
    if dim != expected:
        raise ValueError(
            f"{path}: --other must have sites of {expected} coordinates as the run, got {dim}."
        )
    return data


def _table(found: Interpretation) -> Table:
    table = Table(title=f"{found.num_examples} test examples, variant {found.variant}")
    table.add_column("question")
    table.add_column("number", justify="right")
    table.add_column("compare with", justify="right")
    for row in found.summary():
        table.add_row(*row)
    return table
