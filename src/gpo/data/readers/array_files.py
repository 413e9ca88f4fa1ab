"""Named arrays of `.npz`, `.npy`, `.mat`, `.pt` and `.h5` files and of folders of `.npy` files.

`.npy` and HDF5, including MATLAB 7.3, are read lazily; the others are loaded at once. Pickles are
never opened, except for those of torch, by its loader of tensors alone. Axes of MATLAB 7.3 arrays,
which are stored in reverse, are in the order of MATLAB. Only the root group of HDF5 is read.

A damaged MATLAB 5 file can make `scipy.io.loadmat` crash the interpreter. Each element is therefore
checked first: that it lies within the file, that its checksum is correct if it is compressed, and
that its size matches its shape.
"""

import math
import struct
import zipfile
import zlib
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from gpo.data.dataset import DataError
from gpo.data.readers.base import check_load
from gpo.data.readers.hdf5 import is_hdf5, open_hdf5, stored_array, text_attribute
from gpo.data.readers.lazy import Key, Stored
from gpo.optional import MissingPackageError

SUFFIXES = (".npz", ".npy", ".mat", ".h5", ".hdf5", ".pt", ".pth")


def open_arrays(path: Path) -> dict[str, Stored]:
    """Returns all arrays of real numbers by name, without text."""
    try:
        arrays = dict(_arrays(path))
    except (DataError, MissingPackageError):
        raise
    except Exception as error:
        # File libraries raise errors of many types for a damaged file.
        problem = f"cannot be read: {type(error).__name__}: {error}"
        raise DataError(path, "file", problem) from error
    if not arrays:
        raise DataError(path, "file", "holds no array of real numbers in its root.")
    for name, stored in arrays.items():
        if stored.size == 0:
            raise DataError(path, name, f"has length zero: its shape is {stored.shape}.")
    return arrays


def _arrays(path: Path) -> Iterator[tuple[str, Stored]]:
    if path.is_dir():
        for file in sorted(path.glob("*.npy")):
            yield from _mapped(file)
    elif path.suffix == ".npy":
        yield from _mapped(path)
    elif path.suffix == ".npz":
        yield from _archived(path)
    elif path.suffix in (".pt", ".pth"):
        yield from _tensors(path)
    elif is_hdf5(path):
        yield from _in_hdf5(path)
    elif path.suffix == ".mat":
        yield from _matlab_5(path)
    else:
        problem = f"must be HDF5 or one of {', '.join(SUFFIXES)}, or a folder of .npy files."
        raise DataError(path, "file", problem)


def _matlab_5(path: Path) -> Iterator[tuple[str, Stored]]:
    for name, values in load_matlab_5(path).items():
        yield name, _in_memory(path, name, values)


def _mapped(path: Path) -> Iterator[tuple[str, Stored]]:
    try:
        values = map_npy(path)
    except Exception as error:
        raise DataError(path, path.stem, f"cannot be read as an array: {error}") from error
    if not isinstance(values, np.ndarray):
        raise DataError(path, path.stem, "must be a single array, got an archive: rename it .npz.")
    _check_real(path, path.stem, values.dtype)
    yield path.stem, Stored(tuple(values.shape), values.dtype, partial(_read_mapped, path))


def _archived(path: Path) -> Iterator[tuple[str, Stored]]:
    # Pass an open file, because numpy does not close a damaged one.
    with path.open("rb") as file:
        archive: Any = np.load(file, allow_pickle=False)
        if isinstance(archive, np.ndarray):
            raise DataError(path, "file", "must be an archive, got a single array: rename it .npy.")
        needed = sum(part.file_size for part in archive.zip.infolist())
        check_load(path, "file", needed, path.stat().st_size)
        for name in archive.files:
            if archive.files.count(name) > 1:
                problem = "is in the file more than once; keep one array of each name."
                raise DataError(path, name, problem)
            try:
                values = archive[name]
            except Exception as error:
                raise DataError(path, name, f"cannot be read as an array: {error}") from error
            if values.dtype.kind not in "US":
                yield name, _in_memory(path, name, values)


def _tensors(path: Path) -> Iterator[tuple[str, Stored]]:
    """Yields the tensors of a file that `torch.save` wrote: one, or some by name."""
    if not zipfile.is_zipfile(path):
        problem = "must be written by torch.save of version 1.6 or later."
        raise DataError(path, "file", problem)
    with zipfile.ZipFile(path) as archive:
        needed = sum(part.file_size for part in archive.infolist())
    check_load(path, "file", needed, path.stat().st_size)
    # It builds tensors and containers only, and calls nothing that the file names.
    content = torch.load(path, map_location="cpu", weights_only=True)
    tensors = {path.stem: content} if isinstance(content, torch.Tensor) else content
    if not isinstance(tensors, dict):
        raise DataError(path, "file", f"must hold tensors by name, got a {type(content).__name__}.")
    for name, tensor in tensors.items():
        if not isinstance(tensor, torch.Tensor) or tensor.layout != torch.strided:
            continue
        # A tensor may repeat one stored number many times.
        check_load(path, str(name), tensor.numel() * tensor.element_size(), path.stat().st_size)
        values = tensor.detach().float() if tensor.dtype == torch.bfloat16 else tensor.detach()
        yield str(name), _in_memory(path, str(name), values.numpy())


def _in_memory(path: Path, name: str, values: np.ndarray) -> Stored:
    _check_real(path, name, values.dtype)
    return Stored(tuple(values.shape), values.dtype, partial(_part, values))


def _part(values: np.ndarray, key: Key) -> np.ndarray:
    return np.asarray(values[key])


def _read_mapped(path: Path, key: Key) -> np.ndarray:
    return _part(map_npy(path), key)


def _in_hdf5(path: Path) -> Iterator[tuple[str, Stored]]:
    with open_hdf5(path) as file:
        import h5py

        for name, item in file.items():
            if not isinstance(item, h5py.Dataset) or h5py.check_string_dtype(item.dtype):
                continue
            kind = text_attribute(item, "MATLAB_class")
            if kind in ("char", "cell", "struct", "function_handle", "string"):
                continue
            if "MATLAB_empty" in item.attrs or item.shape is None:
                raise DataError(path, name, "has length zero: it is empty.")
            _check_real(path, name, item.dtype)
            yield name, stored_array(path, item, is_reversed=bool(kind))


def _check_real(path: Path, name: str, dtype: np.dtype) -> None:
    if dtype.kind == "c" or dtype.names == ("real", "imag"):
        raise DataError(path, name, "is complex: save its real and imaginary parts as two arrays.")
    if dtype.kind not in "fiub":
        raise DataError(path, name, f"must hold real numbers, got entries of type {dtype}.")


def map_npy(path: Path) -> Any:
    """Returns the memory-mapped array of a file; raises a `ValueError` if its length is wrong.

    The format has no checksum: inserted bytes would shift all values behind them, which only the
    length reveals. Files that are not a single array are returned as NumPy opens them.
    """
    values = np.load(path, mmap_mode="r", allow_pickle=False)
    if isinstance(values, np.memmap):
        size, expected = path.stat().st_size, values.offset + values.nbytes
        if size != expected:
            raise ValueError(
                f"it has {size} bytes, its header says {expected}. It is damaged, or other arrays "
                "follow the first: save each in a file of its own."
            )
    return values


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
