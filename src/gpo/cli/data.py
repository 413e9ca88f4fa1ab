"""`gpo data make | info | plot`.

The work is imported where it is done: help needs the flags alone.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Literal

from tyro.conf import Positional, arg, subcommand

from gpo.assignments import assignments
from gpo.cli.console import PlainConsole, say

if TYPE_CHECKING:
    from gpo.data.dataset import StaticMaps, Trajectories

NOTHING: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, kw_only=True)
class Reading:
    """What to take from a file."""

    var: tuple[str, ...] = ()
    """Variables to read; all that belong together when not given."""
    inputs: tuple[str, ...] = ()
    """What static maps start from: fields, or one number per sample."""
    select: tuple[str, ...] = ()
    """One value of an extra dimension, level=500; or axes=time,y,x."""
    coords: tuple[str, ...] = ()
    """Coordinates of sites, where names do not tell: node_x node_y."""
    periodic: tuple[str, ...] = ()
    """Axes that close on themselves, where the file does not tell: x y."""
    reader: Annotated[
        str | None, arg(metavar="LAYOUT", help_behavior_hint="(default: as recognised)")
    ] = None
    """Layout of the file."""


@dataclass(frozen=True)
class DataMake:
    """Makes the data of a simulated benchmark in its published layout."""

    name: Positional[str]
    """Benchmark, such as ns2d."""
    preset: Literal["quick", "default", "paper"] = "default"
    """Size of the data set."""
    out: Annotated[
        Path | None, arg(metavar="FILE", help_behavior_hint="(default: in the folder $GPO_CACHE)")
    ] = None
    """File to make."""
    set: tuple[str, ...] = ()
    """Single numbers of the solver, such as viscosity=1e-3 num_trajectories=8."""

    def run(self) -> None:
        """Makes the file, with progress; an interrupted run goes on where it was."""
        make_data(self.name, self.preset, self.out, assignments("set", self.set))


def make_data(
    name: str, preset: str, out: Path | None = None, changes: Mapping[str, str] = NOTHING
) -> Path:
    """Makes the data of a benchmark unless it is there, with progress; returns its file."""
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
    )

    from gpo.data.benchmarks import solver_for
    from gpo.data.generate import generate
    from gpo.runs import benchmark_path

    solver = solver_for(name, preset, changes)
    path = out or benchmark_path(name, preset)
    console = PlainConsole()
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeRemainingColumn(), console=console) as progress:
        task = progress.add_task(f"Solving {name}", total=solver.num_trajectories)
        is_new = generate(solver, path, lambda done, _: progress.update(task, completed=done))
    console.print(f"{'made' if is_new else 'already there'}: {path}")
    return path


def open_file(paths: tuple[Path, ...], reading: Reading) -> "Trajectories | StaticMaps":
    """Returns the data of a file.

    Args:
        paths: Files, folders or patterns, in any supported layout.
        reading: What to read from them.
    """
    from gpo.data.readers.base import ReadOptions
    from gpo.data.readers.registry import open_data

    options = ReadOptions(
        variables=reading.var,
        inputs=reading.inputs,
        select=assignments("select", reading.select),
        coords=reading.coords,
        periodic=reading.periodic,
    )
    return open_data(paths, options, reading.reader)


@dataclass(frozen=True)
class DataInfo:
    """Tells what a file holds and what would be trained on."""

    file: Positional[tuple[Path, ...]]
    """File or folder in any layout we read, a pattern, or several files."""
    reading: Reading = Reading()

    def run(self) -> None:
        """Prints variables, ranges, missing values, domain, weights and splits."""
        from gpo.cli.describe import print_description

        print_description(open_file(self.file, self.reading))


@dataclass(frozen=True)
class DataPlot:
    """Draws a contact sheet of a file."""

    file: Positional[tuple[Path, ...]]
    """File or folder in any layout we read, a pattern, or several files."""
    out: Annotated[
        Path | None, arg(metavar="PICTURE", help_behavior_hint="(default: ./NAME.png)")
    ] = None
    """Picture to write."""
    reading: Reading = Reading()

    def run(self) -> None:
        """Writes the picture."""
        from gpo.report.contact_sheet import draw_contact_sheet

        data = open_file(self.file, self.reading)
        path = draw_contact_sheet(data, self.out or _picture(self.file))
        say(f"picture: {path}")


def _picture(files: tuple[Path, ...]) -> Path:
    """Returns the name of a picture of some files, without signs of patterns."""
    stem = files[0].stem.strip("*?[]_-. ") if files else ""
    return Path(f"{stem or 'data'}.png")


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
