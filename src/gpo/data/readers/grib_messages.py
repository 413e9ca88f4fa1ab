"""The messages of a GRIB file, counted against those that its library makes fields of.

The library looks for the next message where one is damaged, and keeps one message where two
have the same variable, time and level; both would lose a frame without a word.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import xarray as xr

from gpo.data.dataset import DataError

LOOK_AHEAD = 512
HEADER_SIZE = 16
BETWEEN = b"\0\1\3\t\r\n" + bytes(range(0x20, 0x7F))
"""Bytes between messages: headers of bulletins are text, and zeros fill a block."""


def check_messages(path: Path, parts: Sequence[xr.Dataset]) -> None:
    """Refuses a file with messages that are damaged or shown by none of its fields.

    Args:
        path: The file.
        parts: All of it, as the library opened it.
    """
    there, shown = sum(1 for _ in _messages(path)), 0
    for part in parts:
        for name in part.data_vars:
            for slots in _slots(part[name].variable):
                twice = next((found for found in slots.values() if len(found) > 1), None)
                if twice is not None:
                    problem = f"has {len(twice)} messages of one time and level; keep one of them."
                    raise DataError(path, str(name), problem)
                shown += len(slots)
    if shown < there:
        problem = f"has {there} messages, of which {shown} can be shown as fields."
        raise DataError(path, "file", f"{problem} It may be damaged, or some are no fields.")


def _slots(variable: xr.Variable) -> Iterator[dict]:
    """Yields the messages of a variable by their place among its times and levels."""
    layer: Any = variable._data
    while layer is not None:
        if hasattr(layer, "field_id_index"):
            yield layer.field_id_index
        layer = getattr(layer, "array", None)


def _messages(path: Path) -> Iterator[int]:
    """Yields where every message begins; refuses one that does not end where it says."""
    size, position = path.stat().st_size, 0
    with path.open("rb") as file:
        while position < size:
            file.seek(position)
            start = file.read(LOOK_AHEAD)
            gap = start.find(b"GRIB")
            if (start if gap < 0 else start[:gap]).translate(None, BETWEEN):
                raise DataError(path, "file", _damaged(position))
            if gap < 0 or gap + HEADER_SIZE > len(start):
                # The rest may hold the first letters of a message.
                position += max(len(start) - HEADER_SIZE, 1)
                continue
            header = start[gap : gap + HEADER_SIZE]
            edition = header[7]
            if edition not in (1, 2):
                raise DataError(path, "file", _damaged(position + gap))
            length = int.from_bytes(header[4:7] if edition == 1 else header[8:16], "big")
            if edition == 1 and length >= 2**23:
                # Messages above 8 MiB keep their length in units of 120 bytes; the library knows.
                return
            yield position + gap
            position += gap + length
            file.seek(position - 4)
            if file.read(4) != b"7777":
                raise DataError(path, "file", _damaged(position))


def _damaged(position: int) -> str:
    problem = f"cannot be opened as GRIB: no message ends and none begins at byte {position}"
    return f"{problem}. It is damaged or cut short."
