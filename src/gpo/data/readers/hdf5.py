"""HDF5 files: recognised by their signature; groups and data sets by name, or an error.

`h5py` is imported when a file is opened, so files of other formats are read without it.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gpo.data.dataset import DataError
from gpo.data.readers.hdf5_heaps import check_heaps
from gpo.data.readers.size_checks import check_chunks, check_total
from gpo.optional import require

if TYPE_CHECKING:
    import h5py

SIGNATURE = b"\x89HDF\r\n\x1a\n"
LARGEST_HEADER = 128
"""Bytes of a superblock, by any version, up to the length of the file that it states."""


def is_hdf5(path: Path) -> bool:
    """Returns whether a file has the signature of HDF5, at its start or after a user block."""
    return path.is_file() and _header(path) is not None


def _header(path: Path) -> bytes | None:
    """Returns the first bytes of the superblock, where there is one."""
    size, position = path.stat().st_size, 0
    with path.open("rb") as file:
        while position < size:
            file.seek(position)
            header = file.read(LARGEST_HEADER)
            if header.startswith(SIGNATURE):
                return header
            # A user block has 512 bytes or a power of two times as many.
            position = max(512, 2 * position)
    return None


def _stated_size(header: bytes) -> int | None:
    """Returns where a file ends by its superblock; None where its version is none we know."""
    version = header[8]
    if version > 3:
        return None
    is_old = version < 2
    width = header[13 if is_old else 9]
    start = {0: 24, 1: 28}.get(version, 12)
    # Before it stand the base address and another, of as many bytes each.
    found = header[start + 2 * width : start + 3 * width]
    return int.from_bytes(found, "little") if len(found) == width else None


@contextmanager
def open_hdf5(path: Path) -> Iterator["h5py.File"]:
    """Opens a file to read; errors of its library become a `DataError`."""
    h5py = require("h5py", "data", "Reading HDF5")
    try:
        with h5py.File(path) as file:
            yield file
    except (OSError, RuntimeError) as error:
        raise DataError(path, "file", f"cannot be read as HDF5: {error}") from error


def check_hdf5(path: Path) -> None:
    """Refuses a file of another length than it states, that leads to other files, or is too large.

    The library minds bytes that are missing at the end, and none that came in between, which move
    all numbers behind them.
    """
    header, size = _header(path), path.stat().st_size
    expected = None if header is None else _stated_size(header)
    if expected is not None and size > expected:
        problem = f"has {size} bytes, its header says {expected}. It is damaged, or still written:"
        advice = f"fetch it again. If what follows means nothing: truncate -s {expected} FILE."
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
    """Refuses links and data sets that lead outside, and heaps without an end.

    Returns the bytes of all data sets. No attribute is read, since those may lie in a heap.
    """
    import h5py

    kinds: Any = require("h5py.h5l", "data", "Reading HDF5")
    inside = (kinds.TYPE_HARD, kinds.TYPE_SOFT)
    outside = file.id.links.visit(
        lambda name, link: None if link.type in inside else name, info=True
    )
    if outside is not None:
        problem = "is a link to another file. Copy what it leads to into this one."
        raise DataError(path, outside.decode(errors="replace"), problem)
    sizes: list[int] = []
    stored: list[tuple[int, int]] = []

    def look(name: str, item: object) -> None:
        if isinstance(item, h5py.Dataset):
            sizes.append(_check_dataset(path, name, item))
            stored.extend(_places(item))

    file.visititems(look)
    _, width = file.id.get_create_plist().get_sizes()
    check_heaps(path, stored, width)
    return sum(sizes)


def _places(item: "h5py.Dataset") -> list[tuple[int, int]]:
    """Returns first byte and number of bytes of all parts in which values are stored."""
    found: list[tuple[int, int]] = []
    if item.chunks is not None:
        item.id.chunk_iter(lambda part: found.append((part.byte_offset, part.size)))
    elif item.id.get_storage_size():
        # Values in the header of the data set have no place of their own.
        start = item.id.get_offset()
        found += [] if start is None else [(start, item.id.get_storage_size())]
    return found


def _check_dataset(path: Path, name: str, item: "h5py.Dataset") -> int:
    """Refuses a data set whose values lie in other files; returns the bytes of its values."""
    layout = item.id.get_create_plist()
    is_virtual = item.is_virtual and any(
        source.file_name != "." for source in item.virtual_sources()
    )
    if is_virtual or layout.get_external_count():
        problem = "keeps its values in another file. Copy them into this one."
        raise DataError(path, name, problem)
    shape, itemsize = item.id.shape, item.id.get_type().get_size()
    if shape is None:
        # It says that there is nothing, as MATLAB does of an empty array.
        return 0
    if item.chunks is not None:
        check_chunks(path, name, shape, item.chunks, itemsize)
    return math.prod(shape) * itemsize


def group(path: Path, parent: "h5py.Group", name: str) -> "h5py.Group":
    """Returns a group; refuses where there is none of that name."""
    import h5py

    item = parent.get(name)
    if not isinstance(item, h5py.Group):
        raise DataError(path, name, f"must be a group; {_content(parent)}.")
    return item


def dataset(path: Path, parent: "h5py.Group", name: str) -> "h5py.Dataset":
    """Returns a data set of a group; refuses where there is none of that name."""
    import h5py

    item = parent.get(name)
    if not isinstance(item, h5py.Dataset):
        problem = "is missing" if item is None else "must be a data set, not a group"
        raise DataError(path, name, f"{problem}; {_content(parent)}.")
    return item


def array(path: Path, parent: "h5py.Group", name: str, key: Any = ()) -> np.ndarray:
    """Returns the values of a data set, or the part of them that `key` selects."""
    return np.asarray(dataset(path, parent, name)[key])


def _content(parent: "h5py.Group") -> str:
    return f"{parent.name} has {', '.join(parent) or 'nothing'}"
