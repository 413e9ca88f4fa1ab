"""Files that are whole or not there."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Yields where to write; moves it to `path` when all went well, else leaves no trace.

    The ending stays what it is: some libraries choose their format by it.
    """
    partial = path.with_name(f".partial-{os.getpid()}-{path.name}")
    try:
        yield partial
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


def write_text(path: Path, text: str) -> None:
    """Writes a text file that is whole or not there."""
    with whole_file(path) as partial:
        partial.write_text(text, encoding="utf-8")
