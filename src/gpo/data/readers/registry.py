"""The table of readers, and `open_data`, which reads a file in any layout of the table.

A new layout is one new file with a subclass of `AbstractReader`, and one line in `READERS`; the
contract tests cover it as soon as `tests/contracts/samples.py` lists a file of it. Modules are
imported when a reader is first tried, so a package is needed only for the layouts that use it.
"""

from collections.abc import Sequence
from dataclasses import replace
from glob import glob
from pathlib import Path

import numpy as np

from gpo.data.dataset import DataError, StaticMaps, Trajectories, Variable
from gpo.data.geometry import Geometry
from gpo.data.joined import join, join_maps
from gpo.data.periodic import make_axes_periodic
from gpo.data.readers.base import AbstractReader, ReadOptions
from gpo.data.readers.validation import check_data_file
from gpo.optional import MissingPackageError, require

READERS: dict[str, str] = {
    "ns2d": "fno.FnoReader",
    "well": "well.WellReader",
    "pdebench": "pdebench.PdebenchReader",
    "airfoil": "airfoil.AirfoilReader",
    "mesh-series": "mesh_series.MeshSeriesReader",
    "gridded": "gridded.GriddedReader",
    "arrays": "arrays.ArraysReader",
    "table": "table.TableReader",
}
"""Module and class of every reader by its name, the most specific layout first."""
JOINED_SUFFIXES = (".nc", ".nc4", ".cdf", ".grib", ".grib2", ".grb", ".grb2", ".h5", ".hdf5",
                   ".npz", ".mat", ".zarr")  # fmt: skip
"""Files of a folder that are read as one."""


def open_data(
    path: str | Path | Sequence[str | Path],
    options: ReadOptions = ReadOptions(),
    reader: str | None = None,
) -> Trajectories | StaticMaps:
    """Returns the data of a file, of a folder, or of several files as one.

    Args:
        path: The file; the folder where a layout is several files, or which holds files to join;
            a pattern such as runs/*.nc; or a list of files.
        options: Which variables and levels to take where there are several.
        reader: Name of the layout; recognised from the content when not given.
    """
    if reader is not None and reader not in READERS:
        source = Path(path if isinstance(path, str | Path) else str(next(iter(path), "")))
        raise DataError(source, "reader", f"must be one of {', '.join(READERS)}, got {reader!r}.")
    source, files = find_files(path)
    if len(files) == 1:
        data = _open_one(files[0], options, reader)
    else:
        one = replace(options, periodic=(), num_files=len(files))
        parts = [_open_part(file, one, reader) for file in files]
        series = [part for part in parts if isinstance(part, Trajectories)]
        maps = [part for part in parts if isinstance(part, StaticMaps)]
        if series and maps:
            problem = (
                f"holds static maps, but {series[0].source.name} a time series: give one kind."
            )
            raise DataError(maps[0].source, "file", problem)
        named = _named_in(series, options.variables)
        data = join(series, source, named) if series else join_maps(maps, source)
    return make_axes_periodic(data, options.periodic)


def find_files(path: str | Path | Sequence[str | Path]) -> tuple[Path, list[Path]]:
    """Returns what the data are called in messages, and the files that hold them, by name."""
    if not isinstance(path, str | Path):
        if not path:
            raise DataError("", "data", "must name a file.")
        if len(path) == 1:
            return find_files(path[0])
        found = [file for one in path for file in find_files(one)[1]]
        return Path(f"{found[0]} and {len(found) - 1} more"), _distinct(found)
    source = Path(path)
    if source.exists():
        if not source.is_dir() or _is_one_layout(source):
            return source, [source]
        found = sorted(file for file in source.iterdir() if _is_data_file(file))
        if not found:
            problem = f"is a folder without files to join ({', '.join(JOINED_SUFFIXES)})"
            raise DataError(source, "file", f"{problem}, and has no layout we know.")
        return source, found
    if any(letter in str(path) for letter in "*?["):
        found = sorted(Path(file) for file in glob(str(source.expanduser()), recursive=True))
        if not found:
            raise DataError(source, "file", "fits no file: it is a pattern, such as runs/*.nc.")
        return source, found
    raise DataError(source, "file", "does not exist.")


def _distinct(files: Sequence[Path]) -> list[Path]:
    twice = [file for number, file in enumerate(files) if file in files[:number]]
    if twice:
        raise DataError(twice[0], "file", "is given twice.")
    return list(files)


def _is_data_file(path: Path) -> bool:
    return path.suffix.lower() in JOINED_SUFFIXES and not path.name.startswith(".")


def _is_one_layout(folder: Path) -> bool:
    """Returns whether a folder as a whole has a layout we know, such as Zarr."""
    try:
        return _recognise(folder) is not None
    except (DataError, MissingPackageError):
        return not any(_is_data_file(file) for file in folder.iterdir())


def _named_in(parts: Sequence[Trajectories], wanted: Sequence[str]) -> tuple[str, ...]:
    """Returns the wanted variables, unless some stand for components."""
    there = {one.name for part in parts for one in part.variables}
    return tuple(wanted) if there == {*wanted} else ()


def _open_part(path: Path, options: ReadOptions, reader: str | None) -> Trajectories | StaticMaps:
    """Opens one of several files, which may hold some of the wanted variables only."""
    wanted, refusal = list(options.variables), None
    while True:
        try:
            return _open_one(path, replace(options, variables=tuple(wanted)), reader)
        except DataError as error:
            if error.field not in wanted or "is not in the file" not in error.problem:
                raise
            refusal = refusal or error
            wanted.remove(error.field)
            if not wanted:
                raise refusal from error


def _open_one(path: Path, options: ReadOptions, reader: str | None) -> Trajectories | StaticMaps:
    try:
        if reader is not None:
            check_data_file(path)
        found = load_reader(reader) if reader is not None else _recognise(path)
        if options.inputs and not found.takes_inputs:
            problem = f"has the layout {found.name}, whose inputs are fixed: leave out --inputs."
            raise DataError(path, "file", problem)
        return found.read(path, options)
    except (DataError, MissingPackageError):
        raise
    except Exception as error:
        # File libraries raise errors of many kinds for a broken file; users meet one kind.
        problem = f"cannot be read: {type(error).__name__}: {error}"
        raise DataError(path, "file", problem) from error


def open_static(
    path: Path, name: str, options: ReadOptions
) -> tuple[Variable, np.ndarray, Geometry] | None:
    """Returns a field that has no time axis, and its sites; None where a file has none.

    Args:
        path: The file.
        name: The variable.
        options: How the file is read.
    """
    try:
        data = open_data(path, replace(options, beside=(name,)))
    except DataError:
        # A file of static fields alone has no times.
        return _recognise(path).read_static(path, name, options) if path.exists() else None
    for one in data.candidates if isinstance(data, Trajectories) else ():
        if one.variable.name == name and one.kind == "static":
            return one.variable, one.read(), data.geometry()
    return None


def load_reader(name: str) -> AbstractReader:
    """Imports and returns the reader of this name."""
    module, kind = READERS[name].split(".")
    return getattr(require(f"gpo.data.readers.{module}", "data", f"Reader {name}"), kind)()


def _recognise(path: Path) -> AbstractReader:
    """Returns the first reader that recognises a file; readers that lack a package are skipped."""
    check_data_file(path)
    tried: list[AbstractReader] = []
    complaints: list[str] = []
    missing: dict[str, str] = {}
    for name in READERS:
        try:
            reader = load_reader(name)
            tried.append(reader)
            if reader.recognises(path):
                return reader
        except MissingPackageError as error:
            missing[name] = str(error.name)
        except Exception as error:
            complaints.append(f"{name}: {error}")
    if missing:
        raise MissingPackageError(
            f"{path} may have a layout whose reader needs a package that is not installed: "
            f"{', '.join(f'{name} ({package})' for name, package in missing.items())}. "
            "Install all of them: pip install 'gpo[data]'."
        )
    known = "; ".join(f"{reader.name} ({reader.layout})" for reader in tried)
    broken = f" It may be damaged: {complaints[0]}." if complaints else ""
    raise DataError(path, "file", f"has no layout we know.{broken} Known layouts: {known}.")
