"""The server of the page, from the first socket to Ctrl-C."""

import asyncio
import logging
import socket
import time
import webbrowser
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from gpo.model.ablation import Ablation
from gpo_explore.app import make_app
from gpo_explore.security import HEADERS, is_loopback, new_token
from gpo_explore.session import Session

SECONDS_FOR_HEAD = 10.0
"""How long the lines before the body of a request may take to arrive."""
SECONDS_TO_END = 3
"""How long Ctrl-C waits for answers that are under way."""


def serve(
    session: Session, host: str, port: int, *, opens_browser: bool, say: Callable[[str], None]
) -> None:
    """Serves the page until Ctrl-C.

    Args:
        session: The run.
        host: Address to listen on; other than the loopback ones, a token is needed.
        port: Port; 0 takes any that is free.
        opens_browser: Whether the address is opened too.
        say: Takes what to tell whoever started it.
    """
    with listening(host, port) as listener:
        port = listener.getsockname()[1]
        token = None if is_loopback(host) else new_token()
        say(time_of_a_prediction(session))
        say(f"explore: {address(host, port, token)}  (Ctrl-C ends it)")
        app = make_app(session, token=token, cookie=f"gpo-explore-{port}")
        config = uvicorn.Config(
            app, log_level="warning", access_log=False, server_header=False, ws="none",
            http=SafeProtocol, timeout_graceful_shutdown=SECONDS_TO_END,
        )  # fmt: skip
        if opens_browser:
            webbrowser.open(address(host, port, token))
        with suppress(KeyboardInterrupt), _quiet_end(session):
            Server(config, session).run(sockets=[listener])
    say("stopped")


class SafeProtocol(H11Protocol):
    """HTTP whose refusals of what is no request carry our headers too, and which waits for none."""

    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begins to wait for the head of a request."""
        super().connection_made(transport)
        self._wait_for_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Waits no more."""
        self._stop_waiting()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Waits for the rest of a head; its bodies have a limit of their own."""
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:
            self._stop_waiting()
        elif self._timer is None:
            self._wait_for_head()

    def send_400_response(self, msg: str) -> None:
        """Answers what is no HTTP, and hangs up."""
        self._refuse(400, b"Bad Request", msg)

    def _wait_for_head(self) -> None:
        self._timer = self.loop.call_later(SECONDS_FOR_HEAD, self._give_up)

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _give_up(self) -> None:
        if self.conn.trailing_data[0]:
            self._refuse(408, b"Request Timeout", "The request did not arrive.")
        else:
            # Browsers open connections in advance: nothing was asked.
            self.transport.close()

    def _refuse(self, status: int, reason: bytes, message: str) -> None:
        named = {"content-type": "text/plain; charset=utf-8", "connection": "close", **HEADERS}
        headers = [(name.encode(), value.encode()) for name, value in named.items()]
        if self.cycle is not None:
            # Whatever is still made for this connection has nobody to go to.
            self.cycle.disconnected = True
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            for event in (
                h11.Response(status_code=status, headers=headers, reason=reason),
                h11.Data(data=message.encode("ascii")),
                h11.EndOfMessage(),
            ):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()


class Server(uvicorn.Server):
    """A server that gives up what is under way when it ends.

    Args:
        config: How it serves.
        session: The run.
    """

    def __init__(self, config: uvicorn.Config, session: Session) -> None:
        super().__init__(config)
        self._session = session

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Takes Ctrl-C and SIGTERM."""
        self._session.ending.set()
        super().handle_exit(sig, frame)


@contextmanager
def _quiet_end(session: Session) -> Iterator[None]:
    """Keeps what is given up at the end from being logged as failures, with tracebacks."""
    logger = logging.getLogger("uvicorn.error")

    def is_kept(record: logging.LogRecord) -> bool:
        return not session.ending.is_set()

    logger.addFilter(is_kept)
    try:
        yield
    finally:
        logger.removeFilter(is_kept)


def listening(host: str, port: int) -> socket.socket:
    """Returns a socket that listens; raises an error that says what to do where it cannot."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family)
    except (OSError, OverflowError) as error:
        raise ValueError(
            f"Cannot listen on {host}:{port} ({error}). Choose another --port or --host."
        ) from error


def address(host: str, port: int, token: str | None) -> str:
    """Returns what to type into a browser."""
    name = f"[{host}]" if ":" in host else host
    return f"http://{name}:{port}/{'' if token is None else f'?token={token}'}"


def time_of_a_prediction(session: Session) -> str:
    """Returns the time of a prediction with one mode ablated, in words; warms up as well.

    It is the least of a few, as on the page once all is in memory.
    """
    model = session.forecaster.model
    ablations = [Ablation()]
    if model.operator is not None and model.operator.applied_layers:
        modes = range(min(5, model.operator.num_modes))
        ablations = [Ablation(frozenset({(0, mode)})) for mode in modes]
    session.prediction(0)
    times = []
    for ablation in ablations:
        start = time.perf_counter()
        session.prediction(0, ablation)
        times.append(time.perf_counter() - start)
    taken = 1000 * min(times)
    sites = session.example(0).frames.shape[2]
    return f"{session.name}: {sites:,} sites; a prediction under ablation takes {taken:.0f} ms"
