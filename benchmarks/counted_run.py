"""`gpo` in a process that counts how often it opens and reads files: `counted_run.py COUNTS.json DATA -- run ...`.

An open is one by Python, or by NetCDF or HDF5, of a file in the folder of the data; a read is one of
an array, whole or in part. CPU seconds are those of the whole process.
"""

import json
import sys
from pathlib import Path
from time import process_time
from typing import Any

import h5py
from xarray.backends.file_manager import CachingFileManager
from xarray.core import indexing


def count(counts: dict[str, Any], folder: Path) -> None:
    """Counts opens and reads in this process from now on.

    Args:
        counts: Has numbers of `opens`, `reads` and read `values`.
        folder: Where the files are.
    """
    manage, index, construct = (
        CachingFileManager.__init__,
        indexing.explicit_indexing_adapter,
        h5py.File.__init__,
    )

    def count_open(event: str, arguments: tuple) -> None:
        is_path = event == "open" and isinstance(arguments[0], str | bytes)
        if is_path and str(folder) in str(arguments[0]):
            counts["opens"] += 1

    def count_managed(self: Any, opener: Any, *arguments: Any, **settings: Any) -> None:
        def opened(*places: Any, **options: Any) -> Any:
            counts["opens"] += 1
            return opener(*places, **options)

        manage(self, opened, *arguments, **settings)

    def count_hdf5(self: Any, name: Any, *arguments: Any, **settings: Any) -> None:
        counts["opens"] += str(folder) in str(name)
        construct(self, name, *arguments, **settings)

    def count_read(*arguments: Any, **settings: Any) -> Any:
        values = index(*arguments, **settings)
        counts["reads"] += 1
        counts["values"] += values.size
        return values

    sys.addaudithook(count_open)
    CachingFileManager.__init__ = count_managed
    h5py.File.__init__ = count_hdf5
    indexing.explicit_indexing_adapter = count_read


def main(target: str, folder: str, _: str, *arguments: str) -> None:
    """Runs the command line, and writes what was counted, also where it fails."""
    counts: dict[str, Any] = {"opens": 0, "reads": 0, "values": 0}
    count(counts, Path(folder).resolve())
    from gpo.cli import main as run

    try:
        run([*arguments])
    finally:
        counts["cpu_seconds"] = process_time()
        Path(target).write_text(json.dumps(counts), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
