"""Search engines built on Lucene: what OpenSearch and Elasticsearch share.

They have no exact sparse vectors (``rank_features`` keeps nine bits of a weight), but they have Lucene's own
BM25 and query likelihood. So the terms of a document are pushed as they are in the index, in a field that is
only cut at white space and has the model as its similarity; a query is a sum of terms with their weights.
Both engines then compute the very formula that the index computes, from the same statistics (collected over
all shards, and without replaced documents, which are purged). What an index holds stands in its mapping's
``_meta``.

OpenSearch is asked by opensearch-py (extra ``opensearch``), Elasticsearch by its own client (extra
``elasticsearch``).
"""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from typing import Any, ClassVar, Final, NamedTuple

import numpy as np

from rankhouse.core import notation
from rankhouse.core.errors import StoreFailed, WrongUse
from rankhouse.core.nouns import Document, FloatArray
from rankhouse.stores import store as base
from rankhouse.stores.clients import check_name, explained, library, silent, without_user

_TERMS: Final = "terms"
_ANALYSIS: Final = {
    "analyzer": {_TERMS: {"type": "custom", "tokenizer": _TERMS}},
    "tokenizer": {_TERMS: {"type": "whitespace", "max_token_length": 32_766}},
}
_TINY: Final = 1.2e-38  # about the smallest normal float32
NAME_PATTERN: Final = r'[^A-Z\\/*?"<>| ,#:_+-][^A-Z\\/*?"<>| ,#:]{0,254}'
NAME_RULE: Final = "an index's name is in lower case, without spaces and any of  \\ / * ? \" < > | , #"


class VectorQuery(NamedTuple):
    """A search by the vector of a query, (d,); the largest norm of documents is 0 if it is not known."""

    vector: FloatArray
    k: int
    similarity: str
    largest_norm: float


@dataclass(eq=False, repr=False)
class LuceneStore(base.FieldStore):
    """An index of a search engine built on Lucene; the two engines differ in their vectors."""

    engine: ClassVar[str]  # the engine's name in the notation, and that of its extra
    secrets: ClassVar[str]  # where a key or password belongs instead of the address
    holds = frozenset({"vectors", "impacts", "texts"})
    weighs = True
    batch, batch_bytes, most = 500, 8 << 20, 10_000

    where: str
    index: str

    def __post_init__(self) -> None:
        without_user(self.where, self.secrets)
        check_name(self.engine, "index", self.index, NAME_PATTERN, accepted=NAME_RULE)
        self.name = f"{self.engine} {self.where}, index {self.index}"
        self._client, self._faults = self.connect()

    @abstractmethod
    def connect(self) -> tuple[Any, tuple[type[Exception], ...]]:
        """Return the engine's own client, and what it raises."""

    @abstractmethod
    def vector_field(self, contents: base.StoreContents) -> dict[str, Any]:
        """Return the mapping of the field of vectors."""

    def vector_settings(self, contents: base.StoreContents) -> dict[str, Any]:  # noqa: ARG002 - for those that need some
        """Return what an index with vectors needs among its settings."""
        return {}

    @abstractmethod
    def vector_search(self, query: VectorQuery) -> dict[str, Any]:
        """Return the body of a search by vectors."""

    @abstractmethod
    def similarity(self, query: VectorQuery, score: float) -> float:
        """Turn an engine's score, which is never negative, back into the similarity."""

    @contextmanager
    def explained(self) -> Iterator[None]:
        with silent("opensearch", "elastic_transport"), explained(self.name, *self._faults, OSError):
            yield

    def exists(self) -> bool:
        return bool(self._client.indices.exists(index=self.index))

    def _mapping(self) -> dict[str, Any]:
        answer = self._client.indices.get_mapping(index=self.index)
        return dict(next(iter(dict(answer).values()))["mappings"])

    def read(self) -> base.StoreContents | None:
        return base.read_contents(self._mapping().get("_meta", {}).get(base.CONTENTS), self.name)

    def count(self) -> int:
        self._client.indices.refresh(index=self.index)
        return int(self._client.count(index=self.index)["count"])

    def dimension(self) -> int:
        field = self._mapping().get("properties", {}).get(self.vector)
        if field is None:
            raise WrongUse(f'{self.name}: has no field "{self.vector}"; name it, as in  vector="..."')
        return int(field.get("dims") or field.get("dimension") or 0)

    def check(self, contents: base.StoreContents) -> None:
        """Refuse impacts of a model that Lucene has not."""
        if contents.impacts:
            similarity_of(contents.impacts)

    def create(self, contents: base.StoreContents) -> None:
        text = {"type": "text", "analyzer": "english"}
        properties: dict[str, Any] = {"id": {"type": "keyword"}, "passage": {"type": "integer"}}
        properties |= {"title": text, "text": text}
        settings: dict[str, Any] = {"analysis": _ANALYSIS, "merge.policy.expunge_deletes_allowed": 0}
        if contents.impacts:
            settings["similarity"] = {base.CONTENTS: similarity_of(contents.impacts)}
            properties[_TERMS] = {"type": "text", "analyzer": _TERMS, "similarity": base.CONTENTS}
            properties[_TERMS] |= {"index_options": "freqs"}
        if contents.dimension:
            properties["vector"] = self.vector_field(contents)
            settings |= self.vector_settings(contents)
        mappings = {
            "_meta": {base.CONTENTS: contents.to_json()},
            "_source": {"excludes": [_TERMS]},
            "dynamic": "strict",
            "properties": properties,
        }
        self._client.indices.create(
            index=self.index, body={"settings": {"index": settings}, "mappings": mappings}
        )

    def describe(self, contents: base.StoreContents) -> None:
        self._client.indices.put_mapping(
            index=self.index, body={"_meta": {base.CONTENTS: contents.to_json()}}
        )

    def drop(self) -> None:
        self._is_known = False
        self._client.indices.delete(index=self.index)

    def write(self, records: Sequence[base.StoreRecord]) -> None:
        names = [{"index": {"_index": self.index, "_id": base.uuid_of(record.key)}} for record in records]
        lines = zip(names, map(self._source, records), strict=True)
        answer = self._client.bulk(body=[*chain.from_iterable(lines)])
        items = [item["index"] for item in answer["items"]]
        if answer["errors"]:
            place, error = next((i, item["error"]) for i, item in enumerate(items) if "error" in item)
            why = error.get("reason", error) if isinstance(error, Mapping) else error
            raise StoreFailed(f'{self.name}: refused document "{records[place].doc_id}": {str(why)[:300]}')

    def _source(self, record: base.StoreRecord) -> dict[str, Any]:
        source: dict[str, Any] = {"id": record.doc_id, "passage": record.passage}
        if record.passage == 0:
            source |= {"title": record.title, "text": record.text}
        if record.impacts:
            source[_TERMS] = " ".join(" ".join([term] * int(n)) for term, n in record.impacts.items())
        if record.vector is not None:
            source["vector"] = record.vector.tolist()
        return source

    def finish(self) -> None:
        """Let searches see what was written, and purge what was replaced, which statistics would count.

        Also what a push replaced that was killed before it came to this; where nothing was, nothing is done.
        """
        self._client.indices.forcemerge(index=self.index, only_expunge_deletes=True)
        self._client.indices.refresh(index=self.index)

    def nearest(self, vector: FloatArray, k: int, similarity: str) -> base.Hits:
        own = self.known()
        norm = own.largest_norm if own is not None else 0.0
        query = VectorQuery(vector, k, self.compared(similarity), norm)
        hits = self._search(self.vector_search(query), k)
        return [(doc_id, self.similarity(query, score)) for doc_id, score in hits]

    def scripted(self, script: dict[str, Any]) -> dict[str, Any]:
        """Return the body of a search that scores all records with a vector by a script."""
        some = {"bool": {"filter": [{"exists": {"field": self.vector}}]}}
        return {"query": {"script_score": {"query": some, "script": script}}}

    def match(self, weights: Mapping[str, float], k: int) -> base.Hits:
        if not weights:
            return []
        terms = [{"term": {_TERMS: {"value": term, "boost": weight}}} for term, weight in weights.items()]
        return self._search({"query": {"bool": {"should": terms}}}, k)

    def search_text(self, text: str, k: int) -> base.Hits:
        fields = [name for name in (self.title, self.text) if name]
        return self._search({"query": {"multi_match": {"query": text, "fields": fields}}}, k)

    def _search(self, body: dict[str, Any], k: int) -> base.Hits:
        return [(self._id_of(hit), float(hit["_score"])) for hit in self._hits(body, k)]

    def _hits(self, body: dict[str, Any], k: int, fields: Sequence[str] = ()) -> list[dict[str, Any]]:
        wanted = [name for name in (self.key, *fields) if name]
        whole = body | {"size": k, "_source": wanted or False, "track_total_hits": False}
        answer = self._client.search(index=self.index, body=whole, search_type="dfs_query_then_fetch")
        return list(answer["hits"]["hits"])

    def _id_of(self, hit: Mapping[str, Any]) -> str:
        record = str(hit["_id"])
        return self.id_among(hit.get("_source", {}), record, "the engine's") if self.key else record

    def fetch(self, doc_ids: Sequence[str]) -> Iterator[Document]:
        title, text, own = self.title, self.text, self.known()
        where: dict[str, Any] = {"terms": {self.key: list(doc_ids)}}
        if own is not None or not self.key:
            ids = [base.uuid_of(f"0/{doc_id}") if own else doc_id for doc_id in doc_ids]
            where = {"ids": {"values": ids}}
        for hit in self._hits({"query": {"bool": {"filter": [where]}}}, len(doc_ids), (title, text)):
            source = hit.get("_source", {})
            yield Document(self._id_of(hit), str(source.get(text) or ""), str(source.get(title) or ""))

    def close(self) -> None:
        self._client.close()


def similarity_of(impacts: str) -> dict[str, Any]:
    """Return the settings of Lucene's similarity that is a retrieval model; refuse a model that is none."""
    model = notation.parse(impacts)
    match model.name, dict(model.kwargs):
        case "bm25", {"k1": k1, "b": b, **rest} if not rest:
            return {"type": "BM25", "k1": k1, "b": b}
        case "ql", {"mu": mu, **rest} if not rest:
            return {"type": "LMDirichlet", "mu": mu}
        case "jm", {"lambda_": weight, **rest} if not rest:
            return {"type": "LMJelinekMercer", "lambda": weight}
    raise WrongUse(
        f"{impacts}: is no similarity of Lucene's; take bm25(k1=..., b=...), ql(mu=...) or jm(lambda=...)"
    )


def product_of(score: float) -> float:
    """Return the inner product that both engines turn into a score above 0: x + 1, or 1 / (1 - x) below 0."""
    return score - 1 if score >= 1 else 1 - 1 / max(score, _TINY)


def distance_of(score: float) -> float:
    """Return minus the squared distance d that both engines turn into 1 / (1 + d)."""
    return 1 - 1 / max(score, _TINY)


_SPACES: Final = {"dot": "innerproduct", "cosine": "cosinesimil", "l2": "l2"}


class OpenSearch(LuceneStore):
    """An index of OpenSearch; OPENSEARCH_USERNAME and OPENSEARCH_PASSWORD are read from the environment.

    Its k-NN plugin has fields of type ``knn_vector``, exact by its script, approximate by FAISS's HNSW.
    """

    engine = "opensearch"
    secrets = "put them into OPENSEARCH_USERNAME and OPENSEARCH_PASSWORD"

    def connect(self) -> tuple[Any, tuple[type[Exception], ...]]:
        client: Any = library("opensearchpy", self.engine, self.engine)
        user, secret = os.environ.get("OPENSEARCH_USERNAME"), os.environ.get("OPENSEARCH_PASSWORD")
        access = {"http_auth": (user, secret)} if user and secret else {}
        faults = (client.exceptions.OpenSearchException, ValueError)
        return client.OpenSearch(self.where, timeout=120, **access), faults

    def vector_field(self, contents: base.StoreContents) -> dict[str, Any]:
        field: dict[str, Any] = {"type": "knn_vector", "dimension": contents.dimension}
        if contents.structure == "hnsw":
            space = "l2" if contents.similarity == "l2" else "innerproduct"
            field["method"] = {"name": "hnsw", "engine": "faiss", "space_type": space}
        return field

    def vector_settings(self, contents: base.StoreContents) -> dict[str, Any]:
        return {"knn": contents.structure == "hnsw"}

    def vector_search(self, query: VectorQuery) -> dict[str, Any]:
        vector = query.vector.tolist()
        if self.vectors == "hnsw":
            return {"query": {"knn": {self.vector: {"vector": vector, "k": query.k}}}}
        params = {"field": self.vector, "query_value": vector, "space_type": _SPACES[query.similarity]}
        return self.scripted({"lang": "knn", "source": "knn_score", "params": params})

    def similarity(self, query: VectorQuery, score: float) -> float:
        if query.similarity == "cosine":
            return score  # of others' vectors: it grows with the cosine, however their version writes it
        return distance_of(score) if query.similarity == "l2" else product_of(score)


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
        client: Any = library("elasticsearch", self.engine, self.engine)
        secret = os.environ.get("ELASTICSEARCH_API_KEY")
        user, word = os.environ.get("ELASTICSEARCH_USERNAME"), os.environ.get("ELASTICSEARCH_PASSWORD")
        access: dict[str, Any] = {"api_key": secret} if secret else {}
        if not secret and user and word:
            access = {"basic_auth": (user, word)}
        faults = (client.ApiError, client.TransportError, client.SerializationError, ValueError)
        return client.Elasticsearch(self.where, request_timeout=120, **access), faults

    def vector_field(self, contents: base.StoreContents) -> dict[str, Any]:
        field = {"type": "dense_vector", "dims": contents.dimension, "index": contents.structure == "hnsw"}
        if contents.structure == "hnsw":
            similarity = "l2_norm" if contents.similarity == "l2" else "max_inner_product"
            field |= {"similarity": similarity, "index_options": {"type": "hnsw"}}
        return field

    def vector_search(self, query: VectorQuery) -> dict[str, Any]:
        vector = query.vector.tolist()
        if self.vectors == "hnsw":
            looked_at = min(10_000, max(100, 2 * query.k))  # 10,000 is the most
            knn = {"field": self.vector, "query_vector": vector, "k": query.k, "num_candidates": looked_at}
            return {"knn": knn}
        params = {"q": vector, "shift": self._shift(query)}
        name = self.vector.replace("\\", "\\\\").replace("'", "\\'")
        return self.scripted({"source": _SCRIPTS[query.similarity] % name, "params": params})

    def _shift(self, query: VectorQuery) -> float:
        """Return what no inner product is below, with its sign turned: scores must not be negative."""
        length = float(np.linalg.norm(query.vector.astype(np.float64)))
        return 1.001 * length * max(query.largest_norm, 1.0)

    def similarity(self, query: VectorQuery, score: float) -> float:
        if query.similarity == "l2":
            return distance_of(score)
        if self.vectors == "hnsw":
            return product_of(score) if query.similarity == "dot" else score
        return score - (self._shift(query) if query.similarity == "dot" else 1.0)
