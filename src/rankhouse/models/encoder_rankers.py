"""Encoders at work: bi-encoders, whose vectors are kept and so made once a text, and sparse encoders."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import cached_property, partial
from hashlib import blake2b
from threading import Lock
from typing import Final, NamedTuple, cast

import numpy as np
import scipy.sparse
import torch
from numpy.typing import NDArray
from torch import Tensor

from rankhouse.core.errors import BadModel
from rankhouse.core.nouns import FloatArray, Pair
from rankhouse.core.progress import part
from rankhouse.models import bundle
from rankhouse.models.biencoder import BiEncoder, Similarity, compare
from rankhouse.models.ranker import Engine, NeuralRanker, as_pairs
from rankhouse.models.sparse import SparseEncoder
from rankhouse.models.text_ids import QueryPolicy, query_files
from rankhouse.models.transformer_encoders import VectorScorer
from rankhouse.nn.layers.ragged import Packed

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


_CACHE_BYTES = 128 * 2**20
"""Bytes of vectors kept for each side: 75,000 passages of MiniLM."""


class DenseRanker(NeuralRanker):
    """A bi-encoder at work: scores pairs, and gives the vectors themselves.

    A text that comes again, as the passages of a document do for the next query, is not encoded again.
    """

    model: BiEncoder

    def score(self, pairs: Sequence[Pair]) -> FloatArray:
        """Score n pairs: (n,) float32, higher is better, in the order given.

        Raises:
            BadModel: A vector is not a number.
        """
        if not (pairs := as_pairs(pairs)):
            return np.empty(0, np.float32)
        with part(0, 0):
            queries = self._encodings["query"]([pair.query.text for pair in pairs])
        passages = self._encodings["passage"]([pair.passage.text for pair in pairs])
        cut, query_cut = map(torch.from_numpy, (queries.lost + passages.lost, queries.lost))
        self.report.add(cut, query_cut)
        sides = torch.from_numpy(queries.vectors), torch.from_numpy(passages.vectors)
        scores: FloatArray = compare(*sides, self.similarity).numpy()
        return scores

    @property
    def similarity(self) -> Similarity:
        """Similarity of its vectors: "dot", "cosine" or "l2" (minus the squared distance)."""
        similarity: Similarity = self.model.policy["similarity"]
        return similarity

    @cached_property
    def passage_fingerprint(self) -> str:
        """Fingerprint of what encodes passages: as if queries had no encoder of their own."""
        alone = self.model.without_queries()
        if alone is self.model:
            return self.fingerprint
        return f"{bundle.fingerprint(alone)}-{self.compute.precision}"

    def encode_queries(self, texts: Sequence[str]) -> FloatArray:
        """Encode n queries: (n, d) float32, each independent of the others."""
        return self._computed(self.model.encode_queries, texts, "query", self.engine)

    def encode_passages(self, texts: Sequence[str]) -> FloatArray:
        """Encode n passages: (n, d) float32, each independent of the others."""
        return self._computed(self.model.encode_passages, texts, "passage", self.engine)

    def vectors_of(self, batch: Packed, side: str = "passage") -> FloatArray:
        """Return the vectors of n texts that the model turned into ids: (n, d), NaN where not a number.

        Args:
            side: "query" or "passage"; which, is the same to models with one encoder for both.
        """
        out = np.empty((len(batch), self._width), np.float32)
        self.engine.run_encoded(batch, self._encoders[side], out)
        return out

    def token_states(self, ids: Packed, side: str = "passage") -> FloatArray:
        """Return the states whose means the vectors are, end to end, the model's own tokens included: (t, w).

        Args:
            ids: Texts, as the model encodes them; it must pool by means.
            side: "query" or "passage".
        """
        with self.compute.active(), torch.inference_mode():
            states: FloatArray = self._encoders[side].states(ids).float().cpu().numpy()
        return states

    def _computed(
        self, encode: Callable[[Sequence[str]], Packed], texts: Sequence[str], side: str, engine: Engine
    ) -> FloatArray:
        out = np.empty((len(texts), self._width), np.float32)
        engine.run(texts, encode, self._encoders[side], out)
        if (bad := np.flatnonzero(np.isnan(out).any(1))).size:
            raise BadModel(
                f"the vector of text {bad[0]} ({texts[bad[0]][:60]!r}) is not a number: the weights are "
                'damaged or overflow; try precision="fp32", then another copy of the checkpoint'
            )
        return out

    def _with_losses(self, side: str, texts: Sequence[str]) -> TextVectors:
        """Compute vectors and what each text lost; pairs are reported, not the texts they share."""
        lost: list[Tensor] = []
        encode = self.model.encode_queries if side == "query" else self.model.encode_passages

        def encoded(window: Sequence[str]) -> Packed:  # called window after window, in order
            batch = encode(window)
            lost.append(batch.lost)
            return batch

        vectors = self._computed(encoded, texts, side, self._unreported)
        return TextVectors(vectors, torch.cat(lost).numpy())

    @cached_property
    def _unreported(self) -> Engine:
        """Engine for shared texts; kept, so that a budget halved for want of memory stays halved."""
        return Engine(self.compute, self.engine.budget)

    @cached_property
    def _width(self) -> int:
        with self.compute.active():
            return self._encoders["passage"](self.model.encode_passages([""])).shape[1]

    @cached_property
    def _encodings(self) -> dict[str, EncodingCache]:
        sides = ("query", "passage")
        return {side: EncodingCache(partial(self._with_losses, side), _CACHE_BYTES) for side in sides}

    @cached_property
    def _encoders(self) -> dict[str, VectorScorer]:
        passages = self.model.vector_scorer(self.compute)
        queries = self.model.query_scorer(self.compute, passages)
        return {"query": cast(VectorScorer, queries), "passage": passages}


_TEXTS: Final = 128
"""Texts whose whole vocabularies are held at once: 16 MB."""


class SparseRanker(NeuralRanker):
    """A sparse encoder at work; weights are rows of (n, v) float32 matrices of scipy."""

    model: SparseEncoder

    def score(self, pairs: Sequence[Pair]) -> FloatArray:
        """Score n pairs: (n,) float32, higher is better, in the order given.

        Raises:
            BadModel: A weight is not a number.
        """
        if not (pairs := as_pairs(pairs)):
            return np.empty(0, np.float32)
        queries, asked = _distinct([pair.query.text for pair in pairs])
        passages, read = _distinct([pair.passage.text for pair in pairs])
        with part(0, 0):
            weights = self.query_weights(queries)[asked]
        products = weights.multiply(self.passage_weights(passages)[read])
        scores: FloatArray = np.asarray(products.sum(1), np.float32).reshape(-1)
        return scores

    def query_weights(self, texts: Sequence[str]) -> scipy.sparse.csr_array:
        """Weigh the vocabulary for n queries: (n, v), each independent of the others."""
        return self._computed(texts, self.model.encode_queries, self._query_scorer)

    def passage_weights(self, texts: Sequence[str]) -> scipy.sparse.csr_array:
        """Weigh the vocabulary for n passages: (n, v), each independent of the others."""
        return self._computed(texts, self.model.encode_passages, self._passage_scorer)

    def query_files(self) -> dict[str, bytes]:
        """Return the files by which a table weighs queries without the model; none without a table."""
        policy, table = self.model.policy, self.model.table
        if table is None:
            return {}
        read = QueryPolicy(policy["query_prompt"], policy.get("table_length", policy["max_length"]))
        return query_files(self.model.assets()["tokenizer.json"], table.detach().float().cpu().numpy(), read)

    def word(self, number: int) -> str:
        """Return a word of the vocabulary as it is written there."""
        return self.model.token(number)

    def _computed(
        self,
        texts: Sequence[str],
        encode: Callable[[Sequence[str]], Packed],
        weigh: Callable[[Packed], Tensor],
    ) -> scipy.sparse.csr_array:
        parts = []
        for start in range(0, len(texts), _TEXTS):
            some = texts[start : start + _TEXTS]
            out = np.empty((len(some), self.vocabulary), np.float32)
            with part(start / len(texts), (start + len(some)) / len(texts)):
                self.engine.run(some, encode, weigh, out)
            if (bad := np.flatnonzero(np.isnan(out).any(1))).size:
                raise BadModel(
                    f"a weight of text {start + bad[0]} ({some[bad[0]][:60]!r}) is not a number: the weights "
                    'are damaged or overflow; try precision="fp32", then another copy of the checkpoint'
                )
            parts.append(scipy.sparse.csr_array(out))
        return scipy.sparse.vstack(parts, format="csr")

    @cached_property
    def vocabulary(self) -> int:
        """Number of words, v."""
        with self.compute.active():
            return self._passage_scorer(self.model.encode_passages([""])).shape[1]

    @cached_property
    def _passage_scorer(self) -> Callable[[Packed], Tensor]:
        with self.compute.active():
            return self.model.vector_scorer(self.compute)

    @cached_property
    def _query_scorer(self) -> Callable[[Packed], Tensor]:
        with self.compute.active():
            return self.model.query_scorer(self.compute, self._passage_scorer)


def _distinct(texts: Sequence[str]) -> tuple[list[str], np.ndarray]:
    """Return distinct texts, and for each of n texts which of them it is, (n,)."""
    places: dict[str, int] = {}
    which = [places.setdefault(text, len(places)) for text in texts]
    return list(places), np.array(which)
