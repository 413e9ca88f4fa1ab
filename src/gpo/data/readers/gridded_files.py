"""Opens NetCDF, GRIB and Zarr lazily as xarray data sets."""

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from gpo.data.dataset import DataError
from gpo.data.readers.cf_attributes import degrees_of, is_latitude, is_longitude
from gpo.data.readers.classic_netcdf import CLASSIC_STARTS, check_length
from gpo.data.readers.date_parsing import with_numeric_dates
from gpo.data.readers.grib_messages import check_messages, count_messages
from gpo.data.readers.zarr_metadata import is_zarr
from gpo.optional import MissingPackageError, require

NETCDF_SUFFIXES = (".nc", ".nc4", ".cdf")
GRIB_SUFFIXES = (".grib", ".grib2", ".grb", ".grb2")
NETCDF_STARTS = (*CLASSIC_STARTS, b"\x89HDF")
MIN_GAP = 1.5
"""Ratio to the distance of the outermost longitudes around the circle from which a gap is the largest."""
ALIASES = (
    ("t2m", "2t", "2m_temperature"),
    ("u10", "10u", "10m_u_component_of_wind"),
    ("v10", "10v", "10m_v_component_of_wind"),
    ("msl", "mean_sea_level_pressure"),
    ("sst", "sea_surface_temperature"),
)


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


def open_dataset(path: Path, requested: Sequence[str]) -> xr.Dataset:
    """Opens a file lazily with undecoded times, and with longitudes cut at their largest gap.

    Args:
        path: The file or folder.
        requested: Names of the variables to read; all if empty.
    """
    return _cut_at_largest_gap(_open(path, requested))


def _cut_at_largest_gap(dataset: xr.Dataset) -> xr.Dataset:
    """Returns the data set with sorted longitudes that begin after their largest gap.

    A region across a meridian may be stored as 0 to 12 and 350 to 358 degrees; its columns then are
    neighbours in the order 350 to 358, 0 to 12.
    """
    lines = [dataset[name] for name, part in dataset.variables.items() if part.ndim == 1]
    latitudes = {array.dims for array in lines if is_latitude(array)}
    for array in lines:
        if not is_longitude(array) or array.dims in latitudes:
            continue
        steps = np.diff(degrees_of(array))
        is_sorted = len(steps) > 1 and (np.all(steps > 0) or np.all(steps < 0))
        gaps = np.abs(steps)
        if is_sorted and gaps.sum() < 360 and gaps.max() > MIN_GAP * (360 - gaps.sum()):
            order = np.roll(np.arange(array.size), -(int(gaps.argmax()) + 1))
            dataset = dataset.isel({array.dims[0]: order})
    return dataset


def _open(path: Path, requested: Sequence[str]) -> xr.Dataset:
    """Opens a file lazily with undecoded times."""
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
                require("zarr", "data", "Reading Zarr")
                store = _open_zarr(path, settings)
                _check_chunks(path, store, requested)
                # The order in which a store lists its arrays is arbitrary.
                return store[sorted(str(name) for name in store.data_vars)]
            require("netCDF4", "data", "Reading NetCDF")
            check_length(path)
            dataset = xr.open_dataset(path, engine="netcdf4", **settings)
            return with_numeric_dates(path, dataset)
    except (DataError, MissingPackageError):
        raise
    except Exception as error:
        problem = f"cannot be opened as {kind}: {error or type(error).__name__}"
        raise DataError(path, "file", f"{problem}. It may be damaged or cut short.") from error


def _open_zarr(path: Path, settings: dict[str, Any]) -> xr.Dataset:
    """Opens a store without masking zeros, the default fill value of missing chunks in format 2."""
    store = xr.open_dataset(
        path, engine="zarr", consolidated=False, mask_and_scale=False, **settings
    )
    for variable in store.variables.values():
        fill = variable.attrs.get("_FillValue", np.nan)
        if np.ndim(fill) == 0 and fill == 0:
            del variable.attrs["_FillValue"]
    return xr.decode_cf(store, decode_times=False)


def _check_chunks(path: Path, store: xr.Dataset, requested: Sequence[str]) -> None:
    """Raises a `DataError` for missing chunks that would be read as values instead of NaN.

    An incomplete copy cannot be distinguished from zeros that were not written. Coordinates need no such
    check, as they would not increase.
    """
    zarr = require("zarr", "data", "Reading Zarr")
    names = [str(name) for name in store.data_vars]
    selected = {name_in_file(name, names) for name in requested} if requested else {*names}
    group = zarr.open_group(path, mode="r", use_consolidated=False)
    # Scalars are not fields but grid mappings or meshes.
    for name in sorted(name for name in names if store[name].ndim and name in selected):
        array = group[name]
        fill = array.fill_value
        is_masked = "_FillValue" in store[name].encoding or (fill is not None and fill != fill)
        num_missing = 0 if is_masked else array.nchunks - array.nchunks_initialized
        if num_missing:
            problem = f"lacks {num_missing} of {array.nchunks} chunks, which would be read as {fill or 0}."
            advice = "Copy the store again, or choose others: `--var NAME`. If it is intended:"
            setting = "zarr.config.set({'array.write_empty_chunks': True})"
            rewrite = f"a = zarr.open_array({str(path / name)!r}); a[...] = a[...]"
            command = f'python -c "import zarr; {setting}; {rewrite}"'
            raise DataError(path, name, f"{problem} {advice} {command}")


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


def name_in_file(name: str, available: Sequence[str]) -> str | None:
    """Returns the name of a variable in the file, which may be an alias; None if it is missing."""
    aliases = next((group for group in ALIASES if name in group), ())
    return next((alias for alias in (name, *aliases) if alias in available), None)
