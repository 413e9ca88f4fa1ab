"""All readers, the most particular first, and how a file finds its own."""

from pathlib import Path

from gpo.data.dataset import DataError, StaticMaps, Trajectories
from gpo.data.readers.airfoil import AirfoilReader
from gpo.data.readers.arrays import ArraysReader
from gpo.data.readers.base import AbstractReader, ReadOptions
from gpo.data.readers.fno import FnoReader
from gpo.data.readers.gridded import GriddedReader
from gpo.data.readers.mesh_series import MeshSeriesReader
from gpo.data.readers.pdebench import PdebenchReader
from gpo.data.readers.well import WellReader

READERS: dict[str, AbstractReader] = {
    reader.name: reader
    for reader in (
        FnoReader(),
        WellReader(),
        PdebenchReader(),
        AirfoilReader(),
        MeshSeriesReader(),
        GriddedReader(),
        ArraysReader(),
    )
}  # fmt: skip


def open_data(
    path: str | Path, options: ReadOptions = ReadOptions(), reader: str | None = None
) -> Trajectories | StaticMaps:
    """Returns the data of a file or folder in any known layout.

    Args:
        path: The file, or the folder where a layout is several files.
        options: What to take where there is more than one thing.
        reader: Name of the layout; recognised from the content when not given.
    """
    path = Path(path)
    if not path.exists():
        raise DataError(path, "file", "does not exist.")
    if reader is not None and reader not in READERS:
        raise DataError(path, "reader", f"must be one of {', '.join(READERS)}, got {reader!r}.")
    try:
        found = READERS[reader] if reader is not None else _recognise(path)
        return found.read(path, options)
    except DataError:
        raise
    except Exception as error:
        # Whatever a file library says about a broken file, users meet one kind of error.
        problem = f"cannot be read: {type(error).__name__}: {error}"
        raise DataError(path, "file", problem) from error


def _recognise(path: Path) -> AbstractReader:
    complaints: list[str] = []
    for reader in READERS.values():
        try:
            if reader.recognises(path):
                return reader
        except Exception as error:
            complaints.append(f"{reader.name}: {error}")
    known = "; ".join(f"{reader.name} ({reader.layout})" for reader in READERS.values())
    broken = f" It may be damaged: {complaints[0]}." if complaints else ""
    raise DataError(path, "file", f"has no layout we know.{broken} Known layouts: {known}.")
