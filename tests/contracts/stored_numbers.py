"""Where whole files keep the numbers of their arrays, byte by byte.

A number that changed in place, where the container has no checksum, is no reader's fault. So says
the fuzzer of most of what it finds; by these places it is looked up for every file. They come from
the libraries where those tell them, not from our own checks of headers.
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
"""First byte and end of parts of a file."""


def number_ranges(file: Path) -> Ranges:
    """Returns where all stored numbers of a whole file are, or of one file of a store."""
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
        raise ValueError(f"{file} has a format whose numbers cannot be placed.")
    # Where chunks of Zarr have no checksum, blosc packs them.
    return [(BLOSC_HEADER, len(content))]


def changes_outside(whole: bytes, damaged: bytes, ranges: Ranges) -> bytes | None:
    """Returns a file with those changes only that lie outside of all numbers; None without any."""
    before, now = np.frombuffer(whole, np.uint8), np.frombuffer(damaged, np.uint8).copy()
    for start, stop in ranges:
        now[start:stop] = before[start:stop]
    return None if np.array_equal(now, before) else now.tobytes()


def _hdf5(file: Path) -> Ranges:
    import h5py

    found: Ranges = []

    def look(_: str, item: Any) -> None:
        if not isinstance(item, h5py.Dataset):
            return
        if item.chunks is None and item.id.get_offset() is not None:
            found.append((item.id.get_offset(), item.id.get_storage_size()))
        for number in range(0 if item.chunks is None else item.id.get_num_chunks()):
            part = item.id.get_chunk_info(number)
            found.append((part.byte_offset, part.size))

    with h5py.File(file) as opened:
        opened.visititems(look)
    return [(start, start + size) for start, size in found]


def _classic_netcdf(file: Path) -> Ranges:
    from scipy.io import netcdf_file

    with netcdf_file(file, "r", mmap=True) as opened:
        return _mapped_ranges(opened)


def _mapped_ranges(opened: Any) -> Ranges:
    """Returns where all numbers are, by the addresses of arrays that are views of the file."""

    def address(values: np.ndarray) -> int:
        return values.__array_interface__["data"][0]

    found: Ranges = []
    for variable in opened.variables.values():
        for row in variable.data if variable.isrec else [variable.data]:
            start = address(row) - address(opened._mm_buf)
            found.append((start, start + row.nbytes))
    return found


def _npy(file: Path) -> Ranges:
    return [(np.load(file, mmap_mode="r").offset, file.stat().st_size)]


def _matlab_5(file: Path) -> Ranges:
    """Finds the last part of every matrix, as numbers without compression have it."""
    content, position = file.read_bytes(), MATLAB_HEADER
    found: Ranges = []
    while position < len(content):
        _, size = struct.unpack_from("<II", content, position)
        at = position + MATRIX_TAG
        position = at + size
        while at < position:
            word, length = struct.unpack_from("<II", content, at)
            # Up to four bytes lie beside their tag, which has their number in its upper half.
            start, length = (at + 4, word >> 16) if word >> 16 else (at + 8, length)
            last = (start, start + length)
            at = at + 8 if word >> 16 else start + -(-length // 8) * 8
        found.append(last)
    return found


def _grib(file: Path) -> Ranges:
    import eccodes

    found: Ranges = []
    with file.open("rb") as opened:
        while (message := eccodes.codes_grib_new_from_file(opened)) is not None:
            begin, inside, size = (
                int(eccodes.codes_get(message, name))
                for name in ("offset", "offsetSection7", "section7Length")
            )
            # Before the numbers stand the length of the section and its number.
            found.append((begin + inside + 5, begin + inside + size))
            eccodes.codes_release(message)
    return found


FORMATS: dict[bytes, Callable[[Path], Ranges]] = {
    b"CDF": _classic_netcdf,
    b"\x93NUMPY": _npy,
    b"MATLAB 5": _matlab_5,
    b"GRIB": _grib,
}
"""How places are found, by the first bytes of a file."""
