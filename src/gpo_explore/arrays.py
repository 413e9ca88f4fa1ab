"""The binary format of answers: a JSON header, then arrays of little-endian numbers.

A packet is `GPO1`, the length of the header as a 32-bit integer, the header, and the arrays one
after the other. All start at a multiple of four bytes.
"""

import json
import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

MAGIC = b"GPO1"
VISIBLE_FRACTION = 1e-4
"""Smallest difference that a picture or its numbers show, as a fraction of the range of values."""


@dataclass(frozen=True)
class Packet:
    """One answer: named arrays, and metadata."""

    arrays: Mapping[str, np.ndarray] = field(default_factory=dict)
    """Sent as float32, or as float64 where float32 would lose visible digits; integers as int32."""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """Values that JSON can represent; non-finite numbers become null."""


def pack(packet: Packet) -> bytes:
    """Encodes an answer as bytes."""
    contents: list[bytes] = []
    entries: list[dict[str, Any]] = []
    start = 0
    for name, array in packet.arrays.items():
        kind = _dtype(array)
        content = np.ascontiguousarray(array, dtype=f"<{kind}").tobytes()
        entries.append({"name": name, "kind": kind, "shape": list(array.shape), "start": start})
        contents.append(content)
        start += len(content)
    header = to_json({"metadata": packet.metadata, "arrays": entries})
    header += b" " * (-len(header) % 4)
    return b"".join([MAGIC, struct.pack("<I", len(header)), header, *contents])


def _dtype(array: np.ndarray) -> str:
    """Returns the type in which an array is sent."""
    if np.issubdtype(array.dtype, np.integer):
        return "i4"
    if array.dtype != np.float64 or not array.size:
        return "f4"
    with np.errstate(over="ignore", invalid="ignore"):
        finite = array[np.isfinite(array)]
        error = np.abs(finite - finite.astype(np.float32)).max(initial=0)
    return "f8" if len(finite) and error > VISIBLE_FRACTION * np.ptp(finite) else "f4"


def unpack(content: bytes) -> Packet:
    """Decodes the bytes of `pack`."""
    if content[:4] != MAGIC:
        raise ValueError(f"`content` must begin with {MAGIC!r}, got {content[:4]!r}.")
    (length,) = struct.unpack("<I", content[4:8])
    header = json.loads(content[8 : 8 + length])
    arrays = {}
    for entry in header["arrays"]:
        offset = 8 + length + entry["start"]
        count = math.prod(entry["shape"])
        flat = np.frombuffer(content, f"<{entry['kind']}", count, offset)
        arrays[entry["name"]] = flat.reshape(entry["shape"])
    return Packet(arrays, header["metadata"])


def to_json(value: Any) -> bytes:
    """Returns strict JSON, in which null stands for NaN and infinities."""
    return json.dumps(_plain(value), allow_nan=False, separators=(",", ":")).encode()


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
