"""Commands in processes of their own: tests wait for what these do, never for a length of time."""

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
"""Seconds after which what still waits is called a hang. Nothing else depends on a clock."""
PAUSE = 0.01
"""Seconds between two looks at a condition."""
PROJECT = Path(__file__).parents[1]
ASKING = threading.Lock()


def finish(command: Sequence[str], **settings) -> str:
    """Returns what a command printed, after it came to a good end."""
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, timeout=LIMIT, **settings
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


class Running:
    """A command that runs beside the test, until it ends, or the block does.

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
        """All that the process printed so far, errors included."""
        return Path(self._output.name).read_text()

    @property
    def code(self) -> int | None:
        """The exit code, None while the process runs."""
        return self._process.poll()

    def wait_until(self, condition: Callable[[], object]) -> None:
        """Returns when a condition holds; fails with what the process said if it ended before."""
        for _ in range(round(LIMIT / PAUSE)):
            if condition():
                return
            code = self.code
            assert code is None, f"ended with {code} before what was waited for:\n{self.said}"
            time.sleep(PAUSE)
        pytest.fail(f"still runs after {LIMIT} s, without what was waited for:\n{self.said}")

    def interrupt(self) -> None:
        """Sends what Ctrl-C sends."""
        self._process.send_signal(signal.SIGINT)

    def terminate(self) -> None:
        """Asks the process to end, as a scheduler does."""
        self._process.terminate()

    def kill(self) -> None:
        """Ends the process in the middle of whatever it does."""
        os.kill(self.pid, signal.SIGKILL)
        assert self._process.wait() == -signal.SIGKILL

    def end(self) -> int:
        """Returns the exit code, when the process has come to its end."""
        try:
            return self._process.wait(LIMIT)
        except subprocess.TimeoutExpired:
            pytest.fail(f"still runs after {LIMIT} s:\n{self.said}")


class Forked(Running):
    """A module that runs beside the test, without the time that its imports take.

    Where the test is about how a process starts, or about the `python` it needs, use `Running`.

    Args:
        module: As after `python -m`; or `-c`, then the first argument is what it runs.
        arguments: Its own.
        env: All of its environment.
    """

    def __init__(
        self, module: str, arguments: Sequence[str], env: Mapping[str, str] | None = None
    ) -> None:
        super().__init__([])
        given = os.environ if env is None else env
        self._asked = {"module": module, "arguments": list(arguments), "env": dict(given)}

    def _start(self) -> "Fork":
        return Fork({**self._asked, "output": self._output.name})


def finish_forked(module: str, *arguments: str) -> str:
    """Returns what a module printed, after it came to a good end."""
    with Forked(module, arguments) as running:
        assert running.end() == 0, running.said[-3000:]
        return running.said


class Fork:
    """A process that the process of `tests/forks.py` forked, in the manner of `Popen`."""

    def __init__(self, asked: dict[str, Any]) -> None:
        self.pid, self.returncode = ask(asked), None

    def poll(self) -> int | None:
        """Returns the exit code, None while the process runs."""
        if self.returncode is None:
            self.returncode = ask({"pid": self.pid})
        return self.returncode

    def wait(self, timeout: float = LIMIT) -> int:
        """Returns the exit code at the end of the process."""
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
        """Asks the process to end."""
        self.send_signal(signal.SIGTERM)


@cache
def server() -> subprocess.Popen:
    """Starts the process that forks; it ends with this one."""
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


def ask(question: dict[str, Any]) -> Any:
    """Returns what the process that forks answers; threads may ask beside each other."""
    with ASKING:
        asked = server()
        asked.stdin.write(json.dumps(question) + "\n")
        asked.stdin.flush()
        answer = asked.stdout.readline()
    assert answer, "the process that forks has ended: start it with `python -m tests.forks`"
    return json.loads(answer)


def finish_together(count: int, module: str, *arguments: str) -> str:
    """Returns what processes of one group printed, each started with what `torchrun` tells it."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free.getsockname()[1])}
    with ExitStack() as stack:
        ranks: list[Running] = []
        for rank in range(count):
            numbers = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": count, "LOCAL_WORLD_SIZE": count}  # fmt: skip
            told = {name: str(number) for name, number in numbers.items()}
            env = {**os.environ, **address, **told, "TORCHELASTIC_RUN_ID": "tests"}
            ranks.append(stack.enter_context(Forked(module, arguments, env)))
        # The first that fails says why; those that wait for it need not be waited for.
        for _ in range(round(LIMIT / PAUSE)):
            for one in ranks:
                assert one.code in (None, 0), one.said[-3000:]
            if all(one.code == 0 for one in ranks):
                return "".join(one.said for one in ranks)
            time.sleep(PAUSE)
        return pytest.fail(f"still runs after {LIMIT} s:\n" + "".join(one.said for one in ranks))
