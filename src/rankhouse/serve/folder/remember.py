"""Vectors of an earlier index, used again for passages whose text has not changed."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from typing import Self

import numpy as np

from rankhouse.core.errors import RankhouseError
from rankhouse.core.nouns import Encoder, FloatArray
from rankhouse.index.dense.vectors import Vectors, vectors_folder
from rankhouse.index.index import Index
from rankhouse.text.split import Split


class RememberingEncoder:
    """An encoder that looks into earlier vectors before it computes."""

    def __init__(self, encoder: Encoder, vectors: Vectors, rows: dict[bytes, int]) -> None:
        self._encoder, self._vectors, self._rows = encoder, vectors, rows

    @classmethod
    def of(cls, encoder: Encoder, before: Path, split: Split) -> Self | None:
        """Remember the vectors of an earlier index; None where it has none of this encoder and split."""
        try:
            index = Index.open(before)
            vectors = Vectors.open(vectors_folder(before))
            if (vectors.state.encoder, vectors.state.policy) != (encoder.fingerprint, str(split)):
                return None
            if not index.manifest.began_as(vectors.state.collection):
                return None
            encoded = islice(index.documents.stream(), vectors.state.documents)
            texts = (p.text for document in encoded for p in split(document) if p.text.strip())
            rows = {_key(text): row for row, text in enumerate(texts)}
        except RankhouseError:
            return None
        return cls(encoder, vectors, rows)

    @property
    def fingerprint(self) -> str:
        """The encoder's."""
        return self._encoder.fingerprint

    @property
    def similarity(self) -> str:
        """The encoder's."""
        return self._encoder.similarity

    def encode_queries(self, texts: Sequence[str]) -> FloatArray:
        """Encode n queries: (n, d) float32."""
        return self._encoder.encode_queries(texts)

    def encode_passages(self, texts: Sequence[str]) -> FloatArray:
        """Encode n passages: (n, d) float32; those seen before are looked up."""
        rows = [self._rows.get(_key(text), -1) for text in texts]
        fresh = [number for number, row in enumerate(rows) if row < 0]
        if len(fresh) == len(texts):
            return self._encoder.encode_passages(texts)
        vectors = np.asarray(self._vectors.rows[np.maximum(rows, 0)], np.float32)
        if fresh:
            vectors[fresh] = self._encoder.encode_passages([texts[number] for number in fresh])
        return vectors


def _key(text: str) -> bytes:
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
