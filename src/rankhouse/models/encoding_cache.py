"""Vectors of texts that were encoded before, so that what many queries share is encoded once."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from hashlib import blake2b
from threading import Lock
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rankhouse.core.nouns import FloatArray

_DIGEST = 16
_ENTRY = 200
"""Bytes that a text costs besides its vector, about."""


class TextVectors(NamedTuple):
    """Vectors of n texts, and what of each did not fit.

    Attributes:
        vectors: (n, d) float32.
        lost: (n,) int64: tokens that were cut off.
    """

    vectors: FloatArray
    lost: NDArray[np.int64]


class EncodingCache:
    """Keeps the vectors of the texts last asked for, within so many bytes."""

    def __init__(self, encode: Callable[[Sequence[str]], TextVectors], size: int) -> None:
        self._encode, self._size = encode, size
        self._entries: OrderedDict[bytes, tuple[FloatArray, int]] = OrderedDict()
        self._lock = Lock()

    def __len__(self) -> int:
        return len(self._entries)

    def __call__(self, texts: Sequence[str]) -> TextVectors:
        """Return the vectors of n texts in their order; those not kept are encoded, equal ones once."""
        names = [_name(text) for text in texts]
        with self._lock:
            entries = {name: self._entries[name] for name in names if name in self._entries}
        missing = {name: text for name, text in zip(names, texts, strict=True) if name not in entries}
        if missing:
            vectors, lost = self._encode(list(missing.values()))
            # Copies: a row of `vectors` would keep the whole array alive.
            rows = ((row.copy(), int(cut)) for row, cut in zip(vectors, lost, strict=True))
            entries |= dict(zip(missing, rows, strict=True))
        with self._lock:
            self._store(entries)
        ordered = [entries[name] for name in names]
        return TextVectors(
            np.stack([row for row, _ in ordered]), np.array([cut for _, cut in ordered], np.int64)
        )

    def _store(self, entries: dict[bytes, tuple[FloatArray, int]]) -> None:
        """Make these the latest, and let go of the oldest beyond the size."""
        for name, entry in entries.items():
            self._entries[name] = entry
            self._entries.move_to_end(name)
        each = _ENTRY + next(iter(entries.values()))[0].nbytes
        while self._entries and len(self._entries) * each > self._size:
            self._entries.popitem(last=False)


def _name(text: str) -> bytes:
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=_DIGEST).digest()
