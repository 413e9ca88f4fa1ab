"""Fuzzes the readers: damages files of all layouts in many ways and records the outcomes.

A good outcome is a `DataError`, or the same data as of the intact file. Files are read in a forked
process with limited memory, so that a crash or a hang of a file library ends only that process; the
next file is read in a new one. All damage is determined by the seed.

    python -m tests.contracts.fuzz 300 0 FOLDER
"""

import json
import os
import random
import resource
import select
import shutil
import signal
import sys
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from gpo.data.dataset import DataError
from gpo.data.readers.base import ReadOptions
from gpo.data.readers.registry import open_data
from gpo.limits import MAX_BYTES
from tests.contracts.stored_numbers import changes_outside, number_ranges
from tests.processes import LIMIT

MEMORY = 3 * 2**30
"""Additional bytes of address space of the reading process."""
ALLOWED = 2**28
"""Bytes that a file may load at once (GPO_MAX_BYTES)."""
PATIENCE = 20
"""CPU seconds after which reading a file counts as a hang: those do not depend on other processes."""
DIFFERENCES = ("shape", "names", "sites", "values")
"""Parts in which data may differ, most serious first."""
GOOD = ("refused", "same")
CHECKED = ("arrays", "arrays of MATLAB 5, compressed", "a grid, save_npz", "npz, compressed", "NetCDF 4, checksums",
           "HDF5, checksums", "Zarr 2, checksums", "Zarr 3, checksums")  # fmt: skip
"""Layouts in which all values have checksums."""
SAME_LENGTH = ("flip", "zero", "swap", "head")
"""Kinds of damage that keep the length of a file."""
METADATA = (".zattrs", ".zarray", ".zgroup", "zarr.json")
REASONS = {
    "numbers": "a number of an array changed in place where the container keeps it without a "
    "checksum: HDF5 and NetCDF 4 without fletcher32, classic NetCDF, `.npy`, MATLAB 5 without "
    "compression, the packed numbers of GRIB, Zarr with blosc. No reader can see it.",
    "declared": "what a file says of its numbers or sites changed to something that fits, without a "
    "checksum: in GRIB the grid, the month, or reference, scale and bits of packed numbers (sections "
    "1, 3, 5); in HDF5 the exponent of a type of numbers, the byte at which values begin, or a text.",
    "metadata": "the JSON of a Zarr store, which has no checksum, says another length, name or unit "
    "that fits.",
    "text": "a table is text, where a digit more or less is another number.",
    "lost": "a file was lost from a folder of `.npy` files, and nothing lists them.",
    "library": "HDF5, netCDF or ecCodes ended the process, or kept it busy for more than 20 s. All "
    "files are read in one process, so memory that an earlier one spoilt may end a later one. "
    "Files of strangers are read in a child process: --untrusted (SECURITY.md).",
}
"""Explanations for damaged files that are neither refused nor the same."""
MET = {
    "numbers": "all bytes that changed are stored numbers of an array",
    "numbers, unread": "stored numbers changed, and others by which alone all data stay the same",
    "declared": "others changed the data, alone or beside numbers",
}
"""Bytes changed by damage that kept the length, by the ranges of `stored_numbers.py`."""


@dataclass(frozen=True)
class Finding:
    """The outcome of reading a damaged file."""

    layout: str
    number: int
    damage: str
    file: str
    outcome: str
    """refused, same, one of `DIFFERENCES`, error, memory, hang or crash."""
    message: str = ""
    met: str = ""
    """Key of `MET`, if the changed bytes were examined."""

    @property
    def reason(self) -> str | None:
        """Key of `REASONS` that explains the outcome; None if unexplained."""
        if self.outcome in ("hang", "crash"):
            return "library"
        if self.outcome not in DIFFERENCES:
            return None
        if self.damage == "lost file":
            return "lost" if self.file.endswith(".npy") else None
        if self.file in METADATA:
            return "metadata"
        if self.layout == "a table":
            return "text"
        if self.damage not in SAME_LENGTH or self.layout in CHECKED:
            return None
        return "declared" if self.met == "declared" else "numbers"


class Damage:
    """Kinds of damage to the content of a file, by name."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance

    def apply(self, content: bytes) -> tuple[str, bytes]:
        """Returns the name of a kind of damage and the damaged content."""
        while True:
            name = self._chance.choice(self.NAMES)
            changed = getattr(self, f"_{name}")(bytearray(content))
            if changed != content:
                return name, bytes(changed)

    NAMES: ClassVar = ("cut", "flip", "flip", "zero", "insert", "remove", "swap", "repeat", "head", "head", "append")  # fmt: skip

    def _place(self, content: bytearray) -> tuple[int, int]:
        size = min(self._chance.choice([1, 4, 16, 64, 512]), len(content))
        start = self._chance.randrange(len(content) - size + 1)
        return start, start + size

    def _cut(self, content: bytearray) -> bytearray:
        near = self._chance.random() < 0.3
        keep = self._chance.randrange(len(content))
        return content[: len(content) - 1 - keep % 8 if near else keep]

    def _flip(self, content: bytearray) -> bytearray:
        for _ in range(self._chance.choice([1, 1, 1, 4, 16])):
            content[self._chance.randrange(len(content))] ^= 1 << self._chance.randrange(8)
        return content

    def _zero(self, content: bytearray) -> bytearray:
        start, stop = self._place(content)
        content[start:stop] = bytes(stop - start)
        return content

    def _insert(self, content: bytearray) -> bytearray:
        start, stop = self._place(content)
        content[start:start] = self._chance.randbytes(stop - start)
        return content

    def _remove(self, content: bytearray) -> bytearray:
        start, stop = self._place(content)
        del content[start:stop]
        return content

    def _swap(self, content: bytearray) -> bytearray:
        (a, b), (c, d) = sorted([self._place(content), self._place(content)])
        size = min(b - a, d - c, max(c - a, 1))
        content[a : a + size], content[c : c + size] = content[c : c + size], content[a : a + size]
        return content

    def _repeat(self, content: bytearray) -> bytearray:
        start, stop = self._place(content)
        content[stop:stop] = content[start:stop]
        return content

    def _head(self, content: bytearray) -> bytearray:
        reach = min(self._chance.choice([16, 64, 512, 4096]), len(content))
        for _ in range(self._chance.choice([1, 1, 4, 32])):
            content[self._chance.randrange(reach)] = self._chance.randrange(256)
        return content

    def _append(self, content: bytearray) -> bytearray:
        return content + self._chance.randbytes(self._chance.choice([1, 4, 64, 4096]))


@dataclass(frozen=True)
class IntactFile:
    """An intact file or folder, the options to read it, and its content."""

    layout: str
    path: Path
    options: ReadOptions
    content: Mapping[str, bytes]

    @classmethod
    def of(cls, layout: str, sample: Any) -> "IntactFile":
        """Reads a sample of `layouts.py`."""
        path, select = sample if isinstance(sample, tuple) else (sample, {})
        options = ReadOptions(select=select)
        return cls(layout, path, options, content_of(path, options))

    def damage(self, number: int, seed: int) -> tuple[str, Path, bytes | None]:
        """Returns the kind of damage, the damaged file, and its content; None if it is deleted."""
        chance = random.Random(f"{seed} {self.layout} {number}")
        files = [self.path]
        if self.path.is_dir():
            files = sorted(file for file in self.path.rglob("*") if file.is_file())
        file = chance.choice([part for part in files if part.stat().st_size])
        if self.path.is_dir() and chance.random() < 0.05:
            return "lost file", file, None
        name, changed = Damage(chance).apply(file.read_bytes())
        return name, file, changed

    def copy(self, file: Path, content: bytes | None, work: Path) -> Path:
        """Returns a copy in which one file has other content, or is deleted."""
        copy = work / self.path.name
        if self.path.is_dir():
            shutil.rmtree(copy, ignore_errors=True)
            shutil.copytree(self.path, copy)
        place = copy / file.relative_to(self.path)
        if content is None:
            place.unlink()
        else:
            place.write_bytes(content)
        return copy

    def damaged(self, number: int, seed: int, work: Path) -> Iterator[Finding]:
        """Yields a preliminary finding before a damaged copy is read, and then its outcome."""
        name, file, content = self.damage(number, seed)
        copy = self.copy(file, content, work)
        begun = Finding(self.layout, number, name, file.name, "crash")
        yield begun
        yield replace(begun, **_read(copy, self))

    def met(self, finding: Finding, seed: int, work: Path) -> str:
        """Returns the key of `MET` for damage that changed the data but not the length."""
        name, file, content = self.damage(finding.number, seed)
        if (name, file.name) != (finding.damage, finding.file) or content is None:
            raise ValueError(f"{finding} is not reproduced by the seed {seed}.")
        outside = changes_outside(file.read_bytes(), content, number_ranges(file))
        if outside is None:
            return "numbers"
        copy = self.copy(file, outside, work)
        try:
            is_same = content_of(copy, self.options) == self.content
        except DataError:
            # These changes alone are refused; the changed values compensated for them.
            return "declared"
        return "numbers, unread" if is_same else "declared"


def content_of(path: Path, options: ReadOptions) -> dict[str, bytes]:
    """Returns the whole content of a file as bytes for comparison."""
    data = open_data(path, options)
    sites = [np.ascontiguousarray(part).tobytes() for geometry in data.geometries
             for part in (geometry.coords, geometry.weights)]  # fmt: skip
    values = [data.frames(number) for number in range(data.num_samples)]
    count = data.num_samples, len(data.time), data.num_inputs
    times = f"{data.time.tolist()} {data.time_units} {data.origin}".encode()
    shapes = [geometry.coords.shape for geometry in data.geometries]
    return {
        "shape": f"{data.layout} {count} {len(data.variables)} {shapes}".encode(),
        "names": str([(variable.name, variable.units) for variable in data.variables]).encode(),
        "sites": b"".join([times, *sites]),
        "values": b"".join(np.ascontiguousarray(part).tobytes() for part in values),
    }


def _read(path: Path, victim: IntactFile) -> dict[str, str]:
    """Returns outcome and message of reading a file."""
    signal.setitimer(signal.ITIMER_PROF, PATIENCE / 2)
    # Loops in a library, where Python handles no signal, end the process.
    limit = int(time.process_time()) + PATIENCE
    resource.setrlimit(resource.RLIMIT_CPU, (limit, resource.RLIM_INFINITY))
    try:
        content = content_of(path, victim.options)
    except DataError as error:
        causes = [error.__cause__, getattr(error.__cause__, "__cause__", None)]
        for kind, name in ((MemoryError, "memory"), (TimeoutError, "hang")):
            if any(isinstance(cause, kind) for cause in causes):
                return {"outcome": name, "message": str(error)}
        return {"outcome": "refused"}
    except (MemoryError, TimeoutError) as error:
        return {"outcome": "memory" if isinstance(error, MemoryError) else "hang"}
    except Exception:
        return {"outcome": "error", "message": traceback.format_exc()[-1500:]}
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
    differing = [part for part in DIFFERENCES if content[part] != victim.content[part]]
    if not differing:
        return {"outcome": "same"}
    shown = content[differing[0]][:200].decode(errors="replace") if differing[0] != "values" else ""
    return {"outcome": differing[0], "message": shown}


def fuzz(victims: Sequence[IntactFile], count: int, seed: int, work: Path) -> list[Finding]:
    """Returns the outcomes of `count` damaged files, equally many of each layout."""
    tasks = [(victim, number) for number in range(-(-count // len(victims))) for victim in victims]
    findings: list[Finding] = []
    while len(findings) < len(tasks):
        findings += _until_it_ends(tasks[len(findings) :], seed, work)
    return findings


def _until_it_ends(tasks: Sequence[tuple[IntactFile, int]], seed: int, work: Path) -> list[Finding]:
    """Reads in a new process; returns the findings up to and including a crash or hang."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            _work(tasks, seed, work, writing)
        finally:
            os._exit(0)
    os.close(writing)
    findings, rest, is_hanging = [], b"", False
    while True:
        ready, _, _ = select.select([reading], [], [], LIMIT)
        if not ready:
            os.kill(child, signal.SIGKILL)
            is_hanging = True
        more = os.read(reading, 2**16)
        if not more:
            break
        *lines, rest = (rest + more).split(b"\n")
        for line in lines:
            finding = Finding(**json.loads(line))
            if findings and findings[-1].outcome == "crash":
                findings.pop()
            findings.append(finding)
    os.close(reading)
    _, status = os.waitpid(child, 0)
    is_hanging = is_hanging or os.waitstatus_to_exitcode(status) == -signal.SIGXCPU
    if findings and findings[-1].outcome == "crash":
        outcome = "hang" if is_hanging else "crash"
        findings[-1] = replace(findings[-1], outcome=outcome, message=f"status {status}")
    return findings


def _work(tasks: Sequence[tuple[IntactFile, int]], seed: int, work: Path, writing: int) -> None:
    """Damages and reads files, and reports each before and after reading."""
    warnings.simplefilter("ignore")
    quiet = os.open(os.devnull, os.O_WRONLY)
    os.dup2(quiet, 2)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * os.sysconf("SC_PAGE_SIZE") + MEMORY
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.environ[MAX_BYTES] = str(ALLOWED)

    def too_long(*_: object) -> None:
        raise TimeoutError

    signal.signal(signal.SIGPROF, too_long)
    for victim, number in tasks:
        for finding in victim.damaged(number, seed, work):
            os.write(writing, json.dumps(vars(finding)).encode() + b"\n")


def whole_files(folder: Path) -> list[IntactFile]:
    """Returns an intact file of each layout."""
    from tests.contracts.containers import CONTAINERS
    from tests.contracts.layouts import LAYOUTS

    victims = []
    for number, (layout, make) in enumerate({**LAYOUTS, **CONTAINERS}.items()):
        place = folder / f"{number}"
        place.mkdir(parents=True)
        victims.append(IntactFile.of(layout, make(place)))
    return victims


def main(count: int, seed: int, folder: Path) -> None:
    """Prints unexplained findings, then the counts of all outcomes."""
    work = folder / "damaged"
    work.mkdir()
    findings = fuzz(whole_files(folder / "whole"), count, seed, work)
    for finding in findings:
        if finding.outcome not in GOOD and finding.reason in (None, "library"):
            print(finding)
    print(json.dumps(Counter(finding.outcome for finding in findings)))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
