"""Gridded files as weather services publish them: NetCDF, GRIB and Zarr with CF attributes.

Examples are ERA5 from the Climate Data Store (NetCDF, GRIB), from WeatherBench or ARCO (Zarr), CARRA
(Lambert grid with 2D latitudes), and most files written with xarray.
"""

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from gpo.data.dataset import DataError
from gpo.data.readers.base import ReadOptions
from gpo.data.readers.build import Reader
from gpo.data.readers.lazy import REOPENED
from gpo.data.readers.lengths import CLASSIC_STARTS, check_length, check_messages, count_messages
from gpo.data.readers.names import name_in_file
from gpo.data.readers.zarr_metadata import is_zarr
from gpo.optional import MissingPackageError, require

NETCDF_SUFFIXES = (".nc", ".nc4", ".cdf")
GRIB_SUFFIXES = (".grib", ".grib2", ".grb", ".grb2")
NETCDF_STARTS = (*CLASSIC_STARTS, b"\x89HDF")


def file_format(path: Path) -> str | None:
    """Returns the format of a file or folder, by its content first, then by its suffix."""
    if path.is_dir():
        return "Zarr" if is_zarr(path) else None
    with open(path, "rb") as file:
        start = file.read(4)
    suffix = path.suffix.lower()
    is_hdf5 = start == NETCDF_STARTS[-1]
    if start in NETCDF_STARTS and (not is_hdf5 or suffix in NETCDF_SUFFIXES):
        return "NetCDF"
    if start == b"GRIB" or suffix in GRIB_SUFFIXES:
        return "GRIB"
    return "NetCDF" if suffix in NETCDF_SUFFIXES else None


def open_gridded(path: Path, options: ReadOptions) -> xr.Dataset:
    """Opens a file lazily with undecoded times; NetCDF and Zarr are closed after each read.

    A GRIB data set does not keep its file open, and indexing its messages again is slow.
    """
    dataset = open_dataset(path, requested_names(options))
    if file_format(path) != "GRIB":
        dataset.encoding[REOPENED] = True
    return dataset


def requested_names(options: ReadOptions) -> tuple[str, ...]:
    """Returns the requested variables, and those whose levels are requested; nothing for all."""
    levels = [label for text in options.select.values() if "," in text for label in text.split(",")]
    names = (*options.inputs, *options.variables)
    bases = (name.removesuffix(text) for name in names for text in levels)
    return tuple(dict.fromkeys((*names, *bases)))


def open_dataset(path: Path, requested: Sequence[str]) -> xr.Dataset:
    """Opens a file lazily with undecoded times.

    Args:
        path: The file or folder.
        requested: Names of the variables to read; all if empty.
    """
    kind = file_format(path)
    if kind is None:
        raise DataError(path, "file", "is neither NetCDF nor GRIB nor a Zarr folder.")
    settings: dict[str, Any] = {"decode_times": False, "cache": False}
    try:
        with warnings.catch_warnings():
            # A variable may have two fill values, which both become NaN.
            warnings.filterwarnings("ignore", category=xr.SerializationWarning)
            if kind == "GRIB":
                return _open_grib(path, requested, settings)
            if kind == "Zarr":
                store = _open_zarr(path, settings)
                # The order in which a store lists its arrays is arbitrary.
                return store[sorted(str(name) for name in store.data_vars)]
            require("netCDF4", "data", "Reading NetCDF")
            check_length(path)
            return xr.open_dataset(path, engine="netcdf4", **settings)
    except (DataError, MissingPackageError):
        raise
    except Exception as error:
        problem = f"cannot be opened as {kind}: {error or type(error).__name__}"
        raise DataError(path, "file", f"{problem}. It may be damaged or cut short.") from error


def _open_zarr(path: Path, settings: dict[str, Any]) -> xr.Dataset:
    """Opens a store without masking zeros, the default fill value of missing chunks in format 2."""
    require("zarr", "data", "Reading Zarr")
    store = xr.open_dataset(
        path, engine="zarr", consolidated=False, mask_and_scale=False, **settings
    )
    for variable in store.variables.values():
        fill = variable.attrs.get("_FillValue", np.nan)
        if np.ndim(fill) == 0 and fill == 0:
            del variable.attrs["_FillValue"]
    return xr.decode_cf(store, decode_times=False)


def check_chunks(path: Path, options: ReadOptions) -> list[str]:
    """Returns notes on chunks of a Zarr store that are missing, and are read as NaN.

    Raises a `DataError` for those that would be read as values: an incomplete copy cannot be
    distinguished from zeros that were not written. Coordinates need no such check, as they would
    not increase.
    """
    if file_format(path) != "Zarr":
        return []
    notes: list[str] = []
    store = open_dataset(path, requested := requested_names(options))
    zarr = require("zarr", "data", "Reading Zarr")
    names = [str(name) for name in store.data_vars]
    selected = {name_in_file(name, names) for name in requested} if requested else {*names}
    group = zarr.open_group(path, mode="r", use_consolidated=False)
    # Scalars are not fields but grid mappings or meshes.
    for name in sorted(name for name in names if store[name].ndim and name in selected):
        array = group[name]
        fill, num_missing = array.fill_value, array.nchunks - array.nchunks_initialized
        is_masked = "_FillValue" in store[name].encoding or (fill is not None and fill != fill)
        if num_missing and is_masked:
            count = f"{num_missing:,} of {array.nchunks:,} chunks of {name}"
            notes.append(f"{count} are not in the store; they are read as missing")
        elif num_missing:
            problem = f"lacks {num_missing} of {array.nchunks} chunks, which would be read as {fill or 0}."
            advice = "Copy the store again, or choose others: `--var NAME`. If it is intended:"
            setting = "zarr.config.set({'array.write_empty_chunks': True})"
            rewrite = f"a = zarr.open_array({str(path / name)!r}); a[...] = a[...]"
            command = f'python -c "import zarr; {setting}; {rewrite}"'
            raise DataError(path, name, f"{problem} {advice} {command}")
    store.close()
    return notes


def _open_grib(path: Path, requested: Sequence[str], settings: dict[str, Any]) -> xr.Dataset:
    """Opens a GRIB file, or its part with the requested variables if they do not fit together."""
    cfgrib = require("cfgrib", "data", "Reading GRIB")
    # Write no index file, raise for truncated messages, and keep dimensions of length one.
    num_messages = count_messages(path)
    settings["backend_kwargs"] = {"indexpath": "", "errors": "raise", "squeeze": False}
    try:
        whole = xr.open_dataset(path, engine="cfgrib", **settings)
    except cfgrib.DatasetBuildError:
        pass
    else:
        check_messages(path, [whole], num_messages)
        return whole
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=FutureWarning)
        parts = cfgrib.open_datasets(str(path), **settings)
    check_messages(path, parts, num_messages)
    for part in parts:
        names = [str(name) for name in part.data_vars]
        if requested and all(name_in_file(name, names) is not None for name in requested):
            return part
    groups = "; ".join(", ".join(str(name) for name in part.data_vars) for part in parts)
    problem = f"do not fit together. Choose from one of these groups: {groups} (`--var NAME`)."
    raise DataError(path, ", ".join(requested) or "variables", problem)


READER = Reader(
    name="gridded",
    layout="NetCDF, GRIB or Zarr with CF attributes, such as ERA5 and CARRA",
    recognises=lambda path: file_format(path) is not None,
    open=open_gridded,
    takes_inputs=True,
    has_names=True,
    check=check_chunks,
)
