"""Memory-mapped arrays of `.npy` files."""

from pathlib import Path
from typing import Any

import numpy as np


def map_npy(path: Path) -> Any:
    """Returns the memory-mapped array of a file; raises a `ValueError` if its length is wrong.

    The format has no checksum: inserted bytes would shift all values behind them, which only the
    length reveals. Files that are not a single array are returned as NumPy opens them.
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
