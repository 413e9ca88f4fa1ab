"""Checks the global heaps of HDF5 files, which hold entries of variable length.

The library walks from object to object by their stated sizes and never terminates if the size of
free space, which includes its header, is too small. Heaps are not listed anywhere, so they are found
by their signature in all parts of a file except the values of its data sets.
"""

import mmap
from collections.abc import Iterable, Iterator
from pathlib import Path

from gpo.data.dataset import DataError

SIGNATURE = b"GCOL\x01\0\0\0"
"""Signature with version 1, the only version."""


def check_heaps(path: Path, values: Iterable[tuple[int, int]], width: int) -> None:
    """Raises a `DataError` for a heap on which the library would not terminate.

    Args:
        path: The file.
        values: Offset and size, in bytes, of all stored values.
        width: Bytes of a length field in this file.
    """
    with (
        path.open("rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content,
    ):
        for start, stop in _between(values, len(content)):
            begin = content.find(SIGNATURE, start, stop)
            while begin >= 0:
                if not _terminates(content, begin, width):
                    problem = f"cannot be read as HDF5: the heap at byte {begin} has free space"
                    advice = "It is damaged: download it again."
                    raise DataError(path, "file", f"{problem} shorter than its header. {advice}")
                begin = content.find(SIGNATURE, begin + 1, stop)


def _between(values: Iterable[tuple[int, int]], size: int) -> Iterator[tuple[int, int]]:
    """Yields start and end, in bytes, of the parts of a file between stored values."""
    position = 0
    for start, length in sorted(values):
        if start > position:
            yield position, start
        position = max(position, start + length)
    if position < size:
        yield position, size


def _terminates(content: mmap.mmap, begin: int, width: int) -> bool:
    """Returns whether a walk through the objects of a heap terminates."""

    def number(position: int, length: int) -> int:
        return int.from_bytes(content[position : position + length], "little")

    header = _aligned(8 + width)
    position, end = begin + header, begin + number(begin + 8, width)
    # A remainder shorter than a header is free space without a header.
    while position + header <= min(end, len(content)):
        index, length = number(position, 2), number(position + 8, width)
        if index == 0 and length < header:
            return False
        position += length if index == 0 else header + _aligned(length)
    return True


def _aligned(length: int) -> int:
    return -(-length // 8) * 8
