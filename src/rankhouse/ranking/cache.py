"""Scores kept from run to run, so that no pair is scored twice and a killed rerank resumes.

One SQLite file. A score is found by what made it and by nothing else:

    ranker = blake2b-128 of (fingerprint, policy, scale of the numbers)
    pair   = blake2b-128 of (query text, passage text)     every part but the last preceded by its length
    scores : (ranker, pair) -> float32, and a checksum of all three

Another model, policy or text is another key, so an old score never comes back; ids, splits and pools are
not part of the key, so the same passage is known again wherever it turns up. Several processes may use one
file at once (write-ahead log): each finished chunk is one transaction; the first to write a score wins.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Final, Self

import numpy as np

from rankhouse.core.errors import WrongUse
from rankhouse.core.nouns import FloatArray, Pair, Ranker, fingerprint_of
from rankhouse.core.progress import part
from rankhouse.core.scores import base_of, one_each, scale_of
from rankhouse.ranking.score_file import ScoreFile

_SUFFIXES: Final = (".sqlite", ".sqlite3", ".db")


def cache_file(path: Path | str) -> Path:
    """Return the file for what the user named: a file, or a folder to hold ``scores.sqlite``."""
    path = Path(path)
    return path if path.is_file() or path.suffix in _SUFFIXES else path / "scores.sqlite"


class CachedRanker:
    """A ranker that remembers: asks the ranker it wraps only for pairs never scored before.

    Args:
        ranker: Any ranker with a ``fingerprint`` that changes whenever its scores could.
        path: File, or folder, of the cache; made if it is not there.
        policy: Whatever else changes the scores and is not in the fingerprint.
        chunk: Pairs asked for and committed at once: the most that a kill can lose.
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
        self, ranker: Ranker, path: Path | str, *, policy: str = "", chunk: int = 512, timeout: float = 30.0
    ) -> None:
        if not fingerprint_of(ranker):
            raise WrongUse(
                f"{type(ranker).__name__} has no fingerprint, so nobody could tell whether an old score is "
                "still its own; give it a text attribute `fingerprint` that changes with its scores, or "
                "rank without a cache"
            )
        self.ranker, self.policy, self.chunk = ranker, policy, max(1, chunk)
        self.hits = self.misses = 0
        self._named: tuple[str, int] | None = None
        self._store = ScoreFile(cache_file(path), timeout)
        try:
            self._row()
        except BaseException:
            self._store.close()
            raise

    @property
    def fingerprint(self) -> str:
        """Name of everything that changes a score, as the wrapped ranker says it."""
        return fingerprint_of(self.ranker)

    @property
    def scale(self) -> str:
        """Scale of the scores, as the wrapped ranker says it."""
        return scale_of(self.ranker)

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
        unknown = list(missing.items())
        for start in range(0, len(unknown), self.chunk):
            some = unknown[start : start + self.chunk]
            with part(start / len(unknown), (start + len(some)) / len(unknown)):
                fresh = one_each(len(some), self.ranker.score([pairs[place] for _, place in some]))
            scored = [(key, value) for (key, _), value in zip(some, fresh.tolist(), strict=True)]
            self._store.keep(row, scored)
            known.update(scored)
        self.misses += len(unknown)
        self.hits += len(keys) - len(unknown)
        return np.fromiter((known[key] for key in keys), np.float32, len(keys))

    def close(self) -> None:
        """Close the file; what was scored stays in it."""
        self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def _row(self) -> int:
        """Return the ranker's row; asked at every call, for a ranker may have been trained in between."""
        fingerprint = self.fingerprint
        if self._named is None or self._named[0] != fingerprint:
            name = _digest(fingerprint, self.policy, base_of(self.scale))
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
    for word in map(_encoded, parts):
        whole.update(len(word).to_bytes(8, "big") + word)
    return whole.digest()
