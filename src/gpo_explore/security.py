"""Who may talk to the page: this machine, from the page itself, or whoever holds the token.

A server on the loopback address is still reachable from any web page in the same browser, by a
name that someone else's DNS points here. So the Host header must be a name of this machine, and
a request that names another origin is refused. Bound elsewhere, a token is needed too.
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
"""A Host header: a name or an address, and a port. Nothing before an @ is part of it."""
MOST_BYTES = 4 * 2**20
"""Size of a request; the longest is a list of painted sites."""

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
"""With every answer: nothing from elsewhere is loaded, nothing is kept, no one may frame the page."""


def is_loopback(host: str) -> bool:
    """Returns True for addresses that only this machine can reach."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def new_token() -> str:
    """Returns a token that cannot be guessed."""
    return secrets.token_urlsafe(24)


@dataclass(frozen=True)
class Guard:
    """Lets through what is allowed, and adds headers to every answer."""

    app: ASGIApp
    token: str | None
    """Needed where the server is bound to more than this machine; None where it is not."""
    cookie: str = "gpo-explore"
    """Name under which a browser keeps the token."""

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers itself where something is wrong."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def send_safely(message: Message) -> None:
            if message["type"] == "http.response.start":
                kept = [pair for pair in message.get("headers", []) if pair[0] != b"server"]
                added = [(name.encode(), value.encode()) for name, value in HEADERS.items()]
                message = {**message, "headers": [*kept, *added]}
            await send(message)

        refusal = self._refusal(scope)
        app = self.app if refusal is None else refusal
        await app(scope, receive, send_safely)

    def _refusal(self, scope: Scope) -> Response | None:
        """Returns what to answer instead, or None where all is well."""
        if scope["http_version"] not in ("1.0", "1.1"):
            return refused(505, f"HTTP must be 1.0 or 1.1, got {scope['http_version'][:9]!r}.")
        headers = Headers(scope=scope)
        host = headers.get("host", "")
        found = HOST.fullmatch(host)
        if found is None or (self.token is None and not is_loopback(found[1] or found[2])):
            return refused(421, f"The Host header must name this machine, got {host[:80]!r}.")
        origin = headers.get("origin")
        if origin is not None and origin not in (f"http://{host}", f"https://{host}"):
            return refused(403, "Only the page itself may ask, not a page of another origin.")
        is_ours = headers.get("sec-fetch-site", "none") in ("none", "same-origin")
        if not is_ours and not _opens_the_page(scope, headers):
            return refused(403, "Only the page itself may ask, not a page of another site.")
        length = headers.get("content-length", "0")
        if not length.isascii() or not length.isdigit() or int(length[:20]) > MOST_BYTES:
            return refused(413, f"A request may have {MOST_BYTES:,} bytes.")
        if "transfer-encoding" in headers and "content-length" in headers:
            # Whoever is in between may think that the request ends elsewhere.
            return refused(400, "A request must have one length: Content-Length or chunks.")
        return self._without_token(scope, headers)

    def _without_token(self, scope: Scope, headers: Headers) -> Response | None:
        if self.token is None:
            return None
        queries = parse_qsl(scope.get("query_string", b"").decode("latin-1"))
        offered = dict(queries).get("token")
        if offered is not None and scope["method"] == "GET" and self._is_right(offered):
            # The token leaves the address bar and stays in a cookie that no script reads.
            rest = urlencode([pair for pair in queries if pair[0] != "token"])
            path = scope["path"].lstrip("/")
            answer = RedirectResponse(f"/{path}{'?' * bool(rest)}{rest}", 303)
            # Lax: strict, it would be left out where a link on another page leads here.
            answer.set_cookie(self.cookie, self.token, httponly=True, samesite="lax")
            return answer
        kept = cookie_parser(headers.get("cookie", "")).get(self.cookie, "")
        bearer = headers.get("authorization", "").removeprefix("Bearer ")
        if self._is_right(kept) or self._is_right(bearer):
            return None
        return refused(401, "A token is needed: open the address that gpo explore printed.")

    def _is_right(self, offered: str) -> bool:
        return secrets.compare_digest(offered.encode(), (self.token or "").encode())


def refused(status: int, message: str) -> JSONResponse:
    """Returns an answer that says what was expected."""
    # Half of a surrogate pair, which JSON can name, has no bytes in UTF-8.
    shown = message.encode("utf-8", "backslashreplace").decode("utf-8")
    return JSONResponse({"error": shown}, status)


def _opens_the_page(scope: Scope, headers: Headers) -> bool:
    """Returns whether a link was followed here: the page opens in a tab, and nothing is told to others."""
    is_tab = headers.get("sec-fetch-mode"), headers.get("sec-fetch-dest", "document")
    is_page = scope["method"] == "GET" and scope["path"] == "/"
    return is_page and is_tab == ("navigate", "document")
