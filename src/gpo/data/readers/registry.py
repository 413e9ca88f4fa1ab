"""The registry of readers, and `open_data`, which opens a file of any registered layout.

To add a layout, write a function that returns its content as an `xr.Dataset`, make a `Reader` of it,
and register that by name: `READERS.register("name", "package.module:READER")`. Other packages do so
from a module that their entry point in the group `gpo.plugins` names. Readers are imported when they are first tried, so a
package is needed only for the layouts that use it. The contract tests cover a built-in reader as
soon as `tests/contracts/samples.py` has a file of its layout.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from glob import glob
from pathlib import Path

import numpy as np
import xarray as xr
from xarray.conventions import encode_cf_variable

from gpo.data.dataset import DataError, FieldData, MapReader, Variable
from gpo.data.frame_cache import cached
from gpo.data.geometry import Geometry
from gpo.data.joined import join
from gpo.data.periodic import make_axes_periodic
from gpo.data.readers.array_files import SUFFIXES, open_arrays
from gpo.data.readers.base import ReadOptions, check_regular
from gpo.data.readers.build import Reader, Source, build_data
from gpo.data.readers.hdf5 import check_hdf5, is_hdf5
from gpo.data.readers.zarr_metadata import check_zarr, is_zarr
from gpo.data.untrusted import read_in_child
from gpo.optional import MissingPackageError, raise_missing_package, require
from gpo.registry import Registry

BUILT_IN = {
    "ns2d": "gpo.data.readers.fno:READER",
    "well": "gpo.data.readers.well:READER",
    "pdebench": "gpo.data.readers.pdebench:READER",
    "airfoil": "gpo.data.readers.fno:AIRFOIL",
    "mesh-series": "gpo.data.readers.mesh_series:READER",
    "gridded": "gpo.data.readers.gridded:READER",
    "arrays": "gpo.data.readers.arrays:READER",
    "table": "gpo.data.readers.table:READER",
}
"""Readers of this package, from the most specific layout to the most general."""
READERS: Registry[Reader] = Registry("reader", BUILT_IN)
"""All readers by name. Those of other packages are tried before the built-in ones."""
JOINED_SUFFIXES = (".nc", ".nc4", ".cdf", ".grib", ".grib2", ".grb", ".grb2", ".h5", ".hdf5",
                   ".npz", ".mat", ".pt", ".zarr")  # fmt: skip
"""Suffixes of the files of a folder that are joined."""
FOLDER_SUFFIXES = (".npy", ".h5", ".hdf5")
"""Suffixes of files in a folder that a reader opens as one layout."""


def open_data(
    path: str | Path | Sequence[str | Path] | xr.Dataset,
    options: ReadOptions = ReadOptions(),
    reader: str | None = None,
) -> FieldData:
    """Returns the data of a file, of a folder, of several joined files, or of a data set of xarray.

    Args:
        path: A file; a folder that is one layout or contains files to join; a pattern such as
            runs/*.nc; a list of files; or a data set, which stays open and may be lazy.
        options: Which variables and levels to read.
        reader: Name of the layout; recognised from the content by default.
    """
    if isinstance(path, xr.Dataset):
        return make_axes_periodic(_open_dataset(path, options), options.periodic)
    if options.untrusted:
        in_child = replace(options, untrusted=False)
        return read_in_child(_name(path), open_data, path, in_child, reader)
    if reader is not None and reader not in READERS:
        raise DataError(
            _name(path), "reader", f"must be one of {', '.join(READERS)}, got {reader!r}."
        )
    source, files = find_files(path)
    if len(files) == 1:
        data = _open_file(files[0], options, reader)
    else:
        part_options = replace(options, periodic=(), num_files=len(files))
        parts = [_open_part(file, part_options, reader) for file in files]
        data = join(parts, source, _variable_order(parts, options.variables))
    return make_axes_periodic(cached(data), options.periodic)


def _open_dataset(dataset: xr.Dataset, options: ReadOptions) -> FieldData:
    """Returns the data of a data set in memory; decoded dates become numbers with units again."""
    encoded = {
        name: encode_cf_variable(variable, name=name)
        for name, variable in dataset.variables.items()
        if variable.ndim < 2 and variable.dtype.kind in "mMO"
    }
    path = Path(str(dataset.encoding.get("source", "dataset")))
    content = dataset.drop_indexes(encoded.keys() & dataset.xindexes.keys()).assign(encoded)
    return build_data(Source(path, "xarray", lambda: content), options)


def _name(path: str | Path | Sequence[str | Path]) -> Path:
    """Returns the first of several paths, for error messages."""
    return Path(path if isinstance(path, str | Path) else str(next(iter(path), "")))


def find_files(path: str | Path | Sequence[str | Path]) -> tuple[Path, list[Path]]:
    """Returns the name of the data in error messages, and their files, sorted by name."""
    if not isinstance(path, str | Path):
        if not path:
            raise DataError("", "data", "must name a file.")
        if len(path) == 1:
            return find_files(path[0])
        files = [file for part in path for file in find_files(part)[1]]
        return Path(f"{files[0]} and {len(files) - 1} more"), _check_distinct(files)
    source = Path(path)
    if source.exists():
        if not source.is_dir() or _is_one_layout(source):
            return source, [source]
        files = sorted(file for file in source.iterdir() if _is_data_file(file))
        if not files:
            problem = f"is a folder of unknown layout without files to join ({', '.join(JOINED_SUFFIXES)})."
            raise DataError(
                source, "file", f"{problem} Join other files by a pattern: '{source}/*'."
            )
        return source, files
    if any(letter in str(path) for letter in "*?["):
        files = sorted(Path(file) for file in glob(str(source.expanduser()), recursive=True))
        if not files:
            raise DataError(source, "file", "is a pattern that matches no file.")
        return source, files
    raise DataError(source, "file", "does not exist.")


def _check_distinct(files: Sequence[Path]) -> list[Path]:
    repeated = [file for number, file in enumerate(files) if file in files[:number]]
    if repeated:
        raise DataError(repeated[0], "file", "must be named once, got it twice.")
    return list(files)


def _is_data_file(path: Path) -> bool:
    return path.suffix.lower() in JOINED_SUFFIXES and not path.name.startswith(".")


def _is_one_layout(folder: Path) -> bool:
    """Returns whether a folder as a whole has a known layout, such as Zarr."""
    try:
        return _recognise(folder) is not None
    except (DataError, MissingPackageError):
        return not any(_is_data_file(file) for file in folder.iterdir())


def _variable_order(parts: Sequence[FieldData], requested: Sequence[str]) -> tuple[str, ...]:
    """Returns the requested variables; empty if some of them are arrays of components."""
    names = {variable.name for part in parts for variable in part.variables}
    return tuple(requested) if names == {*requested} else ()


def _open_part(path: Path, options: ReadOptions, reader: str | None) -> FieldData:
    """Opens one of several files, which may have only some of the requested variables."""
    names, first_error = list(options.variables), None
    while True:
        try:
            return _open_file(path, replace(options, variables=tuple(names)), reader)
        except DataError as error:
            if error.field not in names or "is not in the file" not in error.problem:
                raise
            first_error = first_error or error
            names.remove(error.field)
            if not names:
                raise first_error from error


def _open_file(path: Path, options: ReadOptions, name: str | None) -> FieldData:
    try:
        if name is None:
            reader = _recognise(path)
        else:
            check_data_file(path)
            reader = load_reader(name)
        if options.inputs and not reader.takes_inputs:
            problem = f"has the layout {reader.name}, whose inputs are fixed: leave out --inputs."
            raise DataError(path, "file", problem)
        return reader.read(path, options)
    except (DataError, MissingPackageError):
        raise
    except Exception as error:
        # File libraries raise errors of many types for a damaged file.
        problem = f"cannot be read: {type(error).__name__}: {error}"
        raise DataError(path, "file", problem) from error


def open_static(
    path: Path, name: str, options: ReadOptions
) -> tuple[Variable, np.ndarray, Geometry] | None:
    """Returns a field without a time axis, and its sites; None if the file has no such field.

    Args:
        path: The file.
        name: Name of the variable.
        options: How to read the file.
    """
    if options.untrusted:
        return read_in_child(path, open_static, path, name, replace(options, untrusted=False))
    with suppress(DataError):
        data = open_data(path, replace(options, extra_inputs=(name,)))
        for field in data.candidates:
            if field.variable.name == name and field.kind == "static":
                return field.variable, field.read(), data.geometry()
    with suppress(DataError):
        # A file may have no times.
        data = open_data(path, replace(options, variables=(name,), takes_frames=True))
        if (len(data.variables), data.num_samples, len(data.time)) == (1, 1, 1):
            return data.variables[0], data.frames(0).ravel().astype(np.float64), data.geometry()
    return None


def load_reader(name: str) -> Reader:
    """Imports and returns a reader; raises a `MissingPackageError` that says what to install."""
    try:
        return READERS[name]
    except ModuleNotFoundError as error:
        raise_missing_package(error, "data" if name in BUILT_IN else None, f"Reader {name}")


def _recognise(path: Path) -> Reader:
    """Returns the first reader that recognises a file; readers that lack a package are skipped."""
    check_data_file(path)
    tried: list[Reader] = []
    problems: list[str] = []
    missing: dict[str, str] = {}
    # Built-in readers of general layouts would claim the files of readers of other packages.
    for name in sorted(READERS, key=lambda name: name in BUILT_IN):
        try:
            reader = load_reader(name)
            tried.append(reader)
            if reader.recognises(path):
                return reader
        except MissingPackageError as error:
            missing[name] = str(error.name)
        except Exception as error:
            problems.append(f"{name}: {error}")
    if missing:
        packages = ("'gpo[data]'" if name in BUILT_IN else missing[name] for name in missing)
        raise MissingPackageError(
            f"{path} may have a layout whose reader needs a package that is not installed: "
            f"{', '.join(f'{name} ({package})' for name, package in missing.items())}. "
            f"Install all of them: pip install {' '.join(dict.fromkeys(packages))}."
        )
    layouts = "; ".join(f"{reader.name} ({reader.layout})" for reader in tried)
    damage = f" It may be damaged: {problems[0]}." if problems else ""
    raise DataError(path, "file", f"has an unknown layout.{damage} Known layouts: {layouts}.")


def check_data_file(path: Path) -> None:
    """Raises a `DataError` if a file would run code, read other files or exhaust the memory."""
    if not path.is_dir():
        check_regular(path)
        if is_hdf5(path):
            check_hdf5(path)
    elif is_zarr(path):
        check_zarr(path)
    else:
        for file in sorted(path.iterdir()):
            if file.suffix in FOLDER_SUFFIXES and not file.is_dir():
                check_data_file(file)


def read_parameters(path: Path, names: Sequence[str]) -> np.ndarray | None:
    """Returns parameters of shape (samples, columns); None if an array is missing or not 1D or 2D.

    Args:
        path: A file of named arrays, or NetCDF.
        names: Arrays with one entry, or one row, per sample.
    """
    check_data_file(path)
    if path.suffix in SUFFIXES or path.is_dir():
        stored = open_arrays(path)
        arrays = {name: array.values() for name, array in stored.items() if name in names}
    else:
        files = require("gpo.data.readers.gridded", "data", "Reading NetCDF")
        files.check_chunks(path, ReadOptions(variables=tuple(names)))
        with files.open_dataset(path, names) as dataset:
            arrays = {name: dataset[name].values for name in names if name in dataset.variables}
    if len(arrays) < len(names):
        return None
    columns = [np.atleast_1d(np.squeeze(arrays[name])).astype(np.float64) for name in names]
    if any(column.ndim > 2 or len(column) != len(columns[0]) for column in columns):
        return None
    return np.concatenate([column.reshape(len(column), -1) for column in columns], 1)


def maps_from_parameters(
    path: Path, names: Sequence[str], like: FieldData, *, untrusted: bool = False
) -> FieldData | None:
    """Returns static maps with parameters from a file and unknown outputs (NaN).

    Args:
        path: The file of parameters.
        names: Names of the inputs.
        like: Maps with these inputs, which define sites and outputs.
        untrusted: Whether to read the file in a child process with limits.
    """
    if untrusted:
        values = read_in_child(path, read_parameters, path, names)
    else:
        values = read_parameters(path, names)
    if values is None or values.shape[1] != len(like.inputs) or len(like.geometries) > 1:
        return None
    if not np.isfinite(values).all():
        raise DataError(path, ", ".join(names), "must be known for every sample, got NaN.")
    shape = like.geometry().num_points, len(like.outputs)
    fetch = MapReader(partial(_fetch, values, shape))
    return replace(like, source=path, num_samples=len(values), fetch=fetch, parameters={})


def _fetch(
    values: np.ndarray, shape: tuple[int, int], sample: int
) -> tuple[np.ndarray, np.ndarray]:
    inputs = np.broadcast_to(values[sample], (shape[0], values.shape[1]))
    return inputs, np.full(shape, np.nan)
