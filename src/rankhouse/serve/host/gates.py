"""Gates: what must hold before a handler sees a request. Pure ASGI, each a few lines, none reads the body."""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Iterable
from urllib.parse import quote, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import cookie_parser
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rankhouse.serve.contracts.requests import ANYBODY, Caller
from rankhouse.serve.errors import Forbidden, Unauthorized, refusal
from rankhouse.serve.host.keys import Keys

CONTENT_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
SECURITY_HEADERS = {
    "content-security-policy": CONTENT_POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    # Not no-referrer: with it browsers send  Origin: null  with a form of our own page.
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "private, no-cache",
}
PROBES = frozenset({"/healthz", "/readyz"})
"""What may be asked without a key, under any name of the host, and while the service drains."""
SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
LOGIN = "/login"
READING_POSTS = frozenset(
    {"/", "/rerank", "/v1/rerank", "/v2/rerank", "/score", "/v1/score", "/predict", "/similarity"}
    | {"/embed", "/embeddings", "/v1/embeddings", "/tokenize", "/search", "/explain", "/login", "/logout"}
)
"""What may be posted with a key that only reads: questions, which change nothing."""

_HOST = re.compile(r"(?:\[(?P<address>[0-9a-fA-F:.]+)\]|(?P<name>[\w.-]+))(?::[0-9]{1,5})?", re.ASCII)

LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


def is_loopback(host: str) -> bool:
    """Return whether an address is reached from this machine only."""
    address = _address(host)
    return host.lower() == "localhost" if address is None else address.is_loopback


class SecurityHeaders:
    """Adds the security headers to every answer, unless it has its own."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request; see ASGI."""

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in SECURITY_HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        await self._app(scope, receive, with_headers)


class Gate:
    """A layer that lets a request in, or answers it itself."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request; see ASGI."""
        refused = self.refused(scope) if scope["type"] == "http" else None
        await (refused or self._app)(scope, receive, send)

    def refused(self, scope: Scope) -> Response | None:
        """Return the answer to a request that is not let in; None to one that is."""
        raise NotImplementedError


class HostGate(Gate):
    """Refuses a foreign ``Host``: another site's name that was made to lead here (DNS rebinding).

    Addresses written as numbers cannot be rebound: they pass where the service listens beyond this machine.
    """

    def __init__(self, app: ASGIApp, bound: str, allowed: Iterable[str]) -> None:
        super().__init__(app)
        self._is_local = is_loopback(bound)
        own = set() if self._is_local else {bound.lower(), socket.gethostname().lower()}
        self._names = LOOPBACK | own | {name.lower() for name in allowed}

    def refused(self, scope: Scope) -> Response | None:
        """Refuse a name that is not the service's."""
        if scope["path"] in PROBES:
            return None
        hosts = Headers(scope=scope).getlist("host")
        host = host_of(hosts[0]) if len(hosts) == 1 else ""
        if host in self._names or (not self._is_local and _address(host) is not None):
            return None
        message = f'the service is not called "{host}"; start it with --allow-host {host}'
        return refusal(scope, Forbidden(message if host else "one Host header is needed"))


def host_of(netloc: str) -> str:
    """Return the host of ``HOST[:PORT]`` in lower case, without brackets; "" where it is none."""
    match = _HOST.fullmatch(netloc)
    return (match["address"] or match["name"]).lower() if match else ""


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


class OriginGate(Gate):
    """Refuses writes that a page of another site makes a browser send; programs send no ``Origin``.

    Browsers from before 2020 send no ``Origin`` with a form either: their ``Referer`` counts then. A proxy
    that sends its own ``Host`` publishes the service under the allowed names.
    """

    def __init__(self, app: ASGIApp, allowed: Iterable[str]) -> None:
        super().__init__(app)
        self._allowed = frozenset(name.lower() for name in allowed)

    def refused(self, scope: Scope) -> Response | None:
        """Refuse a write that comes from a page of another site."""
        if scope["method"] in SAFE or self._passes(Headers(scope=scope)):
            return None
        message = "a page of another site sent this; the service answers its own pages and programs only"
        return refusal(scope, Forbidden(message))

    def _passes(self, headers: Headers) -> bool:
        if site := headers.get("sec-fetch-site"):
            return site in {"same-origin", "none"}
        if (origin := headers.get("origin", headers.get("referer"))) is None:
            return True
        try:
            parts = urlsplit(origin)
            return parts.netloc == headers.get("host", "") or (parts.hostname or "") in self._allowed
        except ValueError:
            return False


class KeyGate(Gate):
    """Lets in clients that bring a key, as a bearer, as ``X-API-Key`` or in the page's session."""

    def __init__(self, app: ASGIApp, keys: Keys | None) -> None:
        super().__init__(app)
        self._keys = keys

    def refused(self, scope: Scope) -> Response | None:
        """Refuse a request without a key, and a write with one that only reads."""
        state = scope.setdefault("state", {})
        state["caller"] = ANYBODY
        if self._keys is None or scope["path"] in PROBES or scope["path"] == LOGIN:
            return None
        headers = Headers(scope=scope)
        caller = _caller(headers, self._keys)
        if caller is None:
            return _ask_for_key(scope, headers)
        state["caller"] = caller
        if caller.may_write or scope["method"] in SAFE or _only_reads(scope["path"]):
            return None
        message = f'the key of "{caller.name}" reads only; judging and training need one that writes'
        return refusal(scope, Forbidden(message))


def _caller(headers: Headers, keys: Keys) -> Caller | None:
    scheme, _, token = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        return keys.caller(token.strip())
    if (key := headers.get("x-api-key")) is not None:
        return keys.caller(key.strip())
    session = cookie_parser(headers.get("cookie", "")).get(keys.cookie)
    return None if session is None else keys.of_session(session)


def _ask_for_key(scope: Scope, headers: Headers) -> Response:
    if scope["method"] in SAFE and "text/html" in headers.get("accept", ""):
        query = scope["query_string"].decode("latin-1")
        there = scope["path"] + (f"?{query}" if query else "")
        return RedirectResponse(f"{LOGIN}?next={quote(there, safe='')}", 303)
    given = "authorization" in headers or "x-api-key" in headers
    message = (
        "this key is not in the service's key file" if given else "a key is needed"
    ) + ": send  Authorization: Bearer KEY  with one of the service's key file"
    return refusal(scope, Unauthorized(message))


def _only_reads(path: str) -> bool:
    return (path.rstrip("/") or "/") in READING_POSTS
