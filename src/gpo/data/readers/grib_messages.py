"""Checks that the library reads all messages of a GRIB file.

The library skips damaged messages, and keeps one of several messages with the same variable, time
and level; both would silently lose a frame.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import xarray as xr

from gpo.data.dataset import DataError

LOOK_AHEAD = 512
HEADER_SIZE = 16
END = b"7777"
"""Last bytes of each message."""
SKIPS = {(3, 1), (2, 7), (3, 7), (4, 7)}
"""Allowed pairs of a section number of edition 2 and the previous one, if not consecutive."""
BETWEEN = b"\0\1\3\t\r\n" + bytes(range(0x20, 0x7F))
"""Bytes allowed between messages: text of bulletin headers, and zero padding."""


def count_messages(path: Path) -> int:
    """Returns the number of messages; raises a `DataError` for damage that may hang the library."""
    return sum(1 for _ in _messages(path))


def check_messages(path: Path, parts: Sequence[xr.Dataset], num_messages: int) -> None:
    """Raises a `DataError` if some messages are not part of any field.

    Args:
        path: The file.
        parts: All data sets that the library opened.
        num_messages: Number of messages in the file.
    """
    num_used = 0
    for part in parts:
        for name in part.data_vars:
            for slots in _slots(part[name].variable):
                repeated = next((slot for slot in slots.values() if len(slot) > 1), None)
                if repeated is not None:
                    problem = (
                        f"has {len(repeated)} messages of one time and level; keep one of them."
                    )
                    raise DataError(path, str(name), problem)
                num_used += len(slots)
    if num_used < num_messages:
        problem = f"has {num_messages} messages, of which only {num_used} are fields."
        raise DataError(path, "file", f"{problem} Remove the others, unless it is damaged.")


def _slots(variable: xr.Variable) -> Iterator[dict]:
    """Yields the messages of a variable by their index along times and levels."""
    layer: Any = variable._data
    while layer is not None:
        if hasattr(layer, "field_id_index"):
            yield layer.field_id_index
        layer = getattr(layer, "array", None)


def _messages(path: Path) -> Iterator[int]:
    """Yields the offset of each message, which must end where its header states."""
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
                # The end may contain the first bytes of a message.
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
    """Returns whether the sections of a message of edition 2 are consecutive up to its end."""
    file.seek(begin)
    if file.read(HEADER_SIZE)[7] != 2:
        return True
    position, before = begin + HEADER_SIZE, 0
    while position < end - len(END):
        file.seek(position)
        section = file.read(5)
        length, number = int.from_bytes(section[:4], "big"), section[4]
        # Sections 2 to 7 may repeat for several fields of a message.
        is_next = number == before + 1 or (number, before) in SKIPS
        if length < 5 or not is_next:
            return False
        position, before = position + length, number
    return position == end - len(END) and before == 7


def _length(file: BinaryIO, begin: int) -> int:
    """Returns the size of a message by its header; zero if there is no header."""
    file.seek(begin)
    header = file.read(HEADER_SIZE)
    edition = header[7] if len(header) == HEADER_SIZE else 0
    if edition == 2:
        return int.from_bytes(header[8:16], "big")
    length = int.from_bytes(header[4:7], "big") if edition == 1 else 0
    if length < 2**23:
        return length
    # Edition 1 has 23 bits for the size. Longer messages state it in units of 120 bytes, and the
    # size of section 4 is the excess.
    position = begin + 8
    file.seek(position)
    section = file.read(8)
    flags = section[7] if len(section) == 8 else 0
    for is_present in (True, flags & 0x80, flags & 0x40):
        if is_present:
            file.seek(position)
            position += int.from_bytes(file.read(3), "big")
    file.seek(position)
    excess = int.from_bytes(file.read(3), "big")
    return length if excess >= 120 else (length - 2**23) * 120 - excess + len(END)


def _damaged(position: int) -> str:
    problem = f"cannot be opened as GRIB: no message ends and none begins at byte {position}"
    return f"{problem}. It is damaged or cut short."
