"""OpenSearch, by opensearch-py (extra ``opensearch``)."""

from __future__ import annotations

import os
from typing import Any, Final

from rankhouse.stores.clients import library
from rankhouse.stores.lucene import LuceneStore, VectorQuery, distance_of, product_of
from rankhouse.stores.store import Contents

_SPACES: Final = {"dot": "innerproduct", "cosine": "cosinesimil", "l2": "l2"}


class OpenSearch(LuceneStore):
    """An index of OpenSearch; OPENSEARCH_USERNAME and OPENSEARCH_PASSWORD are read from the environment.

    Its k-NN plugin has fields of type ``knn_vector``, exact by its script, approximate by FAISS's HNSW.
    """

    engine = "opensearch"
    secrets = "put them into OPENSEARCH_USERNAME and OPENSEARCH_PASSWORD"

    def connect(self) -> tuple[Any, tuple[type[Exception], ...]]:
        """Return the client, of opensearch-py."""
        client: Any = library("opensearchpy", self.engine, self.engine)
        user, secret = os.environ.get("OPENSEARCH_USERNAME"), os.environ.get("OPENSEARCH_PASSWORD")
        access = {"http_auth": (user, secret)} if user and secret else {}
        faults = (client.exceptions.OpenSearchException, ValueError)
        return client.OpenSearch(self.where, timeout=120, **access), faults

    def vector_field(self, contents: Contents) -> dict[str, Any]:
        """Return the mapping of the field of vectors."""
        field: dict[str, Any] = {"type": "knn_vector", "dimension": contents.dimension}
        if contents.structure == "hnsw":
            space = "l2" if contents.similarity == "l2" else "innerproduct"
            field["method"] = {"name": "hnsw", "engine": "faiss", "space_type": space}
        return field

    def vector_settings(self, contents: Contents) -> dict[str, Any]:
        """Return whether the index has approximate structures."""
        return {"knn": contents.structure == "hnsw"}

    def vector_search(self, query: VectorQuery) -> dict[str, Any]:
        """Return the body of a search by vectors."""
        vector = query.vector.tolist()
        if self.vectors == "hnsw":
            return {"query": {"knn": {self.vector: {"vector": vector, "k": query.k}}}}
        params = {"field": self.vector, "query_value": vector, "space_type": _SPACES[query.similarity]}
        script = {"lang": "knn", "source": "knn_score", "params": params}
        return self.scripted(script)

    def similarity(self, query: VectorQuery, score: float) -> float:
        """Turn a score back. Args: as in :meth:`LuceneStore.similarity`."""
        if query.similarity == "cosine":
            return score  # of others' vectors: it grows with the cosine, however their version writes it
        return distance_of(score) if query.similarity == "l2" else product_of(score)
