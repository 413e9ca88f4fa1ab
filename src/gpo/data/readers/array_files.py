"""Named arrays of `.npz`, `.npy`, `.mat` and `.h5` files and of folders of `.npy` files.

`.npy` and HDF5, including MATLAB 7.3, are read lazily; `.npz`, `.pt` and older `.mat` files are loaded
at once. Pickles are never opened, except for those of torch, by its loader of tensors alone. Axes of MATLAB 7.3 arrays, which are stored in reverse, are in the
order of MATLAB. Only the root group of HDF5 is read.
"""

import math
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from gpo.data.dataset import DataError
from gpo.data.readers.hdf5 import array, is_hdf5, open_hdf5, text_attribute
from gpo.data.readers.lazy import Key
from gpo.data.readers.matlab5 import load_matlab_5
from gpo.data.readers.size_checks import check_load
from gpo.optional import MissingPackageError

SUFFIXES = (".npz", ".npy", ".mat", ".h5", ".hdf5", ".pt", ".pth")


@dataclass(frozen=True)
class Stored:
    """An array of real numbers in a file."""

    shape: tuple[int, ...]
    dtype: np.dtype
    read: Callable[[Key], np.ndarray]
    """Reads the part selected by one index or slice per axis."""
    units: str = ""

    @property
    def is_vector(self) -> bool:
        """Whether at most one axis has more than one entry, as in vectors of MATLAB."""
        return sum(length != 1 for length in self.shape) <= 1

    @property
    def size(self) -> int:
        """Number of entries."""
        return math.prod(self.shape)

    def values(self) -> np.ndarray:
        """Reads the whole array."""
        return self.read((slice(None),) * len(self.shape))


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
            units = text_attribute(item, "units")
            shape = tuple(item.shape)[:: -1 if kind else 1]
            read = partial(_read_hdf5, path, name, bool(kind))
            yield name, Stored(shape, item.dtype, read, units)


def _read_hdf5(path: Path, name: str, is_matlab: bool, key: Key) -> np.ndarray:
    with open_hdf5(path) as file:
        if is_matlab:
            return array(path, file, name, key[::-1]).T
        return array(path, file, name, key)


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
