"""The table of readers, and `open_data`, which reads a file in any layout of the table.

A new layout is one new file with a subclass of `AbstractReader`, and one line in `READERS`; the
contract tests cover it as soon as `tests/contracts/samples.py` lists a file of it. Modules are
imported when a reader is first tried, so a package is needed only for the layouts that use it.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np

from gpo.data.dataset import DataError, StaticMaps, Trajectories, Variable
from gpo.data.geometry import Geometry
from gpo.data.readers.base import AbstractReader, ReadOptions
from gpo.files import MissingPackageError, require

READERS: dict[str, str] = {
    "ns2d": "fno.FnoReader",
    "well": "well.WellReader",
    "pdebench": "pdebench.PdebenchReader",
    "airfoil": "airfoil.AirfoilReader",
    "mesh-series": "mesh_series.MeshSeriesReader",
    "gridded": "gridded.GriddedReader",
    "arrays": "arrays.ArraysReader",
}
"""Module and class of every reader by its name, the most specific layout first."""


def open_data(
    path: str | Path, options: ReadOptions = ReadOptions(), reader: str | None = None
) -> Trajectories | StaticMaps:
    """Returns the data of a file or folder in any known layout.

    Args:
        path: The file, or the folder where a layout is several files.
        options: Which variables and levels to take where there are several.
        reader: Name of the layout; recognised from the content when not given.
    """
    path = Path(path)
    if not path.exists():
        raise DataError(path, "file", "does not exist.")
    if reader is not None and reader not in READERS:
        raise DataError(path, "reader", f"must be one of {', '.join(READERS)}, got {reader!r}.")
    try:
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
