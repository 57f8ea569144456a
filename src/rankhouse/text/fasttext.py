"""fastText's binary models: a vector for any word, from the word and its character n-grams.

Read by hand, without a library: the format is a short header, a list of words and one table of rows, and
mapping the table leaves it on disk. Written from fastText's format (magic 793712314, version 11 or 12) and
its hashing of subwords (32-bit FNV-1a over bytes taken as signed); Bojanowski et al., TACL 2017.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rankhouse.core.errors import BadData, MissingInput
from rankhouse.core.nouns import FloatArray

MAGIC = struct.pack("<i", 793712314)
_VERSIONS = (11, 12)
_FNV_START, _FNV_PRIME, _32_BITS = 2166136261, 16777619, 0xFFFFFFFF
_SIGN_BYTE, _SIGN_EXTENSION = 0x80, 0xFFFFFF00
_SUPERVISED = 3
_END_OF_LINE = "</s>"


class FastText:
    """A fastText model file, its table mapped from disk.

    Args:
        path: A ``.bin`` file as fastText's ``cbow`` or ``skipgram`` writes it, not quantised, not pruned.

    Attributes:
        words: The words it lists, each with its row.
        table: (rows, d) float32; the listed words come first, then the buckets of subwords.
        min_n: Shortest subword, in characters.
        max_n: Longest subword; 0 where the model has none.

    Raises:
        MissingInput: There is no such file.
        BadData: It is no such model, is cut off, or is quantised.
    """

    def __init__(self, path: Path) -> None:
        if not path.is_file():
            raise MissingInput(f"{path}: there is no such file")
        self._path, self._at = path, 0
        with path.open("rb") as stream:
            empty = path.stat().st_size == 0
            self._bytes = b"" if empty else mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)
        magic, version = self._take("<ii")
        if struct.pack("<i", magic) != MAGIC or version not in _VERSIONS:
            raise BadData(
                f"is no fastText model of version 11 or 12 (it begins with {magic}, version {version})", path
            )
        self.width, _, _, _, _, _, _, model, self._buckets, self.min_n, self.max_n, _, _ = self._take("<12id")
        if model == _SUPERVISED and version == 11:
            self.max_n = 0  # fastText itself reads such old classifiers without subwords
        self.words = self._dictionary()
        self.table = self._rows()

    def _take(self, layout: str) -> tuple[int, ...]:
        size = struct.calcsize(layout)
        if self._at + size > len(self._bytes):
            raise BadData(f"ends after {len(self._bytes):,} bytes; it is cut off: copy it again", self._path)
        values = struct.unpack_from(layout, self._bytes, self._at)
        self._at += size
        return values

    def _dictionary(self) -> dict[str, int]:
        """Read the words; labels (of classifiers) take rows too but are no words."""
        size, words, _, _, pruned = self._take("<iiiqq")
        if pruned >= 0:
            raise BadData("is a pruned (quantised) model; use the full .bin or its .vec file", self._path)
        listed = {}
        for row in range(size):
            end = self._bytes.find(b"\0", self._at)
            if end < 0:
                raise BadData(f"ends inside word {row + 1} of {size:,}: copy it again", self._path)
            word = self._bytes[self._at : end].decode("utf-8", "replace")
            self._at = end + 1
            self._take("<qb")
            if row < words:
                listed[word] = row
        return listed

    def _rows(self) -> FloatArray:
        (quantised,) = self._take("<b")
        if quantised:
            raise BadData("is quantised (.ftz); use the full .bin or its .vec file", self._path)
        rows, width = self._take("<qq")
        if width != self.width or self._at + rows * width * 4 > len(self._bytes):
            raise BadData(f"is cut off inside its table of {rows:,} x {width}: copy it again", self._path)
        return np.frombuffer(self._bytes, np.float32, rows * width, self._at).reshape(rows, width)

    def rows(self, word: str) -> NDArray[np.int64]:
        """Return the rows of a word: its own, if it is listed, and its subwords'; (r,), maybe empty."""
        own = [self.words[word]] if word in self.words else []
        first_bucket = len(self.table) - self._buckets
        if not self.max_n or not self._buckets or word == _END_OF_LINE:
            return np.array(own, dtype=np.int64)
        grams = subwords(word, self.min_n, self.max_n)
        return np.array([*own, *(first_bucket + _hash(gram) % self._buckets for gram in grams)], np.int64)

    def vector(self, word: str) -> FloatArray:
        """Return the mean of a word's rows, (d,); zero for a word without any (too short and not listed)."""
        rows = self.rows(word)
        if not rows.size:
            return np.zeros(self.width, np.float32)
        vector: FloatArray = self.table[rows].mean(axis=0, dtype=np.float64).astype(np.float32)
        return vector


def subwords(word: str, min_n: int, max_n: int) -> Iterator[str]:
    """Return the character n-grams of ``<word>``, n from ``min_n`` to ``max_n``, without lone brackets."""
    marked = f"<{word}>"
    for start in range(len(marked)):
        for size in range(max(1, min_n), min(max_n, len(marked) - start) + 1):
            if size == 1 and (start == 0 or start + 1 == len(marked)):
                continue
            yield marked[start : start + size]


def _hash(gram: str) -> int:
    """Hash to 32 bits as fastText does: FNV-1a where a byte above 127 counts as a negative number."""
    value = _FNV_START
    for byte in gram.encode("utf-8", "replace"):
        value ^= byte | _SIGN_EXTENSION if byte & _SIGN_BYTE else byte
        value = value * _FNV_PRIME & _32_BITS
    return value
