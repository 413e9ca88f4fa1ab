"""Gridded files as weather services publish them: NetCDF, GRIB and Zarr with CF attributes.

This is how ERA5 comes from the Climate Data Store (NetCDF, GRIB) and from WeatherBench or
ARCO (Zarr), how CARRA comes (Lambert grid, 2-D latitudes), and how most users write their own.
"""

import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from gpo.data.dataset import DataError, RowReader, StaticMaps, Trajectories, Variable
from gpo.data.geometry import Geometry
from gpo.data.readers.attributes import (
    VARIABLE_ATTRIBUTES,
    axis_attributes,
    read_levels,
    read_origin,
)
from gpo.data.readers.base import AbstractReader, ReadOptions, choose_variables
from gpo.data.readers.candidates import find_candidates, read_static_field
from gpo.data.readers.cf import build_geometry, find_time, is_auxiliary, read_times, site_dims
from gpo.data.readers.gridded_maps import read_gridded_maps
from gpo.data.readers.sites import mask_missing
from gpo.files import MissingPackageError, require

NETCDF_SUFFIXES = (".nc", ".nc4", ".cdf")
GRIB_SUFFIXES = (".grib", ".grib2", ".grb", ".grb2")
NETCDF_STARTS = (b"CDF\x01", b"CDF\x02", b"CDF\x05", b"\x89HDF")
ZARR_FILES = ("zarr.json", ".zgroup", ".zmetadata")
ALIASES = (
    ("t2m", "2t", "2m_temperature"),
    ("u10", "10u", "10m_u_component_of_wind"),
    ("v10", "10v", "10m_v_component_of_wind"),
    ("msl", "mean_sea_level_pressure"),
    ("sst", "sea_surface_temperature"),
)
SMALL_FILE = 2**28
"""Bytes up to which every frame is looked at for sites that are always missing."""
NUM_LOOKS = 16
"""Frames that are looked at in larger files."""
SERIES = ("trajectory", "sample")
"""Dimensions that count trajectories, each a series of its own."""
ALL = "all"
"""The selection that keeps a dimension as an axis of the grid."""


class GriddedReader(AbstractReader):
    """One time series on a grid of the sphere or of the plane."""

    name = "gridded"
    layout = "NetCDF, GRIB or Zarr with CF attributes, such as ERA5 and CARRA"
    takes_inputs = True

    def recognises(self, path: Path) -> bool:
        """Looks for a Zarr folder, the first bytes of NetCDF or GRIB, or their suffixes."""
        return _format(path) is not None

    def read(self, path: Path, options: ReadOptions) -> Trajectories | StaticMaps:
        """Returns the chosen variables, named as they were asked for; maps where inputs are."""
        if options.inputs:
            named = (*options.inputs, *options.variables)
            return read_gridded_maps(path, options, partial(_open, path, named))
        return self._read_series(path, options)

    def read_static(
        self, path: Path, name: str, options: ReadOptions
    ) -> tuple[Variable, np.ndarray, Geometry] | None:
        """Returns a variable without a time axis."""
        dataset = _open(path, (name,))
        try:
            return read_static_field(path, dataset, name)
        finally:
            dataset.close()

    def _read_series(self, path: Path, options: ReadOptions) -> Trajectories:
        dataset = _open(path, options.variables)
        try:
            plan = _make_plan(path, dataset, options)
            time, units, first_hour = read_times(path, dataset, plan.time)
            origin = read_origin(path, dataset, plan.time)
            levels = read_levels(dataset, plan.chosen)
            geometry = build_geometry(path, dataset, plan.sites, plan.time, options.coords)
            if geometry.axes:
                attributes = axis_attributes(dataset, plan.sites)
                geometry = replace(geometry, axis_attributes=attributes)
            reopen = partial(_open, path, options.variables)
            candidates = find_candidates(path, dataset, plan.time, plan.sites, plan.chosen, reopen)
            frames = _looks(path, dataset, plan, geometry.num_points, options.num_files)
            geometry = mask_missing(path, plan.names, geometry, frames)
        finally:
            dataset.close()
        # GRIB keeps no file open, but finding its messages again would take long.
        kept = dataset if _format(path) == "GRIB" else None
        read = _Read(path, options.variables, plan, kept)
        names = options.variables or plan.names
        return Trajectories(
            layout=self.name,
            source=path,
            variables=tuple(
                _variable(name, dataset[there])
                for name, there in zip(names, plan.names, strict=True)
            ),
            geometries=(geometry,),
            time=time,
            time_units=units,
            first_hour=first_hour,
            origin=origin,
            levels=levels,
            candidates=candidates,
            num_trajectories=1 if plan.series is None else dataset.sizes[plan.series],
            fetch=RowReader(read, geometry.num_points // dataset.sizes[plan.sites[0]]),
        )


@dataclass(frozen=True)
class _Plan:
    """The part of a file to read, in the names of the file."""

    names: tuple[str, ...]
    time: str
    sites: tuple[str, ...]
    """Dimensions along which sites lie, in the order of points."""
    chosen: Mapping[str, int]
    """Position along every other dimension."""
    series: str | None = None
    """Dimension that counts trajectories, if any."""

    def at(self, trajectory: int) -> "_Plan":
        """Returns the plan of one trajectory."""
        if self.series is None:
            return self
        return replace(self, chosen={**self.chosen, self.series: trajectory})

    def frames(
        self, path: Path, dataset: xr.Dataset, times: slice, rows: slice = slice(None)
    ) -> np.ndarray:
        """Reads frames of all variables, times by points by variables."""
        parts: list[np.ndarray] = []
        for name in self.names:
            try:
                parts.append(self.values(dataset, name, times, rows))
            except Exception as error:
                raise DataError(path, name, f"cannot be read: {error}") from error
        return np.stack(parts, -1)

    def values(self, dataset: xr.Dataset, name: str, times: slice, rows: slice) -> np.ndarray:
        """Reads frames of one variable, times by points, at some rows of the grid."""
        array = dataset[name]
        at = {dim: index for dim, index in self.chosen.items() if dim in array.dims}
        part = array.isel({self.time: times, self.sites[0]: rows, **at})
        part = part.transpose(self.time, *self.sites)
        values = part.values.reshape(part.shape[0], math.prod(part.shape[1:]))
        return values.astype(np.result_type(values.dtype, np.float32), copy=False)


@dataclass(frozen=True)
class _Read:
    """Reads frames; the file is open only meanwhile."""

    path: Path
    wanted: tuple[str, ...]
    plan: _Plan
    kept: xr.Dataset | None
    """An open data set to use instead of opening the file."""

    def __call__(self, trajectory: int, times: slice, rows: slice) -> np.ndarray:
        dataset = _open(self.path, self.wanted) if self.kept is None else self.kept
        try:
            return self.plan.at(trajectory).frames(self.path, dataset, times, rows)
        finally:
            dataset.close()


def _format(path: Path) -> str | None:
    """Returns how a file or folder is written, by its content before its name."""
    if path.is_dir():
        is_zarr = path.suffix == ".zarr" or any((path / name).exists() for name in ZARR_FILES)
        return "Zarr" if is_zarr else None
    with open(path, "rb") as file:
        start = file.read(4)
    suffix = path.suffix.lower()
    is_hdf5 = start == NETCDF_STARTS[-1]
    if start in NETCDF_STARTS and (not is_hdf5 or suffix in NETCDF_SUFFIXES):
        return "NetCDF"
    if start == b"GRIB" or suffix in GRIB_SUFFIXES:
        return "GRIB"
    return "NetCDF" if suffix in NETCDF_SUFFIXES else None


def _open(path: Path, wanted: Sequence[str]) -> xr.Dataset:
    """Opens a file without reading values; times stay numbers with units."""
    kind = _format(path)
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
                # A store has no order of its own: it lists its arrays as they happen to come.
                return store[sorted(str(name) for name in store.data_vars)]
            require("netCDF4", "data", "Reading NetCDF")
            _check_whole(path)
            return xr.open_dataset(path, engine="netcdf4", **settings)
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


def _open_grib(path: Path, wanted: Sequence[str], settings: dict[str, Any]) -> xr.Dataset:
    """Opens a GRIB file, or that part which holds the wanted variables where they differ."""
    cfgrib = require("cfgrib", "data", "Reading GRIB")
    # No index file beside the data, an error for a cut message, and lengths of one kept.
    settings["backend_kwargs"] = {"indexpath": "", "errors": "raise", "squeeze": False}
    try:
        return xr.open_dataset(path, engine="cfgrib", **settings)
    except cfgrib.DatasetBuildError:
        pass
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", category=FutureWarning)
        parts = cfgrib.open_datasets(str(path), **settings)
    for part in parts:
        there = [str(name) for name in part.data_vars]
        if wanted and all(_in_file(name, there) is not None for name in wanted):
            return part
    groups = "; ".join(", ".join(str(name) for name in part.data_vars) for part in parts)
    problem = f"do not fit together; those that do are: {groups}. Choose some: `--var NAME`."
    raise DataError(path, ", ".join(wanted) or "variables", problem)


def _check_whole(path: Path) -> None:
    """Refuses a classic NetCDF file that ends early; its library would make up zeros."""
    from scipy.io import netcdf_file

    with open(path, "rb") as file:
        if file.read(4) not in NETCDF_STARTS[:2]:
            return
        file.seek(0)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            # Maps every variable to its place in the file, which fails beyond the end.
            netcdf_file(file, mmap=True).close()


def _make_plan(path: Path, dataset: xr.Dataset, options: ReadOptions) -> _Plan:
    """Decides which variables, sites and levels to read."""
    numeric = [
        str(name)
        for name, array in dataset.data_vars.items()
        if array.dtype.kind in "iuf" and not is_auxiliary(path, dataset, str(name))
    ]
    if not numeric:
        raise DataError(path, "variables", "with numbers are none; groups are not looked into.")
    wanted = [_in_file(name, numeric) or name for name in options.variables]
    for index, name in enumerate(wanted):
        if name in wanted[:index]:
            raise DataError(path, name, "is asked for twice.")
    named = choose_variables(path, wanted, numeric)
    dims = dict.fromkeys(str(dim) for name in named for dim in dataset[name].dims)
    time = find_time(dataset, [dim for dim in dims if dim not in options.select])
    if time is None:
        there = ", ".join(dims) or "none"
        problem = f"is not among the dimensions ({there}): one frame is not a time series."
        raise DataError(path, "time", problem)
    grids = _grids(path, dataset, named, time, options)
    sites = next(iter(grids.values()))
    if len({frozenset(grid) for grid in grids.values()}) > 1:
        listed = "; ".join(f"{name} ({', '.join(grid)})" for name, grid in grids.items())
        problem = f"live on different grids: {listed}. Choose: `--var {next(iter(grids))}`."
        raise DataError(path, "variables", problem)
    used = dict.fromkeys(str(dim) for name in grids for dim in dataset[name].dims)
    extra = [dim for dim in used if dim != time and dim not in sites]
    for dim, text in options.select.items():
        if dim not in used:
            _find(path, dim, _scalar_labels(path, dataset, dim, extra), text)
    series = next((dim for dim in extra if dim in SERIES and dim not in options.select), None)
    if series is not None and not all(series in dataset[name].dims for name in grids):
        series = None
    chosen = {
        dim: _choose(path, dataset, dim, options.select.get(dim)) for dim in extra if dim != series
    }
    return _Plan(tuple(grids), time, sites, chosen, series)


def _grids(
    path: Path, dataset: xr.Dataset, names: Sequence[str], time: str, options: ReadOptions
) -> dict[str, tuple[str, ...]]:
    """Returns the dimensions of sites for every variable that is a series of fields."""
    whole = [dim for dim, text in options.select.items() if text == ALL]
    grids: dict[str, tuple[str, ...]] = {}
    for name in names:
        others = [str(dim) for dim in dataset[name].dims if dim != time]
        open_dims = [dim for dim in others if dim in whole or dim not in options.select]
        sites = site_dims(path, dataset, open_dims, time)
        if any(dim in whole and dim not in sites for dim in others):
            sites = tuple(dim for dim in others if dim in whole or dim in sites)
        if time in dataset[name].dims and sites:
            grids[name] = sites
        elif options.variables:
            lacks = "no axis with sites" if time in dataset[name].dims else f"no axis `{time}`"
            raise DataError(path, name, f"has {lacks}: it is no time series of fields.")
    if not grids:
        problem = f"with a time axis `{time}` and sites are none."
        raise DataError(path, "variables", problem)
    return grids


def _choose(path: Path, dataset: xr.Dataset, dim: str, text: str | None) -> int:
    """Returns the position along a dimension that is no axis of the grid."""
    size = dataset.sizes[dim]
    has_labels = dim in dataset.variables and dataset[dim].dims == (dim,)
    labels = _labels(dataset[dim].values if has_labels else np.arange(size))
    if text is not None:
        return _find(path, dim, labels, text)
    if size == 1:
        return 0
    problem = f"has {size} values: {_listed(labels)}. Choose one"
    raise DataError(path, dim, f"{problem}, such as `--select {dim}={next(iter(labels), '')}`.")


def _scalar_labels(path: Path, dataset: xr.Dataset, name: str, extra: Sequence[str]) -> list[str]:
    """Returns the one value of a coordinate that is not even a dimension."""
    if name in dataset.variables and dataset[name].ndim == 0:
        return _labels(dataset[name].values.reshape(1))
    there = ", ".join(extra) or "none"
    raise DataError(path, name, f"is no dimension to select from; there are: {there}.")


def _labels(values: np.ndarray) -> list[str]:
    """Returns values as users would type them."""
    if values.dtype.kind == "f":
        return [np.format_float_positional(value, trim="-") for value in values]
    return [value.decode() if isinstance(value, bytes) else str(value) for value in values]


def _find(path: Path, dim: str, labels: Sequence[str], text: str) -> int:
    """Returns where a value is, compared as text and as a number."""
    if text in labels:
        return labels.index(text)
    for index, label in enumerate(labels):
        try:
            if np.isclose(float(label), float(text), rtol=1e-6, atol=0):
                return index
        except ValueError:
            continue
    raise DataError(path, dim, f"has no value {text}; it has {_listed(labels)}.")


def _listed(labels: Sequence[str], limit: int = 40) -> str:
    more = f" and {len(labels) - limit} more" if len(labels) > limit else ""
    return ", ".join(labels[:limit]) + more


def _looks(
    path: Path, dataset: xr.Dataset, plan: _Plan, num_sites: int, num_files: int
) -> Iterator[np.ndarray]:
    """Yields frames to look at: portions of all in a small file, else some evenly spaced."""
    num_frames = dataset.sizes[plan.time]
    portion = max(1, 2**22 // max(1, num_sites))
    starts = range(0, num_frames, portion)
    num_looks = max(2, NUM_LOOKS // num_files)
    if num_files * _num_bytes(path) >= SMALL_FILE and num_frames > num_looks:
        portion = 1
        starts = np.linspace(0, num_frames - 1, num_looks).astype(int).tolist()
    for trajectory in range(1 if plan.series is None else dataset.sizes[plan.series]):
        for start in starts:
            yield plan.at(trajectory).frames(path, dataset, slice(start, start + portion))


def _variable(name: str, array: xr.DataArray) -> Variable:
    return Variable(name, *(str(array.attrs.get(key, "")) for key in VARIABLE_ATTRIBUTES))


def _num_bytes(path: Path) -> int:
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files)


def _in_file(name: str, available: Sequence[str]) -> str | None:
    """Returns the name by which a file has a variable, or nothing."""
    same = next((group for group in ALIASES if name in group), ())
    return next((known for known in (name, *same) if known in available), None)
