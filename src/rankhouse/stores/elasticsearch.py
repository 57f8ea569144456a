"""Elasticsearch, by its own client (extra ``elasticsearch``)."""

from __future__ import annotations

import os
from typing import Any, Final

import numpy as np

from rankhouse.stores.clients import library
from rankhouse.stores.lucene import LuceneStore, VectorQuery, distance_of, product_of
from rankhouse.stores.store import Contents

_CANDIDATES: Final = 10_000  # the most that the approximate structure looks at
_SCRIPTS: Final = {
    "dot": "dotProduct(params.q, '%s') + params.shift",
    "cosine": "cosineSimilarity(params.q, '%s') + 1.0",
    "l2": "1 / (1 + Math.pow(l2norm(params.q, '%s'), 2))",
}


class Elasticsearch(LuceneStore):
    """An index of Elasticsearch; ELASTICSEARCH_API_KEY, or ..._USERNAME and ..._PASSWORD, say who asks.

    Its fields of type ``dense_vector`` are exact by a script, approximate by Lucene's HNSW.
    """

    engine = "elasticsearch"
    secrets = "put the key into ELASTICSEARCH_API_KEY"

    def connect(self) -> tuple[Any, tuple[type[Exception], ...]]:
        """Return the client, Elasticsearch's own."""
        client: Any = library("elasticsearch", self.engine, self.engine)
        secret = os.environ.get("ELASTICSEARCH_API_KEY")
        user, word = os.environ.get("ELASTICSEARCH_USERNAME"), os.environ.get("ELASTICSEARCH_PASSWORD")
        access: dict[str, Any] = {"api_key": secret} if secret else {}
        if not secret and user and word:
            access = {"basic_auth": (user, word)}
        faults = (client.ApiError, client.TransportError, client.SerializationError, ValueError)
        return client.Elasticsearch(self.where, request_timeout=120, **access), faults

    def vector_field(self, contents: Contents) -> dict[str, Any]:
        """Return the mapping of the field of vectors."""
        field = {"type": "dense_vector", "dims": contents.dimension, "index": contents.structure == "hnsw"}
        if contents.structure == "hnsw":
            similarity = "l2_norm" if contents.similarity == "l2" else "max_inner_product"
            field |= {"similarity": similarity, "index_options": {"type": "hnsw"}}
        return field

    def vector_search(self, query: VectorQuery) -> dict[str, Any]:
        """Return the body of a search by vectors."""
        vector = query.vector.tolist()
        if self.vectors == "hnsw":
            looked_at = min(_CANDIDATES, max(100, 2 * query.k))
            knn = {"field": self.vector, "query_vector": vector, "k": query.k, "num_candidates": looked_at}
            return {"knn": knn}
        params = {"q": vector, "shift": self._shift(query)}
        name = self.vector.replace("\\", "\\\\").replace("'", "\\'")
        script = {"source": _SCRIPTS[query.similarity] % name, "params": params}
        return self.scripted(script)

    def _shift(self, query: VectorQuery) -> float:
        """Return what no inner product is below, with its sign turned: scores must not be negative."""
        length = float(np.linalg.norm(query.vector.astype(np.float64)))
        return 1.001 * length * max(query.largest_norm, 1.0)

    def similarity(self, query: VectorQuery, score: float) -> float:
        """Turn a score back. Args: as in :meth:`LuceneStore.similarity`."""
        if query.similarity == "l2":
            return distance_of(score)
        if self.vectors == "hnsw":
            return product_of(score) if query.similarity == "dot" else score
        return score - (self._shift(query) if query.similarity == "dot" else 1.0)
