"""Keys: who may come in, and who may also change things. Compared in constant time; never written anywhere.

A key file has one key a line, ``NAME KEY`` or ``NAME KEY read``; a key alone has its line for a name. A key
marked ``read`` asks and looks, and neither judges nor trains.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import stat
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from rankhouse.core.errors import BadData, MissingInput, WrongUse
from rankhouse.io.files import as_text, numbered_lines
from rankhouse.serve.contracts.requests import Caller

FEWEST_SIGNS = 16
SESSION_SECONDS = 7 * 24 * 3600
MAKE_ONE = (
    "python3 -c \"import secrets; print('me', secrets.token_urlsafe())\" > keys.txt && chmod 600 keys.txt"
)

_NAME = re.compile(r"[\w.@-]{1,64}", re.ASCII)


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
