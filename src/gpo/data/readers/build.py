"""The one function that makes fields, sites, weights, times and forcings of an `xarray` data set.

Readers return an `xr.Dataset` of their layout, lazily; `build_data` makes of it what models are
trained on. Names and attributes follow the CF and UGRID conventions, and those of `lazy.py`.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from gpo.data.dataset import (
    DataError,
    InputCandidate,
    RowReader,
    StaticMaps,
    Trajectories,
    Variable,
    fetch_with_scalars,
)
from gpo.data.geometry import Geometry
from gpo.data.readers.base import ReadOptions, choose_variables
from gpo.data.readers.cf import (
    build_geometries,
    build_geometry,
    cut_at_largest_gap,
    is_auxiliary,
    is_site_axis,
    site_dims,
)
from gpo.data.readers.cf_attributes import (
    VARIABLE_ATTRIBUTES,
    axis_attributes,
    file_axes,
    read_levels,
)
from gpo.data.readers.cf_points import find_columns
from gpo.data.readers.cf_times import (
    find_time,
    read_origin,
    read_times,
    scalar_time,
    with_numeric_dates,
)
from gpo.data.readers.lazy import FIND_PERIODIC, INPUTS, NAME, REOPENED, SITE_DIMS
from gpo.data.readers.plan import (
    Plan,
    make_plan,
    requested_variables,
    split_levels,
    without_levels,
)
from gpo.data.readers.sites import detect_periodic_axes, mask_missing

SMALL_FILE = 2**28
"""Bytes up to which all frames are searched for sites that are always missing."""
NUM_SEARCHED = 16
"""Number of frames that are searched in larger files."""
NUMBERS_AT_ONCE = 2**22
"""Numbers of a variable that are searched at once."""
SAMPLE = "sample"
"""Name of the sample dimension of static maps, if a file has none."""
MAX_BYTES = 2**28
"""Samples up to this total size are cached in memory."""


@dataclass(frozen=True)
class Reader:
    """A file layout: how it is recognised, and opened as a data set."""

    name: str
    """Name of the layout, as in `READERS` and `Trajectories.layout`."""
    layout: str
    """Short description of the layout for error messages."""
    recognises: Callable[[Path], bool]
    """Whether a file has this layout, without reading values; may raise if it is damaged."""
    open: Callable[[Path, ReadOptions], xr.Dataset]
    """Returns the content lazily; raises a `DataError` that names file and field if it cannot."""
    takes_inputs: bool = False
    """Whether the inputs of static maps can be selected (`ReadOptions.inputs`)."""
    has_names: bool = False
    """Whether the dimensions have names in the file, which forecasts keep."""
    handles: tuple[str, ...] = ()
    """Options that `open` applies itself, such as `coords`."""

    def read_static(
        self, path: Path, name: str, options: ReadOptions
    ) -> tuple[Variable, np.ndarray, Geometry] | None:
        """Returns a field of a file without times, and its sites; None if there is no such field."""
        if not self.has_names:
            return None
        options = replace(options, variables=(name,))
        return read_static(Source(path, self.name, partial(self.open, path, options)), name)

    def read(self, path: Path, options: ReadOptions = ReadOptions()) -> Trajectories | StaticMaps:
        """Returns the data of a file."""
        unused = {name: type(getattr(options, name))() for name in self.handles}
        source = Source(path, self.name, partial(self.open, path, options), self.has_names)
        return build_data(source, replace(options, **unused))


@dataclass(frozen=True)
class Source:
    """Where a data set comes from."""

    path: Path
    """Name of the data in error messages."""
    layout: str
    open: Callable[[], xr.Dataset]
    has_names: bool = True
    """Whether forecasts keep the names of dimensions."""


def build_data(source: Source, options: ReadOptions) -> Trajectories | StaticMaps:
    """Returns the data of a data set: static maps if it has inputs, else time series.

    Args:
        source: The data set, which is opened again for each read if its file does not stay open.
        options: Which variables and levels to read, and under which names.
    """
    opened = source.open()
    try:
        inputs = options.inputs or tuple(opened.attrs.get(INPUTS, ()))
        options = replace(options, inputs=inputs)
        prepare = partial(_prepare_maps if inputs else _prepare_series, source.path, options)
        dataset = prepare(opened)
        is_reopened = bool(opened.encoding.get(REOPENED))
        content = _Content(prepare, source.open if is_reopened else None, dataset)
        return (_maps if inputs else _series)(source, content, options)
    finally:
        if opened.encoding.get(REOPENED):
            opened.close()


@dataclass(frozen=True)
class _Content:
    """A data set that is opened for each read, or stays open."""

    prepare: Callable[[xr.Dataset], xr.Dataset]
    open: Callable[[], xr.Dataset] | None
    dataset: xr.Dataset | None
    """The open data set; None once it has to be opened again."""

    def reading(self) -> "_Content":
        """Returns the content for later reads, which may be in other processes."""
        return self if self.open is None else replace(self, dataset=None)

    def read(self, part: Callable[[xr.Dataset], Any]) -> Any:
        """Returns a part of the data set."""
        if self.dataset is not None:
            return part(self.dataset)
        assert self.open is not None
        opened = self.open()
        try:
            return part(self.prepare(opened))
        finally:
            opened.close()


def _prepare_series(path: Path, options: ReadOptions, dataset: xr.Dataset) -> xr.Dataset:
    """Returns a data set with numeric dates, whose selected levels are variables.

    A frame with a scalar time, as radars and satellites write, gets a time axis.
    """
    dataset = cut_at_largest_gap(with_numeric_dates(path, dataset))
    dataset = split_levels(path, dataset, options)
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


def _series(source: Source, content: _Content, options: ReadOptions) -> Trajectories:
    path, dataset = source.path, content.dataset
    assert dataset is not None
    options = without_levels(dataset, options)
    plan = make_plan(path, dataset, options)
    time, units, first_hour = read_times(path, dataset, plan.time)
    origin = read_origin(path, dataset, plan.time)
    levels = read_levels(dataset, plan.selection)
    geometries = build_geometries(path, dataset, plan.sites, plan.time, plan.series, options.coords)
    num_bytes = _num_bytes(path, dataset) * options.num_files
    searched = partial(_searched_frames, path, dataset, plan, num_bytes, options.num_files)
    if dataset.attrs.get(FIND_PERIODIC):
        geometries = (detect_periodic_axes(geometries[0], searched(geometries)),)
    if source.has_names:
        geometries = tuple(_named(dataset, plan.sites, geometry) for geometry in geometries)
    geometries = tuple(
        mask_missing(
            path,
            _names_of(dataset, plan, number, geometries),
            geometry,
            searched(geometries, number),
        )
        for number, geometry in enumerate(geometries)
    )
    names = plan.names
    if len(options.variables) == len(names):
        # The names may be aliases of those in the file.
        names = options.variables
    counts = tuple(geometry.num_points for geometry in geometries)
    read = _FrameReader(path, content.reading(), plan, counts)
    return Trajectories(
        layout=source.layout,
        source=path,
        variables=tuple(
            _variable(name, dataset[stored]) for name, stored in zip(names, plan.names, strict=True)
        ),
        geometries=_shared(geometries),
        time=time,
        time_units=units,
        first_hour=first_hour,
        origin=origin,
        levels=levels,
        parameters=_parameters(path, dataset, plan.series, plan.num_trajectories(dataset)),
        candidates=_find_candidates(path, dataset, plan, content.reading()),
        case_dim=(plan.series or "") if source.has_names else "",
        time_dim=plan.time,
        num_trajectories=plan.num_trajectories(dataset),
        fetch=RowReader(read, max(1, counts[0] // dataset.sizes[plan.sites[0]])),
    )


def _named(dataset: xr.Dataset, sites: Sequence[str], geometry: Geometry) -> Geometry:
    """Returns the sites with the names of their dimensions, which forecasts keep."""
    if geometry.axes:
        geometry = replace(geometry, axis_attributes=axis_attributes(dataset, sites))
    return replace(geometry, file_axes=file_axes(dataset, sites, geometry))


def _shared(geometries: tuple[Geometry, ...]) -> tuple[Geometry, ...]:
    """Returns one geometry if all are the same."""
    first, *others = geometries
    parts = ("coords", "weights", "triangles")
    is_shared = all(
        np.array_equal(getattr(first, part), getattr(other, part))
        for other in others
        for part in parts
    )
    return (first,) if is_shared else geometries


@dataclass(frozen=True)
class _FrameReader:
    """Reads frames of a trajectory at a slice of rows."""

    path: Path
    content: _Content
    plan: Plan
    counts: tuple[int, ...]
    """Number of sites: of all trajectories, or of each."""

    def __call__(self, trajectory: int, times: slice, rows: slice) -> np.ndarray:
        plan = self.plan.at(trajectory)
        if len(self.counts) > 1 and len(plan.sites) == 1 and rows == slice(None):
            # Trajectories with fewer points than others are padded.
            rows = slice(0, self.counts[trajectory])
        return self.content.read(lambda dataset: plan.frames(self.path, dataset, times, rows))


def _searched_frames(
    path: Path,
    dataset: xr.Dataset,
    plan: Plan,
    num_bytes: int,
    num_files: int,
    geometries: Sequence[Geometry],
    index: int = 0,
) -> Iterator[np.ndarray]:
    """Yields all frames of a small file in chunks, or evenly spaced frames of a large one.

    Args:
        path: The file.
        dataset: Its content.
        plan: What to read of it.
        num_bytes: Bytes of all files that are joined.
        num_files: Number of files that are joined.
        geometries: The sites, of all trajectories or of each.
        index: Index of the geometry whose frames are read.
    """
    num_frames = dataset.sizes[plan.time]
    num_sites = math.prod(dataset.sizes[dim] for dim in plan.sites)
    chunk = max(1, NUMBERS_AT_ONCE // max(1, num_sites))
    # The first frame often suffices.
    starts, chunks = [0, *range(1, num_frames, chunk)], [1, *[chunk] * num_frames]
    num_searched = max(2, NUM_SEARCHED // num_files)
    if num_bytes >= SMALL_FILE and num_frames > num_searched:
        starts = np.linspace(0, num_frames - 1, num_searched).astype(int).tolist()
        chunks = [1] * num_searched
    is_own, rows = len(geometries) > 1, slice(None)
    if is_own and len(plan.sites) == 1:
        rows = slice(0, geometries[index].num_points)
    for number in [index] if is_own else range(plan.num_trajectories(dataset)):
        for start, size in zip(starts, chunks, strict=False):
            yield plan.at(number).frames(path, dataset, slice(start, start + size), rows)


def _names_of(
    dataset: xr.Dataset, plan: Plan, index: int, geometries: Sequence[Geometry]
) -> list[str]:
    """Returns the names of the variables at the sites of a geometry, for error messages."""
    of = f" of {plan.series} {index}" if len(geometries) > 1 else ""
    return [f"{dataset[name].attrs.get(NAME, name)}{of}" for name in plan.names]


def _variable(name: str, array: xr.DataArray) -> Variable:
    name = str(array.attrs.get(NAME, name))
    return Variable(name, *(str(array.attrs.get(key, "")) for key in VARIABLE_ATTRIBUTES))


def _num_bytes(path: Path, dataset: xr.Dataset) -> int:
    if not path.exists():
        return dataset.nbytes
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files)


def _parameters(
    path: Path, dataset: xr.Dataset, series: str | None, count: int
) -> dict[str, np.ndarray]:
    """Returns coordinates with a number, or a row of numbers, for each trajectory or sample."""
    return {
        str(array.attrs.get(NAME, name)): array.transpose(series, ...).values
        for name, array in dataset.coords.items()
        if series in array.dims
        and name != series
        and array.ndim <= 2
        and array.dtype.kind in "iuf"
        and not any(dim in dataset.attrs.get(SITE_DIMS, ()) for dim in array.dims)
        and not is_auxiliary(path, dataset, str(name))
    }


def _find_candidates(
    path: Path, dataset: xr.Dataset, plan: Plan, content: _Content
) -> tuple[InputCandidate, ...]:
    """Returns fields without a time axis, and scalar time series, which can be inputs."""
    candidates: list[InputCandidate] = []
    for key, array in dataset.data_vars.items():
        name = str(key)
        if array.dtype.kind not in "iuf" or is_auxiliary(path, dataset, name):
            continue
        dims = {
            str(dim)
            for dim in array.dims
            if (dim not in plan.selection and dataset.sizes[dim] > 1)
            or dim == plan.time
            or dim in plan.sites
        }
        first = [plan.series] if plan.series in dims else []
        kept = (*first, *plan.sites) if plan.sites[0] in dims else (*first, plan.time)
        if dims == set(kept):
            read = _VariableReader(content, name, kept, plan)
            kind = "static" if plan.sites[0] in dims else "series"
            variable = Variable(array.attrs.get(NAME, name), str(array.attrs.get("units", "")))
            candidates.append(InputCandidate(variable, kind, read))
    return tuple(candidates)


@dataclass(frozen=True)
class _VariableReader:
    """Reads a whole variable, as one axis, or as (trajectories, others)."""

    content: _Content
    name: str
    dims: tuple[str, ...]
    plan: Plan

    def __call__(self) -> np.ndarray:
        return self.content.read(self._values)

    def _values(self, dataset: xr.Dataset) -> np.ndarray:
        array = dataset[self.name]
        others = [str(dim) for dim in array.dims if dim not in self.dims]
        part = array.isel({dim: self.plan.selection.get(dim, 0) for dim in others})
        values = part.transpose(*self.dims).values.astype(np.float64)
        is_series = self.dims[0] == self.plan.series
        return values.reshape(len(values), -1) if is_series else values.reshape(-1)


def read_static(source: Source, name: str) -> tuple[Variable, np.ndarray, Geometry] | None:
    """Returns a variable without a time axis, and its sites; None if there is no such variable.

    Args:
        source: The data set.
        name: Name of the variable.
    """
    dataset = source.open()
    try:
        prepared = cut_at_largest_gap(with_numeric_dates(source.path, dataset))
        if name not in prepared.variables:
            return None
        array = prepared[name].squeeze(drop=True)
        dims = [str(dim) for dim in array.dims]
        if not dims or find_time(prepared, dims) is not None:
            return None
        sites = site_dims(source.path, prepared, dims, "")
        geometry = build_geometry(source.path, prepared, sites, "")
        values = array.transpose(*sites).values.ravel().astype(np.float64)
        return Variable(name, str(array.attrs.get("units", ""))), values, geometry
    finally:
        if dataset.encoding.get(REOPENED):
            dataset.close()


def _prepare_maps(path: Path, options: ReadOptions, dataset: xr.Dataset) -> xr.Dataset:
    """Returns a data set of static maps in which a single sample has a sample dimension too."""
    dataset = cut_at_largest_gap(with_numeric_dates(path, dataset))
    numeric = _numeric_arrays(path, dataset)
    inputs = choose_variables(path, requested_variables(dataset, options.inputs, numeric), numeric)
    names = _single_fields(path, dataset, inputs, numeric, options)
    return dataset.assign({name: dataset[name].expand_dims(SAMPLE) for name in names})


def _maps(source: Source, content: _Content, options: ReadOptions) -> StaticMaps:
    """Returns maps from the named inputs to the named variables, or to all other fields.

    Samples lie along a dimension that all variables have: that of a scalar input, otherwise the
    first dimension of the first variable. If that is a grid axis, there is a single sample.
    """
    path, dataset = source.path, content.dataset
    assert dataset is not None
    numeric = _numeric_arrays(path, dataset)
    inputs = requested_variables(dataset, options.inputs, numeric)
    sample = _sample_dim(path, dataset, inputs)
    fields = [
        name
        for name in numeric
        if name not in inputs
        and name not in dataset.coords
        and sample in dataset[name].dims
        and dataset[name].ndim > 1
    ]
    requested = requested_variables(dataset, options.variables, fields)
    outputs = choose_variables(path, requested, fields)
    if not outputs:
        raise DataError(path, "variables", f"must include fields along `{sample}`, got none.")
    dims = [str(dim) for dim in dataset[outputs[0]].dims if dim != sample]
    sites = site_dims(path, dataset, dims, sample)
    scalars = [name for name in inputs if dataset[name].dims == (sample,)]
    input_fields = [name for name in inputs if name not in scalars]
    for name in (*input_fields, *outputs):
        if {str(dim) for dim in dataset[name].dims} != {sample, *sites}:
            expected = ", ".join((sample, *sites))
            dims = ", ".join(str(dim) for dim in dataset[name].dims) or "none"
            problem = f"must have the dimensions {expected}, or only {sample} as an input;"
            raise DataError(path, name, f"{problem} got {dims}.")
    count = dataset.sizes[sample]
    values = np.zeros((count, 0))
    if scalars:
        values = np.stack([dataset[name].values for name in scalars], -1)
    if not np.isfinite(values).all():
        raise DataError(path, ", ".join(scalars), "must be known for every sample, got NaN.")
    geometries = build_geometries(path, dataset, sites, sample, sample)
    names = (tuple(input_fields), tuple(outputs))
    read = _SampleReader(content, *names, sample, sites)
    plan = Plan((*input_fields, *outputs), "", sites, {}, sample)
    every = [range(count)] if len(geometries) == 1 else [[number] for number in range(count)]
    masked = tuple(
        mask_missing(
            path,
            _names_of(dataset, plan, number, geometries),
            geometry,
            (np.concatenate(read(sample), -1)[None] for sample in every[number]),
        )
        for number, geometry in enumerate(geometries)
    )
    fetch = replace(read, content=content.reading())
    return StaticMaps(
        layout=source.layout,
        source=path,
        inputs=tuple(_variable(name, dataset[name]) for name in (*scalars, *input_fields)),
        outputs=tuple(_variable(name, dataset[name]) for name in outputs),
        geometries=_shared(masked),
        num_samples=count,
        fetch=partial(fetch_with_scalars, fetch, values.astype(np.float64)),
        parameters={
            name: part
            for name, part in _parameters(path, dataset, sample, count).items()
            if name not in inputs
        },
    )


def _numeric_arrays(path: Path, dataset: xr.Dataset) -> list[str]:
    return [
        str(name)
        for name, array in dataset.variables.items()
        if array.dtype.kind in "iuf" and not is_auxiliary(path, dataset, str(name))
    ]


def _single_fields(
    path: Path,
    dataset: xr.Dataset,
    inputs: Sequence[str],
    numeric: Sequence[str],
    options: ReadOptions,
) -> list[str]:
    """Returns the fields and scalars of a file with a single sample; nothing for other files.

    There is a single sample if all dimensions of the fields are grid axes.
    """
    names = [*inputs, *(name for name in options.variables if name in numeric)]
    arrays = (dataset[name] for name in (names if options.variables else numeric))
    field = max(arrays, key=lambda array: array.ndim)
    is_grid_axis = [is_site_axis(path, dataset, str(dim)) for dim in field.dims]
    if options.num_files > 1 and field.ndim == 2 and not any(is_grid_axis):
        dims, count = ", ".join(str(dim) for dim in field.dims), options.num_files
        problem = (
            f"has dimensions ({dims}): samples on a line, or one sample on a grid, in each of "
            f"{count} files. Rename them to `sample` and `x`, or to `y` and `x`."
        )
        raise DataError(path, str(field.name), problem)
    if not is_grid_axis or not all(is_grid_axis):
        return []
    coordinates = {*find_columns(path, dataset, [str(dim) for dim in field.dims]), *dataset.dims}
    fields = [name for name in numeric if name not in coordinates]
    return [name for name in fields if dataset[name].dims in ((), field.dims)]


def _sample_dim(path: Path, dataset: xr.Dataset, inputs: Sequence[str]) -> str:
    shortest = min(inputs, key=lambda name: dataset[name].ndim)
    if dataset[shortest].ndim == 0:
        raise DataError(path, shortest, "must vary between samples to be an input, got a scalar.")
    return str(dataset[shortest].dims[0])


@dataclass(frozen=True)
class _SampleReader:
    """Reads one sample; small data sets are cached."""

    content: _Content
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    sample: str
    sites: tuple[str, ...]
    cache: dict[str, np.ndarray] = field(default_factory=dict)
    """All samples of each variable, if they are small."""

    def __call__(self, number: int) -> tuple[np.ndarray, np.ndarray]:
        names = (*self.inputs, *self.outputs)
        if self.cache:
            parts = [self.cache[name][number] for name in names]
        else:
            parts = self.content.read(partial(self._read, names, number))
        values = np.stack(parts, -1)
        values = values.astype(np.result_type(values.dtype, np.float32), copy=False)
        return values[:, : len(self.inputs)], values[:, len(self.inputs) :]

    def _read(self, names: Sequence[str], number: int, dataset: xr.Dataset) -> list[np.ndarray]:
        arrays = {name: dataset[name].transpose(self.sample, *self.sites) for name in names}
        if sum(array.nbytes for array in arrays.values()) > MAX_BYTES:
            return [array[number].values.ravel() for array in arrays.values()]
        for name, array in arrays.items():
            self.cache[name] = array.values.reshape(len(array), -1)
        return [self.cache[name][number] for name in names]
