"""Validation of untrusted files before a reader opens them, by the sizes and types they declare.

A data file must not run code, refer to other files, or take more memory than is plausible for its
size.
"""

from pathlib import Path

from gpo.data.readers.hdf5 import check_hdf5, is_hdf5
from gpo.data.readers.size_checks import check_regular
from gpo.data.readers.zarr_metadata import check_zarr, is_zarr

FOLDER_SUFFIXES = (".npy", ".h5", ".hdf5")
"""Suffixes of files in a folder that a reader opens as one layout."""


def check_data_file(path: Path) -> None:
    """Raises a `DataError` if a file would run code, read other files or exhaust the memory."""
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
