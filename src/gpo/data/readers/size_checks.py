"""Limits on the declared sizes of files and arrays.

Content that is loaded at once must fit into memory and have a plausible compression ratio. Data
that are read frame by frame may be of any size.
"""

import math
from collections.abc import Sequence
from pathlib import Path

from gpo.atomic_files import file_problem
from gpo.data.dataset import DataError
from gpo.limits import max_bytes, size_problem

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
