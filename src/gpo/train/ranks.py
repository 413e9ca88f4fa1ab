"""Which of several processes this one is, as `torchrun` or Lightning's launcher tell it."""

import os


def global_rank() -> int:
    """Returns the number of this process; 0 does the talking and writing."""
    return int(os.environ.get("RANK", os.environ.get("LOCAL_RANK", "0")))


def num_processes(devices: int, space_shards: int) -> int:
    """Returns how many processes train together, those that share sites and those that share batches.

    Args:
        devices: How many were asked for on the command line; `torchrun` has the last word.
        space_shards: How many of them share the sites of a sample.
    """
    count = world_size(max(devices, space_shards))
    if space_shards < 1 or count % space_shards:
        raise ValueError(
            f"`space_shards` must divide the number of processes, got {space_shards} of {count}."
        )
    return count


def world_size(devices: int) -> int:
    """Returns how many processes train together.

    Args:
        devices: How many were asked for on the command line; `torchrun` has the last word.
    """
    return int(os.environ.get("WORLD_SIZE", devices))
