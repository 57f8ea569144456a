"""How each framework is asked through its adapter: to order rows, and to search an index."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

import numpy as np

Row = dict[str, Any]


class Overlap:
    """A ranker whose score is the number of words of the question that a text has."""

    fingerprint, scale = "overlap", "score"

    def score(self, pairs: Sequence[Any]) -> np.ndarray:
        """Score pairs."""
        return np.array([overlap(pair.query.text, pair.passage.text) for pair in pairs], np.float32)


def overlap(query: str, text: str) -> float:
    """Count the words that two texts share."""
    return float(len({*query.lower().split()} & {*text.lower().split()}))


@dataclass(frozen=True)
class Host:
    """How a host is asked.

    Attributes:
        rerank: From the module, question, rows (id, text, score) and k to (id, score), best first.
        retrieve: From the module, index, question and k to (id, score).
        says: What a message has to name where a field is at fault; no field that the host has not.
    """

    rerank: Callable[[ModuleType, Any, list[Row], Any], list[tuple[Any, float]]]
    retrieve: Callable[[ModuleType, str, Any, Any], list[tuple[Any, float]]] | None
    says: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def _pyterrier(module: ModuleType, query: Any, rows: list[Row], k: Any) -> list[tuple[Any, float]]:  # noqa: ANN401
    import pandas as pd

    columns = {"docno": "id", "text": "text", "score": "score"}
    frame = pd.DataFrame(
        {name: pd.Series([row[of] for row in rows], dtype=object) for name, of in columns.items()}
    )
    frame.insert(0, "query", pd.Series([query] * len(rows), dtype=object))
    frame.insert(0, "qid", "q1")
    del k
    found = module.Reranker(Overlap()).transform(frame)
    return list(zip(found["docno"], found["score"], strict=True))


def _pyterrier_search(module: ModuleType, index: str, query: Any, k: Any) -> list[tuple[Any, float]]:  # noqa: ANN401
    import pandas as pd

    import rankhouse as rh

    frame = pd.DataFrame({"qid": ["q1"], "query": pd.Series([query], dtype=object)})
    found = module.Retriever(rh.system("bm25") % k, index)(frame)
    return list(zip(found["docno"], found["score"], strict=True))


def _langchain(module: ModuleType, query: Any, rows: list[Row], k: Any) -> list[tuple[Any, float]]:  # noqa: ANN401
    from langchain_core.documents import Document

    documents = [Document(id=row["id"], page_content=row["text"]) for row in rows]
    found = module.RankhouseCompressor(ranker=Overlap(), top_n=k).compress_documents(documents, query)
    return [(one.id, one.metadata["relevance_score"]) for one in found]


def _langchain_search(module: ModuleType, index: str, query: Any, k: Any) -> list[tuple[Any, float]]:  # noqa: ANN401
    found = module.RankhouseRetriever(system="bm25", index=index).invoke(query, k=k)
    return [(one.id, one.metadata["score"]) for one in found]


def _llamaindex(module: ModuleType, query: Any, rows: list[Row], k: Any) -> list[tuple[Any, float]]:  # noqa: ANN401
    from llama_index.core.schema import NodeWithScore, TextNode

    nodes = [
        NodeWithScore(node=TextNode(id_=row["id"], text=row["text"]), score=row["score"]) for row in rows
    ]
    found = module.RankhousePostprocessor(ranker=Overlap(), top_n=k).postprocess_nodes(nodes, query_str=query)
    return [(one.node.node_id, one.score) for one in found]


def _llamaindex_search(module: ModuleType, index: str, query: Any, k: Any) -> list[tuple[Any, float]]:  # noqa: ANN401
    return [(n.node.node_id, n.score) for n in module.RankhouseRetriever("bm25", index, k=k).retrieve(query)]


def _haystack(module: ModuleType, query: Any, rows: list[Row], k: Any) -> list[tuple[Any, float]]:  # noqa: ANN401
    from haystack import Document

    documents = [Document(id=row["id"], content=row["text"], score=row["score"]) for row in rows]
    found = module.RankhouseRanker(Overlap()).run(query, documents, top_k=k)["documents"]
    return [(one.id, one.score) for one in found]


def _haystack_search(module: ModuleType, index: str, query: Any, k: Any) -> list[tuple[Any, float]]:  # noqa: ANN401
    return [
        (one.id, one.score) for one in module.RankhouseRetriever("bm25", index, k).run(query)["documents"]
    ]


def _mteb(module: ModuleType, query: Any, rows: list[Row], k: Any) -> list[tuple[Any, float]]:  # noqa: ANN401
    """Index the rows and rank them among the documents that a task of reranking names."""
    model = module.SearchModel("bm25")
    model.index([{"id": row["id"], "text": row["text"], "title": ""} for row in rows])
    named = {"q1": [row["id"] for row in rows]}
    found = model.search([{"id": "q1", "text": query}], top_k=k, top_ranked=named)["q1"]
    scores = module.RerankModel(Overlap()).predict(
        [{"text": [query] * len(found)}], [{"text": [row["text"] for row in rows if row["id"] in found]}]
    )
    order = sorted(
        zip([row["id"] for row in rows if row["id"] in found], scores.tolist(), strict=True), key=_best
    )
    return list(order)


def _beir(module: ModuleType, query: Any, rows: list[Row], k: Any) -> list[tuple[Any, float]]:  # noqa: ANN401
    corpus = {row["id"]: {"text": row["text"], "title": ""} for row in rows}
    found = module.Search("bm25").search(corpus, {"q1": query}, k)["q1"]
    pairs = [[query, corpus[doc_id]["text"]] for doc_id in found]
    return sorted(zip(found, module.CrossEncoder(Overlap()).predict(pairs).tolist(), strict=True), key=_best)


def _sentences(module: ModuleType, query: Any, rows: list[Row], k: Any) -> list[tuple[Any, float]]:  # noqa: ANN401
    found = module.CrossEncoder(Overlap()).rank(query, [row["text"] for row in rows], k)
    return [(rows[one["corpus_id"]]["id"], one["score"]) for one in found]


def _best(pair: tuple[Any, float]) -> float:
    return -pair[1]


HOSTS = {
    "pyterrier": Host(
        _pyterrier, _pyterrier_search, {"id": ("docno",), "text": ("text",), "score": ("score",)}
    ),
    "langchain": Host(_langchain, _langchain_search, {"id": ("id",), "text": ("page_content",)}),
    "llamaindex": Host(
        _llamaindex, _llamaindex_search, {"id": ("id",), "text": ("text",), "score": ("score",)}
    ),
    "haystack": Host(_haystack, _haystack_search, {"id": ("id",), "text": ("content",), "score": ("score",)}),
    "mteb": Host(_mteb, None, {"id": ("id",), "text": ("text",)}),
    "beir": Host(_beir, None, {"id": ("id",), "text": ("text", "document")}),
    "sentence_transformers": Host(_sentences, None, {"text": ("document",)}),
}
