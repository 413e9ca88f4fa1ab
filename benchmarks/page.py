"""What the page does under attack: answer times of honest requests, and memory of the server.

    python -m benchmarks.page

`gpo explore` in a process of its own, on a run of 64 x 64 sites. Beside each crowd one honest
visitor asks for frames and for predictions that nobody asked for before. Times depend on the
machine, so no test asserts them; `tests/explore/test_attacks.py` has what holds on any.
"""

import contextlib
import http.client
import itertools
import json
import os
import re
import resource
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import tyro

from gpo.cli import main as gpo
from gpo_bench.protocol import describe_machine
from tests.explore.attacks import all_attacks

RESULTS = Path(__file__).parent / "results" / "page"
SIDE, CROWD, ROUNDS = 64, 200, 20
COLUMNS = ("beside", "requests", "honest requests", "median", "slowest", "memory of the server")
Crowd = Callable[["Server"], int]


class Server:
    """The command on a run; `with` ends it by Ctrl-C."""

    def __init__(self, run: Path) -> None:
        command = [sys.executable, "-m", "gpo", "explore", str(run), "--port", "0", "--no-browser"]
        self.log = run.parent / "said.log"
        self._output = self.log.open("w")
        self.process = subprocess.Popen(command, stdout=self._output, stderr=subprocess.STDOUT)
        self.fresh = itertools.count()
        while not (found := re.search(r"http://127.0.0.1:(\d+)/", self.log.read_text())):
            if self.process.poll() is not None:
                raise RuntimeError(self.log.read_text())
            time.sleep(0.05)
        self.port = int(found[1])

    @property
    def megabytes(self) -> float:
        """Resident memory."""
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") / 2**20

    def connect(self) -> socket.socket:
        """Returns a new connection."""
        return socket.create_connection(("127.0.0.1", self.port), timeout=300)

    def begin(self, what: str, body: bytes) -> socket.socket:
        """Asks, and returns the connection without waiting."""
        connection = self.connect()
        head = f"POST /api/{what} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        with contextlib.suppress(OSError):
            connection.sendall(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        return connection

    def prediction(self) -> bytes:
        """Returns a request for a prediction that nobody asked for before."""
        number = next(self.fresh)
        return json.dumps({"ablation": {"sites": [number % SIDE**2, number // SIDE**2]}}).encode()

    def ask(self) -> tuple[float, float]:
        """Returns how long an honest visitor waits for frames and a prediction."""
        waits = []
        for what, body in (("frames", b"{}"), ("prediction", self.prediction())):
            start = time.perf_counter()
            with self.begin(what, body) as connection:
                status = answer(connection)
            if status != 200:
                raise RuntimeError(f"an honest request for {what} was answered {status}")
            waits.append(time.perf_counter() - start)
        return waits[0], waits[1]

    def end(self) -> float:
        """Ends it by Ctrl-C; returns the seconds that takes."""
        start = time.perf_counter()
        self.process.send_signal(signal.SIGINT)
        code = self.process.wait(300)
        self._output.close()
        if code or "Traceback" in self.log.read_text():
            raise RuntimeError(self.log.read_text())
        return time.perf_counter() - start


def answer(connection: socket.socket) -> int:
    """Returns the status of an answer that was read to its end; 0 where there is none."""
    try:
        response = http.client.HTTPResponse(connection)
        response.begin()
        response.read()
    except (OSError, http.client.HTTPException):
        return 0
    return response.status


def nobody(server: Server) -> int:
    """The visitor alone."""
    return 0


def attacks(server: Server) -> int:
    """Every attack of the tests, one after the other."""
    table = all_attacks()
    for one in table:
        with server.connect() as connection, contextlib.suppress(OSError):
            for piece in one.pieces:
                connection.sendall(piece)
            connection.shutdown(socket.SHUT_WR)
            while connection.recv(2**16):
                pass
    return len(table)


def at_once(server: Server) -> int:
    """Many who ask for predictions at the same time, and wait."""
    connections = [server.begin("prediction", server.prediction()) for _ in range(CROWD)]
    statuses = Counter(answer(connection) for connection in connections)
    for connection in connections:
        connection.close()
    if statuses != {200: CROWD}:
        raise RuntimeError(f"{CROWD} clients were answered {dict(statuses)}")
    return CROWD


def abandoned(server: Server) -> int:
    """Rollouts whose visitors leave at once."""
    body = json.dumps({"steps": 8}).encode()
    for connection in [server.begin("rollout", body) for _ in range(CROWD)]:
        connection.close()
    return CROWD


def silent(server: Server) -> int:
    """Heads that never end, until the server hangs up."""
    connections = [server.connect() for _ in range(CROWD)]
    for connection in connections:
        connection.sendall(b"POST /api/frames HTTP/1.1\r\nHost: localh")
    for connection in connections:
        answer(connection)
        connection.close()
    return CROWD


def heavy(server: Server) -> int:
    """Bodies of a megabyte each, that all arrive at once."""
    sites = [*range(SIDE**2)] * 50
    bodies = [json.dumps({"ablation": {"sites": [*sites, n % SIDE**2] + [0] * n}}).encode() for n in range(CROWD)]  # fmt: skip
    connections = [server.begin("prediction", body) for body in bodies]
    for connection in connections:
        answer(connection)
        connection.close()
    return CROWD


CROWDS: dict[str, Crowd] = {
    "nobody": nobody,
    "all attacks of the tests": attacks,
    f"{CROWD} clients at once": at_once,
    f"{CROWD} rollouts that nobody waits for": abandoned,
    f"{CROWD} heads that never end": silent,
    f"{CROWD} bodies of a megabyte": heavy,
    "nobody, afterwards": nobody,
}


def measure(server: Server, name: str, crowd: Crowd) -> tuple[object, ...]:
    """Returns a row: what an honest visitor waits beside a crowd."""
    made: list[int] = []
    beside = threading.Thread(target=lambda: made.append(crowd(server)))
    beside.start()
    waits = [server.ask() for _ in range(ROUNDS)]
    while beside.is_alive():
        waits.append(server.ask())
    beside.join()
    if not made:
        raise RuntimeError(f"{name} failed")
    columns = list(zip(*waits, strict=True))
    return (
        name, made[0], 2 * len(waits), _both(map(statistics.median, columns)), _both(map(max, columns)),
        f"{server.megabytes:.0f} MB",
    )  # fmt: skip


def _both(seconds: Iterator[float]) -> str:
    return " and ".join(f"{1000 * one:.0f}" for one in seconds) + " ms"


def make_run(folder: Path) -> Path:
    """Returns a run of waves, trained for a moment."""
    x, t = np.arange(SIDE) / SIDE, np.arange(24.0)
    angle = 2 * np.pi * (x[:, None] + 2 * x - 0.05 * t[:, None, None])
    np.savez(folder / "waves.npz", x=x, y=x, time=t, u=np.sin(angle) + np.cos(2 * angle))
    given = ["--data", str(folder / "waves.npz"), "--select", "axes=time,x,y", "--steps", "3", "--no-auto", "--quiet", "--scope", "one-step"]  # fmt: skip
    gpo(["run", *given, "--out", str(folder / "run")])
    return folder / "run"


def main() -> None:
    """Measures and writes the table."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (4096, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        server = Server(make_run(Path(folder)))
        try:
            rows = [measure(server, name, crowd) for name, crowd in CROWDS.items()]
            waiting = [server.begin("rollout", b'{"steps": 8}') for _ in range(CROWD)]
            ended = server.end()
        finally:
            if server.process.poll() is None:
                server.process.kill()
        for connection in waiting:
            connection.close()
    lines = [f"| {' | '.join(COLUMNS)} |", "|" + "---|" * len(COLUMNS)]
    lines += [f"| {' | '.join(map(str, row))} |" for row in rows]
    notes = (
        f"Times are those of one honest visitor, who asks for frames and for a prediction of {SIDE}² "
        "sites that nobody asked for before; all clients and the server share the processor. Beside "
        "many who wait for predictions everyone has one turn after the other. Bodies beyond what the "
        "server holds at once (500 requests, 32 MiB) are refused with 503. Memory is resident, "
        f"after the crowd. Ctrl-C with {CROWD} rollouts under way took {ended:.1f} s, without a traceback."
    )
    text = "\n\n".join(["### The page under attack", "\n".join(lines), notes, *describe_machine("python -m benchmarks.page")])  # fmt: skip
    RESULTS.mkdir(parents=True, exist_ok=True)
    (RESULTS / "table.md").write_text(text + "\n", encoding="utf-8")
    print(text)


if __name__ == "__main__":
    tyro.cli(main)
