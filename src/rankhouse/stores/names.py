"""The stores by their names in the notation."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from rankhouse.core import notation
from rankhouse.core.errors import WrongUse
from rankhouse.core.notation import Extensible
from rankhouse.stores.clients import masked
from rankhouse.stores.lancedb import LanceDB
from rankhouse.stores.lucene import Elasticsearch, OpenSearch
from rankhouse.stores.milvus import Milvus
from rankhouse.stores.postgres import Postgres
from rankhouse.stores.qdrant import Qdrant, QdrantEdge
from rankhouse.stores.store import Store

_OWN: dict[str, Callable[..., Store]] = {
    "qdrant": Qdrant,
    "qdrant_edge": QdrantEdge,
    "lancedb": LanceDB,
    "milvus": Milvus,
    "postgres": Postgres,
    "opensearch": OpenSearch,
    "elasticsearch": Elasticsearch,
}
STORES: Mapping[str, Callable[..., Store]] = Extensible(_OWN, "rankhouse.stores")
"""Name -> what makes the store; a client library is imported when its store is made."""


def open_store(text: str) -> Store:
    """Open a store by its notation, ``qdrant("http://localhost:6333", collection="papers")``."""
    try:
        return notation.make(text, STORES, "store")
    except WrongUse as error:  # it quotes what was given, which may hold a secret
        raise WrongUse(masked(str(error))) from None
