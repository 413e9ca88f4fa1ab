"""The web application: one page, its files, and answers as packets of arrays."""

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from anyio import CancelScope, CapacityLimiter, fail_after, to_thread
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Route
from starlette.types import ASGIApp

from gpo_explore import answers, internals, motion, saved
from gpo_explore.arrays import Packet, pack, to_json
from gpo_explore.comparison import compared
from gpo_explore.metadata import run_metadata
from gpo_explore.questions import QUESTIONS
from gpo_explore.requests import (
    AblationRequest,
    ExampleRequest,
    FlowRequest,
    PointRequest,
    RolloutRequest,
    TracerRequest,
    WindowRequest,
    read_request,
)
from gpo_explore.security import MOST_BYTES, Guard, refused
from gpo_explore.session import AbandonedError, Recent, Session

TYPES = {
    "html": "text/html",
    "js": "text/javascript",
    "css": "text/css",
    "svg": "image/svg+xml",
    "json": "application/json",
}
"""Media types by file ending."""
MAX_KEPT = 2 * 2**20
"""Most bytes of an answer that is cached."""
SECONDS_FOR_BODY = 10.0
"""How long a request may take to arrive."""
MOST_REQUESTS, MOST_HELD = 500, 8 * MOST_BYTES
"""Requests that may be under way at once, and the bytes of all their bodies: what waits is bounded."""
FULL = "Too many requests wait for an answer. Ask again later."


@dataclass(frozen=True)
class Answer:
    """How one kind of request is read and answered."""

    request: type[Any]
    answer: Callable[..., Packet | bytes]
    """Called with the session and the request."""
    is_long: bool = False
    """Whether it takes the locks it needs itself, so that nothing else waits meanwhile; it is also
    called with what tells that nobody waits for it any more."""


ANSWERS = {
    "sites": Answer(ExampleRequest, answers.sites),
    "frames": Answer(ExampleRequest, answers.frames),
    "prediction": Answer(AblationRequest, answers.prediction),
    "internals": Answer(AblationRequest, internals.layers),
    "particles": Answer(AblationRequest, internals.particles),
    "window": Answer(WindowRequest, internals.window),
    **{what: Answer(*parts) for what, parts in QUESTIONS.items()},
    "value": Answer(PointRequest, answers.value),
    "dependence": Answer(PointRequest, answers.dependence),
    "rollout": Answer(RolloutRequest, answers.rollout, is_long=True),
    "motion": Answer(ExampleRequest, motion.motion, is_long=True),
    "flow": Answer(FlowRequest, motion.flow, is_long=True),
    "tracers": Answer(TracerRequest, motion.tracers, is_long=True),
    "netcdf": Answer(AblationRequest, saved.netcdf),
}
"""All kinds of requests, by the last part of the address."""


def make_app(session: Session, *, token: str | None = None, cookie: str = "gpo-explore") -> ASGIApp:
    """Returns the application of one run.

    Args:
        session: The run.
        token: What a visitor must hold; none is needed on the loopback address.
        cookie: Name under which a browser keeps the token.
    """
    page = Page(session)
    routes = [
        Route("/", page.file, methods=["GET"]),
        Route("/static/{name}", page.file, methods=["GET"]),
        Route("/api/run", page.run, methods=["GET"]),
        Route("/api/progress", page.progress, methods=["GET"]),
        Route("/api/{what}", page.answer, methods=["POST"]),
    ]
    handlers: dict[Any, Any] = {HTTPException: _http_error, Exception: _server_error}
    return Guard(Starlette(routes=routes, exception_handlers=handlers), token, cookie)


class Page:
    """Answers requests; computes in a worker thread, one at a time, so that files never wait."""

    def __init__(self, session: Session) -> None:
        self.session = session
        # Only what lies in the folder has an address: no path can lead elsewhere.
        folder = files("gpo_explore") / "static"
        self._files = {
            part.name: part.read_bytes() for part in folder.iterdir() if _ending(part.name) in TYPES
        }
        self._recent = Recent[bytes](32, lambda content: len(content) <= MAX_KEPT)
        # Whoever waits does so without a thread: threads are few, and a wait can be given up.
        self._turn = CapacityLimiter(1)
        # Those who roll out share a model; long questions have copies, and wait for their own kind.
        self._long_turn = CapacityLimiter(1)
        self._own_turns = {
            what: CapacityLimiter(1) for what, (_, _, is_long) in QUESTIONS.items() if is_long
        }
        self._num_under_way = self._bytes_held = 0

    async def file(self, request: Request) -> Response:
        """Returns the page or one of its files."""
        name = request.path_params.get("name", "index.html")
        if name not in self._files:
            raise HTTPException(404, f"There is no file {name[:80]!r}.")
        return Response(self._files[name], media_type=TYPES[_ending(name)])

    async def run(self, request: Request) -> Response:
        """Returns the metadata of the run."""
        content = await to_thread.run_sync(self._run, limiter=self._turn)
        return Response(content, media_type="application/json")

    async def progress(self, request: Request) -> Response:
        """Returns how far what takes long has come; it waits for nothing."""
        # A copy, made at once: a thread that computes may add to it meanwhile.
        return Response(to_json(dict(self.session.progress)), media_type="application/json")

    async def answer(self, request: Request) -> Response:
        """Returns a packet, or an error that states what is wrong with the request."""
        what = request.path_params["what"]
        if what not in ANSWERS:
            known = ", ".join(ANSWERS)
            raise HTTPException(404, f"One can ask for {known}, got {what[:80]!r}.")
        if request.headers.get("content-type", "").split(";")[0].strip() != "application/json":
            raise HTTPException(415, "The request must be application/json.")
        if self._num_under_way >= MOST_REQUESTS:
            raise HTTPException(503, FULL)
        kind, body = ANSWERS[what], bytearray()
        self._num_under_way += 1
        try:
            await self._receive(request, body)
            parsed = read_request(kind.request, bytes(body))
            content = await self._awaited(request, what, parsed)
        except ValueError as error:
            raise HTTPException(400, str(error)) from error
        except ClientDisconnect:
            return Response(status_code=400)
        except AbandonedError:
            return refused(503, "The answer was given up: the server ends, or nobody waited.")
        finally:
            self._num_under_way -= 1
            self._bytes_held -= len(body)
        return Response(content, media_type="application/octet-stream")

    async def _receive(self, request: Request, body: bytearray) -> None:
        """Fills in the body; raises an error where there is no room for it, or it takes too long."""
        try:
            with fail_after(SECONDS_FOR_BODY):
                async for part in request.stream():
                    if len(body) + len(part) > MOST_BYTES:
                        raise HTTPException(413, f"A request may have {MOST_BYTES:,} bytes.")
                    if self._bytes_held + len(part) > MOST_HELD:
                        raise HTTPException(503, FULL)
                    body += part
                    self._bytes_held += len(part)
        except TimeoutError as error:
            seconds = f"{SECONDS_FOR_BODY:g} seconds"
            raise HTTPException(408, f"A request must arrive within {seconds}.") from error

    async def _awaited(self, request: Request, what: str, parsed: ExampleRequest) -> bytes:
        """Returns the answer; gives it up when whoever asked is gone."""
        is_gone = threading.Event()
        shared = self._long_turn if ANSWERS[what].is_long else self._turn
        turn = self._own_turns.get(what, shared)
        with CancelScope() as scope:
            watcher = asyncio.create_task(_watch(request, is_gone, scope))
            try:
                return await to_thread.run_sync(self._answered, what, parsed, is_gone, limiter=turn)
            finally:
                watcher.cancel()
        raise AbandonedError

    def _run(self) -> bytes:
        def describe() -> bytes:
            return to_json({**run_metadata(self.session), "compared": compared(self.session)})

        with self.session.lock:
            return self._recent.get("run", describe)

    def _answered(self, what: str, request: ExampleRequest, is_gone: threading.Event) -> bytes:
        kind, session = ANSWERS[what], self.session

        def is_abandoned() -> bool:
            return is_gone.is_set() or session.ending.is_set()

        if is_abandoned():
            raise AbandonedError
        if kind.is_long:
            return _packed(kind.answer(session, request, is_abandoned))
        with session.lock:
            return self._recent.get((what, request), lambda: _packed(kind.answer(session, request)))


def _ending(name: str) -> str:
    return name.rsplit(".", 1)[-1]


def _packed(answer: Packet | bytes) -> bytes:
    return answer if isinstance(answer, bytes) else pack(answer)


async def _watch(request: Request, is_gone: threading.Event, scope: CancelScope) -> None:
    """Waits until whoever asked is gone; then ends both the wait for a turn and the work."""
    while (await request.receive())["type"] != "http.disconnect":
        pass
    is_gone.set()
    scope.cancel()


async def _http_error(request: Request, error: HTTPException) -> Response:
    if error.status_code == 405:
        return refused(405, f"{request.method} is not answered here.")
    return refused(error.status_code, error.detail)


async def _server_error(request: Request, error: Exception) -> Response:
    return refused(500, "The server failed; its terminal shows where.")
