"""Sittings of `gpo run`: forked processes that run the command as typed until they are ended.

`benchmarks/kills.py` counts what their ends cost, from outside.
"""

import ctypes
import math
import mmap
import os
import signal
import socket
import time
from collections.abc import Sequence
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import numpy as np

WITHIN = 0.15
"""Seconds between writes of a state within an epoch, in place of a minute."""
MOST_BATCHES = 4096
PR_SET_PDEATHSIG = 1
LONGEST = 120.0
"""Seconds after which a sitting is called a hang."""
GRACE = ((5.0, signal.SIGTERM), (5.0, signal.SIGKILL))
"""Seconds that processes have to notice that another is gone, and what they are told then."""


class Watch:
    """Memory shared with the processes of a sitting: when every batch was begun."""

    def __init__(self) -> None:
        self._memory = mmap.mmap(-1, 8 * (MOST_BATCHES + 3))
        self.numbers = np.frombuffer(self._memory, dtype=np.float64)
        self.numbers[:] = math.nan

    @property
    def per_epoch(self) -> float:
        """Batches of an epoch."""
        return float(self.numbers[0])

    @property
    def first(self) -> float:
        """The first batch of the sitting; NaN where it made none."""
        return float(self.numbers[1])

    @property
    def begun(self) -> float:
        """Batches that were begun, all in all."""
        return float(self.numbers[2])

    def begin_time(self, batch: float) -> float:
        """Returns when a batch was begun."""
        return float(self.numbers[3 + int(batch)])

    def observe(self) -> None:
        """Makes training in this process note every batch that it begins."""
        from gpo.training.module import TrainingModule

        numbers, original = self.numbers, TrainingModule.training_step

        def noted(self: Any, batch: Any, index: int) -> Any:
            per_epoch = self.trainer.num_training_batches
            batch_number = self.trainer.current_epoch * per_epoch + index
            numbers[0] = per_epoch
            if math.isnan(numbers[1]):
                numbers[1] = batch_number
            numbers[2] = batch_number + 1
            numbers[3 + batch_number] = time.monotonic()
            return original(self, batch, index)

        TrainingModule.training_step = noted


class Sitting:
    """One start of the command, until it ends or is ended.

    Args:
        command: Its flags.
        world: Processes that train together.
        log: File that gets what they say.
        writes_within: Whether the state is written within epochs, too.
    """

    def __init__(
        self, command: Sequence[str], world: int, log: Path, *, writes_within: bool = False
    ) -> None:
        self.watch, self.log, self.end = Watch(), log, 0.0
        self.told = ("", 0)
        """The signal that ended it, and how many processes got it."""
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        self.processes: list[BaseProcess] = []
        for rank in range(world):
            given = (command, rank, world, port, writes_within, self.watch, log)
            process = get_context("fork").Process(target=_work, args=given)
            process.start()
            self.processes.append(process)

    def cpu_seconds(self) -> float | None:
        """Returns the processor time of the first process, None when it has ended."""
        try:
            text = Path(f"/proc/{self.processes[0].pid}/stat").read_text()
        except OSError:
            return None
        parts = text.rpartition(")")[2].split()
        if parts[0] == "Z":
            return None
        return (int(parts[11]) + int(parts[12])) / os.sysconf("SC_CLK_TCK")

    def kill(self, victims: Sequence[BaseProcess], told: int, moment: float, delay: float) -> bool:
        """Sends a signal at a time of the processor; returns False if all was done before."""
        while (spent := self.cpu_seconds()) is not None and spent < moment:
            time.sleep(0.002)
        time.sleep(delay)
        living = [one.pid for one in victims if one.is_alive()]
        if self.cpu_seconds() is None or not living:
            return False
        for pid in living:
            os.kill(pid or 0, told)
        self.end = time.monotonic()
        return True

    def finish(self, *, is_killed: bool) -> None:
        """Waits; what does not notice that another process is gone is told, as torchrun does."""
        for patience, told in GRACE if is_killed else ((LONGEST, signal.SIGKILL),):
            end = time.monotonic() + patience
            for process in self.processes:
                process.join(max(0.0, end - time.monotonic()))
            for process in self.processes:
                if process.is_alive():
                    os.kill(process.pid or 0, told)
        for process in self.processes:
            process.join()

    def check(self) -> None:
        """Raises an error, with what was said, where the sitting did not come to a good end."""
        if any(process.exitcode for process in self.processes):
            raise RuntimeError(f"a sitting failed:\n{self.log.read_text()[-3000:]}")


def _work(
    command: Sequence[str],
    rank: int,
    world: int,
    port: int,
    writes_within: bool,
    watch: Watch,
    log: Path,
) -> None:
    """Is one process of a sitting: what `gpo` does, with the environment that torchrun makes."""
    from gpo.cli import main
    from gpo.training import checkpoints

    # Nothing outlives the benchmark, however that ends.
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(output, 1)
    os.dup2(output, 2)
    if world > 1:
        names = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": world, "LOCAL_WORLD_SIZE": world}
        os.environ.update({name: str(number) for name, number in names.items()})
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), TORCHELASTIC_RUN_ID="k")
    if writes_within:
        checkpoints.INTERVAL = WITHIN
    if rank == 0:
        watch.observe()
    main(["run", *command])
