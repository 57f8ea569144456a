"""Words -> numbers of their terms, given on first sight."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from rankhouse.index.lexical import kernel
from rankhouse.index.lexical.kernel import Int32s

DROPPED = -1
_FREE = -2
_SLOTS = 1 << 16


class Numbers:
    """Numbers the terms of raw words; a word that the analyzer drops is -1.

    With the compiled kernel, words are found by their 64-bit hash in a flat table. A dict has to look at
    three far places of memory for every word of a large vocabulary; the table at one, fetched ahead. Among
    a million distinct words two share a hash with probability 3e-8, and would then count as one.

    Args:
        normal: Raw word -> term, "" to drop it.

    Attributes:
        terms: Term -> number, in the order of the numbers.
    """

    def __init__(self, normal: Callable[[str], str]) -> None:
        self._normal = normal
        self.terms: dict[str, int] = {}
        self._plain = _Plain(self._number)
        self._hashes = np.zeros(_SLOTS, np.int64)
        self._numbers = np.full(_SLOTS, _FREE, np.int32)
        self._filled = 0

    def of(self, words: list[str]) -> Int32s:
        """Return the numbers of words: (words,)."""
        if not kernel.COMPILED:
            return np.fromiter(map(self._plain.__getitem__, words), np.int32, len(words))
        ids, unknown = np.empty(len(words), np.int32), np.empty(len(words), np.int64)
        missed = unknown[: kernel.find(words, self._hashes, self._numbers, ids, unknown)]
        fresh: dict[str, int] = {}
        for place in missed.tolist():
            word = words[place]
            if word not in fresh:
                fresh[word] = self._number(word)
        ids[missed] = [fresh[words[place]] for place in missed.tolist()]
        self._keep(fresh)
        return ids

    def _number(self, word: str) -> int:
        term = self._normal(word)
        return self.terms.setdefault(term, len(self.terms)) if term else DROPPED

    def _keep(self, fresh: Mapping[str, int]) -> None:
        """Put new words into the table, which stays at most half full."""
        self._filled += len(fresh)
        if 2 * self._filled > len(self._numbers):
            taken = self._numbers != _FREE
            hashes, numbers = self._hashes[taken], self._numbers[taken]
            slots = 1 << (2 * self._filled).bit_length()
            self._hashes, self._numbers = np.zeros(slots, np.int64), np.full(slots, _FREE, np.int32)
            kernel.put(hashes, numbers, self._hashes, self._numbers)
        keys = np.fromiter(map(hash, fresh), np.int64, len(fresh))
        values = np.fromiter(fresh.values(), np.int32, len(fresh))
        kernel.put(keys, values, self._hashes, self._numbers)


class _Plain(dict[str, int]):
    """The same as a dict that fills itself, for machines without the compiled kernel."""

    def __init__(self, number: Callable[[str], int]) -> None:
        super().__init__()
        self._number = number

    def __missing__(self, word: str) -> int:
        number = self[word] = self._number(word)
        return number
