"""Which part of a data set to read: variables, time, sites, and one value of each other dimension."""

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import xarray as xr

from gpo.data.dataset import DataError
from gpo.data.readers.base import ReadOptions, choose_variables
from gpo.data.readers.cf import is_auxiliary, site_dims
from gpo.data.readers.cf_times import find_time
from gpo.data.readers.lazy import PART_OF
from gpo.data.readers.names import name_in_file
from gpo.data.readers.sites import has_columns

SERIES = ("trajectory", "sample")
"""Names of dimensions of trajectories."""
ALL = "all"
"""Selection that keeps a dimension as a grid axis."""


@dataclass(frozen=True)
class Plan:
    """The part of a data set to read, by names in the data set."""

    names: tuple[str, ...]
    time: str
    sites: tuple[str, ...]
    """Dimensions of the sites, in the order of points."""
    selection: Mapping[str, int]
    """Index along each other dimension."""
    series: str | None = None
    """Dimension of trajectories, if any."""

    def num_trajectories(self, dataset: xr.Dataset) -> int:
        """Returns the number of trajectories."""
        return 1 if self.series is None else dataset.sizes[self.series]

    def at(self, trajectory: int) -> "Plan":
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
                parts.append(self._values(dataset, name, times, rows))
            except DataError:
                raise
            except Exception as error:
                raise DataError(path, name, f"cannot be read: {error}") from error
        return np.stack(parts, -1)

    def _values(self, dataset: xr.Dataset, name: str, times: slice, rows: slice) -> np.ndarray:
        """Reads frames of a variable at a slice of grid rows as (times, points)."""
        array = dataset[name]
        at = {dim: index for dim, index in self.selection.items() if dim in array.dims}
        part = array.isel({self.time: times, self.sites[0]: rows, **at})
        part = part.transpose(self.time, *self.sites)
        values = part.values.reshape(part.shape[0], math.prod(part.shape[1:]))
        return values.astype(np.result_type(values.dtype, np.float32), copy=False)


def make_plan(path: Path, dataset: xr.Dataset, options: ReadOptions) -> Plan:
    """Returns which variables, sites and levels to read; raises a `DataError` if it is unclear."""
    numeric = numeric_fields(path, dataset, dataset.data_vars)
    if not numeric:
        raise DataError(path, "variables", "must include numeric fields; groups are not read.")
    requested = requested_variables(dataset, options.variables, numeric)
    for index, name in enumerate(requested):
        if name in requested[:index]:
            raise DataError(path, name, "must be requested once, got it twice.")
    names = choose_variables(path, requested, numeric)
    dims = dict.fromkeys(str(dim) for name in names for dim in dataset[name].dims)
    time = find_time(dataset, [dim for dim in dims if dim not in options.select])
    if time is None:
        listed = ", ".join(dims) or "none"
        problem = f"is not among the dimensions ({listed}): one frame is not a time series."
        scalars = {
            name: str(dataset[name].dims[0])
            for name in numeric_fields(path, dataset, dataset.variables)
            if dataset[name].ndim == 1 and name not in dataset.dims
        }
        scalars = {name: dim for name, dim in scalars.items() if not has_columns(dataset, dim)}
        if scalars:
            names = " ".join(scalars)
            problem += f" If `{next(iter(scalars.values()))}` counts samples: `--inputs {names}`."
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
    return Plan(tuple(grids), time, sites, selection, series)


def numeric_fields(
    path: Path, dataset: xr.Dataset, arrays: Mapping[Hashable, xr.DataArray | xr.Variable]
) -> list[str]:
    """Returns the names of numeric arrays of a data set that do not describe the sites."""
    return [
        str(name)
        for name, array in arrays.items()
        if array.dtype.kind in "iuf" and not is_auxiliary(path, dataset, str(name))
    ]


def requested_variables(
    dataset: xr.Dataset, requested: Sequence[str], available: Sequence[str]
) -> list[str]:
    """Returns names in the data set: of an array of components, those of all its components."""
    names: list[str] = []
    for name in requested:
        found = name_in_file(name, available)
        parts = [part for part in available if dataset[part].attrs.get(PART_OF) == name]
        names += [found] if found is not None else parts or [name]
    return names


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
    shapes = {dataset[name].shape: dataset[name].dims for name in grids}
    for name in names:
        if name not in grids and dataset[name].shape in shapes:
            pair = (
                ", ".join(map(str, dims))
                for dims in (dataset[name].dims, shapes[dataset[name].shape])
            )
            problem = "has dimensions ({}), but others of the same lengths have ({}).".format(*pair)
            advice = f"If the file is not damaged, choose: `--var {next(iter(grids))}`."
            raise DataError(path, name, f"{problem} {advice}")
    if not grids:
        problem = f"must include fields with a time axis `{time}` and sites, got none."
        raise DataError(path, "variables", problem)
    return grids


def selected_levels(options: ReadOptions) -> dict[str, list[str]]:
    """Returns the selected values of dimensions of which several are read."""
    return {dim: text.split(",") for dim, text in options.select.items() if "," in text}


def split_levels(path: Path, dataset: xr.Dataset, options: ReadOptions) -> xr.Dataset:
    """Returns a data set in which each selected value of a dimension is a variable of its own."""
    for dim, texts in selected_levels(options).items():
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
                base = array.attrs.get(PART_OF, str(name))
                for label, index in labels.items():
                    part = array.isel({dim: index}, drop=True)
                    parts[f"{name}{label}"] = part.assign_attrs({PART_OF: base})
            elif dim not in array.dims:
                parts[str(name)] = array
        dataset = dataset.drop_dims(dim).assign(parts)
    return dataset


def without_levels(dataset: xr.Dataset, options: ReadOptions) -> ReadOptions:
    """Returns options for a data set whose selected levels are variables, such as z500 and z850."""
    if not selected_levels(options):
        return options
    select = {dim: text for dim, text in options.select.items() if "," not in text}
    names = [str(name) for name in dataset.data_vars]
    variables = (
        part
        for name in options.variables
        for part in ([name] if name in names else requested_variables(dataset, [name], names))
    )
    return replace(options, variables=tuple(variables), select=select)


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
