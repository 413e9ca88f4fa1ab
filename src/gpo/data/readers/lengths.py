"""Checks that a classic NetCDF or GRIB file is whole, and that all GRIB messages are read.

The NetCDF library returns arbitrary values beyond the end of a file, and wrong ones if records were
lost: its header is therefore parsed first. The GRIB library skips damaged messages, and keeps one of
several messages with the same variable, time and level; both would silently lose a frame.
"""

import mmap
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import xarray as xr

from gpo.data.dataset import DataError

CLASSIC_STARTS = (b"CDF\x01", b"CDF\x02", b"CDF\x05")
ITEM_SIZES = {1: 1, 2: 1, 3: 2, 4: 4, 5: 4, 6: 8, 7: 1, 8: 2, 9: 4, 10: 8, 11: 8}
"""Bytes of a value by its type code."""
MAX_LIST = 10**5
"""Maximum number of dimensions, attributes or variables; a sparse file may claim any number."""


@dataclass(frozen=True)
class _Variable:
    begin: int
    size: int
    """Bytes of the variable, or of one of its records."""
    has_records: bool


def check_length(path: Path) -> None:
    """Raises a `DataError` if a classic file is shorter or longer than its header states."""
    size = path.stat().st_size
    with path.open("rb") as file:
        if file.read(4) not in CLASSIC_STARTS:
            return
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            try:
                expected = _Header(content).file_size()
            except (struct.error, KeyError, IndexError) as error:
                problem = "cannot be opened as NetCDF by its header. It is damaged or cut short."
                raise DataError(path, "file", problem) from error
    if size != expected:
        problem = f"cannot be opened as NetCDF: it has {size} bytes, its header says {expected}"
        raise DataError(path, "file", f"{problem}. It is damaged or cut short: download it again.")


class _Header:
    """A sequential parser of the header."""

    def __init__(self, content: mmap.mmap) -> None:
        self.content = content
        version = content[3]
        self.position = 4
        self.count_format = ">q" if version == 5 else ">i"
        self.offset_format = ">i" if version == 1 else ">q"

    def file_size(self) -> int:
        """Returns the size of the file, including the padding of its last variable."""
        num_records = self._number(self.count_format)
        dims = [self._dimension() for _ in range(self._list_length())]
        self._skip_attributes()
        variables = [self._variable(dims) for _ in range(self._list_length())]
        records = [part for part in variables if part.has_records]
        # The records of a single variable are not padded.
        step = records[0].size if len(records) == 1 else sum(_padded(part.size) for part in records)
        if num_records < 0 and records:
            # A streamed file does not state the number of records.
            first = min(part.begin for part in records)
            num_records = (len(self.content) - first) // max(step, 1)
        ends = [self.position]
        for variable in variables:
            repeats = num_records if variable.has_records else 1
            if repeats:
                ends.append(variable.begin + (repeats - 1) * step + variable.size)
        # Padding is included: otherwise a lost byte could go unnoticed.
        return max(ends) if len(records) == 1 and num_records else _padded(max(ends))

    def _dimension(self) -> int:
        self._skip_name()
        return self._count()

    def _variable(self, dims: list[int]) -> _Variable:
        self._skip_name()
        lengths = [dims[self._count()] for _ in range(self._count(MAX_LIST))]
        self._skip_attributes()
        size = ITEM_SIZES[self._number(">i")]
        self._number(self.count_format)  # The size in the header overflows for large variables.
        begin = self._number(self.offset_format)
        has_records = bool(lengths) and lengths[0] == 0
        for length in lengths[has_records:]:
            size *= length
        return _Variable(begin, size, has_records)

    def _skip_attributes(self) -> None:
        for _ in range(self._list_length()):
            self._skip_name()
            itemsize = ITEM_SIZES[self._number(">i")]
            self._skip(itemsize * self._count())

    def _list_length(self) -> int:
        self._number(">i")
        return self._count(MAX_LIST)

    def _skip_name(self) -> None:
        self._skip(self._count())

    def _skip(self, size: int) -> None:
        self.position += _padded(size)

    def _count(self, most: int = 2**63) -> int:
        """Returns a non-negative number: negative ones could make the parser loop."""
        count = self._number(self.count_format)
        if not 0 <= count <= most:
            raise IndexError(f"a count of {count} at byte {self.position}")
        return count

    def _number(self, form: str) -> int:
        (number,) = struct.unpack_from(form, self.content, self.position)
        self.position += struct.calcsize(form)
        return number


def _padded(size: int) -> int:
    return -(-size // 4) * 4


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
