"""Static maps in a gridded file: from fields, or numbers of every sample, to fields.

The samples lie along a dimension that all variables have: that of an input with one number per
sample, else the first one of the first variable. Where that is an axis of the grid, the file holds
one sample.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
import xarray as xr

from gpo.data.dataset import DataError, StaticMaps, Variable, fetch_with_scalars
from gpo.data.readers.base import ReadOptions, choose_variables
from gpo.data.readers.cf import build_geometry, is_auxiliary, is_site_axis, site_dims
from gpo.data.readers.cf_points import find_columns
from gpo.data.readers.sites import mask_missing

SAMPLE = "sample"
"""Name of the dimension of samples, where a file has none."""
MAX_BYTES = 2**28
"""Samples up to this size are kept in memory."""


def read_gridded_maps(
    path: Path, options: ReadOptions, open_file: Callable[[], xr.Dataset]
) -> StaticMaps:
    """Returns the maps from the named inputs to the named variables, or to all other fields.

    Args:
        path: The file, for messages.
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
            open_file = partial(_with_samples, open_file, single)
            dataset = open_file()
        sample = _sample_dim(path, dataset, inputs)
        fields = [
            name
            for name in numeric
            if name not in inputs and sample in dataset[name].dims and dataset[name].ndim > 1
        ]
        outputs = choose_variables(path, options.variables, fields)
        if not outputs:
            raise DataError(path, "variables", f"with samples along `{sample}` are none.")
        dims = [str(dim) for dim in dataset[outputs[0]].dims if dim != sample]
        sites = site_dims(path, dataset, dims, sample)
        numbers = [name for name in inputs if dataset[name].dims == (sample,)]
        given = [name for name in inputs if name not in numbers]
        read = _Read(open_file, tuple(given), tuple(outputs), sample, sites)
        for name in (*given, *outputs):
            if {str(dim) for dim in dataset[name].dims} != {sample, *sites}:
                expected = ", ".join((sample, *sites))
                there = ", ".join(str(dim) for dim in dataset[name].dims) or "none"
                problem = f"must have the dimensions {expected}, or {sample} alone as an input;"
                raise DataError(path, name, f"{problem} got {there}.")
        values = np.stack([dataset[name].values for name in numbers], -1) if numbers else (
            np.zeros((dataset.sizes[sample], 0))
        )  # fmt: skip
        if not np.isfinite(values).all():
            raise DataError(path, ", ".join(numbers), "must be known for every sample, got NaN.")
        count = dataset.sizes[sample]
        geometry = build_geometry(path, dataset, sites, sample)
        frames = (np.concatenate(read(number), -1)[None] for number in range(count))
        geometry = mask_missing(path, [*given, *outputs], geometry, frames)
        units = {name: str(dataset[name].attrs.get("units", "")) for name in (*inputs, *outputs)}
        return StaticMaps(
            layout="gridded",
            source=path,
            inputs=tuple(Variable(name, units[name]) for name in (*numbers, *given)),
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
    """Returns the fields and numbers of a file of one sample; none where samples are counted.

    There is one sample where fields lie along the axes of the grid alone.
    """
    named = [*inputs, *(name for name in options.variables if name in numeric)]
    listed = named if options.variables else numeric
    field = max((dataset[name] for name in listed), key=lambda array: array.ndim)
    known = [is_site_axis(path, dataset, str(dim)) for dim in field.dims]
    if options.num_files > 1 and field.ndim == 2 and not any(known):
        dims, count = ", ".join(str(dim) for dim in field.dims), options.num_files
        problem = (
            f"has dimensions ({dims}): samples on a line, or one sample on a grid, in each of "
            f"{count} files. Name them `sample` and `x`, or `y` and `x`."
        )
        raise DataError(path, str(field.name), problem)
    if not known or not all(known):
        return []
    places = {*find_columns(path, dataset, [str(dim) for dim in field.dims]), *dataset.dims}
    return [
        name for name in numeric if name not in places and dataset[name].dims in ((), field.dims)
    ]


def _with_samples(open_file: Callable[[], xr.Dataset], names: Sequence[str]) -> xr.Dataset:
    """Opens a file of one sample with a dimension that counts it."""
    dataset = open_file()
    counted = dataset.assign({name: dataset[name].expand_dims(SAMPLE) for name in names})
    counted.set_close(dataset.close)
    return counted


def _sample_dim(path: Path, dataset: xr.Dataset, inputs: list[str]) -> str:
    shortest = min(inputs, key=lambda name: dataset[name].ndim)
    if dataset[shortest].ndim == 0:
        raise DataError(path, shortest, "is one number for all samples: it decides nothing.")
    return str(dataset[shortest].dims[0])


@dataclass(frozen=True)
class _Read:
    """Reads one sample; the file is open only meanwhile, or read once where it is small."""

    open: Callable[[], xr.Dataset]
    given: tuple[str, ...]
    wanted: tuple[str, ...]
    sample: str
    sites: tuple[str, ...]
    kept: dict[str, np.ndarray] = field(default_factory=dict)
    """All samples of every variable, where they are small."""

    def __call__(self, number: int) -> tuple[np.ndarray, np.ndarray]:
        names = (*self.given, *self.wanted)
        if self.kept:
            parts = [self.kept[name][number] for name in names]
        else:
            parts = self._read(names, number)
        values = np.stack(parts, -1)
        values = values.astype(np.result_type(values.dtype, np.float32), copy=False)
        return values[:, : len(self.given)], values[:, len(self.given) :]

    def _read(self, names: tuple[str, ...], number: int) -> list[np.ndarray]:
        dataset = self.open()
        try:
            arrays = {name: dataset[name].transpose(self.sample, *self.sites) for name in names}
            if sum(array.nbytes for array in arrays.values()) > MAX_BYTES:
                return [array[number].values.ravel() for array in arrays.values()]
            for name, array in arrays.items():
                self.kept[name] = array.values.reshape(len(array), -1)
            return [self.kept[name][number] for name in names]
        finally:
            dataset.close()
