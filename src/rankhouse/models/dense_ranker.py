"""A bi-encoder at work."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property, partial

import numpy as np
import torch
from torch import Tensor

from rankhouse.core.errors import BadModel
from rankhouse.core.nouns import FloatArray, Pair
from rankhouse.models.biencoder import BiEncoder, Similarity, compare
from rankhouse.models.encoding_cache import EncodingCache, TextVectors
from rankhouse.models.engine import Engine
from rankhouse.models.ranker import NeuralRanker
from rankhouse.models.text_vectors import VectorScorer
from rankhouse.nn.layers.ragged import Packed

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
        if not pairs:
            return np.empty(0, np.float32)
        queries = self._encodings["queries"]([pair.query.text for pair in pairs])
        passages = self._encodings["passages"]([pair.passage.text for pair in pairs])
        self.report.add(torch.from_numpy(queries.lost + passages.lost))
        sides = torch.from_numpy(queries.vectors), torch.from_numpy(passages.vectors)
        scores: FloatArray = compare(*sides, self.similarity).numpy()
        return scores

    @property
    def similarity(self) -> Similarity:
        """How its vectors are compared: "dot", "cosine" or "l2" (minus the squared distance)."""
        similarity: Similarity = self.model.policy["similarity"]
        return similarity

    def encode_queries(self, texts: Sequence[str]) -> FloatArray:
        """Encode n queries: (n, d) float32, each independent of the others."""
        return self._computed(texts, self.model.encode_queries, self.engine)

    def encode_passages(self, texts: Sequence[str]) -> FloatArray:
        """Encode n passages: (n, d) float32, each independent of the others."""
        return self._computed(texts, self.model.encode_passages, self.engine)

    def vectors_of(self, batch: Packed) -> FloatArray:
        """Return the vectors of n texts that the model turned into ids: (n, d), NaN where not a number."""
        out = np.empty((len(batch), self._width), np.float32)
        self.engine.run_encoded(batch, self._encoder, out)
        return out

    def token_states(self, ids: Packed) -> FloatArray:
        """Return the states whose means the vectors are, end to end, the model's own tokens included: (t, w).

        Args:
            ids: Texts, as the model encodes them; it must pool by means.
        """
        with self.compute.active(), torch.inference_mode():
            states: FloatArray = self._encoder.states(ids).float().cpu().numpy()
        return states

    def _computed(
        self, texts: Sequence[str], encode: Callable[[Sequence[str]], Packed], engine: Engine
    ) -> FloatArray:
        out = np.empty((len(texts), self._width), np.float32)
        engine.run(texts, encode, self._encoder, out)
        if (bad := np.flatnonzero(np.isnan(out).any(1))).size:
            raise BadModel(
                f"the vector of text {bad[0]} ({texts[bad[0]][:60]!r}) is not a number: the weights are "
                'damaged or overflow; try precision="fp32", then another copy of the checkpoint'
            )
        return out

    def _with_losses(self, encode: Callable[[Sequence[str]], Packed], texts: Sequence[str]) -> TextVectors:
        """Compute vectors and what each text lost; pairs are reported, not the texts they share."""
        lost: list[Tensor] = []

        def encoded(window: Sequence[str]) -> Packed:  # called window after window, in order
            batch = encode(window)
            lost.append(batch.lost)
            return batch

        vectors = self._computed(texts, encoded, self._unreported)
        return TextVectors(vectors, torch.cat(lost).numpy())

    @cached_property
    def _unreported(self) -> Engine:
        """What encodes shared texts; kept, so that a budget halved for want of memory stays halved."""
        return Engine(self.compute, self.engine.budget)

    @cached_property
    def _width(self) -> int:
        with self.compute.active():
            return self._encoder(self.model.encode_queries([""])).shape[1]

    @cached_property
    def _encodings(self) -> dict[str, EncodingCache]:
        sides = {"queries": self.model.encode_queries, "passages": self.model.encode_passages}
        return {
            side: EncodingCache(partial(self._with_losses, encode), _CACHE_BYTES)
            for side, encode in sides.items()
        }

    @cached_property
    def _encoder(self) -> VectorScorer:
        return self.model.vector_scorer(self.compute)
