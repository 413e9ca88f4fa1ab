"""PDEBench's HDF5 files, in both published layouts.

Flow files contain `density`, `pressure`, `Vx`, `Vy`, `Vz`, or one `tensor`, each of shape (samples,
times, grid), and `x-coordinate` and so on. Other files contain one group per sample, with `data`
(times, grid, channels) and the coordinates in `grid`.
"""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import h5py
import numpy as np

from gpo.data.dataset import DataError, FieldData, RowReader, Variable
from gpo.data.geometry import Geometry
from gpo.data.readers.base import (
    AbstractReader,
    ReadOptions,
    check_axis,
    check_increasing,
    check_not_missing,
    choose_variables,
)
from gpo.data.readers.hdf5 import array, dataset, is_hdf5, open_hdf5

FLOW = ("density", "pressure", "Vx", "Vy", "Vz")
AXES = ("x", "y", "z")


class PdebenchReader(AbstractReader):
    """Flows and other equations in a box, with the boundary conditions of PDEBench's solvers."""

    name = "pdebench"
    layout = "PDEBench's HDF5 file with density, Vx (N, T, x, y, z) or groups of data and grid"

    def recognises(self, path: Path) -> bool:
        """Returns whether there is a `t-coordinate`, or a group with `data` and `grid`."""
        if not is_hdf5(path):
            return False
        with h5py.File(path) as file:
            return "t-coordinate" in file or bool(_samples(file))

    def read(self, path: Path, options: ReadOptions) -> FieldData:
        """Returns all samples; a last time without a frame is dropped."""
        with open_hdf5(path) as file:
            samples = _samples(file)
            content = _open_groups(path, file, samples) if samples else _open_flow(path, file)
            constants = _constants(file)
        chosen = choose_variables(path, options.variables, content.names)
        axes = [check_increasing(path, name, axis) for name, axis in content.axes.items()]
        for name in chosen:
            check_not_missing(path, name, content.frames(name))

        geometry = Geometry.rectilinear(axes, periodic=_periodic(path, content, axes))
        return FieldData(
            layout=self.name,
            source=path,
            variables=tuple(Variable(name) for name in chosen),
            geometries=(geometry,),
            time=content.time,
            time_units="",
            num_samples=content.num_samples,
            fetch=RowReader(
                partial(content.points, chosen), geometry.num_points // geometry.grid_shape[0]
            ),
            parameters={
                name: np.full(content.num_samples, value) for name, value in constants.items()
            },
        )


@dataclass(frozen=True)
class _Content:
    """The content of a file of either layout, without values."""

    names: Sequence[str]
    axes: dict[str, np.ndarray]
    """Coordinates by name in the file."""
    time: np.ndarray
    num_samples: int
    may_be_periodic: bool
    fetch: Callable[[Sequence[str], int, slice, slice], np.ndarray]
    """Reads frames of named variables at a slice of rows as (times, grid, variables)."""

    def points(self, names: Sequence[str], sample: int, times: slice, rows: slice) -> np.ndarray:
        """Reads frames with a flattened grid as (times, points, variables)."""
        frames = self.fetch(names, sample, times, rows)
        return frames.reshape(len(frames), int(np.prod(frames.shape[1:-1])), len(names))

    def frames(self, name: str) -> Iterator[np.ndarray]:
        """Yields single frames of a variable."""
        for sample, time in itertools.product(range(self.num_samples), range(len(self.time))):
            yield self.fetch([name], sample, slice(time, time + 1), slice(None))


def _open_flow(path: Path, file: h5py.File) -> _Content:
    first = next((name for name in ("tensor", *FLOW) if name in file), FLOW[0])
    shape = dataset(path, file, first).shape
    if not 3 <= len(shape) <= 5:
        problem = f"must have shape (samples, times, 1 to 3 axes), got {shape}."
        raise DataError(path, first, problem)
    dim = len(shape) - 2
    names = [first] if first == "tensor" else list(FLOW[: 2 + dim])
    for name in names:
        _check_shape(path, name, dataset(path, file, name), shape)
    keys = [f"{axis}-coordinate" for axis in AXES[:dim]]
    axes = {key: array(path, file, key) for key in keys}
    _check_lengths(path, axes, shape[2:])
    time = _frame_times(path, "t-coordinate", array(path, file, "t-coordinate"), shape[1])
    return _Content(names, axes, time, shape[0], True, partial(_read_flow, path))


def _read_flow(
    path: Path, chosen: Sequence[str], sample: int, times: slice, rows: slice
) -> np.ndarray:
    key = (sample, times, rows)
    with open_hdf5(path) as file:
        return np.stack([array(path, file, name, key) for name in chosen], -1)


def _open_groups(path: Path, file: h5py.File, samples: Sequence[str]) -> _Content:
    shape = dataset(path, file, f"{samples[0]}/data").shape
    if not 3 <= len(shape) <= 5:
        problem = f"must have shape (times, 1 to 3 axes, channels), got {shape}."
        raise DataError(path, f"{samples[0]}/data", problem)
    keys = [*AXES[: len(shape) - 2], "t"]
    grid = {key: array(path, file, f"{samples[0]}/grid/{key}") for key in keys}
    for sample in samples:
        _check_shape(path, f"{sample}/data", dataset(path, file, f"{sample}/data"), shape)
        for key in keys:
            if not np.array_equal(grid[key], array(path, file, f"{sample}/grid/{key}")):
                problem = f"must be as in {samples[0]}: all samples must have the same grid."
                raise DataError(path, f"{sample}/grid/{key}", problem)
    time = _frame_times(path, "t", grid.pop("t"), shape[0])
    _check_lengths(path, grid, shape[1:-1])
    names = ["data"] if shape[-1] == 1 else [f"data_{channel}" for channel in range(shape[-1])]
    fetch = partial(_read_groups, path, samples, names)
    return _Content(names, grid, time, len(samples), False, fetch)


def _read_groups(
    path: Path,
    samples: Sequence[str],
    names: Sequence[str],
    chosen: Sequence[str],
    sample: int,
    times: slice,
    rows: slice,
) -> np.ndarray:
    channels = [names.index(name) for name in chosen]
    with open_hdf5(path) as file:
        return array(path, file, f"{samples[sample]}/data", (times, rows))[..., channels]


def _samples(file: h5py.File) -> list[str]:
    """Returns the sorted names of all groups if one of them has `data` and `grid`."""
    groups = {str(name): item for name, item in file.items() if isinstance(item, h5py.Group)}
    is_layout = any("data" in group and "grid" in group for group in groups.values())
    return sorted(groups) if is_layout else []


def _constants(file: h5py.File) -> dict[str, float]:
    """Returns the numeric attributes, such as eta, zeta, M, beta, Nu and rho."""
    values = {str(name): np.asarray(value) for name, value in file.attrs.items()}
    is_number = {
        name: value.size == 1 and value.dtype.kind in "fiu" for name, value in values.items()
    }
    return {name: float(value.item()) for name, value in values.items() if is_number[name]}


def _check_shape(path: Path, name: str, data: h5py.Dataset, shape: tuple[int, ...]) -> None:
    if data.shape != shape:
        raise DataError(path, name, f"must have shape {shape} as others have, got {data.shape}.")
    if data.dtype.kind not in "fiu":
        raise DataError(path, name, f"must hold numbers, got {data.dtype}.")
    if shape[0] == 0:
        raise DataError(path, name, f"must not be empty, got shape {shape}.")


def _check_lengths(path: Path, axes: Mapping[str, np.ndarray], grid: tuple[int, ...]) -> None:
    for (name, axis), length in zip(axes.items(), grid, strict=True):
        if axis.shape != (length,):
            problem = f"must have {length} coordinates as the data has, got shape {axis.shape}."
            raise DataError(path, name, problem)


def _frame_times(path: Path, name: str, times: np.ndarray, num_frames: int) -> np.ndarray:
    """Returns the times of frames; PDEBench also stores the end of the last step."""
    if num_frames == 0:
        raise DataError(path, name, "has length zero: there are no frames.")
    if times.shape not in ((num_frames,), (num_frames + 1,)):
        problem = f"must have {num_frames} or {num_frames + 1} times, got shape {times.shape}."
        raise DataError(path, name, problem)
    return check_axis(path, name, times[:num_frames])


def _periodic(path: Path, content: _Content, axes: Sequence[np.ndarray]) -> list[bool]:
    # The name of a flow file states the boundary conditions: periodic or trans(missive).
    may_be_periodic = content.may_be_periodic and "_trans_" not in path.name
    steps = [np.diff(axis) for axis in axes]
    is_even = [len(step) == 0 or bool(np.ptp(step) < 0.01 * step.mean()) for step in steps]
    return [may_be_periodic and even for even in is_even]
