"""Atomic writes: a file is complete or absent, even after a crash."""

import errno
import os
import shutil
import signal
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Error codes of a full disk, an exhausted quota or too large a file."""


NO_REGULAR_FILE = "is not a regular file, but a device, a pipe or similar."


def file_problem(path: Path) -> str | None:
    """Returns why a path is not a readable file; None if it is, or does not exist."""
    if path.is_dir():
        return "is a folder, must be a file."
    # Reading a pipe may block forever, and a device has no end.
    return NO_REGULAR_FILE if path.exists() and not path.is_file() else None


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Yields a temporary path; moves it to `path` on success and deletes it on failure.

    It may be a folder if `path` does not exist yet. The suffix is kept, because some libraries
    choose their format by it. The error of a full disk names the file.
    """
    partial = path.with_name(f".partial-{os.getpid()}-{path.name}")
    try:
        yield partial
        os.replace(partial, path)
    except OSError as error:
        if error.errno not in DISK_FULL:
            raise
        raise unwritten(path, error.strerror) from error
    finally:
        if partial.is_dir():
            shutil.rmtree(partial)
        partial.unlink(missing_ok=True)


def unwritten(path: Path, reason: object) -> OSError:
    """Returns the error of a file that could not be written and was removed."""
    return OSError(
        f"{path}: cannot be written: {reason}. The partial file was removed; check the free space."
    )


@contextmanager
def unwinds_on_sigterm() -> Iterator[None]:
    """Turns SIGTERM into `SystemExit`, so that partial files are removed; exit code 143."""

    def end(number: int, frame: FrameType | None) -> None:
        # A second signal must not interrupt the cleanup.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise SystemExit(128 + number)

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def write_text(path: Path, text: str) -> None:
    """Writes a text file atomically."""
    with whole_file(path) as partial:
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
