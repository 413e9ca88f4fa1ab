"""How much a file may ask for, by what it declares.

What is read at once fits into memory, and unpacks to no more than is plausible. What is read
frame by frame may be as large as it likes.
"""

import math
from collections.abc import Sequence
from pathlib import Path

from gpo.atomic_files import file_problem
from gpo.data.dataset import DataError
from gpo.limits import max_bytes, size_problem

MANY_CHUNKS = 10**6
SMALL_CHUNK = 2**10
"""Bytes of a chunk below which a million of them is refused."""


def check_regular(path: Path) -> None:
    """Refuses devices, pipes, and files that are nearly all hole."""
    problem = file_problem(path)
    if problem is not None:
        raise DataError(path, "file", problem)
    if not path.exists():
        return
    status = path.stat()
    check_total(path, status.st_size, 512 * status.st_blocks)


def check_total(path: Path, declared: int, stored: int) -> None:
    """Refuses a file whose arrays are far larger than it, all together.

    Args:
        path: The file or folder.
        declared: Bytes of all arrays by their shapes.
        stored: Bytes on disk.
    """
    # Fields that are read frame by frame may exceed the memory where the file really has them.
    if declared > max_bytes():
        problem = size_problem(declared, stored)
        if declared > 1000 * stored and problem is not None:
            raise DataError(path, "file", f"has {stored} bytes on disk, and {problem}")


def check_load(path: Path, name: str, needed: int, stored: int) -> None:
    """Refuses content that is read at once and does not fit.

    Args:
        path: The file.
        name: The array, or the file.
        needed: Bytes in memory.
        stored: Bytes in the file.
    """
    problem = size_problem(needed, stored)
    if problem is not None:
        raise DataError(path, name, problem)


def check_chunks(
    path: Path, name: str, shape: Sequence[int], chunk: Sequence[int], itemsize: int
) -> None:
    """Refuses a chunk that does not fit into memory, and millions of tiny ones."""
    if len(shape) != len(chunk) or min(chunk, default=1) < 1 or min(shape, default=0) < 0:
        raise DataError(path, name, f"has chunks {tuple(chunk)} of shape {tuple(shape)}.")
    size = math.prod(chunk) * itemsize
    # A chunk may be larger than a short axis; the rest of it is unpacked all the same.
    check_load(path, name, size, size)
    count = math.prod(-(-length // part) for length, part in zip(shape, chunk, strict=True))
    if count > MANY_CHUNKS and size < SMALL_CHUNK:
        problem = f"has {count} chunks of {size} bytes, each a read of its own."
        raise DataError(path, name, f"{problem} Write it again in chunks of a frame or more.")
