"""Static maps in a gridded file: from fields, or numbers of every sample, to fields.

The samples lie along a dimension that all variables have: that of an input with one number per
sample, else the first one of the first variable.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import numpy as np
import xarray as xr

from gpo.data.dataset import DataError, StaticMaps, Variable, with_numbers
from gpo.data.readers.base import ReadOptions, choose_variables
from gpo.data.readers.cf import build_geometry, is_auxiliary, site_dims
from gpo.data.readers.sites import mask_missing

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
            fetch=partial(with_numbers, read, values.astype(np.float64)),
        )
    finally:
        dataset.close()


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
