"""The HTTP server of the page, from opening the socket to Ctrl-C."""

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

HEAD_TIMEOUT = 10.0
"""Seconds within which the head of a request (all lines before the body) must arrive."""
SHUTDOWN_TIMEOUT = 3
"""Seconds that Ctrl-C waits for pending answers."""


def serve(
    session: Session, host: str, port: int, *, opens_browser: bool, log: Callable[[str], None]
) -> None:
    """Serves the page until Ctrl-C.

    Args:
        session: The run.
        host: Address to listen on; addresses other than the loopback ones require a token.
        port: Port to listen on; 0 chooses a free one.
        opens_browser: Whether to open the page in a browser.
        log: Prints a line.
    """
    with listen(host, port) as listener:
        port = listener.getsockname()[1]
        token = None if is_loopback(host) else new_token()
        log(prediction_time(session))
        log(f"explore: {address(host, port, token)}  (Ctrl-C to stop)")
        app = make_app(session, token=token, cookie=f"gpo-explore-{port}")
        config = uvicorn.Config(
            app, log_level="warning", access_log=False, server_header=False, ws="none",
            http=SafeProtocol, timeout_graceful_shutdown=SHUTDOWN_TIMEOUT,
        )  # fmt: skip
        if opens_browser:
            webbrowser.open(address(host, port, token))
        with suppress(KeyboardInterrupt), _without_shutdown_errors(session):
            Server(config, session).run(sockets=[listener])
    log("stopped")


class SafeProtocol(H11Protocol):
    """HTTP/1.1 with a timeout for request heads, and security headers on its own error responses."""

    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Starts the timeout."""
        super().connection_made(transport)
        self._start_timeout()

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancels the timeout."""
        self._cancel_timeout()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Stops the timeout at the end of the head; bodies have a timeout of their own."""
        super().data_received(data)
        if self.conn.their_state is not h11.IDLE:
            self._cancel_timeout()
        elif self._timer is None:
            self._start_timeout()

    def send_400_response(self, msg: str) -> None:
        """Responds to invalid HTTP, and closes the connection."""
        self._reject(400, b"Bad Request", msg)

    def _start_timeout(self) -> None:
        self._timer = self.loop.call_later(HEAD_TIMEOUT, self._time_out)

    def _cancel_timeout(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _time_out(self) -> None:
        if self.conn.trailing_data[0]:
            self._reject(408, b"Request Timeout", "The request did not arrive in time.")
        else:
            # Browsers open connections in advance, without sending a request.
            self.transport.close()

    def _reject(self, status: int, reason: bytes, message: str) -> None:
        fields = {"content-type": "text/plain; charset=utf-8", "connection": "close", **HEADERS}
        headers = [(name.encode(), value.encode()) for name, value in fields.items()]
        if self.cycle is not None:
            # A pending answer can no longer be sent on this connection.
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
    """A uvicorn server that abandons pending computations when it stops.

    Args:
        config: Settings of uvicorn.
        session: The run.
    """

    def __init__(self, config: uvicorn.Config, session: Session) -> None:
        super().__init__(config)
        self._session = session

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Handles Ctrl-C and SIGTERM."""
        self._session.stop_requested.set()
        super().handle_exit(sig, frame)


@contextmanager
def _without_shutdown_errors(session: Session) -> Iterator[None]:
    """Suppresses the tracebacks of answers that are abandoned at shutdown."""
    logger = logging.getLogger("uvicorn.error")

    def is_logged(record: logging.LogRecord) -> bool:
        return not session.stop_requested.is_set()

    logger.addFilter(is_logged)
    try:
        yield
    finally:
        logger.removeFilter(is_logged)


def listen(host: str, port: int) -> socket.socket:
    """Returns a listening socket; raises a `ValueError` if the address is not available."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family)
    except (OSError, OverflowError) as error:
        raise ValueError(
            f"Cannot listen on {host}:{port} ({error}). Choose another --port or --host."
        ) from error


def address(host: str, port: int, token: str | None) -> str:
    """Returns the URL of the page."""
    name = f"[{host}]" if ":" in host else host
    return f"http://{name}:{port}/{'' if token is None else f'?token={token}'}"


def prediction_time(session: Session) -> str:
    """Returns a sentence with the time of a prediction with one mode ablated; also warms up.

    It is the shortest of a few, as on the page once everything is in memory.
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
    milliseconds = 1000 * min(times)
    sites = session.example(0).frames.shape[2]
    return f"{session.name}: {sites:,} sites; an ablated prediction takes {milliseconds:.0f} ms"
