"""Arrays of `.npy` files, which stay on disk."""

from pathlib import Path
from typing import Any

import numpy as np


def map_npy(path: Path) -> Any:
    """Returns the array of a file; raises a `ValueError` where the file does not end with it.

    The format has no checksum: bytes that came in between move all numbers behind them, and only the
    length tells. What is no single array is returned as NumPy opens it.
    """
    values = np.load(path, mmap_mode="r", allow_pickle=False)
    if isinstance(values, np.memmap):
        size, expected = path.stat().st_size, values.offset + values.nbytes
        if size != expected:
            raise ValueError(
                f"it has {size} bytes, its header says {expected}. It is damaged, or other arrays "
                "follow the first: save each in a file of its own."
            )
    return values
