"""What a Zarr folder says of itself, judged before its library opens it.

Codecs are code that the metadata choose. Only those are let through that compress or pack
numbers and text; a codec that unpickles, or one we do not know, is refused. So are links that
lead out of the folder, and chunks that would not fit into memory.
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

from gpo.atomic_files import NO_REGULAR_FILE
from gpo.data.dataset import DataError
from gpo.data.readers.size_checks import check_chunks, check_total

ZARR_FILES = ("zarr.json", ".zgroup", ".zmetadata")
METADATA = (".zarray", "zarr.json")
NO_CHUNKS = (*METADATA, *ZARR_FILES, ".zattrs")
"""Files of a store that hold no values."""
TEXT_CODECS = {"vlen-utf8", "vlen-bytes"}
PACKING_CODECS = {
    *("blosc", "bz2", "gzip", "lz4", "lzma", "zlib", "zstd"),
    *("adler32", "crc32", "crc32c", "fletcher32", "jenkins_lookup3"),
    *("astype", "bitround", "delta", "fixedscaleoffset", "packbits", "quantize", "shuffle"),
}
"""Codecs of `numcodecs` that compress, check or pack numbers, by their names in format 2."""
CODECS_3 = {
    *("bytes", "transpose", "blosc", "gzip", "zstd", "crc32c", "sharding_indexed"),
    *TEXT_CODECS,
    *(f"numcodecs.{name}" for name in PACKING_CODECS),
}
TYPE_SETTINGS = ("dtype", "astype", "encode_dtype", "decode_dtype")
"""Settings of codecs that name a type of numbers."""
TYPES_3 = re.compile(r"bool|u?int\d+|float\d+|complex\d+|r\d+|string|bytes")
NAMED_TYPES_3 = {
    *("numpy.datetime64", "numpy.timedelta64", "fixed_length_utf32"),
    *("null_terminated_bytes", "raw_bytes", "variable_length_bytes"),
}
CHUNK_NAME = re.compile(r"c|(c\.)?\d+(\.\d+)*")
LARGEST_METADATA = 2**24
"""Bytes of the metadata of one array."""
BLOSC_HEADER = 16
"""Bytes at the head of a block: four of flags, then three numbers, of which the last is its length."""
FILE_OVERHEAD, CHUNK_OVERHEAD = 2**16, 64
"""Bytes that a file, and every chunk in it, may have beyond the content, for headers and indices."""


@dataclass(frozen=True)
class _Array:
    """How an array is stored."""

    shape: tuple[int, ...]
    chunk: tuple[int, ...]
    """What is unpacked at once."""
    file_shape: tuple[int, ...]
    """What one file holds; more than a chunk where it is a shard."""
    itemsize: int | None
    """Bytes of an entry; unknown for text of any length."""
    is_blosc: bool = False
    """Whether files are blocks of blosc, which state their length."""
    is_filtered: bool = False
    """Whether what is compressed has another length than the values."""


def is_zarr(folder: Path) -> bool:
    """Returns whether a folder is a Zarr store, by its name or its files."""
    return folder.suffix == ".zarr" or any((folder / name).exists() for name in ZARR_FILES)


def check_zarr(folder: Path) -> None:
    """Refuses a store that would run code, read other files, or take more memory than there is."""
    content: dict[Path, dict[str, int]] = {}
    declared = stored = 0
    for owner, entry in _entries(folder):
        size = entry.stat().st_size
        files = content.setdefault(owner, {})
        if entry.name not in NO_CHUNKS:
            files[entry.path] = size
        stored += size
    for owner, files in content.items():
        metadata = [owner / name for name in METADATA if (owner / name).is_file()]
        sizes = [_check_array(folder, owner, file, files) for file in metadata]
        declared += sum(one or 0 for one in sizes)
        chunks = [path for path in files if CHUNK_NAME.fullmatch(Path(path).name)]
        if chunks and all(one is None for one in sizes):
            name = str(Path(chunks[-1]).relative_to(folder))
            problem = "is a chunk of no array: its metadata are lost. Copy the store again."
            raise DataError(folder, name, problem)
    check_total(folder, declared, stored)


def _entries(folder: Path) -> Iterator[tuple[Path, os.DirEntry[str]]]:
    """Yields all files with the array or group they belong to; refuses what is no file inside."""
    root, waiting = Path(os.path.realpath(folder)), [(folder, folder)]
    while waiting:
        place, owner = waiting.pop()
        with os.scandir(place) as found:
            entries = list(found)
        if any(entry.name in METADATA for entry in entries):
            owner = place
        for entry in entries:
            name = str(Path(entry.path).relative_to(folder))
            if entry.is_symlink():
                # Unlike `Path.resolve`, this comes back from links that lead to each other.
                is_inside = Path(os.path.realpath(entry.path)).is_relative_to(root)
                if not is_inside or not os.path.isfile(entry.path):
                    wrong = "to a folder, or to nothing" if is_inside else "that leads out of the folder"  # fmt: skip
                    problem = f"is a link {wrong}. Copy the store without links."
                    raise DataError(folder, name, problem)
            if entry.is_dir():
                waiting.append((Path(entry.path), owner))
            elif entry.is_file():
                yield owner, entry
            else:
                raise DataError(folder, name, NO_REGULAR_FILE)


def _check_array(folder: Path, owner: Path, file: Path, files: Mapping[str, int]) -> int | None:
    """Refuses an array by its metadata; returns the bytes of its values, None for a group.

    Args:
        folder: The store.
        owner: The folder of the array.
        file: Its metadata.
        files: Bytes of all its other files.
    """
    name = str(owner.relative_to(folder))
    if file.stat().st_size > LARGEST_METADATA:
        raise DataError(folder, name, f"has more than {LARGEST_METADATA} bytes of metadata.")
    try:
        stated = json.loads(file.read_text(encoding="utf-8"))
        if file.name == "zarr.json" and stated.get("node_type") != "array":
            return None
        is_third = file.name == "zarr.json"
        array = _third(folder, name, stated) if is_third else _second(folder, name, stated)
    except DataError:
        raise
    except Exception as error:
        # JSON of any content: a list for a mapping, text for a number, a thousand brackets.
        problem = f"has metadata that cannot be read: {type(error).__name__}: {error}"
        raise DataError(folder, name, f"{problem}. It may be damaged.") from error
    itemsize = array.itemsize or 1
    check_chunks(folder, name, array.shape, array.chunk, itemsize)
    in_file = math.prod(array.file_shape) * itemsize
    overhead = FILE_OVERHEAD + CHUNK_OVERHEAD * math.prod(array.file_shape) // math.prod(
        array.chunk
    )
    largest = max(files.values(), default=0)
    if array.itemsize is not None and largest > 1.25 * in_file + overhead:
        problem = f"has a chunk of {largest} bytes, which may hold {in_file} at most."
        raise DataError(folder, name, f"{problem} It may be damaged.")
    if array.is_blosc:
        is_known = array.itemsize is not None and not array.is_filtered
        _check_blosc(folder, files, in_file if is_known else None)
    return math.prod(array.shape) * itemsize


def _check_blosc(folder: Path, files: Mapping[str, int], unpacked: int | None) -> None:
    """Refuses chunks of another length than they state: blosc reads on beyond the end of a short one.

    Args:
        folder: The store.
        files: Bytes of the files of an array.
        unpacked: Bytes that every chunk must unpack to, where they are known.
    """
    for path, size in files.items():
        if not CHUNK_NAME.fullmatch(Path(path).name):
            continue
        with open(path, "rb") as file:
            header = file.read(BLOSC_HEADER)
        found, packed = (int.from_bytes(header[at : at + 4], "little") for at in (4, 12))
        if len(header) < BLOSC_HEADER or packed != size or unpacked not in (None, found):
            problem = f"is a chunk of {size} bytes, which says that it has {packed}"
            told = "" if unpacked in (None, found) else f" and unpacks to {found}, not {unpacked}"
            name = str(Path(path).relative_to(folder))
            raise DataError(folder, name, f"{problem}{told}. It is damaged: copy it again.")


def _second(folder: Path, name: str, stated: Mapping[str, Any]) -> _Array:
    """Returns how an array of format 2 is stored."""
    steps = [*(stated.get("filters") or []), *filter(None, [stated.get("compressor")])]
    ids = [step["id"] for step in steps]
    is_text = bool(TEXT_CODECS & {*ids})
    _check_codecs(folder, name, ids, PACKING_CODECS | TEXT_CODECS)
    for types in (stated, *steps):
        _check_no_objects(folder, name, types, is_text)
    chunk = _lengths(stated["chunks"])
    itemsize = None if is_text else _dtype(stated["dtype"]).itemsize
    is_blosc = ids[-1:] == ["blosc"]
    return _Array(
        _lengths(stated["shape"]), chunk, chunk, itemsize, is_blosc, is_filtered=len(ids) > 1
    )


def _third(folder: Path, name: str, stated: Mapping[str, Any]) -> _Array:
    """Returns how an array of format 3 is stored."""
    kind = stated["data_type"]
    is_known = (
        TYPES_3.fullmatch(kind) is not None
        if isinstance(kind, str)
        else kind.get("name") in NAMED_TYPES_3
    )
    if not is_known:
        raise DataError(folder, name, f"has entries of type {kind}, which is none we read.")
    if stated.get("storage_transformers"):
        raise DataError(folder, name, "has storage transformers, which we do not read.")
    grid = stated["chunk_grid"]
    if grid["name"] != "regular":
        raise DataError(folder, name, f"has chunks on a grid {grid['name']!r}, must be regular.")
    in_file = chunk = _lengths(grid["configuration"]["chunk_shape"])
    codecs = list(stated["codecs"])
    names = [step if isinstance(step, str) else step["name"] for step in codecs]
    is_filtered = not {*names} <= {"transpose", "bytes", "blosc", "numcodecs.blosc"}
    while codecs:
        step = codecs.pop()
        codec = step if isinstance(step, str) else step["name"]
        settings = {} if isinstance(step, str) else step.get("configuration") or {}
        _check_codecs(folder, name, [codec], CODECS_3)
        _check_no_objects(folder, name, settings, is_text=False)
        if codec == "sharding_indexed":
            chunk = _lengths(settings["chunk_shape"])
            codecs += [*settings["codecs"], *settings.get("index_codecs", [])]
    is_blosc = names[-1] in ("blosc", "numcodecs.blosc")
    return _Array(_lengths(stated["shape"]), chunk, in_file, _itemsize(kind), is_blosc, is_filtered)


def _lengths(stated: Sequence[Any]) -> tuple[int, ...]:
    return tuple(int(length) for length in stated)


def _itemsize(kind: str | Mapping[str, Any]) -> int | None:
    """Returns the bytes of an entry of format 3, None where entries differ."""
    if isinstance(kind, str):
        bits = re.search(r"\d+$", kind)
        return 1 if kind == "bool" else None if bits is None else -(-int(bits[0]) // 8)
    if "length_bytes" in (kind.get("configuration") or {}):
        return int(kind["configuration"]["length_bytes"])
    return 8 if str(kind["name"]).endswith("64") else None


def _check_codecs(folder: Path, name: str, codecs: Sequence[str], known: set[str]) -> None:
    for codec in codecs:
        if codec not in known:
            problem = f"is written with the codec {codec!r}, which may run code or is unknown."
            advice = f"Write it again with one of: {', '.join(sorted(known))}."
            raise DataError(folder, name, f"{problem} {advice}")


def _check_no_objects(folder: Path, name: str, stated: Mapping[str, Any], is_text: bool) -> None:
    """Refuses types of Python objects, other than text that has a codec of its own.

    Args:
        folder: The store.
        name: The array.
        stated: Its metadata, or the settings of a codec.
        is_text: Whether entries are text of any length.
    """
    for kind in (stated[key] for key in TYPE_SETTINGS if stated.get(key) is not None):
        if _dtype(kind).hasobject and not (is_text and kind == "|O"):
            problem = f"holds Python objects (dtype {kind}). Write it again as numbers or text."
            raise DataError(folder, name, problem)


def _dtype(stated: Any) -> np.dtype:
    if isinstance(stated, str):
        return np.dtype(stated)
    return np.dtype([(str(one[0]), _dtype(one[1]), *map(tuple, one[2:])) for one in stated])
