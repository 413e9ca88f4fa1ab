"""Sittings of `gpo run`: forked processes that run the command until it ends or they are killed.

A sitting can be stopped at a moment that is chosen beforehand: its first process counts the batches
that it begins and the changes that it makes to files, waits at the chosen count, and goes on when it is
released. Signals are sent while it waits, so that no signal meets a run that has already finished,
however busy the machine is. `benchmarks/kills.py` measures from outside what the kills cost.
"""

import ctypes
import math
import mmap
import os
import signal
import socket
import sys
import time
from collections.abc import Sequence
from multiprocessing import get_context
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import numpy as np

WITHIN = 0.15
"""Seconds between writes of a state within an epoch, in place of a minute."""
MAX_BATCHES = 4096
PR_SET_PDEATHSIG = 1
LIMIT = 600.0
"""Seconds after which a sitting is called a hang."""
GRACE = ((5.0, signal.SIGTERM), (5.0, signal.SIGKILL))
"""Seconds that processes have to notice that another is gone, and the signal they get then."""
PAUSE = 0.002
"""Seconds between two looks at the shared memory."""
FILE_EVENTS = {"os.mkdir", "os.remove", "os.rename", "os.rmdir", "shutil.copyfile"}
"""Audit events of Python that count as moments, beside files that are opened for writing."""
PER_EPOCH, FIRST, BEGUN, MOMENTS, STOP_AT, IS_STOPPED, IS_RELEASED, TIMES = range(8)
"""Places of the numbers in the shared memory; the begin times of all batches come last."""


class Watch:
    """Memory shared with the processes of a sitting: what they have done, and where to stop.

    Args:
        stop_at: The moment at which the first process waits, from 1; 0 for a sitting that never waits.
    """

    def __init__(self, stop_at: int = 0) -> None:
        self._memory = mmap.mmap(-1, 8 * (TIMES + MAX_BATCHES))
        self.numbers = np.frombuffer(self._memory, dtype=np.float64)
        self.numbers[:] = math.nan
        self.numbers[MOMENTS], self.numbers[STOP_AT] = 0, stop_at
        self.numbers[IS_STOPPED] = self.numbers[IS_RELEASED] = 0

    @property
    def per_epoch(self) -> float:
        """The number of batches of an epoch."""
        return float(self.numbers[PER_EPOCH])

    @property
    def first(self) -> float:
        """The first batch of the sitting; NaN where it trained none."""
        return float(self.numbers[FIRST])

    @property
    def begun(self) -> float:
        """The number of batches that were begun, including those of earlier sittings."""
        return float(self.numbers[BEGUN])

    @property
    def num_moments(self) -> int:
        """The number of moments that have passed."""
        return int(self.numbers[MOMENTS])

    @property
    def is_stopped(self) -> bool:
        """Whether the first process has reached the moment at which it waits."""
        return bool(self.numbers[IS_STOPPED])

    def release(self) -> None:
        """Lets the first process go on."""
        self.numbers[IS_RELEASED] = 1

    def begin_time(self, batch: float) -> float:
        """Returns when a batch was begun."""
        return float(self.numbers[TIMES + int(batch)])

    def observe(self) -> None:
        """Makes this process record its batches and count its moments."""
        from gpo.training.module import TrainingModule

        numbers, original = self.numbers, TrainingModule.training_step

        def recorded_step(module: Any, batch: Any, index: int) -> Any:
            per_epoch = module.trainer.num_training_batches
            batch_number = module.trainer.current_epoch * per_epoch + index
            numbers[PER_EPOCH] = per_epoch
            if math.isnan(numbers[FIRST]):
                numbers[FIRST] = batch_number
            numbers[BEGUN] = batch_number + 1
            numbers[TIMES + batch_number] = time.monotonic()
            self._pass_moment()
            return original(module, batch, index)

        def hook(event: str, arguments: tuple[Any, ...]) -> None:
            is_write = event == "open" and arguments[2] & (os.O_WRONLY | os.O_RDWR)
            if is_write or event in FILE_EVENTS:
                self._pass_moment()

        TrainingModule.training_step = recorded_step
        sys.addaudithook(hook)

    def _pass_moment(self) -> None:
        self.numbers[MOMENTS] += 1
        stop_at = self.numbers[STOP_AT]
        if not stop_at or self.numbers[MOMENTS] < stop_at or self.numbers[IS_STOPPED]:
            return
        self.numbers[IS_STOPPED] = 1
        while not self.numbers[IS_RELEASED]:
            time.sleep(PAUSE)


class Sitting:
    """One start of the command, until it ends or is killed.

    Args:
        command: Its flags.
        world: The number of processes that train together.
        log: File that gets their output.
        stop_at: The moment at which the first process waits to be killed; 0 for never.
        writes_within: Whether the state is written within epochs, too.
    """

    def __init__(
        self,
        command: Sequence[str],
        world: int,
        log: Path,
        *,
        stop_at: int = 0,
        writes_within: bool = False,
    ) -> None:
        self.watch, self.log, self.end = Watch(stop_at), log, 0.0
        self.killed_by = ("", 0)
        """The signal that ended it, and how many processes got it."""
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        self.processes: list[BaseProcess] = []
        for rank in range(world):
            arguments = (command, rank, world, port, writes_within, self.watch, log)
            process = get_context("fork").Process(target=_work, args=arguments)
            process.start()
            self.processes.append(process)

    def kill(self, victims: Sequence[BaseProcess], number: signal.Signals) -> bool:
        """Sends a signal when the sitting waits for it; returns False if all ended before."""
        end = time.monotonic() + LIMIT
        while not self.watch.is_stopped and self.processes[0].is_alive():
            if time.monotonic() > end:
                raise RuntimeError(f"still runs after {LIMIT:g} s:\n{self.log.read_text()[-3000:]}")
            time.sleep(PAUSE)
        living = [process.pid for process in victims if process.is_alive()]
        is_killed = self.watch.is_stopped and bool(living)
        if is_killed:
            for pid in living:
                os.kill(pid or 0, number)
            self.end, self.killed_by = time.monotonic(), (number.name, len(victims))
        self.watch.release()
        return is_killed

    def finish(self, *, is_killed: bool) -> None:
        """Waits; processes that do not notice that another is gone get signals, as from torchrun."""
        for patience, number in GRACE if is_killed else ((LIMIT, signal.SIGKILL),):
            end = time.monotonic() + patience
            for process in self.processes:
                process.join(max(0.0, end - time.monotonic()))
            for process in self.processes:
                if process.is_alive():
                    os.kill(process.pid or 0, number)
        for process in self.processes:
            process.join()

    def check(self) -> None:
        """Raises an error with the end of the log unless all processes ended with exit code 0."""
        codes = [process.exitcode for process in self.processes]
        if any(codes):
            end = self.log.read_text()[-3000:]
            raise RuntimeError(f"a sitting failed with exit codes {codes}:\n{end}")


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
