"""PDEBench's HDF5 files, in both published layouts.

Flow files contain `density`, `pressure`, `Vx`, `Vy`, `Vz`, or one `tensor`, each of shape (samples,
times, grid), and `x-coordinate` and so on. Other files contain one group per sample, with `data`
(times, grid, channels) and the coordinates in `grid`.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

import h5py
import numpy as np
import xarray as xr

from gpo.data.dataset import DataError
from gpo.data.readers.base import ReadOptions, check_axis, check_increasing
from gpo.data.readers.build import Reader
from gpo.data.readers.hdf5 import array, dataset, is_hdf5, open_hdf5, stored_array
from gpo.data.readers.lazy import PERIODIC, SITE_DIMS, TRAJECTORY, joined

FLOW = ("density", "pressure", "Vx", "Vy", "Vz")
AXES = ("x", "y", "z")


def _recognises(path: Path) -> bool:
    """Returns whether there is a `t-coordinate`, or a group with `data` and `grid`."""
    if not is_hdf5(path):
        return False
    with h5py.File(path) as file:
        return "t-coordinate" in file or bool(_samples(file))


def open_pdebench(path: Path, options: ReadOptions) -> xr.Dataset:
    """Returns all samples, with the boundary conditions of PDEBench's solvers.

    A last time without a frame is dropped.
    """
    with open_hdf5(path) as file:
        samples = _samples(file)
        content = _open_groups(path, file, samples) if samples else _open_flow(path, file)
        constants = _constants(file)
    count = content.sizes[TRAJECTORY]
    parameters = {name: (TRAJECTORY, np.full(count, value)) for name, value in constants.items()}
    content.attrs[SITE_DIMS] = [dim for dim in AXES if dim in content.dims]
    return content.assign_coords(parameters)


def _open_flow(path: Path, file: h5py.File) -> xr.Dataset:
    first = next((name for name in ("tensor", *FLOW) if name in file), FLOW[0])
    data = dataset(path, file, first)
    shape = data.shape
    if not 3 <= len(shape) <= 5:
        problem = f"must have shape (samples, times, 1 to 3 axes), got {shape}."
        raise DataError(path, first, problem)
    dims = AXES[: len(shape) - 2]
    names = [first] if first == "tensor" else list(FLOW[: 2 + len(dims)])
    for name in names:
        _check_shape(path, name, dataset(path, file, name), shape)
    axes = {f"{dim}-coordinate": array(path, file, f"{dim}-coordinate") for dim in dims}
    # The name of a flow file states the boundary conditions: periodic or trans(missive).
    coords = _axes(path, axes, shape[2:], "_trans_" not in path.name)
    time = _frame_times(path, "t-coordinate", array(path, file, "t-coordinate"), shape[1])
    coords["time"] = xr.Variable("time", time)
    stored = {name: stored_array(path, dataset(path, file, name)) for name in names}
    fields = {name: part.variable((TRAJECTORY, "time", *dims)) for name, part in stored.items()}
    return xr.Dataset(fields, coords)


def _open_groups(path: Path, file: h5py.File, samples: Sequence[str]) -> xr.Dataset:
    data = dataset(path, file, f"{samples[0]}/data")
    shape = data.shape
    if not 3 <= len(shape) <= 5:
        problem = f"must have shape (times, 1 to 3 axes, channels), got {shape}."
        raise DataError(path, f"{samples[0]}/data", problem)
    dims = AXES[: len(shape) - 2]
    keys = [*dims, "t"]
    grid = {key: array(path, file, f"{samples[0]}/grid/{key}") for key in keys}
    for sample in samples:
        _check_shape(path, f"{sample}/data", dataset(path, file, f"{sample}/data"), shape)
        for key in keys:
            if not np.array_equal(grid[key], array(path, file, f"{sample}/grid/{key}")):
                problem = f"must be as in {samples[0]}: all samples must have the same grid."
                raise DataError(path, f"{sample}/grid/{key}", problem)
    time = _frame_times(path, "t", grid.pop("t"), shape[0])
    coords = _axes(path, grid, shape[1:-1], False)
    names = ["data"] if shape[-1] == 1 else [f"data_{channel}" for channel in range(shape[-1])]
    whole, order = (TRAJECTORY, "time", *dims), ("time", *dims, "channel")
    parts = [stored_array(path, dataset(path, file, f"{sample}/data")) for sample in samples]
    fields = {
        name: joined([part.arranged(order, whole, {"channel": n}) for part in parts])
        for n, name in enumerate(names)
    }
    fields = {name: part.variable(whole) for name, part in fields.items()}
    return xr.Dataset(fields, {**coords, "time": time})


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


def _axes(
    path: Path, axes: Mapping[str, np.ndarray], grid: tuple[int, ...], may_be_periodic: bool
) -> dict[str, xr.Variable]:
    """Returns the coordinates of the grid by dimension; evenly spaced axes may be periodic."""
    for (name, axis), length in zip(axes.items(), grid, strict=True):
        if axis.shape != (length,):
            problem = f"must have {length} coordinates as the data has, got shape {axis.shape}."
            raise DataError(path, name, problem)
    coords: dict[str, xr.Variable] = {}
    for dim, (name, stored) in zip(AXES, axes.items(), strict=False):
        axis = check_increasing(path, name, stored)
        step = np.diff(axis)
        is_even = len(step) == 0 or bool(np.ptp(step) < 0.01 * step.mean())
        coords[dim] = xr.Variable(dim, axis, {PERIODIC: may_be_periodic and is_even})
    return coords


def _frame_times(path: Path, name: str, times: np.ndarray, num_frames: int) -> np.ndarray:
    """Returns the times of frames; PDEBench also stores the end of the last step."""
    if num_frames == 0:
        raise DataError(path, name, "has length zero: there are no frames.")
    if times.shape not in ((num_frames,), (num_frames + 1,)):
        problem = f"must have {num_frames} or {num_frames + 1} times, got shape {times.shape}."
        raise DataError(path, name, problem)
    return check_axis(path, name, times[:num_frames])


READER = Reader(
    name="pdebench",
    layout="PDEBench's HDF5 file with density, Vx (N, T, x, y, z) or groups of data and grid",
    recognises=_recognises,
    open=open_pdebench,
)
