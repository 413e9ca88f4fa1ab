"""Requests that try to get what they should not, or to make the server stumble; as raw bytes.

None may get data of the run, none may see a traceback, and every answer has the headers of all.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

JSON = "Content-Type: application/json"
OTHERS = ("PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "PROPFIND", "NONSENSE", "get")


@dataclass(frozen=True)
class Attack:
    """A request, and the statuses that may answer it."""

    name: str
    pieces: tuple[bytes, ...]
    """What is sent, one after the other."""
    allowed: tuple[int, ...]
    half_closes: bool = False
    """Whether no more is sent, and that is said: the answer may be none then."""


def request(
    target: str = "/api/frames",
    *headers: str,
    method: str = "POST",
    host: str | None = "localhost",
    body: bytes | None = None,
    length: str | None = None,
) -> bytes:
    """Returns a request; what is not given is that of an honest one."""
    lines = [f"{method} {target} HTTP/1.1"]
    if host is not None:
        lines.append(f"Host: {host}")
    lines += [*headers, "Connection: close"]
    if body is not None:
        lines.append(f"Content-Length: {len(body) if length is None else length}")
    return "\r\n".join([*lines, "", ""]).encode("utf-8", "surrogateescape") + (body or b"")


def attack(name: str, content: bytes, *allowed: int, **settings: Any) -> Attack:
    return Attack(name, (content,), allowed, **settings)


def methods() -> Iterator[Attack]:
    for method in ("GET", "HEAD", *OTHERS):
        for target in ("/api/frames", "/api/rollout", "/api/netcdf"):
            yield attack(f"{method} {target}", request(target, method=method), 405)
    for method in ("POST", *OTHERS):
        for target in ("/", "/static/main.js", "/api/run"):
            content = request(target, JSON, method=method, body=b"{}")
            yield attack(f"{method} {target}", content, 404, 405)
    yield attack("CONNECT", request("evil.example:443", method="CONNECT"), 400, 404, 405)
    yield attack("star", request("*", method="OPTIONS"), 400, 404, 405)


NAMES = (
    "../app.py", "..%2fapp.py", "%2e%2e/app.py", "%2e%2e%2fapp.py", "..%5capp.py", "....//app.py",
    "..;/app.py", "%252e%252e%252fapp.py", "..%c0%afapp.py", "%c0%ae%c0%ae/app.py", "..%00/app.py",
    "..%ef%bc%8fapp.py", "/etc/passwd", "%2fetc%2fpasswd", "index.html%00.js", "main.js/..",
    "main.js%20", "main.js::$DATA", "main.js~", ".main.js.swp", "MAIN.JS", "..", "%2e", "%", "%zz",
    "C:%5cboot.ini", "file:%2f%2f%2fetc%2fpasswd", "*", "a" * 5000, "%00", "%ff%fe", "__init__.py",
    "?/../app.py", "main.js;a=1", "%0d%0aSet-Cookie:%20a=1", "{name}", "${HOME}", "..%u2215app.py",
)  # fmt: skip


def paths() -> Iterator[Attack]:
    for name in NAMES:
        content = request(f"/static/{name}", method="GET")
        yield attack(f"path {name[:30]}", content, 400, 404)
    for target in ("/app.py", "/../app.py", "/%2e%2e/app.py", "//etc/passwd", "/api", "/api/",
                   "/api/../static/x", "/.git/config", "/.env", "/proc/self/environ", "/static",
                   "/run", "/docs", "/openapi.json", "/debug", "/metrics", "/api/run/", "/api//run",
                   "http://evil.example/api/run", "//evil.example/api/run"):  # fmt: skip
        yield attack(f"target {target}", request(target, method="GET"), 307, 404, 405)


HOSTS = (
    "evil.example", "evil.example:8760", "127.0.0.1.evil.example", "", "[", "10.0.0.1", "0.0.0.0",
    "evil.com@localhost", "localhost@evil.com", "localhost/evil", "localhost:1:2", "127.evil.example",
    "localhost#", "[::1", "localhost:port", "localhost.evil.example", "localhost ", "2130706433x",
    "0x7f.1.evil", "[::ffff:10.0.0.1]", "localhost,evil.example", "localhost\\evil", "١٢٧.0.0.1",
    "localhost:999999", "*", "169.254.169.254", "[fe80::1]", "localhos", "xlocalhost", "128.0.0.1",
)  # fmt: skip


def hosts() -> Iterator[Attack]:
    for host in HOSTS:
        # A blank at the end is no part of the name.
        allowed = (200,) if host == "localhost " else (400, 421)
        target = "/" if host == "localhost " else "/api/run"
        yield attack(f"host {host!r}", request(target, method="GET", host=host), *allowed)
    yield attack("no host", request("/api/run", method="GET", host=None), 400, 421)
    two = request("/api/run", "Host: evil.example", method="GET")
    yield attack("two hosts", two, 400)
    forwarded = request(
        "/api/run", "X-Forwarded-Host: localhost", method="GET", host="evil.example"
    )
    yield attack("forwarded host", forwarded, 421)
    old = b"GET /api/run HTTP/1.0\r\n\r\n"
    yield attack("no host, HTTP 1.0", old, 400, 421)


ORIGINS = (
    "https://evil.example", "null", "http://127.0.0.1:9999", "http://[", "http://evil@localhost",
    "http://localhost.evil.example", "http://localhost:1", "file://", "ftp://localhost", "localhost",
    "http://localhost/", "http://localhost#", "HTTP://LOCALHOST", "http://evil.example, http://localhost",
    "data:text/html,x", "chrome-extension://abc", "http://xn--lcalhost-d4a", "", " ", "http://",
)  # fmt: skip


def origins() -> Iterator[Attack]:
    for origin in ORIGINS:
        content = request("/api/frames", JSON, f"Origin: {origin}", body=b"{}")
        yield attack(f"origin {origin!r}", content, 403)
    for site, mode, place in (
        ("cross-site", "cors", "empty"), ("cross-site", "no-cors", "script"),
        ("cross-site", "no-cors", "image"), ("same-site", "cors", "empty"),
        ("cross-site", "navigate", "document"), ("cross-site", "navigate", "iframe"),
        ("cross-site", "websocket", "websocket"), ("nonsense", "cors", "empty"), ("", "", ""),
    ):  # fmt: skip
        fetch = (f"Sec-Fetch-Site: {site}", f"Sec-Fetch-Mode: {mode}", f"Sec-Fetch-Dest: {place}")
        content = request("/api/frames", JSON, *fetch, body=b"{}")
        yield attack(f"fetch {site} {mode} {place}", content, 403)
    asked = ("Origin: https://evil.example", "Access-Control-Request-Method: POST")
    yield attack("preflight", request("/api/frames", *asked, method="OPTIONS"), 403)


TYPES = (
    "text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "", "json",
    "application/json2", "text/plain; application/json", "application/JSON+x", "*/*", "application",
)  # fmt: skip
BODIES: tuple[bytes, ...] = (
    b"{", b"[]", b"null", b'"x"', b"0", b"true", b"\xff\xfe", b"\x00", b'{"example": NaN}',
    b'{"example": Infinity}', b'{"example": -Infinity}', b'{"example": 1e400}', b'{"example": 1e999}',
    b'{"example": -1}', b'{"example": 1.5}', b'{"example": true}', b'{"example": 1e2}',
    b'{"example": "0"}', b'{"example": null}', b'{"example": [0]}', b'{"example": {}}',
    b'{"example": 2147483647}', b'{"example": 9999999999999999999999}', b'{"example": 0x10}',
    b'{"example": ' + b"9" * 5000 + b"}", b"[" * 100_000, b'{"a":' * 20_000, b"{}{}", b"{}x",
    b'{"__proto__": 1}', b'{"__class__": {}}', rb'{"\ud800": 1}', rb'{"example": "\ud800"}',
    b"{'example': 0}", b'{"example": 0,}', b'{"ex\xc3ample": 0}', "{\u2028}".encode(),
    '{"example": 0}'.encode("utf-16-be") + b"\xd8", b'{"example": 0, "steps": 1}', b"<xml/>",
    b'{"ablation": []}', b'{"ablation": {"modes": 1}}', b'{"ablation": {"layers": [-1]}}',
    b'{"ablation": {"sites": ["0"]}}', b'{"ablation": {"modes": [[0]]}}', b"\x1f\x8b\x08\x00",
    b'{"ablation": {"other": []}}', b"---\nexample: 0\n", b"(lambda: 0)()", b"{}" * 1000,
)  # fmt: skip
"""None is a request for the prediction."""
WINDOWS: tuple[bytes, ...] = (
    b"{}", b'{"layer": 0}', b'{"layer": 0, "mode": -1}', b'{"layer": 99999, "mode": 0}',
    b'{"layer": 0, "mode": 99999}', b'{"layer": 0.0, "mode": 0}', b'{"layer": [], "mode": {}}',
)  # fmt: skip
POINTS: tuple[bytes, ...] = (
    b"{}", b'{"point": []}', b'{"point": [1e999, 0]}', b'{"point": [NaN, 0]}', b'{"point": 0}',
    b'{"point": [0, 0, 0, 0]}', b'{"point": ["a", 0]}', b'{"point": [true, 0]}',
    b'{"point": [1e30, 0]}', b'{"point": [0, 0], "variable": -1}', b'{"point": [null]}',
)  # fmt: skip


def bodies() -> Iterator[Attack]:
    for kind in TYPES:
        content = request("/api/frames", f"Content-Type: {kind}", body=b"{}")
        yield attack(f"type {kind!r}", content, 415)
    for path, all_bodies in (("prediction", BODIES), ("window", WINDOWS), ("value", POINTS)):
        for number, body in enumerate(all_bodies):
            content = request(f"/api/{path}", JSON, body=body)
            yield attack(f"{path} {number} {body[:20]!r}", content, 400)
    for steps in (b"0", b"-1", b"51", b"1e9", b"2147483648", b'"5"', b"null"):
        content = request("/api/rollout", JSON, body=b'{"steps": ' + steps + b"}")
        yield attack(f"steps {steps!r}", content, 400)
    packed = request("/api/frames", JSON, "Content-Encoding: gzip", body=b"\x1f\x8b\x08\x00\x00")
    yield attack("packed body", packed, 400)


LENGTHS = (
    "-1", "+2", "0x2", "2,2", "2, 3", "1e1", "two", "", " ", "99999999999999999999", "4194305",
    "²", "2\x0b", "1_0",
)  # fmt: skip


def framing() -> Iterator[Attack]:
    """Two readings of where a request ends: one for us, another for whoever is in between."""
    for length in LENGTHS:
        content = request("/api/prediction", JSON, body=b"[]", length=length)
        yield attack(f"length {length!r}", content, 400, 413)
    head = "POST /api/prediction HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    foreign = "GET /api/run HTTP/1.1\r\nHost: evil.example\r\nConnection: close\r\n\r\n"
    close = "Connection: close\r\n\r\n"
    for name, rest in {
        "both lengths": f"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n{close}0\r\n\r\n",
        "two lengths": f"Content-Length: 2\r\nContent-Length: 3\r\n{close}[] ",
        "chunked, then more": f"Transfer-Encoding: chunked, identity\r\n{close}0\r\n\r\n",
        "not chunked": f"Transfer-Encoding: xchunked\r\n{close}0\r\n\r\n",
        "chunked twice": f"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n{close}0\r\n\r\n",
        "a size that is none": f"Transfer-Encoding: chunked\r\n{close}xyz\r\n[]\r\n0\r\n\r\n",
        "a negative size": f"Transfer-Encoding: chunked\r\n{close}-2\r\n[]\r\n0\r\n\r\n",
        "a huge size": f"Transfer-Encoding: chunked\r\n{close}{'f' * 40}\r\n[]\r\n0\r\n\r\n",
        "a chunk that lies": f"Transfer-Encoding: chunked\r\n{close}1\r\n[]\r\n0\r\n\r\n",
        "a blank before the colon": f"Content-Length : 2\r\n{close}[]",
        "a folded header": f"X: a\r\n b\r\nContent-Length: 2\r\n{close}[]",
        "no colon": f"nonsense\r\n{close}",
        "a NUL in a header": f"X: a\0b\r\n{close}",
        "a line feed alone": f"X: a\nHost: evil.example\r\n{close}",
        "a carriage return alone": f"X: a\rHost: evil.example\r\n{close}",
        "an endless header": f"X: {'a' * 200_000}\r\n{close}",
        "a flood of headers": "".join(f"X{n}: 1\r\n" for n in range(20_000)) + close,
        "a name without letters": f": a\r\n{close}",
        "waiting to be told": f"Expect: nonsense\r\nContent-Length: 2\r\n{close}[]",
        "a foreign one behind": f"Content-Length: 2\r\n\r\n[]{foreign}",
        "a foreign one inside": f"Content-Length: {len(foreign)}\r\n{close}{foreign}",
    }.items():
        yield attack(name, (head + rest).encode("latin-1"), 400, 413, 431, 501)
    for name, content in {
        "HTTP 2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        "SSH": b"SSH-2.0-x\r\n\r\n", "no version": b"GET /api/run\r\n\r\n", "blank": b"\r\n\r\n\r\n\r\n",
        "noise": bytes(range(256)) * 4,
        "a blank in the target": b"GET /api /run HTTP/1.1\r\nHost: localhost\r\n\r\n", "NULs": bytes(100),
        "an endless target": b"GET /" + b"a" * 200_000 + b" HTTP/1.1\r\n\r\n",
        "an endless method": b"A" * 200_000, "redis": b"*1\r\n$4\r\nINFO\r\n", "smtp": b"EHLO x\r\n\r\n",
        "a tab": b"GET\t/api/run\tHTTP/1.1\r\nHost: localhost\r\n\r\n",
    }.items():  # fmt: skip
        yield attack(name, content, 400, 421, 505, half_closes=True)
    other = b"GET /api/run HTTP/9.9\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    yield attack("version 9", other, 400, 505)


def upgrades() -> Iterator[Attack]:
    asks = (
        "Upgrade: websocket",
        "Sec-WebSocket-Version: 13",
        "Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==",
    )
    for target in ("/api/frames", "/api/rollout", "/ws", "/socket.io/"):
        content = request(target, *asks, method="GET").replace(
            b"Connection: close", b"Connection: Upgrade, close"
        )
        yield attack(f"websocket {target}", content, 400, 404, 405)
        foreign = request(target, *asks, "Origin: https://evil.example", method="GET")
        yield attack(f"websocket {target} from elsewhere", foreign, 403)
    plain = request("/api/frames", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQAAP__", method="GET")
    yield attack("upgrade to HTTP 2", plain, 400, 405)


def unfinished() -> Iterator[Attack]:
    whole = request("/api/frames", JSON, body=b"{}")
    for keep in (1, 5, 20, 60, len(whole) - 2, len(whole) - 1):
        yield attack(f"{keep} bytes", whole[:keep], 400, half_closes=True)
    short = request("/api/frames", JSON, body=b"{}", length="100")
    yield attack("a body that ends early", short, 400, half_closes=True)
    letters = tuple(whole[at : at + 1] for at in range(40))
    yield Attack("letter by letter", letters, (400,), half_closes=True)
    chunk = whole.replace(b"Content-Length: 2", b"Transfer-Encoding: chunked")[:-2] + b"2\r\n{}\r\n"
    yield attack("no last chunk", chunk, 400, half_closes=True)


def ranges() -> Iterator[Attack]:
    """Nothing is read in parts."""
    for given in (
        "bytes=0-",
        "bytes=-1",
        "bytes=" + ",".join(["0-"] * 1000),
        "bytes=5-1",
        "lines=1-2",
    ):
        content = request("/api/frames", f"Range: {given}", method="GET")
        yield attack(f"range {given[:20]}", content, 405)


def without_token(token: str) -> Iterator[Attack]:
    """On a server that asks for a token."""
    wrong = ("", "wrong", token[:-1], token + "x", token.swapcase(), token[::-1], "%00", "é", " ",
             "null", "undefined", "true", "0", "' OR 1=1", "*", token[:-1] + "%", f"{token}%00")  # fmt: skip
    for number, offered in enumerate(wrong):
        target = f"/?token={offered.replace(' ', '%20')}"
        yield attack(f"token {number}", request(target, method="GET"), 400, 401)
        yield attack(
            f"cookie {number}",
            request("/api/run", f"Cookie: gpo-explore={offered}", method="GET"),
            400,
            401,
        )
        yield attack(
            f"bearer {number}",
            request("/api/run", f"Authorization: Bearer {offered}", method="GET"),
            400,
            401,
        )
    for name, header in {
        "another cookie": f"Cookie: other={token}", "basic": f"Authorization: Basic {token}",
        "no cookie": "Cookie: ;;;=;", "brackets": "Cookie: a[]=1", "a long cookie": "Cookie: a=" + "b" * 5000,
        "a header of our own": f"X-Token: {token}", "forwarded": "X-Forwarded-For: 127.0.0.1",
        "referer": f"Referer: http://localhost/?token={token}", "real address": "X-Real-IP: 127.0.0.1",
    }.items():  # fmt: skip
        yield attack(name, request("/api/run", header, method="GET"), 401)
    for target in (
        "/",
        "/static/main.js",
        "/static/page.css",
        "/api/run",
        "/nowhere",
        f"/{token}",
        f"/?Token={token}",
    ):
        yield attack(f"nothing {target[:12]}", request(target, method="GET"), 401)
    for what in ("frames", "rollout", "netcdf"):
        yield attack(f"post {what}", request(f"/api/{what}", JSON, body=b"{}"), 401)
        given = request(f"/api/{what}?token={token}", JSON, body=b"{}")
        yield attack(f"post {what} with the token in its address", given, 401)


def all_attacks() -> Sequence[Attack]:
    """Returns the attacks on a server without a token."""
    groups = (methods, paths, hosts, origins, bodies, framing, upgrades, unfinished, ranges)
    return [one for group in groups for one in group()]
