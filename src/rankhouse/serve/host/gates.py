"""Gates: what must hold before a handler sees a request; and the keys that open one of them.

Gates are pure ASGI, each a few lines; none reads the body. Keys are compared in constant time and never
written anywhere: a key file has one a line, ``NAME KEY`` or ``NAME KEY read``; a key alone has its line for a
name. One marked ``read`` asks and looks, and neither judges nor trains.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import os
import re
import socket
import stat
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self
from urllib.parse import quote, urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import cookie_parser
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rankhouse.core.errors import BadData, MissingInput, WrongUse
from rankhouse.io.files import as_text, numbered_lines
from rankhouse.serve.contracts.requests import ANYBODY, Caller
from rankhouse.serve.errors import Forbidden, Unauthorized, refusal
from rankhouse.serve.page.render import CONTENT_POLICY

FEWEST_SIGNS = 16
SESSION_SECONDS = 7 * 24 * 3600
MAKE_ONE = (
    "python3 -c \"import secrets; print('me', secrets.token_urlsafe())\" > keys.txt && chmod 600 keys.txt"
)

_NAME = re.compile(r"[\w.@-]{1,64}", re.ASCII)
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


@dataclass(frozen=True)
class Key:
    """One line of the key file; of the key itself only hashes are held."""

    caller: Caller
    digest: bytes
    secret: bytes

    @classmethod
    def of(cls, caller: Caller, key: str) -> Self:
        """Make a key."""
        raw = key.encode()
        return cls(caller, hashlib.sha256(raw).digest(), hashlib.sha256(b"session of " + raw).digest())


class Keys:
    """The keys of a service, and the sessions of people who gave theirs to the page.

    A session is a cookie that the server can check without keeping anything: name, end and a signature made
    with the key, so that taking a key out of the file ends its sessions.
    """

    def __init__(self, keys: Sequence[Key]) -> None:
        self._keys = tuple(keys)
        self.cookie = "rankhouse_" + hashlib.sha256(b"".join(key.secret for key in keys)).hexdigest()[:8]

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a key file.

        Raises:
            MissingInput: There is none.
            WrongUse: Other people of this machine may read it.
            BadData: A line is no key.
        """
        _refuse_open_file(path)
        keys: dict[str, Key] = {}
        for line, raw in numbered_lines(path):
            words = as_text(raw, path, line).partition("#")[0].split()
            if not words:
                continue
            key = _key(words, path, line)
            if key.caller.name in keys or any(key.digest == other.digest for other in keys.values()):
                raise BadData(
                    f'"{key.caller.name}" or its key is there twice; names and keys differ', path, line
                )
            keys[key.caller.name] = key
        if not keys:
            raise BadData(f"holds no key; make one:  {MAKE_ONE}", path)
        return cls(list(keys.values()))

    def caller(self, presented: str) -> Caller | None:
        """Return whose key this is; None if it is nobody's. Every key is compared, so time says nothing."""
        digest = hashlib.sha256(presented.encode("utf-8", "surrogateescape")).digest()
        found = None
        for key in self._keys:
            if hmac.compare_digest(key.digest, digest):
                found = key.caller
        return found

    def session(self, caller: Caller) -> str:
        """Return the cookie of a session that begins now."""
        key = next(key for key in self._keys if key.caller == caller)
        ends = int(time.time()) + SESSION_SECONDS
        return f"{caller.name}|{ends}|{_signature(key, ends)}"

    def of_session(self, cookie: str) -> Caller | None:
        """Return whose session a cookie is; None if it is forged, over, or of a key that is gone."""
        name, _, rest = cookie.partition("|")
        ends, _, signature = rest.partition("|")
        if not (ends.isascii() and ends.isdigit() and len(ends) < 13 and int(ends) > time.time()):
            return None
        found = None
        for key in self._keys:
            wanted = _signature(key, int(ends))
            is_it = hmac.compare_digest(wanted.encode(), signature.encode("utf-8", "surrogateescape"))
            if is_it and key.caller.name == name:
                found = key.caller
        return found


def _signature(key: Key, ends: int) -> str:
    return hmac.digest(key.secret, f"{key.caller.name}|{ends}".encode(), "sha256").hex()


def _key(words: list[str], path: Path, line: int) -> Key:
    *before, last = words
    right = "write"
    if len(words) == 3:
        before, last, right = words[:1], words[1], words[2]
    name = before[0] if before else f"line{line}"
    if len(words) > 3 or right not in {"read", "write"}:
        raise BadData("write  NAME KEY  or  NAME KEY read", path, line)
    if not _NAME.fullmatch(name):
        raise BadData("a name has letters, digits and . _ @ - only, 64 at most", path, line)
    if len(last) < FEWEST_SIGNS or not last.isascii() or not last.isprintable():
        raise BadData(
            f'the key of "{name}" has {len(last)} signs; at least {FEWEST_SIGNS} ASCII signs are needed, '
            f"drawn at random:  {MAKE_ONE}",
            path,
            line,
        )
    return Key.of(Caller(name, right == "write"), last)


def _refuse_open_file(path: Path) -> None:
    try:
        mode = path.stat().st_mode
    except OSError as error:
        raise MissingInput(
            f"{path}: cannot be read ({error.strerror}); make a key file:  {MAKE_ONE}"
        ) from error
    if os.name == "posix" and mode & (stat.S_IRWXO | stat.S_IWGRP):
        raise WrongUse(f"{path}: other users of this machine may read or change it; run  chmod 600 {path}")


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
        if caller.may_write or scope["method"] in SAFE or (scope["path"].rstrip("/") or "/") in READING_POSTS:
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
