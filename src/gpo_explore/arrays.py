"""The format of answers: a short JSON header, then arrays of little-endian numbers.

Bytes: `GPO1`, the length of the header as a 32-bit integer, the header, the arrays one after the
other. All begin at a multiple of four bytes, so that a browser can view them in place.
"""

import json
import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

MAGIC = b"GPO1"
SEEN = 1e-4
"""Part of the range of some numbers that a picture, or the digits beside it, would show."""


@dataclass(frozen=True)
class Packet:
    """One answer: named arrays, and metadata."""

    arrays: Mapping[str, np.ndarray] = field(default_factory=dict)
    """Numbers, which travel as float32, or as float64 where that would lose digits that can be seen;
    site numbers and the like as int32."""
    metadata: Mapping[str, Any] = field(default_factory=dict)
    """What JSON can hold; a number that is not finite becomes null."""


def pack(packet: Packet) -> bytes:
    """Encodes an answer."""
    parts: list[bytes] = []
    described: list[dict[str, Any]] = []
    start = 0
    for name, array in packet.arrays.items():
        kind = f"<{_kind(array)}"
        content = np.ascontiguousarray(array, dtype=kind).tobytes()
        described.append(
            {"name": name, "kind": kind[1:], "shape": list(array.shape), "start": start}
        )
        parts.append(content)
        start += len(content)
    header = to_json({"metadata": packet.metadata, "arrays": described})
    header += b" " * (-len(header) % 4)
    return b"".join([MAGIC, struct.pack("<I", len(header)), header, *parts])


def _kind(array: np.ndarray) -> str:
    """Returns in which numbers an array travels."""
    if np.issubdtype(array.dtype, np.integer):
        return "i4"
    if array.dtype != np.float64 or not array.size:
        return "f4"
    with np.errstate(over="ignore", invalid="ignore"):
        known = array[np.isfinite(array)]
        lost = np.abs(known - known.astype(np.float32)).max(initial=0)
    return "f8" if len(known) and lost > SEEN * np.ptp(known) else "f4"


def unpack(content: bytes) -> Packet:
    """Returns the packet that `pack` encoded."""
    if content[:4] != MAGIC:
        raise ValueError(f"`content` must begin with {MAGIC!r}, got {content[:4]!r}.")
    (length,) = struct.unpack("<I", content[4:8])
    header = json.loads(content[8 : 8 + length])
    arrays = {}
    for part in header["arrays"]:
        first = 8 + length + part["start"]
        count = math.prod(part["shape"])
        flat = np.frombuffer(content, f"<{part['kind']}", count, first)
        arrays[part["name"]] = flat.reshape(part["shape"])
    return Packet(arrays, header["metadata"])


def to_json(value: Any) -> bytes:
    """Returns JSON that every browser reads: it has no NaN and no infinity."""
    return json.dumps(_plain(value), allow_nan=False, separators=(",", ":")).encode()


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
