"""Files of FNO and Geo-FNO.

FNO's Navier-Stokes files are MATLAB `.mat` with vorticity `u`, initial state `a` and times `t`. MATLAB
stores arrays in column-major order: in a version 7.3 file, which is HDF5, `u` of shape (N, x, y, T)
appears in h5py as (T, y, x, N). Both orders are read, and version 5 files too.

Geo-FNO's airfoils are a folder of three arrays: `NACA_Cylinder_X.npy` and `NACA_Cylinder_Y.npy` (N, 221,
51), the mesh of each sample, and `NACA_Cylinder_Q.npy` (N, channels, 221, 51), whose channel 4 is the
Mach number around the airfoil. The mesh is the input. Other mesh sizes are read too. All nodes have
equal weights, as in the published scores of this benchmark. The mesh extends over tens of chords:
with cell areas as weights, the undisturbed far field would dominate the loss.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from gpo.data.dataset import DataError
from gpo.data.readers.array_files import matlab_5_shapes, open_arrays
from gpo.data.readers.base import ReadOptions, check_axis, check_regular
from gpo.data.readers.build import Reader
from gpo.data.readers.hdf5 import is_hdf5
from gpo.data.readers.lazy import INPUTS, NAME, PART_OF, PERIODIC, SITE_DIMS, TRAJECTORY
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
    arrays = open_arrays(path)
    for name in ("u", "a", "t"):
        if name not in arrays:
            raise DataError(path, name, f"is missing; / has {', '.join(sorted(arrays))}.")
    frames, initial = arrays["u"], arrays["a"].shape
    if len(frames.shape) != 4 or len(initial) != 3:
        problem = f"must have rank 4 and `a` rank 3, got {frames.shape} and {initial}."
        raise DataError(path, "u", problem)
    # Without the attributes of MATLAB, only the shapes reveal its order of axes.
    is_reversed = frames.shape[1:] == initial and frames.shape[:3] != initial
    step = -1 if is_reversed else 1
    u = frames.arranged(DIMS[::step], DIMS).variable(DIMS)
    shape, initial, times = u.shape, initial[::step], np.ravel(arrays["t"].values())
    if shape[:3] != initial:
        problem = f"must have shape {shape[:3]} as `u` has, got {initial}."
        raise DataError(path, "a", problem)
    if len(times) != shape[3]:
        raise DataError(path, "t", f"must have {shape[3]} times as `u` has, got {len(times)}.")
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


READER = Reader(
    name="ns2d",
    layout="FNO's MATLAB file with u (N, x, y, T), a, t",
    recognises=_recognises,
    open=open_fno,
)


X, Y, Q = AIRFOIL_FILES = tuple(f"NACA_Cylinder_{part}.npy" for part in "XYQ")
MESH_DIMS = ("sample", "row", "column")
MACH = 4
"""The channel of Q that is predicted."""


def _has_airfoil(path: Path) -> bool:
    """Returns whether all three files are in the folder, or next to the file."""
    if path.is_file() and path.name not in AIRFOIL_FILES:
        return False
    return all((_folder(path) / name).is_file() for name in AIRFOIL_FILES)


def open_airfoil(path: Path, options: ReadOptions) -> xr.Dataset:
    """Returns the mesh as input and the Mach number as output; arrays are memory-mapped."""
    folder = _folder(path)
    for name in AIRFOIL_FILES:
        check_regular(folder / name)
    x, y, q = (part for name in AIRFOIL_FILES for part in open_arrays(folder / name).values())
    check_shapes(folder, x.shape, y.shape, q.shape)
    x, y = x.values(), y.values()
    for name, coordinate in ((X, x), (Y, y)):
        if not np.isfinite(coordinate).all():
            raise DataError(folder / name, name, "must be finite, got NaN or infinity.")
    coords = {
        "x": (MESH_DIMS, x, {"axis": "X"}),
        "y": (MESH_DIMS, y, {"axis": "Y"}),
        "cell_area": (MESH_DIMS[1:], np.ones(x.shape[1:]), {"standard_name": "cell_area"}),
    }
    mach = q.arranged(("sample", "channel", *MESH_DIMS[1:]), MESH_DIMS, {"channel": MACH}).variable(
        MESH_DIMS
    )
    return xr.Dataset({"mach": mach}, coords, {SITE_DIMS: MESH_DIMS[1:], INPUTS: ("x", "y")})


def _folder(path: Path) -> Path:
    return path if path.is_dir() else path.parent


def check_shapes(folder: Path, x: tuple[int, ...], y: tuple[int, ...], q: tuple[int, ...]) -> None:
    """Raises a `DataError` unless the shapes of the three arrays match."""
    if len(x) != 3 or x[0] < 1 or min(x[1:]) < 2:
        problem = f"must have shape (samples, rows, columns), not empty, got {x}."
        raise DataError(folder / X, X, problem)
    if y != x:
        raise DataError(folder / Y, Y, f"must have shape {x} as {X} has, got {y}.")
    if len(q) != 4 or (q[0], *q[2:]) != x or q[1] <= MACH:
        samples, *grid = x
        expected = f"({samples}, at least {MACH + 1} channels, {grid[0]}, {grid[1]})"
        raise DataError(folder / Q, Q, f"must have shape {expected} to match {X}, got {q}.")


AIRFOIL = Reader(
    name="airfoil",
    layout="Geo-FNO's folder with NACA_Cylinder_X.npy, _Y.npy and _Q.npy",
    recognises=_has_airfoil,
    open=open_airfoil,
)
