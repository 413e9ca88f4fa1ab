"""Which of several processes this one is, and what to say when another is gone."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


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


SIGNS = ("gloo", "NCCL", "Connection", "Socket")
"""What errors of talking to other processes are about; they have no class of their own."""


class LostProcessError(OSError):
    """Training cannot go on."""


def check_restarts() -> None:
    """Refuses restarts by `torchrun` that would wait forever.

    Unless told otherwise, it keeps one store for all attempts, where new processes find the
    addresses of those that are gone.
    """
    restarts = int(os.environ.get("TORCHELASTIC_MAX_RESTARTS", "0"))
    if restarts and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        raise ValueError(
            f"torchrun --max-restarts {restarts} needs a store of its own for every attempt, "
            "otherwise restarted processes look for those that are gone. Start it as "
            f"TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1 torchrun --max-restarts {restarts} …"
        )


@contextmanager
def tells_of_lost_processes(world: int, newest: Callable[[], object]) -> Iterator[None]:
    """Raises an error that tells how to go on where another process ended, or all are told to.

    Args:
        world: How many processes there are.
        newest: Finds the checkpoint that the next start goes on from.
    """
    if world == 1:
        yield
        return

    def told_to_end(*_: Any) -> None:
        raise LostProcessError

    before = signal.signal(signal.SIGTERM, told_to_end)
    try:
        yield
    except (LostProcessError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and not any(sign in str(error) for sign in SIGNS):
            raise
        start = newest() or "the beginning: there is no checkpoint yet"
        raise LostProcessError(
            "a process of this run ended unexpectedly, or all were told to end. Nothing that was "
            f"saved is lost: the same command goes on from {start}"
        ) from error
    finally:
        signal.signal(signal.SIGTERM, before)
