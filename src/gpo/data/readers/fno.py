"""FNO's Navier-Stokes files: MATLAB `.mat` with vorticity `u`, initial state `a`, times `t`.

MATLAB stores arrays in column-major order: in a version 7.3 file, which is HDF5, `u` of shape
(N, x, y, T) appears in h5py as (T, y, x, N). Both orders are read, and version 5 files too.
"""

from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from gpo.data.dataset import DataError
from gpo.data.readers.base import ReadOptions, check_axis
from gpo.data.readers.build import Reader
from gpo.data.readers.hdf5 import array, dataset, is_hdf5, open_hdf5
from gpo.data.readers.lazy import NAME, PART_OF, PERIODIC, SITE_DIMS, TRAJECTORY, Key, lazy_variable
from gpo.data.readers.matlab5 import load_matlab_5, matlab_5_shapes
from gpo.optional import require

if TYPE_CHECKING:
    import h5py

HEADER = b"MATLAB 7.3 MAT-file, written by gpo"
USERBLOCK = 512
DIMS = (TRAJECTORY, "x", "y", "time")


def _recognises(path: Path) -> bool:
    """Returns whether there are `u` of rank 4 and `a` of rank 3."""
    if is_hdf5(path):
        with require("h5py", "data", "Reading HDF5").File(path) as file:
            ranks = {name: getattr(item, "ndim", 0) for name, item in file.items()}
    elif path.suffix != ".mat":
        return False
    else:
        ranks = {name: len(shape) for name, shape in matlab_5_shapes(path).items()}
    return ranks.get("u") == 4 and ranks.get("a") == 3


def open_fno(path: Path, options: ReadOptions) -> xr.Dataset:
    """Returns the recorded vorticity in the periodic unit box; the initial `a` is not a frame."""
    if options.variables not in ((), ("u",), ("vorticity",)):
        raise DataError(path, options.variables[0], "is not in the file, which has vorticity.")
    u, initial, times = _open_hdf5(path) if is_hdf5(path) else _open_version_5(path)
    shape = u.shape
    if shape[:3] != initial:
        problem = f"must have shape {shape[:3]} as `u` has, got {initial}."
        raise DataError(path, "a", problem)
    if len(times) != shape[3]:
        raise DataError(path, "t", f"must have {shape[3]} times as `u` has, got {len(times)}.")
    if 0 in shape:
        raise DataError(path, "u", f"must not be empty, got shape {shape}.")
    u.attrs |= {"units": "1/s", NAME: "vorticity", PART_OF: "u"}
    coords = {
        dim: xr.Variable(dim, np.arange(count) / count, {PERIODIC: True})
        for dim, count in zip("xy", shape[1:3], strict=True)
    }
    coords["time"] = xr.Variable("time", check_axis(path, "t", times), {"units": "s"})
    return xr.Dataset({"vorticity": u}, coords, {SITE_DIMS: ["x", "y"]})


def write_fno(
    path: Path,
    times: np.ndarray,
    portions: Iterable[Mapping[str, np.ndarray]],
    shape: tuple[int, int, int],
) -> None:
    """Writes a MATLAB 7.3 file with the published keys and shapes.

    Args:
        path: The file.
        times: Times of the recorded frames.
        portions: Consecutive trajectories: initial states `a` (trajectories, x, y) and frames
            `u` (trajectories, x, y, time).
        shape: Number of all trajectories and of points along x and y.
    """
    h5py = require("h5py", "data", "Writing HDF5")
    with h5py.File(path, "w", userblock_size=USERBLOCK, libver=("earliest", "v108")) as file:
        initial = _matlab_dataset(file, "a", shape[::-1], "single")
        _matlab_dataset(file, "t", (len(times), 1), "double")[...] = times[:, None]
        frames = _matlab_dataset(file, "u", (len(times), *shape[::-1]), "single")
        start = 0
        for portion in portions:
            stop = start + len(portion["a"])
            initial[..., start:stop] = portion["a"].T
            frames[..., start:stop] = portion["u"].T
            start = stop
    if start != shape[0]:
        raise ValueError(f"`portions` must hold {shape[0]} trajectories, got {start}.")
    with open(path, "r+b") as raw:
        # The header that MATLAB requires: text, version 2.0, little endian.
        raw.write(HEADER.ljust(124) + b"\x00\x02IM")


def _matlab_dataset(
    file: "h5py.File", name: str, shape: tuple[int, ...], kind: str
) -> "h5py.Dataset":
    dtype = {"single": "<f4", "double": "<f8"}[kind]
    dataset = file.create_dataset(name, shape, dtype)
    dataset.attrs["MATLAB_class"] = np.bytes_(kind)
    return dataset


def _open_hdf5(path: Path) -> tuple[xr.Variable, tuple[int, ...], np.ndarray]:
    """Returns `u` in the published order of axes, the shape of `a`, and the times."""
    with open_hdf5(path) as file:
        frames = dataset(path, file, "u")
        shape, dtype, is_matlab = frames.shape, frames.dtype, "MATLAB_class" in frames.attrs
        initial = dataset(path, file, "a").shape
        times = np.ravel(array(path, file, "t"))
    if len(shape) != 4 or len(initial) != 3:
        raise DataError(path, "u", f"must have rank 4 and `a` rank 3, got {shape} and {initial}.")
    is_reversed = is_matlab or (shape[1:] == initial and shape[:3] != initial)
    order = slice(None, None, -1 if is_reversed else 1)
    read = partial(_read_hdf5, path, is_reversed)
    return lazy_variable(DIMS, shape[order], dtype, read), initial[order], times


def _read_hdf5(path: Path, is_reversed: bool, key: Key) -> np.ndarray:
    with open_hdf5(path) as file:
        return array(path, file, "u", key[::-1]).T if is_reversed else array(path, file, "u", key)


def _open_version_5(path: Path) -> tuple[xr.Variable, tuple[int, ...], np.ndarray]:
    content = load_matlab_5(path)
    for name in ("u", "a", "t"):
        if name not in content:
            raise DataError(path, name, "is missing.")
    u, a = content["u"], content["a"]
    if u.ndim != 4 or a.ndim != 3:
        raise DataError(path, "u", f"must have rank 4 and `a` rank 3, got {u.shape} and {a.shape}.")
    return xr.Variable(DIMS, u), a.shape, np.ravel(content["t"])


READER = Reader(
    name="ns2d",
    layout="FNO's MATLAB file with u (N, x, y, T), a, t",
    recognises=_recognises,
    open=open_fno,
)
