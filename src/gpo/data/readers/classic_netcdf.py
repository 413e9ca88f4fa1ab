"""Checks the length of a classic NetCDF file against its header.

The library returns arbitrary values beyond the end of a file, and wrong ones if records were lost.
The header is therefore parsed first: offsets and sizes of all variables and records.
"""

import mmap
import struct
from dataclasses import dataclass
from pathlib import Path

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
