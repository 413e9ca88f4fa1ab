"""Access control: host and origin checks, access tokens, and the security headers of all responses.

A server on the loopback address is still reachable from any web page in the same browser, by a
host name whose DNS entry points at this machine (DNS rebinding). Hence the Host header must name
this machine, and requests from other origins are refused. On other addresses a token is required.
"""

import ipaddress
import re
import secrets
from dataclasses import dataclass
from urllib.parse import parse_qsl, urlencode

from starlette.datastructures import Headers
from starlette.requests import cookie_parser
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

HOST = re.compile(r"(?:\[([0-9a-f:.]+)\]|([a-z0-9_.-]+))(?::[0-9]{1,5})?", re.IGNORECASE)
"""A Host header: a name or an address, and optionally a port; user names before an @ do not match."""
MAX_BODY_BYTES = 4 * 2**20
"""Largest body of a request; the longest ones list masked sites."""

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' blob: data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
}
"""Headers of every response: no content from other origins, no caching, no framing."""


def is_loopback(host: str) -> bool:
    """Returns whether only this machine can reach an address."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def new_token() -> str:
    """Returns a random access token."""
    return secrets.token_urlsafe(24)


@dataclass(frozen=True)
class Guard:
    """Middleware that rejects forbidden requests and adds security headers to every response."""

    app: ASGIApp
    token: str | None
    """Required token; None on the loopback address."""
    cookie: str = "gpo-explore"
    """Name of the cookie that holds the token."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Passes allowed requests on, and responds with an error to others."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                others = [pair for pair in message.get("headers", []) if pair[0] != b"server"]
                added = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
                message = {**message, "headers": [*others, *added]}
            await send(message)

        app = self._check(scope) or self.app
        await app(scope, receive, send_with_headers)

    def _check(self, scope: Scope) -> Response | None:
        """Returns the error response to a forbidden request, None for an allowed one."""
        if scope["http_version"] not in ("1.0", "1.1"):
            return error_response(
                505, f"HTTP must be 1.0 or 1.1, got {scope['http_version'][:9]!r}."
            )
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        match = HOST.fullmatch(host)
        if match is None or (self.token is None and not is_loopback(match[1] or match[2])):
            return error_response(
                421, f"The Host header must name this machine, got {host[:80]!r}."
            )
        origin = headers.get("origin")
        if origin is not None and origin not in (f"http://{host}", f"https://{host}"):
            return error_response(
                403, "Only the page itself may send requests, not a page of another origin."
            )
        is_same_origin = headers.get("sec-fetch-site", "none") in ("none", "same-origin")
        if not is_same_origin and not _is_page_navigation(scope, headers):
            return error_response(
                403, "Only the page itself may send requests, not a page of another site."
            )
        length = headers.get("content-length", "0")
        if not length.isascii() or not length.isdigit() or int(length[:20]) > MAX_BODY_BYTES:
            return error_response(413, f"A request may have {MAX_BODY_BYTES:,} bytes.")
        if "transfer-encoding" in headers and "content-length" in headers:
            # A proxy could disagree about where the request ends (request smuggling).
            return error_response(400, "A request must have one length: Content-Length or chunks.")
        return self._check_token(scope, headers)

    def _check_token(self, scope: Scope, headers: Headers) -> Response | None:
        if self.token is None:
            return None
        queries = parse_qsl(scope.get("query_string", b"").decode("latin-1"))
        token = dict(queries).get("token")
        if token is not None and scope["method"] == "GET" and self._is_valid(token):
            # The token moves from the address bar into a cookie that scripts cannot read.
            rest = urlencode([pair for pair in queries if pair[0] != "token"])
            path = scope["path"].lstrip("/")
            redirect = RedirectResponse(f"/{path}{'?' * bool(rest)}{rest}", 303)
            # Lax, because browsers omit strict cookies when a link on another page leads here.
            redirect.set_cookie(self.cookie, self.token, httponly=True, samesite="lax")
            return redirect
        cookie = cookie_parser(headers.get("cookie", "")).get(self.cookie, "")
        bearer = headers.get("authorization", "").removeprefix("Bearer ")
        if self._is_valid(cookie) or self._is_valid(bearer):
            return None
        return error_response(
            401, "A token is required: open the address that gpo explore printed."
        )

    def _is_valid(self, token: str) -> bool:
        return secrets.compare_digest(token.encode(), (self.token or "").encode())


def error_response(status: int, message: str) -> JSONResponse:
    """Returns a JSON response with an error message."""
    # JSON can contain lone surrogates, which UTF-8 cannot encode.
    text = message.encode("utf-8", "backslashreplace").decode("utf-8")
    return JSONResponse({"error": text}, status)


def _is_page_navigation(scope: Scope, headers: Headers) -> bool:
    """Returns whether a link opens the page in a tab, so that the other site cannot read it."""
    fetch = headers.get("sec-fetch-mode"), headers.get("sec-fetch-dest", "document")
    is_page = scope["method"] == "GET" and scope["path"] == "/"
    return is_page and fetch == ("navigate", "document")
