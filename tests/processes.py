"""Commands in processes of their own: tests wait for what these do, never for a length of time."""

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Self

import pytest

LIMIT = 600
"""Seconds after which what still waits is called a hang. Nothing else depends on a clock."""
PAUSE = 0.01
"""Seconds between two looks at a condition."""


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
        # Tests that were started in the background ignore Ctrl-C, and so would the process.
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            self._process = subprocess.Popen(
                self._command, stdout=self._output, stderr=subprocess.STDOUT, **self._settings
            )
        finally:
            signal.signal(signal.SIGINT, before)
        self.pid = self._process.pid
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self.kill()
        self._output.close()

    @property
    def said(self) -> str:
        """All that the process printed so far, errors included."""
        return Path(self._output.name).read_text()

    def wait_until(self, condition: Callable[[], object]) -> None:
        """Returns when a condition holds; fails with what the process said if it ended before."""
        for _ in range(round(LIMIT / PAUSE)):
            if condition():
                return
            code = self._process.poll()
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
