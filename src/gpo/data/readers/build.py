"""The one function that makes fields, sites, weights, times and forcings of an `xarray` data set.

Readers return an `xr.Dataset` of their layout, lazily; `build_data` makes of it what models are
trained on. Names and attributes follow the CF and UGRID conventions, and those of `lazy.py`.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import xarray as xr

from gpo.data.dataset import (
    DataError,
    FieldData,
    RowReader,
    Variable,
    fetch_with_scalars,
)
from gpo.data.geometry import Geometry
from gpo.data.readers.base import ReadOptions, choose_variables
from gpo.data.readers.cf import (
    build_geometries,
    cut_at_largest_gap,
    is_auxiliary,
    is_site_axis,
    site_dims,
)
from gpo.data.readers.cf_times import (
    find_time,
    read_times,
    scalar_time,
    with_numeric_dates,
)
from gpo.data.readers.content import (
    Content,
    FrameReader,
    SampleReader,
    find_candidates,
    searched_frames,
)
from gpo.data.readers.lazy import FIND_PERIODIC, INPUTS, NAME, REOPENED
from gpo.data.readers.names import (
    VARIABLE_ATTRIBUTES,
    axis_attributes,
    file_axes,
    read_levels,
)
from gpo.data.readers.plan import (
    Plan,
    make_plan,
    numeric_fields,
    requested_variables,
    split_levels,
    without_levels,
)
from gpo.data.readers.sites import detect_periodic_axes, find_columns, mask_missing

SAMPLE = "sample"
"""Name of the sample dimension of static maps, if a file has none."""


@dataclass(frozen=True)
class Reader:
    """A file layout: how it is recognised, and opened as a data set."""

    name: str
    """Name of the layout, as in `READERS` and `FieldData.layout`."""
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
    check: Callable[[Path, ReadOptions], Sequence[str]] = lambda path, options: ()
    """Called once before a file is read; raises a `DataError`, or returns notes for the user."""

    def read(self, path: Path, options: ReadOptions = ReadOptions()) -> FieldData:
        """Returns the data of a file."""
        unused = {name: type(getattr(options, name))() for name in self.handles}
        source = Source(path, self.name, partial(self.open, path, options), self.has_names)
        notes = tuple(self.check(path, options))
        return replace(build_data(source, replace(options, **unused)), notes=notes)


@dataclass(frozen=True)
class Source:
    """Where a data set comes from."""

    path: Path
    """Name of the data in error messages."""
    layout: str
    open: Callable[[], xr.Dataset]
    has_names: bool = True
    """Whether forecasts keep the names of dimensions."""


def build_data(source: Source, options: ReadOptions) -> FieldData:
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
        content = Content(prepare, source.open if is_reopened else None, dataset)
        return (_maps if inputs else _series)(source, content, options)
    finally:
        if opened.encoding.get(REOPENED):
            opened.close()


def _prepare_series(path: Path, options: ReadOptions, dataset: xr.Dataset) -> xr.Dataset:
    """Returns a data set with numeric dates, whose selected levels are variables.

    A frame with a scalar time, as radars and satellites write, gets a time axis.
    """
    dataset = cut_at_largest_gap(with_numeric_dates(path, dataset))
    dataset = split_levels(path, dataset, options)
    time = find_time(dataset, [str(dim) for dim in dataset.dims])
    if time is not None and options.takes_frames:
        requested = [dataset[name] for name in options.variables if name in dataset.variables]
        if requested and not any(time in array.dims for array in requested):
            dataset, time = dataset.drop_dims(time), None
    if time is not None:
        return dataset
    name = scalar_time(dataset)
    if name is None and not options.takes_frames:
        return dataset
    if name is None:
        # Masks without times may be stored as truth values.
        masks = {field for field in options.variables if field in dataset.data_vars}
        dataset = dataset.assign(
            {field: dataset[field] + 0 for field in masks if dataset[field].dtype == bool}
        )
    else:
        dataset = dataset.set_coords(name)
    name = name or "time"
    fields = [
        str(field)
        for field, array in dataset.data_vars.items()
        if array.ndim > 0 and not is_auxiliary(path, dataset, str(field))
    ]
    return dataset.assign({field: dataset[field].expand_dims(name) for field in fields})


def _series(source: Source, content: Content, options: ReadOptions) -> FieldData:
    path, dataset = source.path, content.dataset
    assert dataset is not None
    options = without_levels(dataset, options)
    plan = make_plan(path, dataset, options)
    time, units, first_hour, origin = read_times(path, dataset, plan.time)
    levels = read_levels(dataset, plan.selection)
    geometries = build_geometries(path, dataset, plan.sites, plan.time, plan.series, options.coords)
    searched = partial(searched_frames, path, dataset, plan, options.num_files)
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
    read = FrameReader(path, content.reading(), plan, counts)
    return FieldData(
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
        parameters=_parameters(path, dataset, plan),
        candidates=find_candidates(path, dataset, plan, content.reading()),
        case_dim=(plan.series or "") if source.has_names else "",
        time_dim=plan.time,
        num_samples=plan.num_trajectories(dataset),
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


def _names_of(
    dataset: xr.Dataset, plan: Plan, index: int, geometries: Sequence[Geometry]
) -> list[str]:
    """Returns the names of the variables at the sites of a geometry, for error messages."""
    of = f" of {plan.series} {index}" if len(geometries) > 1 else ""
    return [f"{dataset[name].attrs.get(NAME, name)}{of}" for name in plan.names]


def _variable(name: str, array: xr.DataArray) -> Variable:
    name = str(array.attrs.get(NAME, name))
    return Variable(name, *(str(array.attrs.get(key, "")) for key in VARIABLE_ATTRIBUTES))


def _parameters(path: Path, dataset: xr.Dataset, plan: Plan) -> dict[str, np.ndarray]:
    """Returns coordinates with a number, or a row of numbers, for each trajectory or sample."""
    return {
        str(array.attrs.get(NAME, name)): array.transpose(plan.series, ...).values
        for name, array in dataset.coords.items()
        if plan.series in array.dims
        and name != plan.series
        and array.ndim <= 2
        and array.dtype.kind in "iuf"
        and not {plan.time, *plan.sites} & {*array.dims}
        and not is_auxiliary(path, dataset, str(name))
    }


def _prepare_maps(path: Path, options: ReadOptions, dataset: xr.Dataset) -> xr.Dataset:
    """Returns a data set of static maps in which a single sample has a sample dimension too."""
    dataset = cut_at_largest_gap(with_numeric_dates(path, dataset))
    numeric = numeric_fields(path, dataset, dataset.variables)
    inputs = choose_variables(path, requested_variables(dataset, options.inputs, numeric), numeric)
    names = _single_fields(path, dataset, inputs, numeric, options)
    return dataset.assign({name: dataset[name].expand_dims(SAMPLE) for name in names})


def _maps(source: Source, content: Content, options: ReadOptions) -> FieldData:
    """Returns maps from the named inputs to the named variables, or to all other fields.

    Samples lie along a dimension that all variables have: that of a scalar input, otherwise the
    first dimension of the first variable. If that is a grid axis, there is a single sample.
    """
    path, dataset = source.path, content.dataset
    assert dataset is not None
    numeric = numeric_fields(path, dataset, dataset.variables)
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
    read = SampleReader(content, *names, sample, sites)
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
    if scalars:
        fetch = partial(fetch_with_scalars, fetch, values.astype(np.float64))
    return FieldData.of_maps(
        layout=source.layout,
        source=path,
        inputs=tuple(_variable(name, dataset[name]) for name in (*scalars, *input_fields)),
        outputs=tuple(_variable(name, dataset[name]) for name in outputs),
        geometries=_shared(masked),
        num_samples=count,
        fetch=fetch,
        parameters={
            name: part
            for name, part in _parameters(path, dataset, plan).items()
            if name not in inputs
        },
    )


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
