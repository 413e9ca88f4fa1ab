"""Opens and validates HDF5 files, and accesses groups and data sets by name.

`h5py` is imported when a file is opened, so files of other formats are read without it.

The library walks from object to object by their stated sizes and never terminates if the size of
free space, which includes its header, is too small. Heaps are not listed anywhere, so they are found
by their signature in all parts of a file except the values of its data sets.
"""

import math
import mmap
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gpo.data.dataset import DataError
from gpo.data.readers.base import check_chunks, check_total
from gpo.data.readers.lazy import Key, Stored
from gpo.optional import require

if TYPE_CHECKING:
    import h5py

SIGNATURE = b"\x89HDF\r\n\x1a\n"
HEAP_SIGNATURE = b"GCOL\x01\0\0\0"
"""Signature with version 1, the only version."""
MAX_HEADER = 128
"""Bytes that contain the end-of-file address of a superblock of any version."""


def is_hdf5(path: Path) -> bool:
    """Returns whether a file has the signature of HDF5, at its start or after a user block."""
    return path.is_file() and _header(path) is not None


def _header(path: Path) -> bytes | None:
    """Returns the first bytes of the superblock; None if there is none."""
    size, position = path.stat().st_size, 0
    with path.open("rb") as file:
        while position < size:
            file.seek(position)
            header = file.read(MAX_HEADER)
            if header.startswith(SIGNATURE):
                return header
            # A user block has 512 bytes times a power of two.
            position = max(512, 2 * position)
    return None


def _stated_size(header: bytes) -> int | None:
    """Returns the file size stated in the superblock; None for unknown versions."""
    version = header[8]
    if version > 3:
        return None
    width = header[13 if version < 2 else 9]
    start = {0: 24, 1: 28}.get(version, 12)
    # The end-of-file address follows two other addresses.
    address = header[start + 2 * width : start + 3 * width]
    return int.from_bytes(address, "little") if len(address) == width else None


@contextmanager
def open_hdf5(path: Path) -> Iterator["h5py.File"]:
    """Opens a file for reading; errors of the library become a `DataError`."""
    h5py = require("h5py", "data", "Reading HDF5")
    try:
        with h5py.File(path) as file:
            yield file
    except (OSError, RuntimeError) as error:
        raise DataError(path, "file", f"cannot be read as HDF5: {error}") from error


def check_hdf5(path: Path) -> None:
    """Raises a `DataError` for files of the wrong length, with external links, or too large.

    The library detects missing bytes at the end, but not inserted ones, which shift all values
    behind them.
    """
    header, size = _header(path), path.stat().st_size
    expected = None if header is None else _stated_size(header)
    if expected is not None and size > expected:
        problem = f"has {size} bytes, its header says {expected}. It is damaged or incomplete:"
        advice = f"download it again. To drop the extra bytes: truncate -s {expected} FILE."
        raise DataError(path, "file", f"{problem} {advice}")
    try:
        with open_hdf5(path) as file:
            declared = _check_content(path, file)
    except (KeyError, TypeError, ValueError) as error:
        if isinstance(error, DataError):
            raise
        raise DataError(path, "file", f"cannot be read as HDF5: {error}") from error
    check_total(path, declared, path.stat().st_size)


def _check_content(path: Path, file: "h5py.File") -> int:
    """Validates links, data sets and heaps; returns the bytes of all data sets.

    Attributes are not read, since they may be stored in a heap.
    """
    import h5py

    kinds: Any = require("h5py.h5l", "data", "Reading HDF5")
    internal = (kinds.TYPE_HARD, kinds.TYPE_SOFT)
    external = file.id.links.visit(
        lambda name, link: None if link.type in internal else name, info=True
    )
    if external is not None:
        problem = "is a link to another file. Copy its target into this file."
        raise DataError(path, external.decode(errors="replace"), problem)
    sizes: list[int] = []
    stored: list[tuple[int, int]] = []

    def check(name: str, item: object) -> None:
        if isinstance(item, h5py.Dataset):
            sizes.append(_check_dataset(path, name, item))
            stored.extend(_value_ranges(item))

    file.visititems(check)
    _, width = file.id.get_create_plist().get_sizes()
    _check_heaps(path, stored, width)
    return sum(sizes)


def _value_ranges(item: "h5py.Dataset") -> list[tuple[int, int]]:
    """Returns offset and size, in bytes, of all stored parts of the values."""
    ranges: list[tuple[int, int]] = []
    if item.chunks is not None:
        item.id.chunk_iter(lambda part: ranges.append((part.byte_offset, part.size)))
    elif item.id.get_storage_size():
        # Values stored in the header of the data set have no offset.
        start = item.id.get_offset()
        ranges += [] if start is None else [(start, item.id.get_storage_size())]
    return ranges


def _check_dataset(path: Path, name: str, item: "h5py.Dataset") -> int:
    """Returns the bytes of the values of a data set, which must be in the same file."""
    layout = item.id.get_create_plist()
    is_virtual = item.is_virtual and any(
        source.file_name != "." for source in item.virtual_sources()
    )
    if is_virtual or layout.get_external_count():
        problem = "keeps its values in another file. Copy them into this file."
        raise DataError(path, name, problem)
    shape, itemsize = item.id.shape, item.id.get_type().get_size()
    if shape is None:
        # A null data set, as MATLAB writes for an empty array.
        return 0
    if item.chunks is not None:
        check_chunks(path, name, shape, item.chunks, itemsize)
    return math.prod(shape) * itemsize


def group(path: Path, parent: "h5py.Group", name: str) -> "h5py.Group":
    """Returns a group; raises a `DataError` if it does not exist."""
    import h5py

    item = parent.get(name)
    if not isinstance(item, h5py.Group):
        raise DataError(path, name, f"must be a group; {_content(parent)}.")
    return item


def dataset(path: Path, parent: "h5py.Group", name: str) -> "h5py.Dataset":
    """Returns a data set; raises a `DataError` if it does not exist."""
    import h5py

    item = parent.get(name)
    if not isinstance(item, h5py.Dataset):
        problem = "is missing" if item is None else "must be a data set, not a group"
        raise DataError(path, name, f"{problem}; {_content(parent)}.")
    return item


def array(path: Path, parent: "h5py.Group", name: str, key: Any = ()) -> np.ndarray:
    """Returns the values of a data set, or the part that `key` selects."""
    return np.asarray(dataset(path, parent, name)[key])


def stored_array(path: Path, item: "h5py.Dataset", *, is_reversed: bool = False) -> Stored:
    """Returns a data set as an array whose parts are read when they are needed.

    Args:
        path: The file, which is opened for each part.
        item: The data set.
        is_reversed: Whether its axes are in the order of MATLAB, which is the reverse.
    """
    shape = tuple(item.shape)[:: -1 if is_reversed else 1]
    read = partial(_read_part, path, str(item.name), is_reversed)
    return Stored(shape, item.dtype, read, text_attribute(item, "units"))


def _read_part(path: Path, name: str, is_reversed: bool, key: Key) -> np.ndarray:
    with open_hdf5(path) as file:
        return array(path, file, name, key[::-1]).T if is_reversed else array(path, file, name, key)


def text_attribute(item: "h5py.HLObject", name: str) -> str:
    """Returns an attribute as text; empty if it does not exist."""
    parts = np.atleast_1d(np.asarray(item.attrs.get(name, "")))
    return "".join(part.decode() if isinstance(part, bytes) else str(part) for part in parts)


def _content(parent: "h5py.Group") -> str:
    return f"{parent.name} has {', '.join(parent) or 'nothing'}"


def _check_heaps(path: Path, values: Iterable[tuple[int, int]], width: int) -> None:
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
            begin = content.find(HEAP_SIGNATURE, start, stop)
            while begin >= 0:
                if not _terminates(content, begin, width):
                    problem = f"cannot be read as HDF5: the heap at byte {begin} has free space"
                    advice = "It is damaged: download it again."
                    raise DataError(path, "file", f"{problem} shorter than its header. {advice}")
                begin = content.find(HEAP_SIGNATURE, begin + 1, stop)


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
