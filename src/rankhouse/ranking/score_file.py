"""The file of a score cache: SQLite, each score with a checksum of its own. See ``cache.py``.

A database and no log that grows: scores are looked up by key, and several processes write at once.
"""

from __future__ import annotations

import errno
import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from math import isnan
from pathlib import Path
from typing import Any, Final, get_args

import numpy as np

from rankhouse.core.errors import BadData, OutputFailed, RankhouseError, warn
from rankhouse.io.readers.columnar import OF_SCORES

_VERSION: Final = 2
_AT_ONCE: Final = 4_096  # keys in one SELECT; more is no faster
_ODD: Final = np.array([0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9], np.uint64)
# What SQLite says of a file that somebody changed: torn pages, but tables, columns or words gone bad as well.
_DAMAGE: Final = (
    *(0, sqlite3.SQLITE_ERROR, sqlite3.SQLITE_INTERNAL, sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB),
    *(sqlite3.SQLITE_TOOBIG, sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_MISMATCH, sqlite3.SQLITE_FORMAT),
)

# What a damaged file raises: changed words of its schema come as text that cannot be decoded.
_Fault = sqlite3.Error | UnicodeDecodeError
_FAULTS: Final = get_args(_Fault)

_SCORES: Final = """
CREATE TABLE IF NOT EXISTS scores (
    ranker INTEGER NOT NULL, pair BLOB NOT NULL, score REAL NOT NULL, checksum INTEGER NOT NULL,
    PRIMARY KEY (ranker, pair)
) WITHOUT ROWID;
"""
_TABLES: Final = f"""
CREATE TABLE IF NOT EXISTS rankers (
    id INTEGER PRIMARY KEY, hash BLOB NOT NULL UNIQUE, fingerprint TEXT NOT NULL, policy TEXT NOT NULL);
{_SCORES}
"""
_WHOSE: Final = "SELECT id FROM rankers WHERE hash = ?"
_ENROL: Final = "INSERT OR IGNORE INTO rankers (hash, fingerprint, policy) VALUES (?, ?, ?)"


class ScoreFile:
    """The file: opened with care, read in bulk, written a chunk at a time.

    Scores are worth more than their cache: when writing fails, the work goes on without it, with a warning.

    Raises BadData: the file is damaged or is no score cache; OutputFailed: it is locked or cannot be written.
    """

    def __init__(self, path: Path, timeout: float, *, upgrade: bool = True) -> None:
        self.path, self._timeout, self._upgrade = path, timeout, upgrade
        self._turn = threading.Lock()
        self._writable = True
        self._seeds: dict[int, int] = {}
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._sql = sqlite3.connect(path, timeout=timeout, isolation_level=None, check_same_thread=False)
        except (OSError, *_FAULTS) as error:
            raise _explained(path, error) from error
        try:
            self._begin()
        except BaseException as error:
            self._sql.close()
            if isinstance(error, _FAULTS):
                raise _explained(path, error) from error
            raise

    def _begin(self) -> None:
        """Make sure the file is ours, or new; only then touch it."""
        self._sql.execute("BEGIN")  # one glance at both, or a file just being made looks foreign
        owner, tables = self._one("PRAGMA application_id"), self._one("SELECT count(*) FROM sqlite_master")
        self._sql.execute("COMMIT")
        if owner != OF_SCORES and (owner or tables):
            raise BadData(
                "is an SQLite file of another program, not a score cache; name another path", self.path
            )
        self._use_log()
        self._sql.execute("PRAGMA synchronous = NORMAL")
        if owner != OF_SCORES:
            # Two processes may come here at once: the second finds all done and does it again, harmlessly.
            self._sql.executescript(
                f"BEGIN IMMEDIATE; {_TABLES} PRAGMA application_id = {OF_SCORES}; "
                f"PRAGMA user_version = {_VERSION}; COMMIT;"
            )
        if self.version == 1 and self._upgrade:
            self._add_checksums()
        if (version := self.version) != _VERSION and (version != 1 or self._upgrade):
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

    def _add_checksums(self) -> None:
        """Bring a file of version 1 up to date; what it holds was never protected and is taken as it is."""
        self._refuse_torn()
        self._sql.execute("BEGIN IMMEDIATE")
        try:
            if self.version == 1:  # no other process was quicker
                self._sql.execute("ALTER TABLE scores RENAME TO scores_1")
                self._sql.execute(_SCORES)
                for ranker, name in self._sql.execute("SELECT id, hash FROM rankers").fetchall():
                    old = self._sql.execute("SELECT pair, score FROM scores_1 WHERE ranker = ?", (ranker,))
                    while rows := old.fetchmany(_AT_ONCE):
                        self._insert(ranker, _seed(name), rows)
                self._sql.execute("DROP TABLE scores_1")
                self._sql.execute(f"PRAGMA user_version = {_VERSION}")
            self._sql.execute("COMMIT")
        except BaseException as error:
            if self._sql.in_transaction:
                self._sql.execute("ROLLBACK")
            if isinstance(error, ValueError | TypeError):
                raise damaged(self.path, str(error)) from error
            raise

    def _refuse_torn(self) -> None:
        if (verdict := str(self._sql.execute("PRAGMA quick_check(1)").fetchone()[0])) != "ok":
            raise damaged(self.path, verdict)

    def _insert(self, ranker: int, seed: int, rows: Sequence[tuple[bytes, float]]) -> None:
        """Write scores with their checksums; the first to write one wins."""
        sums = _checksums(seed, [key for key, _ in rows], [value for _, value in rows])
        self._sql.executemany(
            "INSERT OR IGNORE INTO scores VALUES (?, ?, ?, ?)",
            ((ranker, key, value, total) for (key, value), total in zip(rows, sums, strict=True)),
        )

    def ranker(self, name: bytes, fingerprint: str, policy: str) -> int:
        """Return the row of a ranker, new or old."""
        with self._asking():
            if (entry := self._sql.execute(_WHOSE, (name,)).fetchone()) is None:
                self._sql.execute(_ENROL, (name, fingerprint, policy))
                entry = self._sql.execute(_WHOSE, (name,)).fetchone()
        if entry is None:
            raise damaged(self.path, "a ranker just entered is not there")
        self._seeds[int(entry[0])] = _seed(name)
        return int(entry[0])

    def find(self, ranker: int, keys: Sequence[bytes]) -> dict[bytes, float]:
        """Look keys up; those not there are absent from the answer."""
        known: dict[bytes, float] = {}
        unique = list(dict.fromkeys(keys))
        with self._asking():
            for start in range(0, len(unique), self._step):
                some = unique[start : start + self._step]
                marks = ",".join("?" * len(some))
                rows = self._sql.execute(
                    f"SELECT pair, score, checksum FROM scores WHERE ranker = {ranker} "  # noqa: S608 - a number and question marks
                    f"AND pair IN ({marks})",
                    some,
                ).fetchall()
                known.update(self._sound(self._seeds[ranker], rows))
        return known

    @contextmanager
    def _asking(self) -> Iterator[None]:
        """Hold the file while the block runs, and explain what SQLite finds wrong with it."""
        with self._turn:
            try:
                yield
            except _FAULTS as error:
                raise _explained(self.path, error) from error

    def _sound(self, seed: int, rows: Sequence[tuple[Any, Any, Any]]) -> Iterator[tuple[bytes, float]]:
        """Compare rows with their checksums."""
        keys, scores, sums = zip(*rows, strict=True) if rows else ((), (), ())
        if set(map(type, scores)) - {float} or _checksums(seed, keys, scores) != list(sums):
            raise damaged(self.path, "a score is not the one that was kept")
        return zip(keys, scores, strict=True)

    @property
    def version(self) -> int:
        """Of the format; 1 had no checksums."""
        return self._one("PRAGMA user_version")

    def verify(self) -> tuple[int, int]:
        """Read everything and compare it with its checksums; return how many rankers and scores there are.

        A file of version 1 has no checksums; only its pages are looked at.

        Raises BadData: something differs.
        """
        with self._asking():
            self._refuse_torn()
            if self.version == 1:
                return self._one("SELECT count(*) FROM rankers"), self._one("SELECT count(*) FROM scores")
            scores, rankers = 0, self._sql.execute("SELECT id, hash FROM rankers").fetchall()
            for ranker, name in rankers:
                asked = "SELECT pair, score, checksum FROM scores WHERE ranker = ?"
                held = self._sql.execute(asked, (ranker,))
                while rows := held.fetchmany(_AT_ONCE):
                    self._sound(_seed(name), rows)
                    scores += len(rows)
            if (there := self._one("SELECT count(*) FROM scores")) != scores:
                raise damaged(self.path, f"{there - scores:,} scores belong to no ranker")
        return len(rankers), scores

    def keep(self, ranker: int, scored: Iterable[tuple[bytes, float]]) -> None:
        """Write a chunk of scores in one transaction; what is not a number is left out."""
        rows = [(key, value) for key, value in scored if not isnan(value)]
        if not self._writable:
            return
        with self._turn:
            try:
                self._sql.execute("BEGIN IMMEDIATE")
                self._insert(ranker, self._seeds[ranker], rows)
                self._sql.execute("COMMIT")
            except _FAULTS as error:
                self._give_up(error)

    def _give_up(self, error: _Fault) -> None:
        self._writable = False
        if self._sql.in_transaction:
            self._sql.execute("ROLLBACK")
        warn(f"{_explained(self.path, error)}. Ranking goes on, but new scores are no longer kept", 5)

    def close(self) -> None:
        """Close the file."""
        with self._turn:
            self._sql.close()


def _code(error: _Fault) -> int:
    return int(getattr(error, "sqlite_errorcode", 0)) & 0xFF


def damaged(path: Path, reason: str) -> BadData:
    """Say that a cache cannot be trusted and what to do."""
    return BadData(
        f"the score cache is damaged or is no SQLite file ({reason}); delete it with its -wal and -shm "
        "files to score afresh, or name another path",
        path,
    )


def _seed(name: object) -> int:
    """Make a number of a ranker's hash, so that a score is never taken for another ranker's."""
    return int.from_bytes(name[:8], "little") if isinstance(name, bytes) else 0


def _checksums(seed: int, keys: Sequence[bytes], scores: Sequence[float]) -> list[int]:
    """Return a checksum of 32 bits of each score with its ranker and pair.

    Sums and products of 64 bits by odd numbers, all rows at once: a CRC a row would cost a tenth of looking
    it up.
    """
    if not keys:
        return []
    words = np.frombuffer(b"".join(keys), "<u8")
    if len(words) != 2 * len(keys):  # a key that is not of 16 bytes is none
        return []
    values = np.array(scores, np.float64) + 0.0  # SQLite keeps no sign of zero
    whole = words[::2] * _ODD[0] + words[1::2] * _ODD[1] + values.view(np.uint64) * _ODD[2]
    whole += np.uint64(seed)
    whole = (whole ^ whole >> np.uint64(29)) * _ODD[0]
    return (whole >> np.uint64(32)).astype(np.uint32).view(np.int32).tolist()  # type: ignore[no-any-return]


def _explained(path: Path, error: OSError | _Fault) -> RankhouseError:
    """Say what befell the file and what to do about it."""
    if isinstance(error, OSError):
        full = error.errno in (errno.ENOSPC, errno.EDQUOT)
        reason = "the disk is full" if full else error.strerror or str(error)
        return OutputFailed(f"{path}: the score cache cannot be made ({reason}); name another path")
    code = _code(error)
    if code in _DAMAGE:
        return damaged(path, str(error))
    advice = {
        sqlite3.SQLITE_BUSY: "another program holds it locked; wait until it is done, or name another path",
        sqlite3.SQLITE_FULL: "the disk is full; free some space or name another path",
        sqlite3.SQLITE_IOERR: f"{error}, most often a full disk; free some space or name another path",
        sqlite3.SQLITE_READONLY: "there is no permission to write there; name another path",
        sqlite3.SQLITE_CANTOPEN: "it cannot be opened or made there; check the folder, or name another path",
    }.get(code, f"{error}; name another path")
    return OutputFailed(f"{path}: the score cache cannot be written: {advice}")
