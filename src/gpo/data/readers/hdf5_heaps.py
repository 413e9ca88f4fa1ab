"""Heaps of HDF5 files, which hold entries of any length; walked before the library walks them.

The library goes from object to object by the bytes that each states. Free space states them with
its own header; where it states none, the library never ends. Heaps are listed nowhere, so they
are looked for by their signature, in all of a file but the values of its data sets.
"""

import mmap
from collections.abc import Iterable, Iterator
from pathlib import Path

from gpo.data.dataset import DataError

SIGNATURE = b"GCOL\x01\0\0\0"
"""With the only version there is."""


def check_heaps(path: Path, values: Iterable[tuple[int, int]], width: int) -> None:
    """Refuses a file with a heap that the library would never come back from.

    Args:
        path: The file.
        values: First byte and number of bytes of all stored values.
        width: Bytes of a length in this file.
    """
    with (
        path.open("rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content,
    ):
        for start, stop in _between(values, len(content)):
            begin = content.find(SIGNATURE, start, stop)
            while begin >= 0:
                if not _ends(content, begin, width):
                    problem = f"cannot be read as HDF5: the heap at byte {begin} has free space"
                    advice = "It is damaged: fetch it again."
                    raise DataError(path, "file", f"{problem} shorter than its header. {advice}")
                begin = content.find(SIGNATURE, begin + 1, stop)


def _between(values: Iterable[tuple[int, int]], size: int) -> Iterator[tuple[int, int]]:
    """Yields first byte and end of all that lies between values."""
    position = 0
    for start, length in sorted(values):
        if start > position:
            yield position, start
        position = max(position, start + length)
    if position < size:
        yield position, size


def _ends(content: mmap.mmap, begin: int, width: int) -> bool:
    """Returns whether every object of a heap is followed by another, or by its end."""

    def number(position: int, length: int) -> int:
        return int.from_bytes(content[position : position + length], "little")

    header = _aligned(8 + width)
    position, end = begin + header, begin + number(begin + 8, width)
    # What is shorter than a header is free space without one.
    while position + header <= min(end, len(content)):
        index, length = number(position, 2), number(position + 8, width)
        if index == 0 and length < header:
            return False
        position += length if index == 0 else header + _aligned(length)
    return True


def _aligned(length: int) -> int:
    return -(-length // 8) * 8
