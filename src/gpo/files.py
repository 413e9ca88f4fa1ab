"""Files that are complete or absent, and optional packages that may not be installed."""

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from types import ModuleType


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


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Yields where to write; moves it to `path` when all went well, else leaves no trace.

    What is written may be a folder, where there is none at `path` yet. The ending stays what it
    is: some libraries choose their format by it.
    """
    partial = path.with_name(f".partial-{os.getpid()}-{path.name}")
    try:
        yield partial
        os.replace(partial, path)
    finally:
        if partial.is_dir():
            shutil.rmtree(partial)
        partial.unlink(missing_ok=True)


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
