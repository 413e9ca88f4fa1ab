"""Gridded files as weather services publish them: NetCDF, GRIB and Zarr with CF attributes.

Examples are ERA5 from the Climate Data Store (NetCDF, GRIB), from WeatherBench or ARCO (Zarr), CARRA
(Lambert grid with 2D latitudes), and most files written with xarray.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import xarray as xr

from gpo.data.dataset import DataError, FieldData, RowReader, Variable
from gpo.data.geometry import Geometry
from gpo.data.readers.base import AbstractReader, ReadOptions, choose_variables
from gpo.data.readers.cf import (
    build_geometry,
    find_time,
    is_auxiliary,
    read_times,
    scalar_time,
    site_dims,
)
from gpo.data.readers.cf_metadata import (
    VARIABLE_ATTRIBUTES,
    axis_attributes,
    file_axes,
    read_levels,
    read_origin,
)
from gpo.data.readers.gridded_files import file_format, name_in_file, open_dataset
from gpo.data.readers.gridded_inputs import check_dims, find_candidates, read_static_field
from gpo.data.readers.gridded_maps import read_gridded_maps
from gpo.data.readers.sites import mask_missing

SMALL_FILE = 2**28
"""Bytes up to which all frames are searched for sites that are always missing."""
NUM_SEARCHED = 16
"""Number of frames that are searched in larger files."""
SERIES = ("trajectory", "sample")
"""Names of dimensions of trajectories."""
MADE_OF = "_variable_of_levels"
"""Attribute of a variable of one level: the name of that of all levels."""
ALL = "all"
"""Selection that keeps a dimension as a grid axis."""


class GriddedReader(AbstractReader):
    """Time series or static maps on the sphere or in the plane."""

    name = "gridded"
    layout = "NetCDF, GRIB or Zarr with CF attributes, such as ERA5 and CARRA"
    takes_inputs = True

    def recognises(self, path: Path) -> bool:
        """Returns whether a file or folder is NetCDF, GRIB or Zarr, by its first bytes or suffix."""
        return file_format(path) is not None

    def read(self, path: Path, options: ReadOptions) -> FieldData:
        """Returns the requested variables under the requested names; static maps with inputs."""
        if options.inputs:
            names = (*options.inputs, *options.variables)
            return read_gridded_maps(path, options, partial(open_dataset, path, names))
        return self._read_series(path, options)

    def read_static(
        self, path: Path, name: str, options: ReadOptions
    ) -> tuple[Variable, np.ndarray, Geometry] | None:
        """Returns a variable without a time axis."""
        dataset = open_dataset(path, (name,))
        try:
            return read_static_field(path, dataset, name)
        finally:
            dataset.close()

    def _read_series(self, path: Path, options: ReadOptions) -> FieldData:
        opened, options = partial(_open_series, path, options), _without_levels(path, options)
        dataset = opened()
        try:
            plan = _make_plan(path, dataset, options)
            time, units, first_hour = read_times(path, dataset, plan.time)
            origin = read_origin(path, dataset, plan.time)
            levels = read_levels(dataset, plan.selection)
            geometry = build_geometry(path, dataset, plan.sites, plan.time, options.coords)
            if geometry.axes:
                attributes = axis_attributes(dataset, plan.sites)
                geometry = replace(geometry, axis_attributes=attributes)
            geometry = replace(geometry, file_axes=file_axes(dataset, plan.sites, geometry))
            candidates = find_candidates(
                path, dataset, plan.time, plan.sites, plan.selection, opened
            )
            frames = _searched_frames(path, dataset, plan, geometry.num_points, options.num_files)
            geometry = mask_missing(path, plan.names, geometry, frames)
        finally:
            dataset.close()
        # A GRIB data set does not keep its file open, and indexing its messages again is slow.
        open_grib = dataset if file_format(path) == "GRIB" else None
        read = _FrameReader(path, opened, plan, open_grib)
        names = options.variables or plan.names
        return FieldData(
            layout=self.name,
            source=path,
            variables=tuple(
                _variable(name, dataset[stored])
                for name, stored in zip(names, plan.names, strict=True)
            ),
            geometries=(geometry,),
            time=time,
            time_units=units,
            first_hour=first_hour,
            origin=origin,
            levels=levels,
            candidates=candidates,
            case_dim=plan.series or "",
            time_dim=plan.time,
            num_samples=1 if plan.series is None else dataset.sizes[plan.series],
            fetch=RowReader(read, geometry.num_points // dataset.sizes[plan.sites[0]]),
        )


@dataclass(frozen=True)
class _Plan:
    """The part of a file to read, by names in the file."""

    names: tuple[str, ...]
    time: str
    sites: tuple[str, ...]
    """Dimensions of the sites, in the order of points."""
    selection: Mapping[str, int]
    """Index along each other dimension."""
    series: str | None = None
    """Dimension of trajectories, if any."""

    def at(self, trajectory: int) -> "_Plan":
        """Returns the plan of one trajectory."""
        if self.series is None:
            return self
        return replace(self, selection={**self.selection, self.series: trajectory})

    def frames(
        self, path: Path, dataset: xr.Dataset, times: slice, rows: slice = slice(None)
    ) -> np.ndarray:
        """Reads frames of all variables as (times, points, variables)."""
        parts: list[np.ndarray] = []
        for name in self.names:
            try:
                parts.append(self.values(dataset, name, times, rows))
            except Exception as error:
                raise DataError(path, name, f"cannot be read: {error}") from error
        return np.stack(parts, -1)

    def values(self, dataset: xr.Dataset, name: str, times: slice, rows: slice) -> np.ndarray:
        """Reads frames of a variable at a slice of grid rows as (times, points)."""
        array = dataset[name]
        at = {dim: index for dim, index in self.selection.items() if dim in array.dims}
        part = array.isel({self.time: times, self.sites[0]: rows, **at})
        part = part.transpose(self.time, *self.sites)
        values = part.values.reshape(part.shape[0], math.prod(part.shape[1:]))
        return values.astype(np.result_type(values.dtype, np.float32), copy=False)


@dataclass(frozen=True)
class _FrameReader:
    """Reads frames; the file is opened for each call."""

    path: Path
    opened: Callable[[], xr.Dataset]
    plan: _Plan
    dataset: xr.Dataset | None
    """An open data set to use instead of opening the file."""

    def __call__(self, trajectory: int, times: slice, rows: slice) -> np.ndarray:
        dataset = self.dataset
        if dataset is None:
            dataset = self.opened()
        try:
            return self.plan.at(trajectory).frames(self.path, dataset, times, rows)
        finally:
            dataset.close()


def _several(options: ReadOptions) -> dict[str, list[str]]:
    """Returns the selected values of dimensions of which several are read."""
    return {dim: text.split(",") for dim, text in options.select.items() if "," in text}


def _without_levels(path: Path, options: ReadOptions) -> ReadOptions:
    """Returns options for a data set whose selected levels are variables, such as z500 and z850."""
    if not _several(options):
        return options
    select = {dim: text for dim, text in options.select.items() if "," not in text}
    with _open_series(path, options) as dataset:
        made = {str(name): array.attrs.get(MADE_OF) for name, array in dataset.data_vars.items()}
    variables = [
        part
        for name in options.variables
        for part in ([name] if name in made else [n for n, base in made.items() if base == name])
        or [name]
    ]
    return replace(options, variables=tuple(variables), select=select)


def _split_levels(path: Path, dataset: xr.Dataset, several: Mapping[str, list[str]]) -> xr.Dataset:
    """Returns a data set in which each selected value of a dimension is a variable of its own."""
    for dim, texts in several.items():
        if dim not in dataset.dims:
            # A forecast has such variables already.
            continue
        numbers = _labels(dataset[dim].values if dim in dataset else np.arange(dataset.sizes[dim]))
        labels = {
            numbers[index]: index for index in (_index_of(path, dim, numbers, t) for t in texts)
        }
        parts: dict[str, xr.DataArray] = {}
        for name, array in dataset.data_vars.items():
            if dim in array.dims and array.ndim > 1:
                base = array.attrs.get(MADE_OF, str(name))
                for label, index in labels.items():
                    part = array.isel({dim: index}, drop=True)
                    parts[f"{name}{label}"] = part.assign_attrs({MADE_OF: base})
            elif dim not in array.dims:
                parts[str(name)] = array
        dataset = dataset.drop_dims(dim).assign(parts)
    return dataset


def _open_series(path: Path, options: ReadOptions) -> xr.Dataset:
    """Opens a file whose selected levels are variables.

    A frame with a scalar time, as radars and satellites write, gets a time axis.
    """
    several = _several(options)
    labels = [label for texts in several.values() for label in texts]
    bases = (name.removesuffix(text) for name in options.variables for text in labels)
    dataset = open_dataset(path, tuple(dict.fromkeys((*options.variables, *bases))))
    dataset = _split_levels(path, dataset, several)
    if find_time(dataset, [str(dim) for dim in dataset.dims]) is not None:
        return dataset
    name = scalar_time(dataset)
    if name is None and not options.takes_frames:
        return dataset
    dataset = dataset if name is None else dataset.set_coords(name)
    name = name or "time"
    fields = [
        str(field)
        for field, array in dataset.data_vars.items()
        if array.ndim > 0 and not is_auxiliary(path, dataset, str(field))
    ]
    return dataset.assign({field: dataset[field].expand_dims(name) for field in fields})


def _make_plan(path: Path, dataset: xr.Dataset, options: ReadOptions) -> _Plan:
    """Returns which variables, sites and levels to read."""
    numeric = [
        str(name)
        for name, array in dataset.data_vars.items()
        if array.dtype.kind in "iuf" and not is_auxiliary(path, dataset, str(name))
    ]
    if not numeric:
        raise DataError(path, "variables", "must include numeric fields; groups are not read.")
    requested = [name_in_file(name, numeric) or name for name in options.variables]
    for index, name in enumerate(requested):
        if name in requested[:index]:
            raise DataError(path, name, "must be requested once, got it twice.")
    names = choose_variables(path, requested, numeric)
    dims = dict.fromkeys(str(dim) for name in names for dim in dataset[name].dims)
    time = find_time(dataset, [dim for dim in dims if dim not in options.select])
    if time is None:
        listed = ", ".join(dims) or "none"
        problem = f"is not among the dimensions ({listed}): one frame is not a time series."
        raise DataError(path, "time", problem)
    grids = _grids(path, dataset, names, time, options)
    sites = next(iter(grids.values()))
    if len({frozenset(grid) for grid in grids.values()}) > 1:
        listed = "; ".join(f"{name} ({', '.join(grid)})" for name, grid in grids.items())
        problem = f"are on different grids: {listed}. Choose: `--var {next(iter(grids))}`."
        raise DataError(path, "variables", problem)
    used = dict.fromkeys(str(dim) for name in grids for dim in dataset[name].dims)
    extra = [dim for dim in used if dim != time and dim not in sites]
    for dim, text in options.select.items():
        if dim not in used:
            _index_of(path, dim, _scalar_labels(path, dataset, dim, extra), text)
    series = next((dim for dim in extra if dim in SERIES and dim not in options.select), None)
    if series is not None and not all(series in dataset[name].dims for name in grids):
        series = None
    selection = {
        dim: _select(path, dataset, dim, options.select.get(dim), tuple(grids))
        for dim in extra
        if dim != series
    }
    return _Plan(tuple(grids), time, sites, selection, series)


def _grids(
    path: Path, dataset: xr.Dataset, names: Sequence[str], time: str, options: ReadOptions
) -> dict[str, tuple[str, ...]]:
    """Returns the site dimensions of each variable that is a time series of fields."""
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
            raise DataError(path, name, f"has {lacks}: it is not a time series of fields.")
    check_dims(path, dataset, names, tuple(grids))
    if not grids:
        problem = f"must include fields with a time axis `{time}` and sites, got none."
        raise DataError(path, "variables", problem)
    return grids


def _select(
    path: Path, dataset: xr.Dataset, dim: str, text: str | None, names: Sequence[str]
) -> int:
    """Returns the index of the selected value of a dimension that is not a grid axis."""
    size = dataset.sizes[dim]
    has_labels = dim in dataset.variables and dataset[dim].dims == (dim,)
    labels = _labels(dataset[dim].values if has_labels else np.arange(size))
    if text is not None:
        return _index_of(path, dim, labels, text)
    if size == 1:
        return 0
    problem = f"has {size} values: {_listed(labels)}."
    others = [name for name in names if dim not in dataset[name].dims]
    if others:
        having = ", ".join(name for name in names if name not in others)
        problem += (
            f" To read the variables without it, all but {having}: `--var {' '.join(others)}`."
        )
    known = [label for label in labels if label.lower() != "nan"]
    if known:
        problem += f" Select one, such as `--select {dim}={known[0]}`."
    raise DataError(path, dim, problem)


def _scalar_labels(path: Path, dataset: xr.Dataset, name: str, extra: Sequence[str]) -> list[str]:
    """Returns the value of a scalar coordinate as text."""
    if name in dataset.variables and dataset[name].ndim == 0:
        return _labels(dataset[name].values.reshape(1))
    listed = ", ".join(extra) or "none"
    raise DataError(path, name, f"is no dimension to select from; there are: {listed}.")


def _labels(values: np.ndarray) -> list[str]:
    """Returns values as text, as users type them."""
    if values.dtype.kind == "f":
        return [np.format_float_positional(value, trim="-") for value in values]
    return [value.decode() if isinstance(value, bytes) else str(value) for value in values]


def _index_of(path: Path, dim: str, labels: Sequence[str], text: str) -> int:
    """Returns the index of a value, compared as text and as a number."""
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


def _searched_frames(
    path: Path, dataset: xr.Dataset, plan: _Plan, num_sites: int, num_files: int
) -> Iterator[np.ndarray]:
    """Yields all frames of a small file in chunks, or evenly spaced frames of a large one."""
    num_frames = dataset.sizes[plan.time]
    chunk = max(1, 2**22 // max(1, num_sites))
    starts = range(0, num_frames, chunk)
    num_searched = max(2, NUM_SEARCHED // num_files)
    if num_files * _num_bytes(path) >= SMALL_FILE and num_frames > num_searched:
        chunk = 1
        starts = np.linspace(0, num_frames - 1, num_searched).astype(int).tolist()
    for trajectory in range(1 if plan.series is None else dataset.sizes[plan.series]):
        for start in starts:
            yield plan.at(trajectory).frames(path, dataset, slice(start, start + chunk))


def _variable(name: str, array: xr.DataArray) -> Variable:
    return Variable(name, *(str(array.attrs.get(key, "")) for key in VARIABLE_ATTRIBUTES))


def _num_bytes(path: Path) -> int:
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files)
