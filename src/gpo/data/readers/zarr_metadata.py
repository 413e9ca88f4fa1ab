"""Validates the metadata of a Zarr store before the library opens it.

The metadata choose the codecs, which run code. Only codecs that compress or pack numbers and text
are allowed, none that unpickles and no unknown one. Links that leave the folder and chunks that
exceed the memory are rejected as well, and so are stores from which an array or a chunk got lost
under another name.
"""

import json
import math
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gpo.atomic_files import NOT_A_REGULAR_FILE
from gpo.data.dataset import DataError
from gpo.data.readers.base import check_chunks, check_total

ZARR_FILES = ("zarr.json", ".zgroup", ".zmetadata")
METADATA = (".zarray", "zarr.json")
NO_CHUNKS = (*METADATA, *ZARR_FILES, ".zattrs")
"""Files of a store without values."""
TEXT_CODECS = {"vlen-utf8", "vlen-bytes"}
PACKING_CODECS = {
    *("blosc", "bz2", "gzip", "lz4", "lzma", "zlib", "zstd"),
    *("adler32", "crc32", "crc32c", "fletcher32", "jenkins_lookup3"),
    *("astype", "bitround", "delta", "fixedscaleoffset", "packbits", "quantize", "shuffle"),
}
"""Codecs of `numcodecs` that compress, checksum or pack numbers, by their format 2 names."""
CODECS_3 = {
    *("bytes", "transpose", "blosc", "gzip", "zstd", "crc32c", "sharding_indexed"),
    *TEXT_CODECS,
    *(f"numcodecs.{name}" for name in PACKING_CODECS),
}
TYPE_SETTINGS = ("dtype", "astype", "encode_dtype", "decode_dtype")
"""Settings of codecs that are data types."""
TYPES_3 = re.compile(r"bool|u?int\d+|float\d+|complex\d+|r\d+|string|bytes")
NAMED_TYPES_3 = {
    *("numpy.datetime64", "numpy.timedelta64", "fixed_length_utf32"),
    *("null_terminated_bytes", "raw_bytes", "variable_length_bytes"),
}
CHUNK_NAME = re.compile(r"c|(c\.)?\d+(\.\d+)*")
MAX_METADATA = 2**24
"""Maximum bytes of the metadata of an array."""
BLOSC_HEADER = 16
"""Bytes of the header of a block: flags, unpacked size, block size and packed size, 4 each."""
FILE_OVERHEAD, CHUNK_OVERHEAD = 2**16, 64
"""Extra bytes allowed per file, and per chunk in it, for headers and indices."""


@dataclass(frozen=True)
class _Array:
    """Storage of an array."""

    shape: tuple[int, ...]
    chunk: tuple[int, ...]
    """Shape that is unpacked at once."""
    file_shape: tuple[int, ...]
    """Shape of a file: a chunk, or a shard of several chunks."""
    itemsize: int | None
    """Bytes of an entry; None for text of variable length."""
    is_blosc: bool = False
    """Whether files are blosc blocks, which state their size."""
    is_filtered: bool = False
    """Whether filters may change the size of the values before compression."""
    prefix: str = ""
    """First letters of the names of all chunks."""
    separator: str = "."
    """Text between the numbers of a chunk in its name."""

    @property
    def grid(self) -> tuple[int, ...]:
        """Number of files along each axis."""
        pairs = zip(self.shape, self.file_shape, strict=True)
        return tuple(-(-length // part) for length, part in pairs)

    def is_chunk(self, name: str) -> bool:
        """Returns whether a file, by its name below the folder of the array, is one of its chunks."""
        if not name.startswith(self.prefix):
            return False
        numbers = name.removeprefix(self.prefix).split(self.separator)
        if not self.shape:
            return numbers == ([""] if self.prefix else ["0"])
        if self.prefix:
            numbers = numbers[1:]
        return len(numbers) == len(self.grid) and all(
            number.isdecimal() and int(number) < count
            for number, count in zip(numbers, self.grid, strict=True)
        )


def is_zarr(folder: Path) -> bool:
    """Returns whether a folder is a Zarr store, by its suffix or its files."""
    return folder.suffix == ".zarr" or any((folder / name).exists() for name in ZARR_FILES)


def check_zarr(folder: Path) -> None:
    """Raises a `DataError` for a store that would run code, read other files or exhaust memory."""
    _check_consolidated(folder)
    content: dict[Path, dict[str, int]] = {}
    declared = stored = 0
    for node, entry in _entries(folder):
        size = entry.stat().st_size
        files = content.setdefault(node, {})
        if entry.name not in NO_CHUNKS:
            files[entry.path] = size
        stored += size
    for node, files in content.items():
        metadata = [node / name for name in METADATA if (node / name).is_file()]
        sizes = [_check_array(folder, node, file, files) for file in metadata]
        declared += sum(size or 0 for size in sizes)
        chunks = [path for path in files if CHUNK_NAME.fullmatch(Path(path).name)]
        if chunks and all(size is None for size in sizes):
            name = str(Path(chunks[-1]).relative_to(folder))
            problem = "is a chunk without array metadata. Copy the store again."
            raise DataError(folder, name, problem)
    check_total(folder, declared, stored)


def _check_consolidated(folder: Path) -> None:
    """Raises a `DataError` for arrays that the consolidated metadata list but the store lacks."""
    for file, suffix in ((folder / ".zmetadata", "/.zarray"), (folder / "zarr.json", "")):
        try:
            stored = json.loads(file.read_text(encoding="utf-8"))
            listed = stored if suffix else stored["consolidated_metadata"]
            names = [
                name.removesuffix(suffix)
                for name, part in listed["metadata"].items()
                if (name.endswith(suffix) if suffix else part["node_type"] == "array")
            ]
        except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
            # Consolidated metadata are optional, and nothing else in them is used.
            continue
        lost = [name for name in names if not (folder / name / (suffix[1:] or file.name)).is_file()]
        if lost:
            problem = "is listed in the consolidated metadata, but not in the store."
            advice = "Copy the store again. If it was deleted: zarr.consolidate_metadata(PATH)."
            raise DataError(folder, lost[0], f"{problem} {advice}")


def _entries(folder: Path) -> Iterator[tuple[Path, os.DirEntry[str]]]:
    """Yields all files with the folder of their array or group; rejects links and devices."""
    root, pending = Path(os.path.realpath(folder)), [(folder, folder)]
    while pending:
        current, node = pending.pop()
        with os.scandir(current) as iterator:
            entries = list(iterator)
        if any(entry.name in METADATA for entry in entries):
            node = current
        for entry in entries:
            name = str(Path(entry.path).relative_to(folder))
            if entry.is_symlink():
                # Unlike `Path.resolve`, this terminates on circular links.
                is_inside = Path(os.path.realpath(entry.path)).is_relative_to(root)
                if not is_inside or not os.path.isfile(entry.path):
                    target = "to a folder, or broken" if is_inside else "that leaves the folder"
                    problem = f"is a link {target}. Copy the store without links."
                    raise DataError(folder, name, problem)
            if entry.is_dir():
                pending.append((Path(entry.path), node))
            elif entry.is_file():
                yield node, entry
            else:
                raise DataError(folder, name, NOT_A_REGULAR_FILE)


def _check_array(folder: Path, node: Path, file: Path, files: Mapping[str, int]) -> int | None:
    """Validates an array by its metadata; returns the bytes of its values, None for a group.

    Args:
        folder: The store.
        node: The folder of the array.
        file: The metadata of the array.
        files: Bytes of all other files of the array.
    """
    name = str(node.relative_to(folder))
    if file.stat().st_size > MAX_METADATA:
        raise DataError(folder, name, f"must have at most {MAX_METADATA} bytes of metadata.")
    try:
        metadata = json.loads(file.read_text(encoding="utf-8"))
        is_format_3 = file.name == "zarr.json"
        if is_format_3 and metadata.get("node_type") != "array":
            return None
        parse = _parse_format_3 if is_format_3 else _parse_format_2
        array = parse(folder, name, metadata)
    except DataError:
        raise
    except Exception as error:
        # The JSON may have any content, such as a list for a mapping, or be nested too deeply.
        problem = f"has metadata that cannot be read: {type(error).__name__}: {error}"
        raise DataError(folder, name, f"{problem}. It may be damaged.") from error
    itemsize = array.itemsize or 1
    check_chunks(folder, name, array.shape, array.chunk, itemsize)
    file_size = math.prod(array.file_shape)
    file_bytes = file_size * itemsize
    overhead = FILE_OVERHEAD + CHUNK_OVERHEAD * file_size // math.prod(array.chunk)
    largest = max(files.values(), default=0)
    if array.itemsize is not None and largest > 1.25 * file_bytes + overhead:
        problem = f"has a chunk of {largest} bytes, which may hold {file_bytes} at most."
        raise DataError(folder, name, f"{problem} It may be damaged.")
    _check_names(folder, node, array, files)
    if array.is_blosc:
        is_fixed = array.itemsize is not None and not array.is_filtered
        _check_blosc(folder, files, file_bytes if is_fixed else None)
    return math.prod(array.shape) * itemsize


def _check_names(folder: Path, node: Path, array: _Array, files: Mapping[str, int]) -> None:
    """Raises a `DataError` for a file that may be a missing chunk under another name."""
    names = [Path(path).relative_to(node).as_posix() for path in files]
    others = [name for name in names if not array.is_chunk(name) and not name.startswith(".")]
    num_missing = math.prod(array.grid) - sum(map(array.is_chunk, names))
    if others and num_missing > 0:
        name = str((node / others[0]).relative_to(folder))
        problem = f"is no chunk of `{node.relative_to(folder)}`, which lacks {num_missing} of them."
        advice = "Copy the store again, or move this file elsewhere if it belongs to nothing."
        raise DataError(folder, name, f"{problem} {advice}")


def _check_blosc(folder: Path, files: Mapping[str, int], unpacked: int | None) -> None:
    """Raises a `DataError` for chunks of the wrong size: blosc would read beyond their end.

    Args:
        folder: The store.
        files: Bytes of the files of an array.
        unpacked: Bytes to which each chunk must unpack, if known.
    """
    for path, size in files.items():
        if not CHUNK_NAME.fullmatch(Path(path).name):
            continue
        with open(path, "rb") as file:
            header = file.read(BLOSC_HEADER)
        actual, packed = (int.from_bytes(header[at : at + 4], "little") for at in (4, 12))
        if len(header) < BLOSC_HEADER or packed != size or unpacked not in (None, actual):
            problem = f"is a chunk of {size} bytes, but its header states {packed}"
            if unpacked not in (None, actual):
                problem += f" and unpacks to {actual}, not {unpacked}"
            name = str(Path(path).relative_to(folder))
            raise DataError(folder, name, f"{problem}. It is damaged: copy it again.")


def _parse_format_2(folder: Path, name: str, metadata: Mapping[str, Any]) -> _Array:
    codecs = [*(metadata.get("filters") or []), *filter(None, [metadata.get("compressor")])]
    ids = [codec["id"] for codec in codecs]
    is_text = bool(TEXT_CODECS & {*ids})
    _check_codecs(folder, name, ids, PACKING_CODECS | TEXT_CODECS)
    for settings in (metadata, *codecs):
        _check_no_objects(folder, name, settings, is_text)
    shape, chunk = _lengths(metadata["shape"]), _lengths(metadata["chunks"])
    itemsize = None if is_text else _dtype(metadata["dtype"]).itemsize
    separator = str(metadata.get("dimension_separator", "."))
    is_blosc = ids[-1:] == ["blosc"]
    return _Array(shape, chunk, chunk, itemsize, is_blosc, len(ids) > 1, separator=separator or ".")


def _parse_format_3(folder: Path, name: str, metadata: Mapping[str, Any]) -> _Array:
    kind = metadata["data_type"]
    is_known = (
        TYPES_3.fullmatch(kind) is not None
        if isinstance(kind, str)
        else kind.get("name") in NAMED_TYPES_3
    )
    if not is_known:
        raise DataError(folder, name, f"has entries of type {kind}, which is not supported.")
    if metadata.get("storage_transformers"):
        raise DataError(folder, name, "has storage transformers, which are not supported.")
    grid = metadata["chunk_grid"]
    if grid["name"] != "regular":
        raise DataError(folder, name, f"has chunks on a grid {grid['name']!r}, must be regular.")
    file_shape = chunk = _lengths(grid["configuration"]["chunk_shape"])
    codecs = list(metadata["codecs"])
    names = [codec if isinstance(codec, str) else codec["name"] for codec in codecs]
    is_filtered = not {*names} <= {"transpose", "bytes", "blosc", "numcodecs.blosc"}
    while codecs:
        codec = codecs.pop()
        codec_name = codec if isinstance(codec, str) else codec["name"]
        settings = {} if isinstance(codec, str) else codec.get("configuration") or {}
        _check_codecs(folder, name, [codec_name], CODECS_3)
        _check_no_objects(folder, name, settings, is_text=False)
        if codec_name == "sharding_indexed":
            chunk = _lengths(settings["chunk_shape"])
            codecs += [*settings["codecs"], *settings.get("index_codecs", [])]
    shape, is_blosc = _lengths(metadata["shape"]), names[-1] in ("blosc", "numcodecs.blosc")
    names_of_chunks = metadata["chunk_key_encoding"]
    is_default = names_of_chunks["name"] == "default"
    settings = names_of_chunks.get("configuration") or {}
    separator = str(settings.get("separator") or ("/" if is_default else "."))
    prefix = "c" if is_default else ""
    return _Array(
        shape, chunk, file_shape, _itemsize(kind), is_blosc, is_filtered, prefix, separator
    )


def _lengths(values: Sequence[Any]) -> tuple[int, ...]:
    return tuple(int(length) for length in values)


def _itemsize(kind: str | Mapping[str, Any]) -> int | None:
    """Returns the bytes of an entry of format 3; None for variable length."""
    if isinstance(kind, str):
        bits = re.search(r"\d+$", kind)
        return 1 if kind == "bool" else None if bits is None else -(-int(bits[0]) // 8)
    if "length_bytes" in (kind.get("configuration") or {}):
        return int(kind["configuration"]["length_bytes"])
    return 8 if str(kind["name"]).endswith("64") else None


def _check_codecs(folder: Path, name: str, codecs: Sequence[str], allowed: set[str]) -> None:
    for codec in codecs:
        if codec not in allowed:
            problem = f"is written with the codec {codec!r}, which may run code or is unknown."
            advice = f"Write it again with one of: {', '.join(sorted(allowed))}."
            raise DataError(folder, name, f"{problem} {advice}")


def _check_no_objects(folder: Path, name: str, settings: Mapping[str, Any], is_text: bool) -> None:
    """Raises a `DataError` for types of Python objects, except text with a text codec.

    Args:
        folder: The store.
        name: Name of the array.
        settings: Metadata of the array, or settings of a codec.
        is_text: Whether entries are text of variable length.
    """
    for kind in (settings[key] for key in TYPE_SETTINGS if settings.get(key) is not None):
        if _dtype(kind).hasobject and not (is_text and kind == "|O"):
            problem = f"holds Python objects (dtype {kind}). Write it again as numbers or text."
            raise DataError(folder, name, problem)


def _dtype(kind: Any) -> np.dtype:
    if isinstance(kind, str):
        return np.dtype(kind)
    return np.dtype([(str(name), _dtype(part), *map(tuple, rest)) for name, part, *rest in kind])
