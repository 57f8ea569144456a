"""A sparse encoder at work: scores pairs, and gives the weights of words themselves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Final

import numpy as np
import scipy.sparse
from torch import Tensor

from rankhouse.core.errors import BadModel
from rankhouse.core.nouns import FloatArray, Pair
from rankhouse.models.query_table import QueryPolicy, query_files
from rankhouse.models.ranker import NeuralRanker
from rankhouse.models.sparse import SparseEncoder
from rankhouse.nn.layers.ragged import Packed

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
        if not pairs:
            return np.empty(0, np.float32)
        queries, asked = _distinct([pair.query.text for pair in pairs])
        passages, read = _distinct([pair.passage.text for pair in pairs])
        products = self.query_weights(queries)[asked].multiply(self.passage_weights(passages)[read])
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
        read = QueryPolicy(policy["query_prompt"], policy["max_length"])
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
        """How many words there are, v."""
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
