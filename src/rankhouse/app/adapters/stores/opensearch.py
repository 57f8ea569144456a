"""OpenSearch, by opensearch-py (extra ``opensearch``)."""

from __future__ import annotations

import os
from typing import Any, Final

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

_SPACES: Final = {"dot": "innerproduct", "cosine": "cosinesimil", "l2": "l2"}


class _Vectors:
    """The k-NN plugin: fields of type ``knn_vector``, exact by its script, approximate by FAISS's HNSW."""

    def vector_field(self, contents: Contents) -> dict[str, Any]:
        field: dict[str, Any] = {"type": "knn_vector", "dimension": contents.dimension}
        if contents.structure == "hnsw":
            space = "l2" if contents.similarity == "l2" else "innerproduct"
            field["method"] = {"name": "hnsw", "engine": "faiss", "space_type": space}
        return field

    def settings(self, contents: Contents) -> dict[str, Any]:
        return {"knn": contents.structure == "hnsw"}

    def nearest(self, query: VectorQuery) -> dict[str, Any]:
        vector = query.vector.tolist()
        if query.structure == "hnsw":
            return {"query": {"knn": {query.field: {"vector": vector, "k": query.k}}}}
        params = {"field": query.field, "query_value": vector, "space_type": _SPACES[query.similarity]}
        script = {"lang": "knn", "source": "knn_score", "params": params}
        return {"query": {"script_score": {"query": with_vectors(query.field), "script": script}}}

    def score(self, query: VectorQuery, score: float) -> float:
        if query.similarity == "cosine":
            return score  # of others' vectors: it grows with the cosine, however their version writes it
        return distance_of(score) if query.similarity == "l2" else product_of(score)


def opensearch(
    where: str,
    index: str,
    key: str = "id",
    title: str = "title",
    text: str = "text",
    vector: str = "vector",
    vectors: Structure = "exact",
) -> LuceneStore:
    """Return an index of OpenSearch.

    Args:
        where: The server's address; OPENSEARCH_USERNAME and OPENSEARCH_PASSWORD are read from the
            environment.
        index: The index's name.
        key: Field of the document ids; "" for OpenSearch's own ids.
        title: Field of the titles.
        text: Field of the texts.
        vector: Field of the vectors.
        vectors: "exact", or "hnsw" for the approximate structure.

    Raises:
        MissingExtra: opensearch-py is not installed.
        WrongUse: The address holds a password, or the index's name is none.
    """
    where = without_user(where, "put them into OPENSEARCH_USERNAME and OPENSEARCH_PASSWORD")
    client: Any = library("opensearchpy", "opensearch", "opensearch")
    user, secret = os.environ.get("OPENSEARCH_USERNAME"), os.environ.get("OPENSEARCH_PASSWORD")
    access = {"http_auth": (user, secret)} if user and secret else {}
    return LuceneStore(
        client.OpenSearch(where, timeout=120, **access),
        (client.exceptions.OpenSearchException, ValueError),
        _Vectors(),
        f"opensearch {where}",
        index,
        Fields(key, title, text, vector),
        vectors,
    )
