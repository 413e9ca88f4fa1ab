"""Static maps in a gridded file: from fields, or scalars of each sample, to fields.

Samples lie along a dimension that all variables have: that of a scalar input, otherwise the first
dimension of the first variable. If that is a grid axis, the file has a single sample.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
import xarray as xr

from gpo.data.dataset import DataError, FieldData, Variable, fetch_with_scalars
from gpo.data.readers.base import ReadOptions, choose_variables
from gpo.data.readers.cf import build_geometry, is_auxiliary, is_site_axis, site_dims
from gpo.data.readers.cf_points import find_columns
from gpo.data.readers.sites import mask_missing

SAMPLE = "sample"
"""Name of the sample dimension, if a file has none."""
MAX_BYTES = 2**28
"""Samples up to this total size are cached in memory."""


def read_gridded_maps(
    path: Path, options: ReadOptions, open_file: Callable[[], xr.Dataset]
) -> FieldData:
    """Returns maps from the named inputs to the named variables, or to all other fields.

    Args:
        path: The file, for error messages.
        options: Names of inputs and variables.
        open_file: Opens the file.
    """
    dataset = open_file()
    try:
        numeric = [
            str(name)
            for name, array in dataset.variables.items()
            if array.dtype.kind in "iuf" and not is_auxiliary(path, dataset, str(name))
        ]
        inputs = choose_variables(path, options.inputs, numeric)
        single = _single_fields(path, dataset, inputs, numeric, options)
        if single:
            dataset.close()
            open_file = partial(_with_sample_dim, open_file, single)
            dataset = open_file()
        sample = _sample_dim(path, dataset, inputs)
        fields = [
            name
            for name in numeric
            if name not in inputs and sample in dataset[name].dims and dataset[name].ndim > 1
        ]
        outputs = choose_variables(path, options.variables, fields)
        if not outputs:
            raise DataError(path, "variables", f"must include fields along `{sample}`, got none.")
        dims = [str(dim) for dim in dataset[outputs[0]].dims if dim != sample]
        sites = site_dims(path, dataset, dims, sample)
        scalars = [name for name in inputs if dataset[name].dims == (sample,)]
        input_fields = [name for name in inputs if name not in scalars]
        read = _SampleReader(open_file, tuple(input_fields), tuple(outputs), sample, sites)
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
        geometry = build_geometry(path, dataset, sites, sample)
        frames = (np.concatenate(read(number), -1)[None] for number in range(count))
        geometry = mask_missing(path, [*input_fields, *outputs], geometry, frames)
        units = {name: str(dataset[name].attrs.get("units", "")) for name in (*inputs, *outputs)}
        return FieldData.of_maps(
            layout="gridded",
            source=path,
            inputs=tuple(Variable(name, units[name]) for name in (*scalars, *input_fields)),
            outputs=tuple(Variable(name, units[name]) for name in outputs),
            geometries=(geometry,),
            num_samples=count,
            fetch=partial(fetch_with_scalars, read, values.astype(np.float64)),
        )
    finally:
        dataset.close()


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


def _with_sample_dim(open_file: Callable[[], xr.Dataset], names: Sequence[str]) -> xr.Dataset:
    """Opens a file with a single sample and adds a sample dimension of length one."""
    dataset = open_file()
    expanded = dataset.assign({name: dataset[name].expand_dims(SAMPLE) for name in names})
    expanded.set_close(dataset.close)
    return expanded


def _sample_dim(path: Path, dataset: xr.Dataset, inputs: list[str]) -> str:
    shortest = min(inputs, key=lambda name: dataset[name].ndim)
    if dataset[shortest].ndim == 0:
        raise DataError(path, shortest, "must vary between samples to be an input, got a scalar.")
    return str(dataset[shortest].dims[0])


@dataclass(frozen=True)
class _SampleReader:
    """Reads one sample; the file is opened for each call, or cached if it is small."""

    open: Callable[[], xr.Dataset]
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
            parts = self._read(names, number)
        values = np.stack(parts, -1)
        values = values.astype(np.result_type(values.dtype, np.float32), copy=False)
        return values[:, : len(self.inputs)], values[:, len(self.inputs) :]

    def _read(self, names: tuple[str, ...], number: int) -> list[np.ndarray]:
        dataset = self.open()
        try:
            arrays = {name: dataset[name].transpose(self.sample, *self.sites) for name in names}
            if sum(array.nbytes for array in arrays.values()) > MAX_BYTES:
                return [array[number].values.ravel() for array in arrays.values()]
            for name, array in arrays.items():
                self.cache[name] = array.values.reshape(len(array), -1)
            return [self.cache[name][number] for name in names]
        finally:
            dataset.close()
