"""Reads files in a child process whose memory, CPU time and time to answer are limited.

A file that makes its library crash, turn for ever or take all memory ends the child, whatever its
format, and becomes a `DataError`. Sites and names come back to this process; a function that reads
values becomes a `RemoteFunction`, which asks the child. This is no sandbox: the child has the
rights of the user.
"""

import os
import pickle
import signal
import socket
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from io import BytesIO
from multiprocessing.connection import Connection
from pathlib import Path
from types import BuiltinFunctionType, FunctionType
from typing import Any

from gpo.data.dataset import DataError, RowReader
from gpo.limits import MAX_BYTES, MAX_SECONDS, format_bytes, max_bytes, max_seconds
from gpo.optional import MissingPackageError

LIBRARIES = 2**30
"""Bytes of address space that libraries and their threads may take beside the content of files."""
PATIENCE = 5
"""Time to wait for an answer, in limits of CPU time."""
START = "from gpo.data.untrusted import serve; serve({}, {}, {})"
ENVIRONMENT = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "2"}
"""Settings of the child: each thread of a library would take address space of its own."""
UNLIMITED = "needs the module resource, which only Unix has. Read untrusted files in a container."
ALLOW = "If you trust it, allow more: {}={}, or read it without --untrusted."


def read_in_child(source: Path, function: Callable[..., Any], *args: Any) -> Any:
    """Returns the result of a function that reads a file, computed in a child process.

    Args:
        source: The file, for error messages.
        function: A function of a module.
        *args: Its arguments.

    Raises:
        DataError: If the function raises it, or if the child exceeds a limit or crashes.
    """
    try:
        import resource  # noqa: F401
    except ModuleNotFoundError as error:
        raise DataError(source, "file", f"cannot be read with --untrusted, which {UNLIMITED}") from error  # fmt: skip
    return _Reader(source, function, args).opened()


@dataclass(frozen=True)
class RemoteFunction:
    """A function of the child process."""

    reader: "_Reader"
    number: int
    """Number of the function in the child."""

    def __call__(self, *args: Any) -> Any:
        """Returns the result of the function."""
        return self.reader.request(self.number, args)


class _Reader:
    """The child process of one file; started again in each process that asks it."""

    def __init__(self, source: Path, function: Callable[..., Any], args: tuple[Any, ...]) -> None:
        self._recipe = source, function, args
        self._pid = 0

    def __reduce__(self) -> tuple[Any, ...]:
        return _Reader, self._recipe

    def opened(self) -> Any:
        """Returns the result of the function."""
        self._start()
        return self._answer((None, self._recipe[1:]))

    def request(self, number: int, args: tuple[Any, ...]) -> Any:
        """Returns the result of a function that the opened data refer to."""
        if self._pid != os.getpid():
            # Data workers are forks, which would share the connection.
            self.opened()
        return self._answer((number, args))

    def _start(self) -> None:
        self._memory, self._seconds = max_bytes(), max_seconds()
        own_end, remote_end = socket.socketpair()
        with remote_end:
            command = START.format(remote_end.fileno(), self._memory, self._seconds)
            process = subprocess.Popen(
                [sys.executable, "-c", command],
                pass_fds=[remote_end.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={**os.environ, **ENVIRONMENT},
            )
        self._process, self._connection = process, Connection(own_end.detach())
        self._lock, self._pid = threading.Lock(), os.getpid()
        weakref.finalize(self, _end, process, self._connection, self._pid)

    def _answer(self, request: tuple[int | None, Any]) -> Any:
        source = self._recipe[0]
        with self._lock:
            try:
                self._connection.send_bytes(pickle.dumps(request))
                if not self._connection.poll(PATIENCE * self._seconds):
                    self._process.kill()
                    waited = f"gave no answer for {PATIENCE * self._seconds} s."
                    raise DataError(source, "file", f"{waited} {self._more_seconds}")
                kind, content = _Receiver(self._connection.recv_bytes(), self).load()
            except (EOFError, OSError) as error:
                raise DataError(source, "file", self._end_of_child()) from error
        if kind == "result":
            return content
        if kind == "memory":
            limit = f"takes more than {format_bytes(self._memory)} of memory to read."
            advice = ALLOW.format(MAX_BYTES, 2 * self._memory)
            raise DataError(source, "file", f"{limit} {advice}")
        if kind == "package":
            message, name = content
            raise MissingPackageError(message, name=name)
        raise DataError(*content)

    @property
    def _more_seconds(self) -> str:
        return ALLOW.format(MAX_SECONDS, 2 * self._seconds)

    def _end_of_child(self) -> str:
        """Returns what the end of the child says of the file."""
        code = self._process.wait()
        if code == -signal.SIGXCPU:
            return f"takes more than {self._seconds} s of CPU time to read. {self._more_seconds}"
        how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        problem = f"ended the process that read it ({how}), which had {format_bytes(self._memory)}"
        advice = "It is damaged or made to do harm: do not open it without --untrusted."
        return f"{problem} of memory. {advice}"


def _end(process: subprocess.Popen[bytes], connection: Connection, pid: int) -> None:
    """Ends a child, which waits for requests."""
    if pid == os.getpid():
        connection.close()
        process.kill()
        process.wait()


class _Receiver(pickle.Unpickler):
    """Reads an answer of the child, in which functions are numbers."""

    def __init__(self, content: bytes, reader: _Reader) -> None:
        super().__init__(BytesIO(content))
        self._reader = reader

    def persistent_load(self, pid: Any) -> RemoteFunction:
        """Returns a function of the child."""
        return RemoteFunction(self._reader, pid)


class _Sender(pickle.Pickler):
    """Writes an answer, in which functions that read values are numbers."""

    def __init__(self, content: BytesIO, functions: list[Callable[..., Any]]) -> None:
        super().__init__(content, protocol=pickle.HIGHEST_PROTOCOL)
        self._functions = functions

    def persistent_id(self, obj: Any) -> int | None:
        """Returns the number of a function that is no function of a module."""
        is_of_module = isinstance(obj, type | BuiltinFunctionType) or (
            isinstance(obj, FunctionType) and "<" not in obj.__qualname__
        )
        if not callable(obj) or is_of_module or isinstance(obj, RowReader):
            return None
        self._functions.append(obj)
        return len(self._functions) - 1


def serve(descriptor: int, memory: int, seconds: int) -> None:
    """Answers the requests of the process that started this one, until it closes the connection.

    Args:
        descriptor: File descriptor of the connection.
        memory: Bytes of memory for the content of files.
        seconds: CPU seconds for each answer.
    """
    import resource

    with open("/proc/self/statm") if os.path.exists("/proc/self/statm") else BytesIO(b"0") as file:
        taken = int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    limit = taken + LIBRARIES + memory
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    # Neither a core dump nor any other file is written.
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))
    connection, functions = Connection(descriptor), list[Callable[..., Any]]()
    while True:
        try:
            number, args = pickle.loads(connection.recv_bytes())
        except EOFError:
            return
        until = int(time.process_time()) + 1 + seconds
        resource.setrlimit(resource.RLIMIT_CPU, (until, resource.RLIM_INFINITY))
        function, args = args if number is None else (functions[number], args)
        connection.send_bytes(_answer_of(function, args, functions))


def _answer_of(
    function: Callable[..., Any], args: tuple[Any, ...], functions: list[Callable[..., Any]]
) -> bytes:
    """Returns the kind and the content of an answer: a result, or what went wrong."""
    content = BytesIO()
    try:
        _Sender(content, functions).dump(("result", function(*args)))
        return content.getvalue()
    except Exception as error:
        cause: BaseException | None = error
        while cause is not None:
            if isinstance(cause, MemoryError):
                return pickle.dumps(("memory", None))
            cause = cause.__cause__ or cause.__context__
        if isinstance(error, MissingPackageError):
            return pickle.dumps(("package", (str(error), error.name)))
        if isinstance(error, DataError):
            return pickle.dumps(("data", (str(error.path), error.field, error.problem)))
        problem = f"cannot be read: {type(error).__name__}: {error}"
        return pickle.dumps(("data", ("", "file", problem)))
