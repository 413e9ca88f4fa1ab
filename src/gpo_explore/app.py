"""The web application: the page, its files, and answers to its requests as packets of arrays."""

import asyncio
import threading
from collections import defaultdict
from importlib.resources import files
from typing import Any

from anyio import CancelScope, CapacityLimiter, fail_after, to_thread
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from gpo.registry import resolve
from gpo_explore.arrays import Packet, pack, to_json
from gpo_explore.comparison import other_run_metadata
from gpo_explore.metadata import run_metadata
from gpo_explore.panels import PANELS, Panel
from gpo_explore.requests import ExampleRequest, read_request
from gpo_explore.security import MAX_BODY_BYTES, Guard, error_response
from gpo_explore.session import AbandonedError, RecentCache, Session

MEDIA_TYPES = {
    "html": "text/html",
    "js": "text/javascript",
    "css": "text/css",
    "svg": "image/svg+xml",
    "json": "application/json",
}
"""Media types by file suffix."""
MAX_CACHED_BYTES = 2 * 2**20
"""Largest answer that is cached."""
BODY_TIMEOUT = 10.0
"""Seconds within which the body of a request must arrive."""
MAX_REQUESTS, MAX_PENDING_BYTES = 500, 8 * MAX_BODY_BYTES
"""Largest number of pending requests, and of bytes in their bodies; both bound the memory."""
BUSY = "The server has too many pending requests. Try again later."


def make_app(session: Session, *, token: str | None = None, cookie: str = "gpo-explore") -> ASGIApp:
    """Returns the application of one run.

    Args:
        session: The run.
        token: Access token that every request must carry; None on the loopback address.
        cookie: Name of the cookie that holds the token.
    """
    page = Page(session)
    routes = [
        Route("/", page.file, methods=["GET"]),
        Route("/static/{name}", page.file, methods=["GET"]),
        Route("/api/run", page.run, methods=["GET"]),
        Route("/api/progress", page.progress, methods=["GET"]),
        Route("/api/{name}", page.answer, methods=["POST"]),
    ]
    handlers: dict[Any, Any] = {HTTPException: _http_error, Exception: _server_error}
    return Guard(Starlette(routes=routes, exception_handlers=handlers), token, cookie)


class Page:
    """Handlers of all requests. Worker threads compute the answers, so files are never delayed."""

    def __init__(self, session: Session) -> None:
        self.session = session
        # Files are read here, and requests only look up names, so no path leads outside.
        folder = files("gpo_explore") / "static"
        self._files = {
            file.name: file.read_bytes()
            for file in folder.iterdir()
            if _suffix(file.name) in MEDIA_TYPES
        }
        self._panels: list[dict[str, str]] = []
        for name, panel in PANELS.items():
            if panel.module is not None:
                self._panels.append({"name": name, "title": panel.title})
                self._files[f"panel-{name}.js"] = panel.module.read_bytes()
        self._recent = RecentCache[bytes](32, lambda content: len(content) <= MAX_CACHED_BYTES)
        # Waiting requests hold no thread: threads are few, and a wait can be cancelled.
        self._queues = defaultdict[tuple[str, str], CapacityLimiter](lambda: CapacityLimiter(1))
        self._num_pending = self._pending_bytes = 0

    async def file(self, request: Request) -> Response:
        """Returns the page or one of its files."""
        name = request.path_params.get("name", "index.html")
        if name not in self._files:
            raise HTTPException(404, f"There is no file {name[:80]!r}.")
        return Response(self._files[name], media_type=MEDIA_TYPES[_suffix(name)])

    async def run(self, request: Request) -> Response:
        """Returns the metadata of the run as JSON."""
        content = await to_thread.run_sync(self._run, limiter=self._queues["session", ""])
        return Response(content, media_type="application/json")

    async def progress(self, request: Request) -> Response:
        """Returns the progress of long computations as JSON, without waiting for any of them."""
        # A copy, because a worker thread may change the dictionary meanwhile.
        return Response(to_json(dict(self.session.progress)), media_type="application/json")

    async def answer(self, request: Request) -> Response:
        """Returns the answer of a panel, or an error that states what is wrong with the request."""
        name = request.path_params["name"]
        try:
            panel = PANELS.find(name[:80])
        except ValueError as error:
            raise HTTPException(404, str(error)) from error
        if request.headers.get("content-type", "").split(";")[0].strip() != "application/json":
            raise HTTPException(415, "The content type must be application/json.")
        if self._num_pending >= MAX_REQUESTS:
            raise HTTPException(503, BUSY)
        body = bytearray()
        self._num_pending += 1
        try:
            await self._receive(request, body)
            parsed = read_request(resolve(panel.request), bytes(body))
            content = await self._compute(request, name, panel, parsed)
        except ValueError as error:
            raise HTTPException(400, str(error)) from error
        except ClientDisconnect:
            return Response(status_code=400)
        except AbandonedError:
            return error_response(503, "Cancelled: the server is stopping, or the client has left.")
        finally:
            self._num_pending -= 1
            self._pending_bytes -= len(body)
        return Response(content, media_type="application/octet-stream")

    async def _receive(self, request: Request, body: bytearray) -> None:
        """Fills `body`; raises an error if it is too large or too slow."""
        try:
            with fail_after(BODY_TIMEOUT):
                async for chunk in request.stream():
                    if len(body) + len(chunk) > MAX_BODY_BYTES:
                        raise HTTPException(413, f"A request may have {MAX_BODY_BYTES:,} bytes.")
                    if self._pending_bytes + len(chunk) > MAX_PENDING_BYTES:
                        raise HTTPException(503, BUSY)
                    body += chunk
                    self._pending_bytes += len(chunk)
        except TimeoutError as error:
            seconds = f"{BODY_TIMEOUT:g} seconds"
            raise HTTPException(408, f"A request must arrive within {seconds}.") from error

    async def _compute(
        self, request: Request, name: str, panel: Panel, parsed: ExampleRequest
    ) -> bytes:
        """Returns the answer; abandons it when the client disconnects."""
        has_left = threading.Event()
        queue = self._queues[panel.queue, name if panel.queue == "own" else ""]
        with CancelScope() as scope:
            watcher = asyncio.create_task(_watch(request, has_left, scope))
            try:
                return await to_thread.run_sync(
                    self._answer, name, panel, parsed, has_left, limiter=queue
                )
            finally:
                watcher.cancel()
        raise AbandonedError

    def _run(self) -> bytes:
        def describe() -> bytes:
            added = {"compared": other_run_metadata(self.session), "panels": self._panels}
            return to_json({**run_metadata(self.session), **added})

        with self.session.lock:
            return self._recent.get("run", describe)

    def _answer(
        self, name: str, panel: Panel, request: ExampleRequest, has_left: threading.Event
    ) -> bytes:
        session, answer = self.session, resolve(panel.answer)

        def is_abandoned() -> bool:
            return has_left.is_set() or session.stop_requested.is_set()

        if is_abandoned():
            raise AbandonedError
        if panel.queue != "session":
            return _to_bytes(answer(session, request, is_abandoned))
        with session.lock:
            return self._recent.get((name, request), lambda: _to_bytes(answer(session, request)))


def _suffix(name: str) -> str:
    return name.rsplit(".", 1)[-1]


def _to_bytes(answer: Packet | bytes) -> bytes:
    return answer if isinstance(answer, bytes) else pack(answer)


async def _watch(request: Request, has_left: threading.Event, scope: CancelScope) -> None:
    """Waits until the client disconnects, then cancels both the wait in the queue and the work."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
    has_left.set()
    scope.cancel()


async def _http_error(request: Request, error: HTTPException) -> Response:
    if error.status_code == 405:
        return error_response(405, f"{request.method} is not allowed here.")
    return error_response(error.status_code, error.detail)


async def _server_error(request: Request, error: Exception) -> Response:
    return error_response(500, "Internal error: see the terminal of gpo explore.")
