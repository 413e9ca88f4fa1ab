"""Which of several processes this one is, as `torchrun` or Lightning's launcher tell it."""

import os


def global_rank() -> int:
    """Returns the number of this process; 0 does the talking and writing."""
    return int(os.environ.get("RANK", os.environ.get("LOCAL_RANK", "0")))


def world_size(devices: int) -> int:
    """Returns how many processes train together.

    Args:
        devices: How many were asked for on the command line; `torchrun` has the last word.
    """
    return int(os.environ.get("WORLD_SIZE", devices))
