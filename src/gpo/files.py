"""Files that are whole or not there."""

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path


class CheckpointError(ValueError):
    """A file or folder that does not hold what it should; the message names file and field."""


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
