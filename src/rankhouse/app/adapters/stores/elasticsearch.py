"""Elasticsearch, by its own client (extra ``elasticsearch``)."""

from __future__ import annotations

import os
from typing import Any, Final

import numpy as np

from rankhouse.app.adapters.stores.clients import library, without_user
from rankhouse.app.adapters.stores.lucene import (
    Fields,
    LuceneStore,
    VectorQuery,
    distance_of,
    product_of,
    with_vectors,
)
from rankhouse.app.adapters.stores.store import Contents, Structure

_CANDIDATES: Final = 10_000  # the most that the approximate structure looks at
_SCRIPTS: Final = {
    "dot": "dotProduct(params.q, '%s') + params.shift",
    "cosine": "cosineSimilarity(params.q, '%s') + 1.0",
    "l2": "1 / (1 + Math.pow(l2norm(params.q, '%s'), 2))",
}


class _Vectors:
    """Fields of type ``dense_vector``: exact by a script, approximate by Lucene's HNSW."""

    def vector_field(self, contents: Contents) -> dict[str, Any]:
        field = {"type": "dense_vector", "dims": contents.dimension, "index": contents.structure == "hnsw"}
        if contents.structure == "hnsw":
            similarity = "l2_norm" if contents.similarity == "l2" else "max_inner_product"
            field |= {"similarity": similarity, "index_options": {"type": "hnsw"}}
        return field

    def settings(self, contents: Contents) -> dict[str, Any]:
        del contents
        return {}

    def nearest(self, query: VectorQuery) -> dict[str, Any]:
        vector = query.vector.tolist()
        if query.structure == "hnsw":
            looked_at = min(_CANDIDATES, max(100, 2 * query.k))
            knn = {"field": query.field, "query_vector": vector, "k": query.k, "num_candidates": looked_at}
            return {"knn": knn}
        params = {"q": vector, "shift": self._shift(query)}
        name = query.field.replace("\\", "\\\\").replace("'", "\\'")
        script = {"source": _SCRIPTS[query.similarity] % name, "params": params}
        return {"query": {"script_score": {"query": with_vectors(query.field), "script": script}}}

    def _shift(self, query: VectorQuery) -> float:
        """Return what no inner product is below, with its sign turned: scores must not be negative."""
        length = float(np.linalg.norm(query.vector.astype(np.float64)))
        return 1.001 * length * max(query.largest_norm, 1.0)

    def score(self, query: VectorQuery, score: float) -> float:
        if query.similarity == "l2":
            return distance_of(score)
        if query.structure == "hnsw":
            return product_of(score) if query.similarity == "dot" else score
        return score - (self._shift(query) if query.similarity == "dot" else 1.0)


def elasticsearch(
    where: str,
    index: str,
    key: str = "id",
    title: str = "title",
    text: str = "text",
    vector: str = "vector",
    vectors: Structure = "exact",
) -> LuceneStore:
    """Return an index of Elasticsearch.

    Args:
        where: The server's address; ELASTICSEARCH_API_KEY, or ELASTICSEARCH_USERNAME and
            ELASTICSEARCH_PASSWORD, are read from the environment.
        index: The index's name.
        key: Field of the document ids; "" for Elasticsearch's own ids.
        title: Field of the titles.
        text: Field of the texts.
        vector: Field of the vectors.
        vectors: "exact", or "hnsw" for the approximate structure.

    Raises:
        MissingExtra: The client is not installed.
        WrongUse: The address holds a password, or the index's name is none.
    """
    where = without_user(where, "put the key into ELASTICSEARCH_API_KEY")
    client: Any = library("elasticsearch", "elasticsearch", "elasticsearch")
    secret = os.environ.get("ELASTICSEARCH_API_KEY")
    user, word = os.environ.get("ELASTICSEARCH_USERNAME"), os.environ.get("ELASTICSEARCH_PASSWORD")
    access: dict[str, Any] = {"api_key": secret} if secret else {}
    if not secret and user and word:
        access = {"basic_auth": (user, word)}
    return LuceneStore(
        client.Elasticsearch(where, request_timeout=120, **access),
        (client.ApiError, client.TransportError, client.SerializationError, ValueError),
        _Vectors(),
        f"elasticsearch {where}",
        index,
        Fields(key, title, text, vector),
        vectors,
    )
