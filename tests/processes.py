"""Commands in other processes. Tests wait for events in them, never for a length of time."""

import atexit
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import Any, Self

import pytest

LIMIT = 600
"""Seconds after which a wait is called a hang. Nothing else depends on a clock."""
PAUSE = 0.01
"""Seconds between two checks of a condition."""
PROJECT = Path(__file__).parents[1]
REQUESTS = threading.Lock()


def finish(command: Sequence[str], **settings) -> str:
    """Returns the output of a command, which must exit with code 0."""
    completed = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=LIMIT, **settings
    )
    assert completed.returncode == 0, completed.stderr[-3000:]
    return completed.stdout


class Running:
    """A command that runs beside the test; it is killed at the end of the block.

    ```
    with Running(command) as running:
        running.wait_until(checkpoint.exists)
        running.kill()
    ```
    """

    def __init__(self, command: Sequence[str], **settings) -> None:
        self._command, self._settings = command, settings

    def __enter__(self) -> Self:
        # A file, not a pipe: a pipe that nobody reads stops the process when it is full.
        self._output = tempfile.NamedTemporaryFile()
        self._process = self._start()
        self.pid = self._process.pid
        return self

    def _start(self) -> "subprocess.Popen | Fork":
        # Tests that were started in the background ignore Ctrl-C, and so would the process.
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            return subprocess.Popen(
                self._command, stdout=self._output, stderr=subprocess.STDOUT, **self._settings
            )
        finally:
            signal.signal(signal.SIGINT, before)

    def __exit__(self, *_: object) -> None:
        if self.code is None:
            self.kill()
        self._output.close()

    @property
    def said(self) -> str:
        """The output of the process so far, errors included."""
        return Path(self._output.name).read_text()

    @property
    def code(self) -> int | None:
        """The exit code, None while the process runs."""
        return self._process.poll()

    def wait_until(self, condition: Callable[[], object]) -> None:
        """Returns when a condition holds; fails with the output if the process ends before."""
        for _ in range(round(LIMIT / PAUSE)):
            if condition():
                return
            code = self.code
            assert code is None, f"ended with code {code} before the condition held:\n{self.said}"
            time.sleep(PAUSE)
        pytest.fail(f"the condition does not hold after {LIMIT} s:\n{self.said}")

    def interrupt(self) -> None:
        """Sends SIGINT, as Ctrl-C does."""
        self._process.send_signal(signal.SIGINT)

    def terminate(self) -> None:
        """Sends SIGTERM, as a scheduler does."""
        self._process.terminate()

    def kill(self) -> None:
        """Sends SIGKILL; fails if the process has ended before."""
        os.kill(self.pid, signal.SIGKILL)
        assert self._process.wait() == -signal.SIGKILL

    def end(self) -> int:
        """Waits for the end of the process and returns its exit code."""
        try:
            return self._process.wait(LIMIT)
        except subprocess.TimeoutExpired:
            pytest.fail(f"still runs after {LIMIT} s:\n{self.said}")


class Forked(Running):
    """A module that runs beside the test, in a process forked after the imports.

    Use `Running` for tests of how a process starts.

    Args:
        module: As after `python -m`; or `-c`, and then the first argument is the code.
        arguments: The arguments of the module.
        env: The whole environment; that of the test when not given.
    """

    def __init__(
        self, module: str, arguments: Sequence[str], env: Mapping[str, str] | None = None
    ) -> None:
        super().__init__([])
        environment = dict(os.environ if env is None else env)
        self._request = {"module": module, "arguments": list(arguments), "env": environment}

    def _start(self) -> "Fork":
        return Fork({**self._request, "output": self._output.name})


def finish_forked(module: str, *arguments: str) -> str:
    """Returns the output of a module, which must exit with code 0."""
    with Forked(module, arguments) as running:
        assert running.end() == 0, running.said[-3000:]
        return running.said


class Fork:
    """A process forked by the server of `tests/forks.py`, with the interface of `Popen`."""

    def __init__(self, start: dict[str, Any]) -> None:
        self.pid, self.returncode = request(start), None

    def poll(self) -> int | None:
        """Returns the exit code, None while the process runs."""
        if self.returncode is None:
            self.returncode = request({"pid": self.pid})
        return self.returncode

    def wait(self, timeout: float = LIMIT) -> int:
        """Waits for the end of the process and returns its exit code."""
        for _ in range(round(timeout / PAUSE)):
            if (code := self.poll()) is not None:
                return code
            time.sleep(PAUSE)
        raise subprocess.TimeoutExpired("fork", timeout)

    def send_signal(self, number: int) -> None:
        """Sends a signal, unless the process has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """Sends SIGTERM."""
        self.send_signal(signal.SIGTERM)


@cache
def server() -> subprocess.Popen:
    """Starts the server that forks; it ends with this process."""
    command = [sys.executable, "-m", "tests.forks"]
    started = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=PROJECT
    )

    def end() -> None:
        for pipe in (started.stdin, started.stdout):
            pipe.close()
        started.wait()

    atexit.register(end)
    return started


def request(message: dict[str, Any]) -> Any:
    """Returns the response of the server that forks; several threads may send requests."""
    with REQUESTS:
        forks = server()
        forks.stdin.write(json.dumps(message) + "\n")
        forks.stdin.flush()
        response = forks.stdout.readline()
    assert response, "the server that forks has ended: start it with `python -m tests.forks`"
    return json.loads(response)


def finish_together(count: int, module: str, *arguments: str) -> str:
    """Returns the output of a group of processes, started with the environment of `torchrun`."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1])}
    with ExitStack() as stack:
        processes: list[Running] = []
        for rank in range(count):
            numbers = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": count, "LOCAL_WORLD_SIZE": count}  # fmt: skip
            group = {name: str(number) for name, number in numbers.items()}
            env = {**os.environ, **address, **group, "TORCHELASTIC_RUN_ID": "tests"}
            processes.append(stack.enter_context(Forked(module, arguments, env)))
        # The first one that fails says why; the others may wait for it forever.
        for _ in range(round(LIMIT / PAUSE)):
            for process in processes:
                assert process.code in (None, 0), process.said[-3000:]
            if all(process.code == 0 for process in processes):
                return "".join(process.said for process in processes)
            time.sleep(PAUSE)
        output = "".join(process.said for process in processes)
        return pytest.fail(f"still runs after {LIMIT} s:\n{output}")
