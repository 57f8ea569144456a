"""The stores by their names in the notation."""

from __future__ import annotations

from collections.abc import Callable

from rankhouse.app.adapters.stores.clients import masked
from rankhouse.app.adapters.stores.elasticsearch import Elasticsearch
from rankhouse.app.adapters.stores.lancedb import LanceDB
from rankhouse.app.adapters.stores.milvus import Milvus
from rankhouse.app.adapters.stores.opensearch import OpenSearch
from rankhouse.app.adapters.stores.postgres import Postgres
from rankhouse.app.adapters.stores.qdrant import Qdrant
from rankhouse.app.adapters.stores.qdrant_edge import QdrantEdge
from rankhouse.app.adapters.stores.store import Store
from rankhouse.core import notation
from rankhouse.core.errors import WrongUse

STORES: dict[str, Callable[..., Store]] = {
    "qdrant": Qdrant,
    "qdrant_edge": QdrantEdge,
    "lancedb": LanceDB,
    "milvus": Milvus,
    "postgres": Postgres,
    "opensearch": OpenSearch,
    "elasticsearch": Elasticsearch,
}
"""Name -> what makes the store; a client library is imported when its store is made."""


def open_store(text: str) -> Store:
    """Open a store by its notation, ``qdrant("http://localhost:6333", collection="papers")``.

    Raises:
        WrongUse: There is no such store, or its arguments are wrong.
        MissingExtra: Its client library is not installed.
        StoreFailed: It cannot be reached.
    """
    try:
        return notation.make(text, STORES, "store")
    except WrongUse as error:  # it quotes what was given, which may hold a secret
        raise WrongUse(masked(str(error))) from None
