"""The messages of a GRIB file, counted against those that its library makes fields of.

The library looks for the next message where one is damaged, and keeps one message where two
have the same variable, time and level; both would lose a frame without a word.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

import xarray as xr

from gpo.data.dataset import DataError

LONGEST_GAP = 512
"""Bytes between messages: headers of bulletins, or zeros that fill a block."""
HEADER_SIZE = 16


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
    layer = variable._data
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
            start = file.read(LONGEST_GAP + HEADER_SIZE)
            gap = start.find(b"GRIB")
            if gap < 0:
                if start.strip(b"\0\r\n\x03") and position + len(start) < size:
                    raise DataError(path, "file", f"is damaged at byte {position}: no message.")
                if not start.strip(b"\0\r\n\x03"):
                    position += len(start)
                    continue
                return
            header = start[gap : gap + HEADER_SIZE]
            edition = header[7] if len(header) > 7 else 0
            if edition not in (1, 2) or len(header) < HEADER_SIZE:
                return
            length = int.from_bytes(header[4:7] if edition == 1 else header[8:16], "big")
            if edition == 1 and length >= 2**23:
                # Messages above 8 MiB keep their length in units of 120 bytes; the library knows.
                return
            yield position + gap
            position += gap + length
            file.seek(position - 4)
            if file.read(4) != b"7777":
                raise DataError(path, "file", f"is damaged before byte {position}: no end.")
