"""Work that nobody waits for: visitors who leave, bodies that never end, Ctrl-C under way."""

import contextlib
import http.client
import json
import logging
import re
import signal
import socket
import threading
from dataclasses import replace

import pytest

from gpo_explore import answers, app
from gpo_explore.answers import rollout
from gpo_explore.panels import PANELS, Panel
from gpo_explore.requests import RolloutRequest
from gpo_explore.security import HEADERS
from gpo_explore.server import Server, serve
from gpo_explore.session import AbandonedError
from tests.explore.sessions import make_session
from tests.processes import LIMIT


class Serving:
    """The page behind a real socket, in this process; `with` ends it as Ctrl-C would."""

    def __init__(self, monkeypatch, session):
        self.session, self.said, self.servers = session, [], []
        self._is_ready = threading.Event()
        started = Server.startup

        async def startup(server, sockets=None):
            await started(server, sockets)
            self.servers.append(server)
            self._is_ready.set()

        monkeypatch.setattr(Server, "startup", startup)
        self._thread = threading.Thread(target=self._serve)

    def _serve(self):
        serve(self.session, "127.0.0.1", 0, opens_browser=False, log=self.said.append)

    def __enter__(self):
        self._thread.start()
        assert self._is_ready.wait(LIMIT)
        self.port = int(re.search(r":(\d+)/", self.said[1])[1])
        return self

    def end(self):
        self.servers[0].handle_exit(signal.SIGTERM, None)
        self._thread.join(LIMIT)
        assert not self._thread.is_alive()

    def __exit__(self, *problem):
        if self._thread.is_alive():
            self.end()

    def connect(self):
        return socket.create_connection(("127.0.0.1", self.port), timeout=LIMIT)

    def begin(self, what, **body):
        """Asks, and returns the connection without waiting for an answer."""
        connection, content = self.connect(), json.dumps(body).encode()
        head = f"POST /api/{what} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        connection.sendall(f"{head}Content-Length: {len(content)}\r\n\r\n".encode() + content)
        return connection

    def ask(self, what, **body):
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=LIMIT)
        connection.request("POST", f"/api/{what}", json.dumps(body), {"Content-Type": "application/json"})  # fmt: skip
        with contextlib.closing(connection):
            answer = connection.getresponse()
            return answer.status, answer.read()


class EndlessRollout:
    """In place of a rollout: it goes on until nobody waits for it."""

    def __init__(self):
        self.num_begun = 0
        self.has_begun, self.has_ended = threading.Event(), threading.Event()

    def __call__(self, session, request, is_abandoned):
        self.num_begun += 1
        self.has_begun.set()
        while not is_abandoned():
            threading.Event().wait(0.01)
        self.has_ended.set()
        raise AbandonedError


@pytest.fixture
def endless(monkeypatch):
    work = EndlessRollout()
    monkeypatch.setitem(PANELS, "rollout", Panel(RolloutRequest, work, "rollout"))
    return work


def test_a_rollout_ends_after_the_step_in_which_the_visitor_leaves(monkeypatch):
    session, steps = make_session("grid"), []
    forward = session.rollout_forecaster.forward

    def counted(*args, **kwargs):
        steps.append(1)
        return forward(*args, **kwargs)

    monkeypatch.setattr(session.rollout_forecaster, "forward", counted)
    monkeypatch.setattr(answers, "rollout_start", long_series(answers.rollout_start))
    with pytest.raises(AbandonedError):
        rollout(session, RolloutRequest(steps=5), is_abandoned=lambda: len(steps) == 2)
    assert len(steps) == 2
    assert len(rollout(session, RolloutRequest(steps=5)).arrays["forecast"]) == 5
    assert not session.rollout_lock.locked()


def long_series(series):
    """The series of a test is short: its last frame is repeated."""

    def repeated(session, request):
        start, count = series(session, request), request.steps
        return replace(
            start,
            truth=start.truth[-1:].repeat(count, 0),
            forcings=start.forcings.new_zeros(1, count, *start.forcings.shape[2:]),
            times=start.times[-1:] * count,
            labels=start.labels[-1:] * count,
        )

    return repeated


def test_a_hundred_visitors_who_left_keep_nobody_waiting(monkeypatch, endless):
    with Serving(monkeypatch, make_session("grid")) as serving:
        connections = [serving.begin("rollout", steps=5) for _ in range(100)]
        assert endless.has_begun.wait(LIMIT)
        # Those who wait for their turn hold no thread that others need.
        assert serving.ask("frames")[0] == 200
        for connection in connections:
            connection.close()
        assert endless.has_ended.wait(LIMIT)
        monkeypatch.setitem(PANELS, "rollout", Panel(RolloutRequest, rollout, "rollout"))
        assert serving.ask("rollout", steps=1)[0] == 200
    assert endless.num_begun < 100


def test_the_end_gives_up_what_is_under_way_and_says_nothing_but_that(
    monkeypatch, endless, caplog, capfd
):
    with Serving(monkeypatch, make_session("grid")) as serving:
        connections = [serving.begin("rollout", steps=5) for _ in range(3)]
        assert endless.has_begun.wait(LIMIT)
        with caplog.at_level(logging.DEBUG, "uvicorn.error"):
            serving.end()
        for connection in connections:
            connection.close()
    assert serving.said[-1] == "stopped"
    printed = capfd.readouterr()
    assert "Traceback" not in printed.err + printed.out + caplog.text


def test_a_body_that_does_not_arrive_is_not_waited_for(monkeypatch):
    monkeypatch.setattr(app, "BODY_TIMEOUT", 0.2)
    head = b"POST /api/frames HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    with Serving(monkeypatch, make_session("grid")) as serving, serving.connect() as connection:
        connection.sendall(head + b"Content-Length: 100\r\n\r\n{")
        answer = http.client.HTTPResponse(connection)
        answer.begin()
        assert answer.status == 408
        assert b"must arrive within 0.2 seconds" in answer.read()
        assert answer.headers["x-content-type-options"] == "nosniff"
        answer.close()


def test_what_is_no_request_at_all_is_refused_with_the_headers_of_all_answers(monkeypatch):
    with Serving(monkeypatch, make_session("grid")) as serving, serving.connect() as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n")
        answer = http.client.HTTPResponse(connection)
        answer.begin()
        assert answer.status == 400
        assert {name: answer.headers[name] for name in HEADERS} == HEADERS
        answer.close()
