"""The rank of this process, and errors when another process is lost."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


def global_rank() -> int:
    """Returns the rank of this process; rank 0 prints and writes."""
    return int(os.environ.get("RANK", os.environ.get("LOCAL_RANK", "0")))


def num_processes(devices: int, space_shards: int) -> int:
    """Returns how many processes train together, those that share sites and those that share batches.

    Args:
        devices: Number requested on the command line; `torchrun` overrides it.
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
        devices: Number requested on the command line; `torchrun` overrides it.
    """
    return int(os.environ.get("WORLD_SIZE", devices))


SIGNS = ("gloo", "NCCL", "Connection", "Socket")
"""Words in the errors of communication with other processes, which have no class of their own."""


class LostProcessError(OSError):
    """Another process of a distributed run was lost."""


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
def reports_lost_processes(world: int, newest: Callable[[], object]) -> Iterator[None]:
    """Raises an error that says how to resume where another process ended, or all were terminated.

    Args:
        world: How many processes there are.
        newest: Finds the checkpoint that the next start goes on from.
    """
    if world == 1:
        yield
        return

    def terminate(*_: Any) -> None:
        raise LostProcessError

    before = signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    except (LostProcessError, RuntimeError) as error:
        if isinstance(error, RuntimeError) and not any(sign in str(error) for sign in SIGNS):
            raise
        start = newest() or "the beginning: there is no checkpoint yet"
        raise LostProcessError(
            "a process of this run ended unexpectedly, or all were terminated. Nothing that was "
            f"saved is lost: the same command resumes from {start}"
        ) from error
    finally:
        signal.signal(signal.SIGTERM, before)
