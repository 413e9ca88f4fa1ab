"""Who is let in, and what happens to everyone else."""

import json
from importlib.resources import files

import pytest
from starlette.testclient import TestClient

from gpo_explore.app import make_app
from gpo_explore.panels import PANELS, Panel
from gpo_explore.requests import ExampleRequest
from gpo_explore.security import MAX_BODY_BYTES, is_loopback, new_token
from gpo_explore.server import address, listen
from tests.explore.sessions import make_session

HERE = "http://127.0.0.1:8760"
JSON = {"content-type": "application/json"}


@pytest.fixture(scope="module")
def session():
    return make_session("grid")


@pytest.fixture(scope="module")
def client(session):
    return TestClient(make_app(session), base_url=HERE)


@pytest.mark.parametrize(
    "host",
    [
        "evil.example", "evil.example:8760", "127.0.0.1.evil.example", "", "[", "10.0.0.1:8760",
        "evil.com@localhost", "evil.com:80@127.0.0.1:8760", "localhost/evil", "localhost:8760:1",
        "127.evil.example", "localhost#", "[::1", "localhost:port",
    ],
)  # fmt: skip
def test_a_name_that_someone_else_points_here_is_refused(client, host):
    response = client.get("/api/run", headers={"host": host})
    assert response.status_code == 421
    assert "must name this machine" in response.json()["error"]


@pytest.mark.parametrize(
    "host", ["127.0.0.1:8760", "localhost:9", "[::1]:8760", "LOCALHOST", "127.1.2.3:9"]
)
def test_names_of_this_machine_are_let_in(client, host):
    assert client.get("/", headers={"host": host}).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"origin": "http://127.0.0.1:9999"},
        {"origin": "http://["},
        {"origin": "http://evil.example@127.0.0.1:8760"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
    ],
)
def test_another_page_may_not_ask(client, headers):
    response = client.post("/api/frames", json={}, headers=headers)
    assert response.status_code == 403
    assert "Only the page itself may send requests" in response.json()["error"]


def test_the_page_itself_may_ask(client):
    headers = {"origin": HERE, "sec-fetch-site": "same-origin"}
    assert client.post("/api/frames", json={}, headers=headers).status_code == 200


@pytest.mark.parametrize(
    "path",
    [
        "/static/../app.py", "/static/..%2fapp.py", "/static/%2e%2e/app.py", "/static/%2fetc%2fpasswd",
        "/static//etc/passwd", "/static/..%5capp.py", "/static/.", "/static/", "/static/nothing.js",
        "/app.py", "/static/index.html%00.js", "/api/run/../../static/x", "/..%2f..%2fapp.py",
    ],
)  # fmt: skip
def test_no_path_leads_out_of_the_folder(client, path):
    response = client.get(path)
    assert response.status_code in (404, 405)
    assert "import" not in response.text
    assert "error" in response.json()


def test_what_is_not_there_is_named_with_what_is(client):
    response = client.post("/api/secrets", json={})
    assert response.status_code == 404
    assert "`panel` must be one of sites, frames, prediction" in response.json()["error"]


@pytest.mark.parametrize("method", ["GET", "PUT", "DELETE", "PATCH"])
def test_other_methods_are_refused(client, method):
    response = client.request(method, "/api/frames")
    assert response.status_code == 405
    assert response.json()["error"] == f"{method} is not allowed here."


def test_a_form_of_another_page_has_the_wrong_type(client):
    response = client.post("/api/frames", content=b"{}", headers={"content-type": "text/plain"})
    assert response.status_code == 415
    assert response.json()["error"] == "The content type must be application/json."


def test_a_body_that_is_too_long_is_refused_whether_its_length_is_told_or_not(client):
    long = b" " * (MAX_BODY_BYTES + 1)
    assert client.post("/api/frames", content=long, headers=JSON).status_code == 413
    pieces = (b" " * 2**20 for _ in range(6))
    response = client.post("/api/frames", content=pieces, headers=JSON)
    assert response.status_code == 413
    assert "4,194,304 bytes" in response.json()["error"]
    headers = {**JSON, "content-length": "many"}
    assert client.post("/api/frames", content=b"{}", headers=headers).status_code == 413


@pytest.mark.parametrize(
    "body",
    [
        b"{", b"[]", b"null", b'"x"', b"\xff\xfe", b'{"example": NaN}', b'{"example": Infinity}',
        b'{"example": 1e400}', b"[" * 100_000, b'{"a":' * 20_000, b'{"example": "0"}',
        b'{"example": null}', b'{"example": [0]}', b'{"example": 9999999999999999999999}',
        b"{}{}", b'{"__proto__": 1}', rb'{"\ud800": 1}', rb'{"example": "\ud800"}',
    ],
)  # fmt: skip
def test_a_body_that_is_no_request_is_refused_in_words(client, body):
    response = client.post("/api/frames", content=body, headers=JSON)
    assert response.status_code == 400
    assert "must" in response.json()["error"] or "may have" in response.json()["error"]
    assert "Traceback" not in response.text


def test_a_failure_of_our_own_shows_no_stack(session, monkeypatch):
    def fail(session, request):
        raise RuntimeError("secret place in the code")

    monkeypatch.setitem(PANELS, "frames", Panel(ExampleRequest, fail))
    client = TestClient(make_app(session), base_url=HERE, raise_server_exceptions=False)
    response = client.post("/api/frames", json={})
    assert response.status_code == 500
    assert response.json() == {"error": "Internal error: see the terminal of gpo explore."}


@pytest.mark.parametrize("path", ["/", "/static/main.js", "/api/run", "/nowhere"])
def test_every_answer_forbids_to_load_anything_from_elsewhere(client, path):
    headers = client.get(path).headers
    assert headers["content-security-policy"].startswith("default-src 'none'; script-src 'self'")
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["cache-control"] == "no-store"
    assert "access-control-allow-origin" not in headers


def test_the_page_names_no_address_but_its_own(client):
    folder = files("gpo_explore") / "static"
    names = [part.name for part in folder.iterdir()]
    assert {"index.html", "page.css", "main.js"} <= set(names)
    for name in names:
        # A drawing names the language it is written in.
        text = client.get(f"/static/{name}").text.replace("http://www.w3.org/2000/svg", "")
        assert "://" not in text, name


def test_bound_elsewhere_nothing_is_shown_without_the_token(session):
    token = new_token()
    outside = "http://192.168.0.7:8760"
    client = TestClient(make_app(session, token=token), base_url=outside)
    for path in ("/", "/static/main.js", "/api/run", "/?token=wrong", "/?token="):
        response = client.get(path)
        assert response.status_code == 401
        assert "open the address that gpo explore printed" in response.json()["error"]
    assert client.post("/api/frames", json={}).status_code == 401
    assert client.post(f"/api/frames?token={token}", json={}).status_code == 401
    wrong = {"authorization": "Bearer no", "cookie": "gpo-explore=é; x="}
    assert client.get("/", headers={k: v.encode() for k, v in wrong.items()}).status_code == 401


def test_the_token_opens_the_page_and_leaves_the_address(session):
    token = new_token()
    client = TestClient(make_app(session, token=token), base_url="http://192.168.0.7:8760")
    first = client.get(f"/?token={token}&a=1", follow_redirects=False)
    assert first.status_code == 303
    assert first.headers["location"] == "/?a=1"
    cookie = first.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=lax" in cookie
    assert client.get("/").status_code == 200
    assert client.post("/api/frames", json={}).status_code == 200
    assert client.post("/api/frames", json={}, headers={"origin": "https://evil.example"}).status_code == 403  # fmt: skip
    other = TestClient(make_app(session, token=token), base_url="http://192.168.0.7:8760")
    bearer = {"authorization": f"Bearer {token}"}
    assert other.get("/api/run", headers=bearer).status_code == 200


def test_cookies_of_other_pages_do_not_hide_ours(session):
    token = new_token()
    client = TestClient(make_app(session, token=token), base_url="http://192.168.0.7:8760")
    for others in ("a[]=1", 'b="', "c", "=", "d{}=\x7f"):
        cookie = f"{others}; gpo-explore={token}; {others}"
        assert client.get("/api/run", headers={"cookie": cookie}).status_code == 200
        assert client.get("/api/run", headers={"cookie": others}).status_code == 401


OPENED = {
    "sec-fetch-site": "cross-site",
    "sec-fetch-mode": "navigate",
    "sec-fetch-dest": "document",
}


def test_the_printed_address_opens_from_a_link_on_another_page(client, session):
    assert client.get("/", headers=OPENED).status_code == 200
    token = new_token()
    other = TestClient(make_app(session, token=token), base_url="http://192.168.0.7:8760")
    assert other.get("/?token=wrong", headers=OPENED).status_code == 401
    assert other.get(f"/?token={token}", headers=OPENED).status_code == 200


@pytest.mark.parametrize(
    ("method", "path", "changes"),
    [
        ("GET", "/api/run", {}),
        ("GET", "/static/main.js", {}),
        ("POST", "/", {}),
        ("POST", "/api/frames", {}),
        ("GET", "/", {"sec-fetch-mode": "cors"}),
        ("GET", "/", {"sec-fetch-mode": "no-cors"}),
        ("GET", "/", {"sec-fetch-dest": "iframe"}),
        ("GET", "/", {"origin": "https://evil.example"}),
    ],
)
def test_a_link_on_another_page_opens_nothing_else(client, method, path, changes):
    response = client.request(method, path, headers={**OPENED, **changes})
    assert response.status_code == 403
    assert response.headers["x-content-type-options"] == "nosniff"
    assert response.headers["content-security-policy"].startswith("default-src 'none'")


def test_a_redirect_never_leads_to_another_server(session):
    token = new_token()
    client = TestClient(make_app(session, token=token), base_url="http://192.168.0.7:8760")
    response = client.get(f"//evil.example/?token={token}", follow_redirects=False)
    assert not response.headers.get("location", "/").startswith("//")


def test_tokens_are_long_and_never_the_same():
    assert len({new_token() for _ in range(100)}) == 100
    assert len(new_token()) >= 32


def test_addresses_of_this_machine_need_no_token():
    assert all(is_loopback(host) for host in ("127.0.0.1", "localhost", "::1", "127.1.2.3"))
    others = ("0.0.0.0", "::", "192.168.0.7", "example.org", "127.example.org")
    assert not any(is_loopback(host) for host in others)
    assert address("127.0.0.1", 8760, None) == "http://127.0.0.1:8760/"
    assert address("::", 1, "t") == "http://[::]:1/?token=t"


def test_a_port_that_is_taken_is_said():
    with listen("127.0.0.1", 0) as first:
        port = first.getsockname()[1]
        with pytest.raises(
            ValueError, match=rf"Cannot listen on 127.0.0.1:{port} .*another --port"
        ):
            listen("127.0.0.1", port)


def test_errors_are_json_that_any_client_reads(client):
    response = client.post("/api/window", json={"layer": 0, "mode": 10**6})
    assert response.headers["content-type"] == "application/json"
    assert list(json.loads(response.content)) == ["error"]
