"""When one of several processes that train together is gone: say so, and what to do."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

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
def tells_of_lost_processes(world: int, newest: Callable[[], str | None]) -> Iterator[None]:
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
