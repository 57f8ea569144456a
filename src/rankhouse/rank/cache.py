"""Scores kept from run to run, so that no pair is scored twice and a killed rerank goes on where it was.

One SQLite file. A score is found by what made it and by nothing else:

    ranker = blake2b-128 of (fingerprint, policy, scale)
    pair   = blake2b-128 of (query text, passage text)     every part but the last preceded by its length
    scores : (ranker, pair) -> float32

Another model, policy or text is another key, so an old score never comes back; ids, splits and pools are
not part of the key, so the same passage is known again wherever it turns up. Several processes may use one
file at once (write-ahead log): each finished portion is one transaction; the first to write a score wins.
"""

from __future__ import annotations

import errno
import sqlite3
import threading
import time
import warnings
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from math import isnan
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import numpy as np

from rankhouse.core.errors import BadData, BadModel, OutputFailed, RankhouseError, RankhouseWarning, WrongUse
from rankhouse.core.nouns import FloatArray, Pair, Ranker

_APPLICATION: Final = 0x524B4853  # SQLite's own field for "whose file is this"
_VERSION: Final = 1
_SUFFIXES: Final = (".sqlite", ".sqlite3", ".db")
_AT_ONCE: Final = 4_096  # keys in one SELECT; more is no faster

_TABLES: Final = """
CREATE TABLE IF NOT EXISTS rankers (
    id INTEGER PRIMARY KEY, hash BLOB NOT NULL UNIQUE, fingerprint TEXT NOT NULL, policy TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS scores (
    ranker INTEGER NOT NULL, pair BLOB NOT NULL, score REAL NOT NULL, PRIMARY KEY (ranker, pair)
) WITHOUT ROWID;
"""
_WHOSE: Final = "SELECT id FROM rankers WHERE hash = ?"
_ENROL: Final = "INSERT OR IGNORE INTO rankers (hash, fingerprint, policy) VALUES (?, ?, ?)"


def cache_file(path: Path | str) -> Path:
    """Give the file for what the user named: a file, or a folder to hold ``scores.sqlite``."""
    path = Path(path)
    return path if path.is_file() or path.suffix in _SUFFIXES else path / "scores.sqlite"


class CachedRanker:
    """A ranker that remembers: asks the ranker it wraps only for pairs never scored before.

    Args:
        ranker: Any ranker with a ``fingerprint`` that changes whenever its scores could.
        path: File, or folder, of the cache; made if it is not there.
        policy: Whatever else changes the scores and is not in the fingerprint.
        portion: Pairs asked for and committed at once: the most that a kill can lose.
        timeout: Seconds to wait for another process that is writing.

    Attributes:
        hits: Pairs answered from the cache.
        misses: Pairs the ranker had to score.

    Raises:
        WrongUse: The ranker has no fingerprint.
        BadData: The file is damaged or is no score cache.
        OutputFailed: The file is locked or cannot be written.
    """

    def __init__(
        self,
        ranker: Ranker,
        path: Path | str,
        *,
        policy: str = "",
        portion: int = 512,
        timeout: float = 30.0,
    ) -> None:
        if not getattr(ranker, "fingerprint", ""):
            raise WrongUse(
                f"{type(ranker).__name__} has no fingerprint, so nobody could tell whether an old score is "
                "still its own; give it a text attribute `fingerprint` that changes with its scores, or "
                "rank without a cache"
            )
        self.ranker, self.policy, self.portion = ranker, policy, max(1, portion)
        self.hits = self.misses = 0
        self._store = _Store(cache_file(path), timeout)
        self._named: tuple[str, int] | None = None
        self._row()

    @property
    def fingerprint(self) -> str:
        """Name of everything that changes a score, as the wrapped ranker says it."""
        return str(self.ranker.fingerprint)  # type: ignore[attr-defined]  # __init__ saw to it

    @property
    def scale(self) -> str:
        """Scale of the scores, as the wrapped ranker says it."""
        return str(getattr(self.ranker, "scale", "score"))

    @property
    def path(self) -> Path:
        """The file that holds the scores."""
        return self._store.path

    def score(self, pairs: Sequence[Pair]) -> FloatArray:
        """Score pairs: (n,) float32 in the order given; only those never seen are really scored.

        Raises:
            BadData: The cache turns out to be damaged.
            BadModel: The ranker gave another number of scores than it was asked for.
        """
        keys, row = pair_keys(pairs), self._row()
        known = self._store.find(row, keys)
        missing = {key: place for place, key in enumerate(keys) if key not in known}
        asked = list(missing.items())
        for start in range(0, len(asked), self.portion):
            some = asked[start : start + self.portion]
            fresh = exactly(len(some), self.ranker.score([pairs[place] for _, place in some]))
            scored = [(key, value) for (key, _), value in zip(some, fresh.tolist(), strict=True)]
            self._store.keep(row, scored)
            known.update(scored)
        self.misses += len(asked)
        self.hits += len(keys) - len(asked)
        return np.fromiter((known[key] for key in keys), np.float32, len(keys))

    def close(self) -> None:
        """Close the file; what was scored stays in it."""
        self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _row(self) -> int:
        """Give the ranker's row; asked at every call, for a ranker may have been trained in between."""
        fingerprint = self.fingerprint
        if self._named is None or self._named[0] != fingerprint:
            name = _digest(fingerprint, self.policy, self.scale)
            self._named = fingerprint, self._store.ranker(name, fingerprint, self.policy)
        return self._named[1]


def pair_keys(pairs: Sequence[Pair]) -> list[bytes]:
    """Hash the exact texts of each pair to 16 bytes; ids play no part."""
    begun: dict[str, blake2b] = {}
    keys = []
    for query, passage in pairs:
        if (start := begun.get(query.text)) is None:
            text = _encoded(query.text)
            start = begun[query.text] = blake2b(len(text).to_bytes(8, "big") + text, digest_size=16)
        whole = start.copy()
        whole.update(_encoded(passage.text))
        keys.append(whole.digest())
    return keys


def _encoded(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")  # half a surrogate pair must not stop a ranking


def _digest(*parts: str) -> bytes:
    whole = blake2b(digest_size=16)
    for part in map(_encoded, parts):
        whole.update(len(part).to_bytes(8, "big") + part)
    return whole.digest()


def exactly(n: int, scores: FloatArray) -> FloatArray:
    """Refuse scores that are not (n,): a ranker owes one score for each pair."""
    scores = np.asarray(scores, np.float32)
    if scores.shape != (n,):
        raise BadModel(f"the ranker was asked for {n} scores and gave an array of shape {scores.shape}")
    return scores


class _Store:
    """The file: opened with care, read in bulk, written a portion at a time.

    Scores are worth more than their cache: when writing fails, the work goes on without it, with a warning.
    """

    def __init__(self, path: Path, timeout: float) -> None:
        self.path, self._timeout = path, timeout
        self._turn = threading.Lock()
        self._writable = True
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._sql = sqlite3.connect(path, timeout=timeout, isolation_level=None, check_same_thread=False)
        except (OSError, sqlite3.Error) as error:
            raise _explained(path, error) from error
        try:
            self._begin()
        except (sqlite3.Error, RankhouseError) as error:
            self._sql.close()
            raise (error if isinstance(error, RankhouseError) else _explained(path, error)) from error

    def _begin(self) -> None:
        """Make sure the file is ours, or new; only then touch it."""
        self._sql.execute("BEGIN")  # one glance at both, or a file just being made looks foreign
        owner, tables = self._one("PRAGMA application_id"), self._one("SELECT count(*) FROM sqlite_master")
        self._sql.execute("COMMIT")
        if owner != _APPLICATION and (owner or tables):
            raise BadData(
                "is an SQLite file of another program, not a score cache; name another path", self.path
            )
        self._use_log()
        self._sql.execute("PRAGMA synchronous = NORMAL")
        if owner != _APPLICATION:
            # Two processes may come here at once: the second finds all done and does it again, harmlessly.
            self._sql.executescript(
                f"BEGIN IMMEDIATE; {_TABLES} PRAGMA application_id = {_APPLICATION}; "
                f"PRAGMA user_version = {_VERSION}; COMMIT;"
            )
        if (version := self._one("PRAGMA user_version")) != _VERSION:
            raise BadData(
                f"is a score cache of version {version}, this program writes version {_VERSION}; "
                "name another path, or delete the file to score afresh",
                self.path,
            )
        self._step = min(_AT_ONCE, self._sql.getlimit(sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER) - 1)

    def _use_log(self) -> None:
        """Turn the write-ahead log on; SQLite does not wait its turn here, so we do."""
        until = time.monotonic() + self._timeout
        while True:
            try:
                self._sql.execute("PRAGMA journal_mode = WAL")
            except sqlite3.OperationalError as error:
                if _code(error) != sqlite3.SQLITE_BUSY or time.monotonic() > until:
                    raise
                time.sleep(0.02)
            else:
                return

    def _one(self, question: str) -> int:
        return int(self._sql.execute(question).fetchone()[0])

    def ranker(self, name: bytes, fingerprint: str, policy: str) -> int:
        """Give the row of a ranker, new or old."""
        with self._turn:
            try:
                while (found := self._sql.execute(_WHOSE, (name,)).fetchone()) is None:
                    self._sql.execute(_ENROL, (name, fingerprint, policy))
            except sqlite3.Error as error:
                raise _explained(self.path, error) from error
        return int(found[0])

    def find(self, ranker: int, keys: Sequence[bytes]) -> dict[bytes, float]:
        """Look keys up; those not there are absent from the answer."""
        found: dict[bytes, float] = {}
        asked = list(dict.fromkeys(keys))
        with self._turn:
            try:
                for start in range(0, len(asked), self._step):
                    some = asked[start : start + self._step]
                    marks = ",".join("?" * len(some))
                    found.update(
                        self._sql.execute(
                            f"SELECT pair, score FROM scores WHERE ranker = {ranker} AND pair IN ({marks})",  # noqa: S608 - a number and question marks
                            some,
                        )
                    )
            except sqlite3.Error as error:
                raise _explained(self.path, error) from error
        return found

    def keep(self, ranker: int, scored: Iterable[tuple[bytes, float]]) -> None:
        """Write a portion of scores in one transaction; what is not a number is left out."""
        rows = [(ranker, key, value) for key, value in scored if not isnan(value)]
        if not self._writable:
            return
        with self._turn:
            try:
                self._sql.execute("BEGIN IMMEDIATE")
                self._sql.executemany("INSERT OR IGNORE INTO scores VALUES (?, ?, ?)", rows)
                self._sql.execute("COMMIT")
            except sqlite3.Error as error:
                self._give_up(error)

    def _give_up(self, error: sqlite3.Error) -> None:
        self._writable = False
        if self._sql.in_transaction:
            self._sql.execute("ROLLBACK")
        warnings.warn(
            f"{_explained(self.path, error)}. Ranking goes on, but new scores are no longer kept",
            RankhouseWarning,
            stacklevel=5,
        )

    def close(self) -> None:
        with self._turn:
            self._sql.close()


def _code(error: sqlite3.Error) -> int:
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF


def _explained(path: Path, error: OSError | sqlite3.Error) -> RankhouseError:
    """Say what befell the file and what to do about it."""
    if isinstance(error, OSError):
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        reason = "the disk is full" if full else error.strerror or str(error)
        return OutputFailed(f"{path}: the score cache cannot be made ({reason}); name another path")
    code = _code(error)
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return BadData(
            f"the score cache is damaged or is no SQLite file ({error}); delete it with its -wal and -shm "
            "files to score afresh, or name another path",
            path,
        )
    advice = {
        sqlite3.SQLITE_BUSY: "another program holds it locked; wait until it is done, or name another path",
        sqlite3.SQLITE_FULL: "the disk is full; free some space or name another path",
        sqlite3.SQLITE_READONLY: "there is no permission to write there; name another path",
        sqlite3.SQLITE_CANTOPEN: "it cannot be opened or made there; check the folder, or name another path",
    }.get(code, f"{error}; name another path")
    return OutputFailed(f"{path}: the score cache cannot be written: {advice}")
