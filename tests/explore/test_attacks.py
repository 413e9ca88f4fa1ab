"""Every attack of `attacks.py` is refused, and many clients at once are all answered."""

import http.client
import io
import json
import select
import threading
from collections import Counter

import pytest

from gpo_explore.panels import PANELS, Panel
from gpo_explore.requests import AblationRequest
from gpo_explore.security import HEADERS
from tests.explore.attacks import all_attacks, request, without_token
from tests.explore.sessions import make_session
from tests.explore.test_abandoned import Serving
from tests.processes import LIMIT

ATTACKS = all_attacks()
TOKENS = list(without_token("T0ken" * 7))


@pytest.fixture(scope="module")
def serving():
    with pytest.MonkeyPatch.context() as patch, Serving(patch, make_session("grid")) as serving:
        yield serving


@pytest.fixture(scope="module")
def guarded():
    """A server that asks for a token, though it listens on this machine alone."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("gpo_explore.server.is_loopback", lambda host: False)
        patch.setattr("gpo_explore.server.new_token", lambda: "T0ken" * 7)
        with Serving(patch, make_session("grid")) as serving:
            # Servers of other tests start as they are.
            patch.undo()
            yield serving


class Received:
    """Bytes that a socket gave, for the parser of answers."""

    def __init__(self, content):
        self._content = content

    def makefile(self, *_):
        return io.BytesIO(self._content)


def exchange(serving, attack):
    """Sends an attack and returns all that came back, until the server hung up."""
    with serving.connect() as connection:
        content = b""
        try:
            for piece in attack.pieces:
                connection.sendall(piece)
            if attack.half_closes:
                connection.shutdown(1)
            while more := connection.recv(2**16):
                content += more
        except TimeoutError:
            raise
        except OSError:
            # It hung up on what was still to come.
            pass
        return content


def check(content, attack):
    assert b"Traceback" not in content
    assert b'File "' not in content
    if not content:
        assert attack.half_closes or sum(map(len, attack.pieces)) > 2**16
        return
    method = attack.pieces[0].split(b" ")[0].decode("latin-1")
    answer = http.client.HTTPResponse(Received(content), method=method)
    answer.begin()
    body = answer.read()
    assert answer.status in attack.allowed, (answer.status, body[:200])
    assert {name: answer.headers[name] for name in HEADERS} == HEADERS
    assert answer.headers["access-control-allow-origin"] is None
    assert answer.headers["server"] is None
    assert answer.headers["set-cookie"] is None
    assert answer.headers["content-type"] != "application/octet-stream"
    if answer.status >= 400 and answer.headers["content-type"] == "application/json" and body:
        assert list(json.loads(body)) == ["error"]


def test_there_are_hundreds_of_attacks_and_no_two_are_the_same():
    assert len(ATTACKS) >= 250
    for table in (ATTACKS, TOKENS):
        assert max(Counter(one.name for one in table).values()) == 1
        assert max(Counter(one.pieces for one in table).values()) == 1


@pytest.mark.parametrize("attack", ATTACKS, ids=lambda attack: ascii(attack.name))
def test_an_attack_gets_a_refusal_with_all_headers_and_no_data(serving, attack):
    content = exchange(serving, attack)
    check(content, attack)
    assert content.count(b"HTTP/1.1 200") <= (200 in attack.allowed)


@pytest.mark.parametrize("attack", TOKENS, ids=lambda attack: ascii(attack.name))
def test_nothing_is_shown_without_the_token(guarded, attack):
    check(exchange(guarded, attack), attack)


def test_the_token_itself_still_opens_the_page(guarded):
    bearer = f"Authorization: Bearer {'T0ken' * 7}"
    content = request("/api/run", bearer, method="GET")
    with guarded.connect() as connection:
        connection.sendall(content)
        answer = http.client.HTTPResponse(connection)
        answer.begin()
        assert answer.status == 200
        answer.close()


class OneAtATime:
    """In place of a prediction: counts how many are made, and how many at once."""

    def __init__(self):
        self.num_made = self.num_now = self.most = 0
        self.may_go_on = threading.Event()

    def __call__(self, session, request):
        self.num_now += 1
        self.most = max(self.most, self.num_now)
        assert self.may_go_on.wait(LIMIT)
        self.num_made += 1
        self.num_now -= 1
        return b"made"


def test_two_hundred_clients_at_once_are_all_answered_by_one_thread(serving, monkeypatch):
    work = OneAtATime()
    monkeypatch.setitem(PANELS, "prediction", Panel(AblationRequest, work))
    num_threads = threading.active_count()
    connections = [serving.begin("prediction", ablation={"sites": [n]}) for n in range(200)]
    # Attacks in between neither wait for a turn nor take one.
    for attack in ATTACKS[::10]:
        check(exchange(serving, attack), attack)
    assert threading.active_count() <= num_threads + 2
    work.may_go_on.set()
    for connection in connections:
        with connection:
            answer = http.client.HTTPResponse(connection)
            answer.begin()
            assert (answer.status, answer.read()) == (200, b"made")
            answer.close()
    assert (work.num_made, work.most) == (200, 1)


@pytest.mark.parametrize(("limit", "most"), [("MAX_REQUESTS", 3), ("MAX_PENDING_BYTES", 3 * 2000)])
def test_those_who_wait_take_a_bounded_part_of_the_memory(serving, monkeypatch, limit, most):
    work = OneAtATime()
    monkeypatch.setitem(PANELS, "prediction", Panel(AblationRequest, work))
    monkeypatch.setattr(f"gpo_explore.app.{limit}", most)
    # Answers are kept, so nobody asks what someone else asked before.
    long = [most, *range(400)]
    connections = [serving.begin("prediction", ablation={"sites": [*long, 7000 + n]}) for n in range(9)]  # fmt: skip
    answered = set()
    while len(answered) < 6:
        ready = select.select([one for one in connections if one not in answered], [], [], LIMIT)[0]
        assert ready
        answered.update(ready)
    work.may_go_on.set()
    statuses = Counter()
    for connection in connections:
        with connection:
            answer = http.client.HTTPResponse(connection)
            answer.begin()
            statuses[answer.status] += 1
            assert answer.status == 200 or b"Try again later" in answer.read()
            assert {name: answer.headers[name] for name in HEADERS} == HEADERS
            answer.close()
    assert statuses == {200: 3, 503: 6}
    assert work.num_made == 3
    # Whoever asks later is answered.
    assert serving.ask("prediction", ablation={"sites": [*long, 8000]})[0] == 200


def test_what_two_hundred_clients_left_behind_is_not_made(serving, monkeypatch):
    work = OneAtATime()
    monkeypatch.setitem(PANELS, "prediction", Panel(AblationRequest, work))
    connections = [serving.begin("prediction", ablation={"sites": [300 + n]}) for n in range(200)]
    # The server has read every request once it answers one that came after them.
    assert serving.ask("window", layer=0)[0] == 400
    for connection in connections:
        connection.close()
    assert serving.ask("window", layer=0)[0] == 400
    work.may_go_on.set()
    monkeypatch.undo()
    assert serving.ask("prediction", ablation={"sites": [1]})[0] == 200
    assert work.num_made <= 2


def test_a_head_that_does_not_arrive_is_not_waited_for(monkeypatch):
    monkeypatch.setattr("gpo_explore.server.HEAD_TIMEOUT", 1.0)
    with Serving(monkeypatch, make_session("grid")) as serving:
        for begun in (b"", b"GET / HTTP/1.1\r\nHost: localh"):
            with serving.connect() as connection:
                connection.sendall(begun)
                content = connection.recv(2**16)
                assert content == b"" or b" 408 " in content.splitlines()[0]
                assert all(name.encode() in content for name in HEADERS) or not content
        # One that goes on after an answer has as long again.
        with serving.connect() as connection:
            connection.sendall(b"GET /nowhere HTTP/1.1\r\nHost: localhost\r\n\r\n")
            # Head and body may come one after the other.
            answer = http.client.HTTPResponse(connection)
            answer.begin()
            assert (answer.status, answer.read()) == (404, b'{"error":"Not Found"}')
            connection.sendall(b"GET / HTTP/1.1\r\n")
            content = connection.recv(2**16)
            assert content == b"" or b" 408 " in content.splitlines()[0]
