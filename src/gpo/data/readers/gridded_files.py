"""Opens NetCDF, GRIB and Zarr as data sets of xarray, without reading values."""

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from gpo.data.dataset import DataError
from gpo.data.readers.classic_netcdf import CLASSIC_STARTS, check_length
from gpo.data.readers.date_parsing import with_counted_dates
from gpo.data.readers.grib_messages import check_messages, count_messages
from gpo.data.readers.zarr_metadata import is_zarr
from gpo.optional import MissingPackageError, require

NETCDF_SUFFIXES = (".nc", ".nc4", ".cdf")
GRIB_SUFFIXES = (".grib", ".grib2", ".grb", ".grb2")
NETCDF_STARTS = (*CLASSIC_STARTS, b"\x89HDF")
ALIASES = (
    ("t2m", "2t", "2m_temperature"),
    ("u10", "10u", "10m_u_component_of_wind"),
    ("v10", "10v", "10m_v_component_of_wind"),
    ("msl", "mean_sea_level_pressure"),
    ("sst", "sea_surface_temperature"),
)


def file_format(path: Path) -> str | None:
    """Returns how a file or folder is written, by its content before its name."""
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


def open_dataset(path: Path, wanted: Sequence[str]) -> xr.Dataset:
    """Opens a file without reading values; times stay numbers with units."""
    kind = file_format(path)
    if kind is None:
        raise DataError(path, "file", "is neither NetCDF nor GRIB nor a Zarr folder.")
    settings: dict[str, Any] = {"decode_times": False, "cache": False}
    try:
        with warnings.catch_warnings():
            # Two fill values for one variable, both of which become NaN.
            warnings.filterwarnings("ignore", category=xr.SerializationWarning)
            if kind == "GRIB":
                return _open_grib(path, wanted, settings)
            if kind == "Zarr":
                require("zarr", "data", "Reading Zarr")
                store = _open_zarr(path, settings)
                _check_chunks(path, store, wanted)
                # A store has no order of its own: it lists its arrays as they happen to come.
                return store[sorted(str(name) for name in store.data_vars)]
            require("netCDF4", "data", "Reading NetCDF")
            check_length(path)
            found = xr.open_dataset(path, engine="netcdf4", **settings)
            return with_counted_dates(path, found)
    except (DataError, MissingPackageError):
        raise
    except Exception as error:
        problem = f"cannot be opened as {kind}: {error or type(error).__name__}"
        raise DataError(path, "file", f"{problem}. It may be damaged or cut short.") from error


def _open_zarr(path: Path, settings: dict[str, Any]) -> xr.Dataset:
    """Opens a store; zeros are numbers, although format 2 fills chunks that are not there with them."""
    store = xr.open_dataset(
        path, engine="zarr", consolidated=False, mask_and_scale=False, **settings
    )
    for variable in store.variables.values():
        fill = variable.attrs.get("_FillValue", np.nan)
        if np.ndim(fill) == 0 and fill == 0:
            del variable.attrs["_FillValue"]
    return xr.decode_cf(store, decode_times=False)


def _check_chunks(path: Path, store: xr.Dataset, wanted: Sequence[str]) -> None:
    """Refuses variables that lack chunks which would read as numbers, not as missing values.

    A copy that broke off looks the same as zeros that were not written. Coordinates tell it by
    themselves: they would not rise.
    """
    zarr, there = require("zarr", "data", "Reading Zarr"), [str(name) for name in store.data_vars]
    chosen = {name_in_file(name, there) for name in wanted}
    group = zarr.open_group(path, mode="r", use_consolidated=False)
    # What has no dimension is no field: a grid mapping, a mesh.
    there = [name for name in there if store[name].ndim]
    for name in (one for one in sorted(there) if not wanted or one in chosen):
        array = group[name]
        fill = array.fill_value
        is_missing = "_FillValue" in store[name].encoding or (fill is not None and fill != fill)
        lacks = 0 if is_missing else array.nchunks - array.nchunks_initialized
        if lacks:
            problem = (
                f"lacks {lacks} of {array.nchunks} chunks, which would be read as {fill or 0}."
            )
            advice = "Copy the store again, or choose others: `--var NAME`. If they are meant:"
            setting = "zarr.config.set({'array.write_empty_chunks': True})"
            again = f"a = zarr.open_array({str(path / name)!r}); a[...] = a[...]"
            call = f'python -c "import zarr; {setting}; {again}"'
            raise DataError(path, name, f"{problem} {advice} {call}")


def _open_grib(path: Path, wanted: Sequence[str], settings: dict[str, Any]) -> xr.Dataset:
    """Opens a GRIB file, or that part which holds the wanted variables where they differ."""
    cfgrib = require("cfgrib", "data", "Reading GRIB")
    # No index file beside the data, an error for a cut message, and lengths of one kept.
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
        there = [str(name) for name in part.data_vars]
        if wanted and all(name_in_file(name, there) is not None for name in wanted):
            return part
    groups = "; ".join(", ".join(str(name) for name in part.data_vars) for part in parts)
    problem = f"do not fit together; those that do are: {groups}. Choose some: `--var NAME`."
    raise DataError(path, ", ".join(wanted) or "variables", problem)


def name_in_file(name: str, available: Sequence[str]) -> str | None:
    """Returns the name by which a file has a variable, or nothing."""
    same = next((group for group in ALIASES if name in group), ())
    return next((known for known in (name, *same) if known in available), None)
