"""Ids: which were given already, and which of several records with one id is taken."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rankhouse.core.errors import DuplicateId
from rankhouse.core.nouns import Document

_WAYS = (
    "; rankhouse index passes over repeated ones with --duplicates same (equal texts) or first, and makes "
    "ids of several corpora differ with --prefix-ids"
)


def digest_of(*parts: str) -> bytes:
    """Return 16 bytes that stand for texts: of a thousand million, two share them with probability 1e-21."""
    whole = "".join(f"{len(part)}:{part}" for part in parts)
    return blake2b(whole.encode("utf-8", "surrogatepass"), digest_size=16).digest()


class SeenIds:
    """Refuses ids given twice, in 8 bytes an id.

    Ids become 64-bit hashes. The latest ones are in a dict and are checked at once; older ones are in sorted
    arrays and are checked a chunk at a time, so a repeat of a far earlier id is found up to ``chunk`` records
    late (:meth:`check` settles what is open). Two different ids share a hash with probability 3e-6 in ten
    million. ``at_once`` compares every id with all earlier ones when it comes, so that a repeated one can be
    skipped; slower by some microseconds an id.
    """

    def __init__(self, chunk: int = 32_768, at_once: bool = False) -> None:
        self._chunk, self._at_once = chunk, at_once
        self._recent: dict[int, tuple[str, Path, int]] = {}
        self._settled: list[NDArray[np.int64]] = []

    def __len__(self) -> int:
        return len(self._recent) + sum(map(len, self._settled))

    def takes(self, document: Document, path: Path, line: int) -> bool:
        """Note a document's id and where it stands; DuplicateId if it was given before, else true."""
        record_id = document.id
        key = hash(record_id)
        if (before := self._recent.get(key)) is not None:
            where = f" by {before[1]}, line {before[2]}"
            reason = "; ids must differ, else judgements and runs cannot name a document"
            raise _repeated(record_id, path, line, where + reason)
        if self._at_once and any(_holds(earlier, key) for earlier in self._settled):
            raise _repeated(record_id, path, line)
        self._recent[key] = (record_id, path, line)
        if len(self._recent) >= self._chunk:
            self.check()
        return True

    def check(self) -> None:
        """Compare the waiting ids with all earlier ones; DuplicateId if one was given before."""
        if not self._recent:
            return
        keys = np.fromiter(self._recent, np.int64, len(self._recent))
        for earlier in self._settled:
            places = np.minimum(np.searchsorted(earlier, keys), len(earlier) - 1)
            if (repeats := np.flatnonzero(earlier[places] == keys)).size:
                record_id, path, line = self._recent[int(keys[repeats[0]])]
                raise _repeated(record_id, path, line)
        self._settled.append(np.sort(keys))
        self._recent = {}
        # Halving the number of arrays as they grow keeps both the merging and the looking up cheap.
        while len(self._settled) > 1 and len(self._settled[-2]) <= 2 * len(self._settled[-1]):
            last = self._settled.pop()
            self._settled[-1] = np.sort(np.concatenate([self._settled[-1], last]))


def _repeated(record_id: str, path: Path, line: int, where: str = ", much earlier") -> DuplicateId:
    fault = DuplicateId(f'the id "{record_id}" was already given{where}{_WAYS}', path, line)
    fault.record = record_id
    return fault


def _holds(sorted_keys: NDArray[np.int64], key: int) -> bool:
    place = int(np.searchsorted(sorted_keys, key))
    return place < len(sorted_keys) and int(sorted_keys[place]) == key


RULES = ("refuse", "same", "first")
"""Rules for a second record with an id: refused; skipped if its text is the same; skipped."""


class Repeats(SeenIds):
    """Skips records whose id was given before, by the rule "same" or "first"; holds 130 bytes an id."""

    def __init__(self, rule: str, held: Mapping[str, Document] | None = None) -> None:
        super().__init__()
        self._rule, self._held = rule, held
        self._texts: dict[bytes, bytes] = {}
        self.prefix, self.passed = "", 0

    def takes(self, document: Document, path: Path, line: int) -> bool:
        """Return whether a document is new, its id behind :attr:`prefix`.

        Raises DuplicateId where its id was given before, with another text, and the rule is "same".
        """
        name = self.prefix + document.id
        text, key = digest_of(document.title, document.text), digest_of(name)
        before = self._texts.get(key)
        if before is None and self._held is not None and name in self._held:
            other = self._held[name]
            before = digest_of(other.title, other.text)
        if before is None:
            self._texts[key] = text
            return True
        if self._rule == "same" and before != text:
            raise DuplicateId(
                f'the id "{name}" was already given, with another text; take the first with '
                "--duplicates first, or make the ids of several corpora differ with --prefix-ids",
                path,
                line,
            )
        self.passed += 1
        return False
