"""The messages of a GRIB file, counted against those that its library makes fields of.

The library looks for the next message where one is damaged, and keeps one message where two
have the same variable, time and level; both would lose a frame without a word.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import xarray as xr

from gpo.data.dataset import DataError

LOOK_AHEAD = 512
HEADER_SIZE = 16
END = b"7777"
"""What every message ends with."""
SKIPS = {(3, 1), (2, 7), (3, 7), (4, 7)}
"""Sections of edition 2, by number, and what they may follow beside the one before them."""
BETWEEN = b"\0\1\3\t\r\n" + bytes(range(0x20, 0x7F))
"""Bytes between messages: headers of bulletins are text, and zeros fill a block."""


def count_messages(path: Path) -> int:
    """Returns how many messages a file has; refuses damage that the library may never come back from."""
    return sum(1 for _ in _messages(path))


def check_messages(path: Path, parts: Sequence[xr.Dataset], there: int) -> None:
    """Refuses a file with messages that are shown by none of its fields.

    Args:
        path: The file.
        parts: All of it, as the library opened it.
        there: How many messages it has.
    """
    shown = 0
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
            is_last = position + len(start) == size
            is_cut = is_last and gap < 0 and start.endswith((b"G", b"GR", b"GRI"))
            if is_cut or (start if gap < 0 else start[:gap]).translate(None, BETWEEN):
                raise DataError(path, "file", _damaged(position))
            if gap < 0 or (gap + HEADER_SIZE > len(start) and not is_last):
                # The rest may hold the first letters of a message, or of its header.
                position += len(start) if is_last else len(start) - HEADER_SIZE
                continue
            begin = position + gap
            length = _length(file, begin)
            position = begin + length
            file.seek(max(position - len(END), begin))
            if length <= HEADER_SIZE or file.read(len(END)) != END:
                raise DataError(path, "file", _damaged(begin))
            if not _has_whole_sections(file, begin, position):
                problem = f"cannot be opened as GRIB: the message at byte {begin} has a section"
                raise DataError(path, "file", f"{problem} of the wrong length. It is damaged.")
            yield begin


def _has_whole_sections(file: BinaryIO, begin: int, end: int) -> bool:
    """Returns whether the sections of a message follow one another up to its end; for edition 2."""
    file.seek(begin)
    if file.read(HEADER_SIZE)[7] != 2:
        return True
    position, before = begin + HEADER_SIZE, 0
    while position < end - len(END):
        file.seek(position)
        section = file.read(5)
        length, number = int.from_bytes(section[:4], "big"), section[4]
        # Sections 2 to 7 may come again, for more fields of one message.
        is_next = number == before + 1 or (number, before) in SKIPS
        if length < 5 or not is_next:
            return False
        position, before = position + length, number
    return position == end - len(END) and before == 7


def _length(file: BinaryIO, begin: int) -> int:
    """Returns the bytes of a message by its header, zero where it has none."""
    file.seek(begin)
    header = file.read(HEADER_SIZE)
    edition = header[7] if len(header) == HEADER_SIZE else 0
    if edition == 2:
        return int.from_bytes(header[8:16], "big")
    length = int.from_bytes(header[4:7], "big") if edition == 1 else 0
    if length < 2**23:
        return length
    # Edition 1 has 23 bits. Longer messages count units of 120 bytes, and the length of their
    # values, the fourth section, says by how much that is too long.
    position = begin + 8
    file.seek(position)
    section = file.read(8)
    flags = section[7] if len(section) == 8 else 0
    for is_there in (True, flags & 0x80, flags & 0x40):
        if is_there:
            file.seek(position)
            position += int.from_bytes(file.read(3), "big")
    file.seek(position)
    excess = int.from_bytes(file.read(3), "big")
    return length if excess >= 120 else (length - 2**23) * 120 - excess + len(END)


def _damaged(position: int) -> str:
    problem = f"cannot be opened as GRIB: no message ends and none begins at byte {position}"
    return f"{problem}. It is damaged or cut short."
