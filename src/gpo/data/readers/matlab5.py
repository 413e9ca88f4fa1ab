"""Validates MATLAB 5 files before `scipy` reads them.

A damaged file can make `scipy.io.loadmat` crash the interpreter. Each element is therefore checked
first: that it lies within the file, that its checksum is correct if it is compressed, and that its
size matches its shape.
"""

import math
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from gpo.data.dataset import DataError
from gpo.data.readers.size_checks import check_load

HEADER_SIZE = 128
MATRIX, COMPRESSED = 14, 15
ITEM_SIZES = {1: 1, 2: 1, 3: 2, 4: 2, 5: 4, 6: 4, 7: 4, 9: 8, 12: 8, 13: 8}
"""Bytes of a value by its type code."""
NUMERIC_CLASSES = range(6, 16)
COMPLEX = 0x0800


def load_matlab_5(path: Path) -> dict[str, np.ndarray]:
    """Returns all numeric arrays of a file by name, without text, cells and structures."""
    names = list(matlab_5_shapes(path))
    if not names:
        return {}
    from scipy.io import loadmat

    content = loadmat(path, variable_names=names)
    for name in names:
        # scipy replaces an unreadable variable by an error text.
        if not isinstance(content.get(name), np.ndarray):
            raise DataError(path, name, f"cannot be read: {content.get(name)}")
    return {name: content[name] for name in names}


def matlab_5_shapes(path: Path) -> dict[str, tuple[int, ...]]:
    """Returns the shapes of all numeric arrays by name; raises a `DataError` for damaged files."""
    check_load(path, "file", path.stat().st_size, path.stat().st_size)
    content = path.read_bytes()
    order = {b"\x00\x01IM": "<", b"\x01\x00MI": ">"}.get(content[124:HEADER_SIZE])
    if order is None:
        problem = "is no MATLAB file of version 5 or 7.3. Save it in MATLAB with -v7."
        raise DataError(path, "file", problem)
    try:
        check_load(path, "file", sum(_unpacked_sizes(content, order)), len(content))
        matrices = [_matrix(body, order) for body in _matrices(content, order)]
    except DataError:
        raise
    except (struct.error, zlib.error, ValueError) as error:
        raise DataError(path, "file", f"is damaged or cut short: {error}.") from error
    return {name: shape for name, shape, is_numeric in matrices if is_numeric}


def _matrices(content: bytes, order: str) -> Iterator[bytes]:
    """Yields the bodies of all top-level matrices, uncompressed."""
    position = HEADER_SIZE
    while position < len(content):
        kind, size = struct.unpack_from(order + "II", content, position)
        body = content[position + 8 : position + 8 + size]
        if len(body) < size:
            raise ValueError(f"an element of {size} bytes has only {len(body)}")
        position += 8 + size
        if kind == COMPRESSED:
            kind, size = _packed_tag(body, order)
            unpacker = zlib.decompressobj()
            # Unpack at most the stated size and padding.
            body = unpacker.decompress(body, 8 + size + 8)
            if not unpacker.eof:
                raise ValueError("a compressed array ends early, or is longer than stated")
            if len(body) < 8 + size:
                raise ValueError("a compressed array is shorter than stated")
            body = body[8 : 8 + size]
        if kind != MATRIX:
            raise ValueError(f"an element of unknown kind {kind}")
        yield body


def _unpacked_sizes(content: bytes, order: str) -> Iterator[int]:
    """Yields the stated unpacked size of each element."""
    position = HEADER_SIZE
    while position < len(content):
        kind, size = struct.unpack_from(order + "II", content, position)
        body = memoryview(content)[position + 8 : position + 8 + size]
        yield _packed_tag(body, order)[1] if kind == COMPRESSED else size
        position += 8 + size


def _packed_tag(body: bytes | memoryview, order: str) -> tuple[int, int]:
    """Returns kind and size of a compressed element from its first bytes."""
    kind, size = struct.unpack_from(order + "II", zlib.decompressobj().decompress(body, 8))
    return kind, size


def _matrix(body: bytes, order: str) -> tuple[str, tuple[int, ...], bool]:
    """Returns name, shape, and whether a matrix is numeric; checks the size of its values."""
    parts = _parts(body, order)
    try:
        (_, flags), (_, dims), (_, name) = next(parts), next(parts), next(parts)
    except StopIteration:
        raise ValueError("a matrix has no header") from None
    (word, _) = struct.unpack(order + "II", flags)
    shape = struct.unpack(f"{order}{len(dims) // 4}i", dims)
    title = name.decode("ascii")
    if word & 0xFF not in NUMERIC_CLASSES:
        return title, shape, False
    if len(shape) < 2 or min(shape) < 0 or not title.isidentifier():
        raise ValueError(f"a matrix {title!r} of shape {shape}")
    halves = list(parts)
    if len(halves) != (2 if word & COMPLEX else 1):
        raise ValueError(f"{title} has {len(halves)} parts")
    for kind, values in halves:
        if kind not in ITEM_SIZES or len(values) != math.prod(shape) * ITEM_SIZES[kind]:
            raise ValueError(f"{title} has {len(values)} bytes for shape {shape}")
    return title, shape, True


def _parts(body: bytes, order: str) -> Iterator[tuple[int, bytes]]:
    """Yields type and content of the elements of a matrix, each padded to eight bytes."""
    position = 0
    while position < len(body):
        (word,) = struct.unpack_from(order + "I", body, position)
        if word >> 16:
            # Up to four bytes are stored within the tag.
            kind, size, start = word & 0xFFFF, word >> 16, position + 4
            position += 8
            if size > 4:
                raise ValueError("a short element is too long")
        else:
            kind, size = struct.unpack_from(order + "II", body, position)
            start = position + 8
            position = start + -(-size // 8) * 8
        if start + size > len(body):
            raise ValueError("an element extends beyond its matrix")
        yield kind, body[start : start + size]
