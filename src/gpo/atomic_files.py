"""Atomic writes: a file is complete or absent, even after a crash."""

import errno
import os
import shutil
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Error codes of a full disk, an exhausted quota or too large a file."""


PARTIAL = ".partial-"
"""How the names of files begin that are being written, and of what a kill leaves of them."""
NOT_A_REGULAR_FILE = "is not a regular file, but a device, a pipe or similar."


def file_problem(path: Path) -> str | None:
    """Returns why a path is not a readable file; None if it is, or does not exist."""
    if path.is_dir():
        return "is a folder, must be a file."
    # Reading a pipe may block forever, and a device has no end.
    return NOT_A_REGULAR_FILE if path.exists() and not path.is_file() else None


@contextmanager
def atomic_file(path: Path) -> Iterator[Path]:
    """Yields a temporary path; moves it to `path` on success and deletes it on failure.

    It may be a folder if `path` does not exist yet. The suffix is kept, because some libraries
    choose their format by it. The error of a full disk names the file.
    """
    _remove_leftovers(path)
    partial = path.with_name(f"{PARTIAL}{os.getpid()}-{path.name}")
    try:
        yield partial
        os.replace(partial, path)
    except OSError as error:
        if error.errno not in DISK_FULL:
            raise
        raise write_error(path, error.strerror) from error
    finally:
        if partial.is_dir():
            shutil.rmtree(partial)
        partial.unlink(missing_ok=True)


def _remove_leftovers(path: Path) -> None:
    """Removes what killed processes left of a file that they were writing."""
    for leftover in path.parent.glob(f"{PARTIAL}*"):
        number, _, name = leftover.name.removeprefix(PARTIAL).partition("-")
        if name == path.name and number.isdecimal() and not _is_running(int(number)):
            with suppress(OSError):
                shutil.rmtree(leftover) if leftover.is_dir() else leftover.unlink()


def _is_running(pid: int) -> bool:
    """Returns whether a process runs on this machine; True where that cannot be told."""
    if os.name == "nt":
        # There, signal 0 is Ctrl-C.
        return True
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:
        return True
    return True


def write_error(path: Path, reason: object) -> OSError:
    """Returns the error of a file that could not be written and was removed."""
    return OSError(
        f"{path}: cannot be written: {reason}. The partial file was removed; check the free space."
    )


@contextmanager
def cleans_up_on_sigterm() -> Iterator[Callable[[], None]]:
    """Ends on SIGTERM as on an error, so that nothing is left of files under way; exit code 143.

    Yields a function to call between two steps of long work. It ends the work if the signal came
    while a library ran that discards exceptions, as netCDF4 does in places.
    """
    exit_code = 0

    def end(number: int, frame: FrameType | None) -> None:
        nonlocal exit_code
        # A second one must not cut short what the first began.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        exit_code = 128 + number
        raise SystemExit(exit_code)

    def check() -> None:
        if exit_code:
            raise SystemExit(exit_code)

    if threading.current_thread() is not threading.main_thread():
        yield check
        return
    before = signal.signal(signal.SIGTERM, end)
    try:
        yield check
    finally:
        signal.signal(signal.SIGTERM, before)


def write_text(path: Path, text: str) -> None:
    """Writes a text file atomically."""
    with atomic_file(path) as partial:
        partial.write_text(text, encoding="utf-8")


def new_file(path: str | Path, suffixes: Sequence[str]) -> Path:
    """Checks suffix and absence of a new file, creates its folder and returns the path."""
    path = Path(path)
    if path.suffix not in suffixes:
        raise ValueError(f"`path` must end in {' or '.join(suffixes)}, got {path.name!r}.")
    if path.exists():
        raise ValueError(f"{path} exists. Choose another name, or delete it.")
    path.parent.mkdir(parents=True, exist_ok=True)
    return path
