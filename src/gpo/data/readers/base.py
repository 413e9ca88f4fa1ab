"""What may be read from a file, and the checks that readers share.

Content that is loaded at once must fit into memory and have a plausible compression ratio. Data that
are read frame by frame may be of any size.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from gpo.atomic_files import file_problem
from gpo.data.dataset import DataError
from gpo.limits import max_bytes, size_problem


@dataclass(frozen=True, kw_only=True)
class ReadOptions:
    """Selection of variables, levels and coordinates to read from a file."""

    variables: tuple[str, ...] = ()
    """Names of the variables to read; all compatible ones if empty."""
    select: Mapping[str, str] = field(default_factory=dict)
    """Selected value of each extra dimension by name, such as level=500 or number=0; for named
    arrays with ambiguous shapes, the order of axes: axes=time,y,x."""
    extra_inputs: tuple[str, ...] = ()
    """Names of additional inputs, which need not be time series of fields."""
    inputs: tuple[str, ...] = ()
    """Names of the inputs of a static map, fields or one value per sample; the variables are
    then its outputs."""
    coords: tuple[str, ...] = ()
    """Names of the coordinates of sites, if they cannot be recognised: one array of shape
    (points, dim), or one array of shape (points,) per coordinate."""
    periodic: tuple[str, ...] = ()
    """Names of periodic axes, if the file does not state boundary conditions."""
    takes_frames: bool = False
    """Whether a file without times may be a single frame, from which a forecast starts."""
    untrusted: bool = False
    """Whether files are read in a child process with limits on memory and time."""
    num_files: int = 1
    """Number of files that are joined; with many large files, fewer frames of each are searched
    for sites that are always missing."""


def check_axis(path: Path, name: str, axis: np.ndarray) -> np.ndarray:
    """Returns coordinates along an axis, which must be finite, sorted and distinct."""
    axis = np.asarray(axis, dtype=np.float64)
    if axis.ndim != 1 or len(axis) == 0:
        raise DataError(path, name, f"must be a list of coordinates, got shape {axis.shape}.")
    if not np.isfinite(axis).all():
        raise DataError(path, name, "must be finite, got NaN or infinity.")
    steps = np.diff(axis)
    if np.any(steps == 0):
        raise DataError(path, name, "must be distinct, got a coordinate twice.")
    if not (np.all(steps > 0) or np.all(steps < 0)):
        raise DataError(path, name, "must be sorted, got coordinates out of order.")
    return axis


def check_increasing(path: Path, name: str, axis: np.ndarray) -> np.ndarray:
    """Returns coordinates along an axis, which must increase."""
    axis = check_axis(path, name, axis)
    if axis[0] > axis[-1]:
        raise DataError(path, name, "must increase, got coordinates that decrease.")
    return axis


def check_latitudes(path: Path, name: str, latitude: np.ndarray) -> None:
    """Raises a `DataError` for latitudes beyond the poles, in degrees."""
    if np.abs(latitude).max() > 90.001:
        problem = f"must lie within -90 and 90 degrees, got {np.abs(latitude).max():g}."
        raise DataError(path, name, problem)


def choose_variables(path: Path, requested: Sequence[str], available: Sequence[str]) -> list[str]:
    """Returns the requested names, or all available; raises a `DataError` for unknown names."""
    for name in requested:
        if name not in available:
            raise DataError(path, name, f"is not in the file, which has {', '.join(available)}.")
    return list(requested) or list(available)


MAX_SMALL_CHUNKS = 10**6
SMALL_CHUNK = 2**10
"""Bytes below which a chunk is small, so that there may not be a million of them."""


def check_regular(path: Path) -> None:
    """Raises a `DataError` for devices, pipes, and mostly empty sparse files."""
    problem = file_problem(path)
    if problem is not None:
        raise DataError(path, "file", problem)
    if not path.exists():
        return
    status = path.stat()
    check_total(path, status.st_size, 512 * status.st_blocks)


def check_total(path: Path, declared: int, stored: int) -> None:
    """Raises a `DataError` if the arrays of a file are far larger than the file.

    Args:
        path: The file or folder.
        declared: Bytes of all arrays by their shapes.
        stored: Bytes on disk.
    """
    # Data larger than memory are read frame by frame, so they are fine if they are really stored.
    if declared > max_bytes():
        problem = size_problem(declared, stored)
        if declared > 1000 * stored and problem is not None:
            raise DataError(path, "file", f"has {stored} bytes on disk, and {problem}")


def check_load(path: Path, name: str, needed: int, stored: int) -> None:
    """Raises a `DataError` if content that is loaded at once does not fit into memory.

    Args:
        path: The file.
        name: Name of the array, or `file`.
        needed: Bytes in memory.
        stored: Bytes in the file.
    """
    problem = size_problem(needed, stored)
    if problem is not None:
        raise DataError(path, name, problem)


def check_chunks(
    path: Path, name: str, shape: Sequence[int], chunk: Sequence[int], itemsize: int
) -> None:
    """Raises a `DataError` for chunks that exceed the memory, and for millions of small chunks."""
    if len(shape) != len(chunk) or min(chunk, default=1) < 1 or min(shape, default=0) < 0:
        raise DataError(path, name, f"has chunks {tuple(chunk)} of shape {tuple(shape)}.")
    size = math.prod(chunk) * itemsize
    # A chunk may be larger than a short axis; it is unpacked as a whole nevertheless.
    check_load(path, name, size, size)
    count = math.prod(-(-length // part) for length, part in zip(shape, chunk, strict=True))
    if count > MAX_SMALL_CHUNKS and size < SMALL_CHUNK:
        problem = f"has {count} chunks of {size} bytes, which are slow to read."
        raise DataError(path, name, f"{problem} Write it again in chunks of a frame or more.")
