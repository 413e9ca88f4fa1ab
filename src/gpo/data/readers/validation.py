"""What every file must pass before a reader opens it; all goes by what it declares.

A data file is read, and nothing else: it runs no code, names no other file, and takes no more
memory than its size makes plausible.
"""

from pathlib import Path

from gpo.data.readers.hdf5 import check_hdf5, is_hdf5
from gpo.data.readers.size_checks import check_regular
from gpo.data.readers.zarr_metadata import check_zarr, is_zarr

FOLDER_SUFFIXES = (".npy", ".h5", ".hdf5")
"""Files that a reader takes from a folder, which is one layout then."""


def check_data_file(path: Path) -> None:
    """Refuses a file or folder that would run code, read other files or exhaust the memory."""
    if not path.is_dir():
        check_regular(path)
        if is_hdf5(path):
            check_hdf5(path)
    elif is_zarr(path):
        check_zarr(path)
    else:
        for file in sorted(path.iterdir()):
            if file.suffix in FOLDER_SUFFIXES and not file.is_dir():
                check_data_file(file)
