"""Files that are complete or absent, limits of what is read at once, fields of data classes, packages."""

import errno
import json
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


MAX_BYTES = "GPO_MAX_BYTES"
"""Environment variable: how many bytes a file may take in memory at once."""
LARGE = 2**30
"""Bytes from which on a file that unpacks to far more than it holds is refused."""
LARGEST_RATIO = 500
"""Bytes in memory per byte in the file up to which large content is believed; real fields have 50 at most."""

MAX_LAYERS = 1000
LARGEST_YAML, LARGEST_JSON = 2**20, 2**26
DEEPEST_YAML = 20


def max_bytes() -> int:
    """Returns how many bytes may be read at once: as the user says, else half of the memory."""
    stated = os.environ.get(MAX_BYTES)
    if stated is None:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2
    if not stated.isdecimal() or int(stated) < 1:
        raise ValueError(f"{MAX_BYTES} must be a number of bytes, got {stated!r}.")
    return int(stated)


def size_problem(needed: int, stored: int) -> str | None:
    """Returns why content is too large to be read at once, and what allows it; None where it is not.

    Args:
        needed: Bytes in memory, as the file declares them.
        stored: Bytes in the file.
    """
    limit = max_bytes()
    allow = f"If you trust the file, allow it: {MAX_BYTES}={needed}."
    if needed > limit:
        return f"would take {spell_bytes(needed)} of memory at once, more than {spell_bytes(limit)}. {allow}"
    if MAX_BYTES not in os.environ and needed > max(LARGE, LARGEST_RATIO * stored):
        return f"would unpack {spell_bytes(stored)} to {spell_bytes(needed)}. {allow}"
    return None


def spell_bytes(count: int) -> str:
    """Returns a number of bytes in words."""
    size = float(count)
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if size < 1024:
            return f"{size:.4g} {unit}"
        size /= 1024
    return f"{size:.4g} TiB"


NO_REGULAR_FILE = "is no regular file, but a device, a pipe or the like."


def file_problem(path: Path) -> str | None:
    """Returns why something is no file to read; None where it is one, or nothing is there."""
    if path.is_dir():
        return "is a folder, must be a file."
    # A pipe would make us wait for ever, and a device has no end.
    return NO_REGULAR_FILE if path.exists() and not path.is_file() else None


def check_depth(name: str, count: int) -> None:
    """Refuses more layers than any model has: building them would take hours and all memory."""
    if count > MAX_LAYERS:
        raise ValueError(f"`{name}` must be at most {MAX_LAYERS}, got {name}={count}.")


def check_width(name: str, width: int, num_layers: int = 1) -> None:
    """Refuses a width whose square matrices, one in every layer, would not fit into memory."""
    needed = 4 * width**2 * max(num_layers, 1)
    problem = size_problem(needed, needed)
    if problem is not None:
        raise ValueError(f"`{name}` is too large: {name}={width} {problem}")


def read_yaml(path: Path) -> Any:
    """Returns the content of a YAML file of settings: small, flat, and without references."""
    problem = file_problem(path)
    if problem is not None:
        raise ValueError(f"{path} {problem}")
    if path.stat().st_size > LARGEST_YAML:
        raise ValueError(f"{path}: must have at most {LARGEST_YAML} bytes, as settings have.")
    import yaml

    try:
        text, depth = path.read_text(encoding="utf-8"), 0
        for event in yaml.parse(text, Loader=yaml.SafeLoader):
            depth += isinstance(event, yaml.CollectionStartEvent)
            depth -= isinstance(event, yaml.CollectionEndEvent)
            # Few references to references are a file of terabytes.
            if isinstance(event, yaml.AliasEvent):
                raise ValueError(f"{path}: must repeat settings in place of `*{event.anchor}`.")
            if depth > DEEPEST_YAML:
                raise ValueError(f"{path}: must be nested at most {DEEPEST_YAML} deep.")
        return yaml.safe_load(text)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ValueError(f"{path}: must be YAML, got {error}") from error


def read_json(path: Path) -> dict[str, Any]:
    """Returns the JSON object in a file, which must be a file, of a plausible size and depth."""
    problem = file_problem(path)
    if problem is not None:
        raise CheckpointError(f"{path} {problem}")
    try:
        if path.stat().st_size > LARGEST_JSON:
            raise ValueError(f"more than {LARGEST_JSON} bytes")
        stored = json.loads(path.read_bytes().decode("utf-8"))
    except (ValueError, RecursionError) as error:
        raise CheckpointError(f"{path}: must be JSON, got {error}.") from error
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read: {error.strerror}.") from error
    if not isinstance(stored, dict):
        raise CheckpointError(f"{path}: must be a JSON object, got {type(stored).__name__}.")
    return stored


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
