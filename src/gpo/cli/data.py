"""`gpo data make | info | plot`."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Literal

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from tyro.conf import Positional

from gpo.assignments import assignments
from gpo.cli.describe import print_description
from gpo.data.benchmarks import cache_folder, solver_for
from gpo.data.dataset import StaticMaps, Trajectories
from gpo.data.generate import generate
from gpo.data.readers.base import ReadOptions
from gpo.data.readers.registry import open_data
from gpo.report.contact_sheet import draw_contact_sheet

NOTHING: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True, kw_only=True)
class Reading:
    """What to take from a file."""

    var: tuple[str, ...] = ()
    """Variables to read; all that belong together when not given."""
    select: tuple[str, ...] = ()
    """One value of every extra dimension by name, such as level=500."""
    reader: str | None = None
    """Layout of the file; recognised from its content when not given."""


@dataclass(frozen=True)
class DataMake:
    """Makes the data of a simulated benchmark in its published layout."""

    name: Positional[str]
    """Benchmark, such as ns2d."""
    preset: Literal["quick", "default", "paper"] = "default"
    """Size of the data set."""
    out: Path | None = None
    """File to make; in the cache folder ($GPO_CACHE) when not given."""
    set: tuple[str, ...] = ()
    """Single numbers of the solver, such as viscosity=1e-3 num_trajectories=8."""

    def run(self) -> None:
        """Makes the file, with progress; an interrupted run goes on where it was."""
        make_data(self.name, self.preset, self.out, assignments("set", self.set))


def make_data(
    name: str, preset: str, out: Path | None = None, changes: Mapping[str, str] = NOTHING
) -> Path:
    """Makes the data of a benchmark unless it is there, with progress; returns its file."""
    solver = solver_for(name, preset, changes)
    path = out or data_file(name, preset)
    console = Console(soft_wrap=True, highlight=False)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    with Progress(*columns, TimeRemainingColumn(), console=console) as progress:
        task = progress.add_task(f"Solving {name}", total=solver.num_trajectories)
        is_new = generate(solver, path, lambda done, _: progress.update(task, completed=done))
    console.print(f"{'made' if is_new else 'already there'}: {path}", markup=False)
    return path


def data_file(name: str, preset: str) -> Path:
    """Returns where the data of a benchmark is kept."""
    return cache_folder() / f"{name}-{preset}{solver_for(name, preset, NOTHING).suffix}"


@dataclass(frozen=True)
class DataInfo:
    """Tells what a file holds and what would be trained on."""

    file: Positional[Path]
    """File or folder in any layout we read."""
    reading: Reading = Reading()

    def run(self) -> None:
        """Prints variables, ranges, missing values, domain, weights and splits."""
        print_description(_open(self.file, self.reading))


@dataclass(frozen=True)
class DataPlot:
    """Draws a contact sheet of a file."""

    file: Positional[Path]
    """File or folder in any layout we read."""
    out: Path | None = None
    """Picture to write; the file's name with .png in this folder when not given."""
    reading: Reading = Reading()

    def run(self) -> None:
        """Writes the picture."""
        out = self.out or Path(self.file.name).with_suffix(".png")
        path = draw_contact_sheet(_open(self.file, self.reading), out)
        Console(soft_wrap=True, highlight=False).print(f"picture: {path}", markup=False)


def _open(path: Path, reading: Reading) -> Trajectories | StaticMaps:
    select = assignments("select", reading.select)
    return open_data(path, ReadOptions(variables=reading.var, select=select), reading.reader)
