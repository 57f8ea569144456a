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
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple, Self
from urllib.parse import quote, urlsplit

from starlette.datastructures import Headers
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
_ENCODED = [(name.encode(), value.encode()) for name, value in SECURITY_HEADERS.items()]
PROBES = frozenset({"/healthz", "/readyz"})
"""Paths that need no key, under any name of the host, and while the service drains."""
SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
LOGIN, LOGOUT = "/login", "/logout"
READING_POSTS = frozenset(
    {"/", "/rerank", "/v1/rerank", "/v2/rerank", "/score", "/v1/score", "/predict", "/similarity"}
    | {"/embed", "/embeddings", "/v1/embeddings", "/tokenize", "/search", "/explain", LOGIN, LOGOUT}
)
"""Paths that a key that only reads may post to: questions, which change nothing."""

_HOST = re.compile(r"(?:\[(?P<address>[0-9a-fA-F:.]+)\]|(?P<name>[\w.-]+))(?::[0-9]{1,5})?", re.ASCII)

LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


class Key(NamedTuple):
    """One line of the key file; of the key itself only hashes are held."""

    caller: Caller
    digest: bytes
    secret: bytes


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

        MissingInput: there is none. WrongUse: other users of this machine may read it. BadData: a line is no
        key.
        """
        try:
            mode = path.stat().st_mode
        except OSError as error:
            raise MissingInput(
                f"{path}: cannot be read ({error.strerror}); make a key file:  {MAKE_ONE}"
            ) from error
        if os.name == "posix" and mode & (stat.S_IRWXO | stat.S_IWGRP):
            raise WrongUse(
                f"{path}: other users of this machine may read or change it; run  chmod 600 {path}"
            )
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
    key = last.encode()
    digest, secret = hashlib.sha256(key).digest(), hashlib.sha256(b"session of " + key).digest()
    return Key(Caller(name, right == "write"), digest, secret)


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
                own = {name for name, _ in message["headers"]}
                message["headers"] = [*message["headers"], *(one for one in _ENCODED if one[0] not in own)]
            await send(message)

        await self._app(scope, receive, with_headers)


Refuse = Callable[[Scope], Exception | Response | None]
"""The answer to a request that is not let in; None to one that is."""


class Gate:
    """A layer that lets a request in, or answers it itself."""

    def __init__(self, app: ASGIApp, refuse: Refuse) -> None:
        self._app, self._refuse = app, refuse

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request; see ASGI."""
        refused = self._refuse(scope) if scope["type"] == "http" else None
        answer = refusal(scope, refused) if isinstance(refused, Exception) else refused
        await (answer or self._app)(scope, receive, send)


def foreign_host(bound: str, allowed: Iterable[str]) -> Refuse:
    """Refuse a foreign ``Host``: another site's name that was made to lead here (DNS rebinding).

    Addresses written as numbers cannot be rebound: they pass where the service listens beyond this machine.
    """
    is_local = is_loopback(bound)
    own = set() if is_local else {bound.lower(), socket.gethostname().lower()}
    names = LOOPBACK | own | {name.lower() for name in allowed}

    def refuse(scope: Scope) -> Exception | None:
        if scope["path"] in PROBES:
            return None
        hosts = Headers(scope=scope).getlist("host")
        match = _HOST.fullmatch(hosts[0]) if len(hosts) == 1 else None
        if match is None:
            return Forbidden("one Host header is needed")
        host = (match["address"] or match["name"]).lower()
        if host in names or (not is_local and _address(host) is not None):
            return None
        return Forbidden(f'the service is not called "{host}"; start it with --allow-host {host}')

    return refuse


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def foreign_page(allowed: Iterable[str]) -> Refuse:
    """Refuse writes that a page of another site makes a browser send; programs send no ``Origin``.

    Browsers from before 2020 send no ``Origin`` with a form either: their ``Referer`` counts then. A proxy
    that sends its own ``Host`` publishes the service under the allowed names.
    """
    names = frozenset(name.lower() for name in allowed)

    def is_own(headers: Headers) -> bool:
        if site := headers.get("sec-fetch-site"):
            return site in {"same-origin", "none"}
        if (origin := headers.get("origin", headers.get("referer"))) is None:
            return True
        try:
            parts = urlsplit(origin)
            return parts.netloc == headers.get("host", "") or (parts.hostname or "") in names
        except ValueError:
            return False

    def refuse(scope: Scope) -> Exception | None:
        if scope["method"] in SAFE or is_own(Headers(scope=scope)):
            return None
        return Forbidden(
            "a page of another site sent this; the service answers its own pages and programs only"
        )

    return refuse


def keyless(keys: Keys | None) -> Refuse:
    """Refuse clients that bring no key, as a bearer, as ``X-API-Key`` or in the page's session.

    With a key that only reads, they may not write.
    """

    def refuse(scope: Scope) -> Exception | Response | None:
        state, path, is_safe = scope.setdefault("state", {}), scope["path"], scope["method"] in SAFE
        state["caller"] = ANYBODY
        if keys is None or path in PROBES or path == LOGIN:
            return None
        headers = Headers(scope=scope)
        caller = _caller(headers, keys)
        if caller is None and is_safe and "text/html" in headers.get("accept", ""):
            query = scope["query_string"].decode("latin-1")
            there = path + (f"?{query}" if query else "")
            return RedirectResponse(f"{LOGIN}?next={quote(there, safe='')}", 303)
        if caller is None:
            given = "authorization" in headers or "x-api-key" in headers
            fault = "this key is not in the service's key file" if given else "a key is needed"
            return Unauthorized(
                f"{fault}: send  Authorization: Bearer KEY  with one of the service's key file"
            )
        state["caller"] = caller
        if caller.may_write or is_safe or (path.rstrip("/") or "/") in READING_POSTS:
            return None
        return Forbidden(f'the key of "{caller.name}" reads only; judging and training need one that writes')

    return refuse


def _caller(headers: Headers, keys: Keys) -> Caller | None:
    scheme, _, token = headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        return keys.caller(token.strip())
    if (key := headers.get("x-api-key")) is not None:
        return keys.caller(key.strip())
    session = cookie_parser(headers.get("cookie", "")).get(keys.cookie)
    return None if session is None else keys.of_session(session)
