"""Reads parts of a data set: frames, samples, additional inputs; the file may be reopened each time."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from gpo.data.dataset import InputCandidate, Variable
from gpo.data.geometry import Geometry
from gpo.data.readers.cf import is_auxiliary
from gpo.data.readers.lazy import NAME
from gpo.data.readers.plan import Plan

SMALL_FILE = 2**28
"""Bytes up to which all frames are searched for sites that are always missing."""
NUM_SEARCHED = 16
"""Number of frames that are searched in larger files."""
NUMBERS_AT_ONCE = 2**22
"""Numbers of a variable that are searched at once."""
MAX_BYTES = 2**28
"""Samples up to this total size are cached in memory."""


@dataclass(frozen=True)
class Content:
    """A data set that is opened for each read, or stays open."""

    prepare: Callable[[xr.Dataset], xr.Dataset]
    open: Callable[[], xr.Dataset] | None
    dataset: xr.Dataset | None
    """The open data set; None once it has to be opened again."""

    def reading(self) -> "Content":
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


@dataclass(frozen=True)
class FrameReader:
    """Reads frames of a trajectory at a slice of rows."""

    path: Path
    content: Content
    plan: Plan
    counts: tuple[int, ...]
    """Number of sites: of all trajectories, or of each."""

    def __call__(self, trajectory: int, times: slice, rows: slice) -> np.ndarray:
        """Returns frames as (times, points, variables)."""
        plan = self.plan.at(trajectory)
        if len(self.counts) > 1 and len(plan.sites) == 1 and rows == slice(None):
            # Trajectories with fewer points than others are padded.
            rows = slice(0, self.counts[trajectory])
        return self.content.read(lambda dataset: plan.frames(self.path, dataset, times, rows))


def searched_frames(
    path: Path,
    dataset: xr.Dataset,
    plan: Plan,
    num_files: int,
    geometries: Sequence[Geometry],
    index: int = 0,
) -> Iterator[np.ndarray]:
    """Yields all frames of a small file in chunks, or evenly spaced frames of a large one.

    Args:
        path: The file.
        dataset: Its content.
        plan: What to read of it.
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
    if num_files * _num_bytes(path, dataset) >= SMALL_FILE and num_frames > num_searched:
        starts = np.linspace(0, num_frames - 1, num_searched).astype(int).tolist()
        chunks = [1] * num_searched
    is_own, rows = len(geometries) > 1, slice(None)
    if is_own and len(plan.sites) == 1:
        rows = slice(0, geometries[index].num_points)
    for number in [index] if is_own else range(plan.num_trajectories(dataset)):
        for start, size in zip(starts, chunks, strict=False):
            yield plan.at(number).frames(path, dataset, slice(start, start + size), rows)


def find_candidates(
    path: Path, dataset: xr.Dataset, plan: Plan, content: Content
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

    content: Content
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


@dataclass(frozen=True)
class SampleReader:
    """Reads one sample; small data sets are cached."""

    content: Content
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    sample: str
    sites: tuple[str, ...]
    cache: dict[str, np.ndarray] = field(default_factory=dict)
    """All samples of each variable, if they are small."""

    def __call__(self, number: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns (points, inputs) and (points, outputs) of a sample."""
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


def _num_bytes(path: Path, dataset: xr.Dataset) -> int:
    if not path.exists():
        return dataset.nbytes
    files = path.rglob("*") if path.is_dir() else [path]
    return sum(file.stat().st_size for file in files)
