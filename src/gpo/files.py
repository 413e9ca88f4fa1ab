"""Files that are complete or absent, mappings with the fields of a data class, and optional packages."""

import errno
import os
import shutil
import signal
import threading
import types
import typing
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from importlib import import_module
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any, Literal

DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Errors of a disk, a quota or a file that can take no more."""


class MissingPackageError(ImportError):
    """An optional package is not installed; the message names the extra that brings it."""


def require(module: str, extra: str, purpose: str = "This") -> ModuleType:
    """Imports a module where it is used; names the extra to install where a package is missing.

    Args:
        module: An optional package, or a module of ours that imports optional packages.
        extra: The extra of gpo that brings them.
        purpose: Subject of the message, such as "Reading GRIB".
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        package = (error.name or module).split(".")[0]
        if package == "gpo":
            raise
        raise MissingPackageError(
            f"{purpose} needs the package {package}, which is not installed. "
            f"Install it: pip install 'gpo[{extra}]'.",
            name=package,
        ) from error


class CheckpointError(ValueError):
    """A file or folder that does not hold what it should; the message names file and field."""


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Yields where to write; moves it to `path` when all went well, else leaves no trace.

    What is written may be a folder, where there is none at `path` yet. The ending stays what it
    is: some libraries choose their format by it. A full disk is told with the name of the file.
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
    """Returns the error of a file that could not be written, of which nothing is left."""
    return OSError(
        f"{path}: cannot be written: {reason}. Nothing is left of it; is there room on the disk?"
    )


@contextmanager
def unwinds_on_sigterm() -> Iterator[None]:
    """Ends on SIGTERM as on an error, so that nothing is left of files under way; exit code 143."""

    def end(number: int, frame: FrameType | None) -> None:
        # A second one must not cut short what the first began.
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


def visible(text: str) -> str:
    """Returns text whose control characters are spelled out: a terminal shows them, and obeys none.

    So are marks that turn the direction of writing, and bytes of file names that are no text.
    """
    return "".join(
        letter.encode("unicode_escape").decode() if _is_hidden(letter) else letter
        for letter in text
    )


def _is_hidden(letter: str) -> bool:
    return letter not in "\n\t" and unicodedata.category(letter) in ("Cc", "Cf", "Cs", "Zl", "Zp")


def write_text(path: Path, text: str) -> None:
    """Writes a text file that is whole or not there."""
    with whole_file(path) as partial:
        partial.write_text(text, encoding="utf-8")


def new_file(path: str | Path, suffixes: Sequence[str]) -> Path:
    """Returns a path that can be written: its ending is known, it is free, its folder is there."""
    path = Path(path)
    if path.suffix not in suffixes:
        raise ValueError(f"`path` must end in {' or '.join(suffixes)}, got {path.name!r}.")
    if path.exists():
        raise ValueError(f"{path} exists. Choose another name, or delete it.")
    path.parent.mkdir(parents=True, exist_ok=True)
    return path


def check_fields(
    cls: type,
    stored: Mapping[str, Any],
    where: str,
    *,
    prefix: str = "",
    error: type[ValueError] = ValueError,
) -> dict[str, Any]:
    """Returns what a file stores for fields of a data class, lists as tuples.

    Args:
        cls: The data class.
        stored: Values by name, all or some.
        where: What the message names: the file.
        prefix: What stands before the name of a field, such as the part it belongs to.
        error: Raised for a field that `cls` lacks or types otherwise.
    """
    known, annotations = {one.name for one in fields(cls)}, typing.get_type_hints(cls)
    checked: dict[str, Any] = {}
    for name, value in stored.items():
        if name not in known:
            raise error(f"{where}: field `{prefix}{name}` is unknown.")
        checked[name] = tuple(value) if isinstance(value, list) else value
        if not _is_a(checked[name], annotations[name]):
            expected = _spell(annotations[name])
            raise error(f"{where}: field `{prefix}{name}` must be {expected}, got {value!r}.")
    return checked


def _is_a(value: object, annotation: Any) -> bool:
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is Literal:
        return value in arguments
    if origin in (types.UnionType, typing.Union):
        return any(_is_a(value, argument) for argument in arguments)
    if origin is tuple:
        return isinstance(value, tuple) and all(_is_a(item, arguments[0]) for item in value)
    if annotation is float:
        return isinstance(value, int | float) and not isinstance(value, bool)
    if annotation is int:
        return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, annotation)


def _spell(annotation: Any) -> str:
    if typing.get_origin(annotation) is Literal:
        return "one of " + ", ".join(repr(choice) for choice in typing.get_args(annotation))
    return getattr(annotation, "__name__", str(annotation))
