"""Byte ranges of the values in intact files.

No reader can detect a value that changed in place if the container has no checksum. These ranges
show whether damage affected only such values. They are obtained from the file libraries where
possible, not from the checks of our readers.
"""

import re
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

HDF5 = b"\x89HDF"
BLOSC_HEADER = 16
CHUNK_NAME = re.compile(r"\d+(\.\d+)*")
MATLAB_HEADER, MATRIX_TAG = 128, 8
Ranges = list[tuple[int, int]]
"""Start and end, in bytes, of parts of a file."""


def number_ranges(file: Path) -> Ranges:
    """Returns the byte ranges of all values of an intact file, or of one file of a store."""
    content = file.read_bytes()
    # HDF5 of MATLAB 7.3 begins with text.
    if content.startswith(HDF5) or content[512:].startswith(HDF5):
        return _hdf5(file)
    for signature, find in FORMATS.items():
        if content.startswith(signature):
            return find(file)
    if file.name == "zarr.json" or file.name.startswith(".z"):
        return []
    if not CHUNK_NAME.fullmatch(file.name):
        raise ValueError(f"{file} has a format whose byte ranges are unknown.")
    # Zarr chunks without a checksum are packed by blosc.
    return [(BLOSC_HEADER, len(content))]


def changes_outside(whole: bytes, damaged: bytes, ranges: Ranges) -> bytes | None:
    """Returns a file with only the changes outside of all values; None if there are none."""
    before, now = np.frombuffer(whole, np.uint8), np.frombuffer(damaged, np.uint8).copy()
    for start, stop in ranges:
        now[start:stop] = before[start:stop]
    return None if np.array_equal(now, before) else now.tobytes()


def _hdf5(file: Path) -> Ranges:
    import h5py

    ranges: Ranges = []

    def look(_: str, item: Any) -> None:
        if not isinstance(item, h5py.Dataset):
            return
        if item.chunks is None and item.id.get_offset() is not None:
            ranges.append((item.id.get_offset(), item.id.get_storage_size()))
        for number in range(0 if item.chunks is None else item.id.get_num_chunks()):
            part = item.id.get_chunk_info(number)
            ranges.append((part.byte_offset, part.size))

    with h5py.File(file) as opened:
        opened.visititems(look)
    return [(start, start + size) for start, size in ranges]


def _classic_netcdf(file: Path) -> Ranges:
    from scipy.io import netcdf_file

    with netcdf_file(file, "r", mmap=True) as opened:
        return _mapped_ranges(opened)


def _mapped_ranges(opened: Any) -> Ranges:
    """Returns the ranges of all values by the addresses of arrays that are views of the file."""

    def address(values: np.ndarray) -> int:
        return values.__array_interface__["data"][0]

    ranges: Ranges = []
    for variable in opened.variables.values():
        for row in variable.data if variable.isrec else [variable.data]:
            start = address(row) - address(opened._mm_buf)
            ranges.append((start, start + row.nbytes))
    return ranges


def _npy(file: Path) -> Ranges:
    return [(np.load(file, mmap_mode="r").offset, file.stat().st_size)]


def _matlab_5(file: Path) -> Ranges:
    """Returns the last part of each matrix, which contains the uncompressed values."""
    content, position = file.read_bytes(), MATLAB_HEADER
    ranges: Ranges = []
    while position < len(content):
        _, size = struct.unpack_from("<II", content, position)
        at = position + MATRIX_TAG
        position = at + size
        while at < position:
            word, length = struct.unpack_from("<II", content, at)
            # Up to four bytes are stored in the tag, whose upper half is their number.
            start, length = (at + 4, word >> 16) if word >> 16 else (at + 8, length)
            last = (start, start + length)
            at = at + 8 if word >> 16 else start + -(-length // 8) * 8
        ranges.append(last)
    return ranges


def _grib(file: Path) -> Ranges:
    import eccodes

    ranges: Ranges = []
    with file.open("rb") as opened:
        while (message := eccodes.codes_grib_new_from_file(opened)) is not None:
            begin, inside, size = (
                int(eccodes.codes_get(message, name))
                for name in ("offset", "offsetSection7", "section7Length")
            )
            # The values follow the length and the number of the section.
            ranges.append((begin + inside + 5, begin + inside + size))
            eccodes.codes_release(message)
    return ranges


FORMATS: dict[bytes, Callable[[Path], Ranges]] = {
    b"CDF": _classic_netcdf,
    b"\x93NUMPY": _npy,
    b"MATLAB 5": _matlab_5,
    b"GRIB": _grib,
}
"""Functions that find the ranges, by the first bytes of a file."""
