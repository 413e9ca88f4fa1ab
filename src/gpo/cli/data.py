"""The commands `gpo data make`, `gpo data info`, `gpo data check`, `gpo data plot` and, in `fetch.py`, `gpo data fetch`.

Heavy modules are imported inside functions, so that `--help` is fast.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Literal

from tyro.conf import Positional, arg, subcommand

from gpo.cli.console import PlainConsole, say
from gpo.cli.fetch import DataFetch
from gpo.data.forcing_config import NAMES
from gpo.settings_files import assignments

if TYPE_CHECKING:
    from gpo.data.dataset import FieldData

NO_CHANGES: Mapping[str, str] = MappingProxyType({})
Files = Positional[Annotated[tuple[Path, ...], arg(metavar="PATH [...]", help_behavior_hint="")]]


@dataclass(frozen=True, kw_only=True)
class Reading:
    """Which data to read from a file."""

    var: Annotated[
        tuple[str, ...], arg(metavar="NAME [...]", help_behavior_hint="(default: all compatible)")
    ] = ()
    """Variables to read."""
    inputs: Annotated[tuple[str, ...], NAMES] = ()
    """Inputs of static maps: fields, or one value per sample."""
    select: Annotated[tuple[str, ...], arg(metavar="NAME=VALUE [...]", help_behavior_hint="")] = ()
    """Value of an extra dimension, such as level=500; or axes=time,y,x."""
    coords: Annotated[tuple[str, ...], NAMES] = ()
    """Coordinates of sites if not recognised, such as node_x node_y."""
    periodic: Annotated[tuple[str, ...], NAMES] = ()
    """Periodic axes if the file does not state them, such as x y."""
    mask: Annotated[str | None, arg(metavar="NAME", help_behavior_hint="")] = None
    """Points to use: where a variable is not zero, or 'lsm<0.5'."""
    mask_from: Annotated[str | None, arg(metavar="PATH", help_behavior_hint="")] = None
    """File with the variable of --mask at the points of the data."""
    reader: Annotated[
        str | None, arg(metavar="LAYOUT", help_behavior_hint="(default: as recognised)")
    ] = None
    """Layout of the file."""
    untrusted: bool = False
    """Read in a child process with limits on memory and time."""


@dataclass(frozen=True)
class DataMake:
    """Generates the data of a simulated benchmark in its published layout."""

    name: Annotated[Positional[str], arg(metavar="NAME", help_behavior_hint="")]
    """Name of the benchmark, such as ns2d."""
    preset: Literal["quick", "default", "paper"] = "default"
    """Size of the data set."""
    out: Annotated[
        Path | None, arg(metavar="FILE", help_behavior_hint="(default: in the folder $GPO_CACHE)")
    ] = None
    """File to write."""
    set: Annotated[tuple[str, ...], arg(metavar="NAME=VALUE [...]", help_behavior_hint="")] = ()
    """Parameters of the solver, such as viscosity=1e-3 num_trajectories=8."""

    def run(self) -> None:
        """Generates the file with a progress bar; an interrupted run is resumed."""
        make_data(self.name, self.preset, self.out, assignments("set", self.set))


def make_data(
    name: str, preset: str, out: Path | None = None, changes: Mapping[str, str] = NO_CHANGES
) -> Path:
    """Generates the data of a benchmark unless they exist, with a progress bar; returns the file."""
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


def open_file(paths: tuple[Path, ...], reading: Reading) -> "FieldData":
    """Returns the data of a file.

    Args:
        paths: Files, folders or patterns, in any supported layout.
        reading: What to read from them.
    """
    if not paths:
        raise ValueError("PATH must name a file or a folder, got none.")
    from gpo.data.masks import with_mask
    from gpo.data.readers.base import ReadOptions
    from gpo.data.readers.registry import open_data

    options = ReadOptions(
        variables=reading.var,
        inputs=reading.inputs,
        select=assignments("select", reading.select),
        coords=reading.coords,
        periodic=reading.periodic,
        untrusted=reading.untrusted,
    )
    data = open_data(paths, options, reading.reader)
    return with_mask(data, paths, options, reading.mask, reading.mask_from)


@dataclass(frozen=True)
class DataInfo:
    """Describes the content of a file and the examples for training."""

    file: Files
    """File or folder of any known layout, a pattern, or several files."""
    reading: Reading = Reading()

    def run(self) -> None:
        """Prints variables, ranges, missing values, domain, weights and splits."""
        from gpo.cli.describe import print_description

        print_description(open_file(self.file, self.reading))


@dataclass(frozen=True)
class DataCheck:
    """Reads every value of a file in a child process with limits on memory and time."""

    file: Files
    """File or folder of any known layout, a pattern, or several files."""
    reading: Reading = Reading()

    def run(self) -> None:
        """Prints what the file holds, what is odd about it, and that all of it was read."""
        from gpo.cli.describe import print_description

        print_description(open_file(self.file, replace(self.reading, untrusted=True)), most=None)
        say("every value was read: nothing crashed, and no limit was exceeded")


@dataclass(frozen=True)
class DataPlot:
    """Plots an overview (contact sheet) of a file."""

    file: Files
    """File or folder of any known layout, a pattern, or several files."""
    out: Annotated[Path | None, arg(metavar="FILE", help_behavior_hint="(default: ./NAME.png)")] = (
        None
    )
    """Image file to write."""
    reading: Reading = Reading()

    def run(self) -> None:
        """Writes the image."""
        from gpo.report.contact_sheet import draw_contact_sheet

        data = open_file(self.file, self.reading)
        path = draw_contact_sheet(data, self.out or _image_path(self.file))
        say(f"picture: {path}")


def _image_path(files: tuple[Path, ...]) -> Path:
    """Returns the default name of the image, without wildcards of a pattern."""
    stem = files[0].stem.strip("*?[]_-. ") if files else ""
    return Path(f"{stem or 'data'}.png")


@dataclass(frozen=True)
class Data:
    """Generates, downloads, describes and plots data files."""

    action: (
        Annotated[DataMake, subcommand("make")]
        | Annotated[DataInfo, subcommand("info")]
        | Annotated[DataCheck, subcommand("check")]
        | Annotated[DataPlot, subcommand("plot")]
        | Annotated[DataFetch, subcommand("fetch")]
    )

    def run(self) -> None:
        """Runs the selected action."""
        self.action.run()
