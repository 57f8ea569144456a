"""MTEB: a system for retrieval and reranking tasks, a ranker for reranking tasks.

A task of retrieval gives no candidates and a task of reranking does; :class:`SearchModel` takes both. MTEB
lets whatever has ``predict`` only rerank, so a ranker alone is a class of its own.

>>> mteb.evaluate(SearchModel("bm25"), tasks=[task])  # doctest: +SKIP
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import rankhouse
from rankhouse.core.errors import BadData, WrongUse
from rankhouse.core.nouns import Document, FloatArray, Query
from rankhouse.hosts.adapters import OpenRanker, RankerLike, TemporarySystem, checked_text, host
from rankhouse.systems.stage import as_stage
from rankhouse.systems.system import System

with host("mteb", "2.26", "mteb", "mteb-core"):
    from mteb.models import ModelMeta


class SearchModel:
    """A system as MTEB's SearchProtocol; it indexes the corpus in a folder of its own.

    Args:
        system: ``bm25``, ``bm25 % 100 >> crossencoder("DIR")``, or the System itself. Vectors that it needs
            are encoded when the corpus is indexed.
        name: What MTEB calls it, "owner/name"; "" for one made of the expression.
        analyzer: "english", "tweet" or "whitespace".
    """

    def __init__(self, system: str | System, name: str = "", analyzer: str = "english") -> None:
        self._system = TemporarySystem(system, analyzer)
        self.mteb_model_meta = _meta(name, str(self._system.system), [])

    def index(self, corpus: Iterable[Mapping[str, Any]], **options: object) -> None:
        """Index the documents of a task: id, text and perhaps title.

        Raises:
            BadData: A document without one of them.
            DuplicateId: An id given twice.
        """
        del options
        self._system.index(_document(row) for row in corpus)

    def search(
        self,
        queries: Iterable[Mapping[str, Any]],
        *,
        top_k: int,
        top_ranked: Mapping[str, Sequence[str]] | None = None,
        **options: object,
    ) -> dict[str, dict[str, float]]:
        """Rank for queries: query id -> document id -> score.

        Args:
            top_k: Documents a query.
            top_ranked: The only documents that are ranked, in a task of reranking.
        """
        del options
        asked, system = [_query(row) for row in queries], self._system.opened
        found = system.run(asked, top_k) if top_ranked is None else system.among(asked, top_ranked, top_k)
        return found.to_dict()


class RerankModel:
    """A ranker as MTEB's CrossEncoderProtocol, for tasks of reranking.

    Args:
        ranker: A folder, ``crossencoder("DIR", split="sentences(10, 5)")``, or any ranker.
        name: What MTEB calls it, "owner/name"; "" for one made of the notation.
    """

    def __init__(self, ranker: RankerLike, name: str = "") -> None:
        self._open = OpenRanker(ranker)
        self.mteb_model_meta = _meta(name, str(as_stage(ranker)), ["cross-encoder"])

    def predict(
        self, inputs1: Iterable[Mapping[str, Any]], inputs2: Iterable[Mapping[str, Any]], **options: object
    ) -> FloatArray:
        """Score the queries of ``inputs1`` with the texts of ``inputs2``, in batches: (n,) float32."""
        del options
        queries, texts = (_texts(batches, n) for n, batches in enumerate((inputs1, inputs2), 1))
        if len(queries) != len(texts):
            raise BadData(f"inputs1 has {len(queries):,} texts and inputs2 has {len(texts):,}; give pairs")
        return self._open.scores(list(zip(queries, texts, strict=True)))


def _texts(batches: Iterable[Mapping[str, Any]], number: int) -> list[str]:
    where = f'the "text" of inputs{number}'
    return [
        checked_text(text, where) for batch in batches for text in _field(batch, "text", f"inputs{number}")
    ]


def _field(row: Mapping[str, Any], name: str, of: str) -> Any:  # noqa: ANN401 - whatever a data set holds
    if name not in row:
        raise BadData(f'{of} has no column "{name}"; it has {", ".join(map(str, row)) or "none"}')
    return row[name]


def _document(row: Mapping[str, Any]) -> Document:
    doc_id = checked_text(_field(row, "id", "the corpus"), 'the column "id" of the corpus')
    where = f'of document "{doc_id}"'
    text = checked_text(_field(row, "text", "the corpus"), f'the column "text" {where}')
    return Document(doc_id, text, checked_text(row.get("title") or "", f'the column "title" {where}'))


def _query(row: Mapping[str, Any]) -> Query:
    query_id = checked_text(_field(row, "id", "the table of queries"), 'the column "id" of the queries')
    where = f'the column "text" of query "{query_id}"'
    text = checked_text(_field(row, "text", "the table of queries"), where)
    instruction = row.get("instruction")  # MTEB itself puts it behind the text
    return Query(query_id, text if instruction is None else f"{text} {instruction}")


def _meta(name: str, notation: str, kinds: list[str]) -> ModelMeta:
    """Return what MTEB files results under."""
    made = re.sub(r"[^\w.=-]+", "-", notation).strip("-")
    if name and name.count("/") != 1:
        raise WrongUse(f'name="{name}": MTEB names a model owner/name')
    given = {
        "name": name or f"rankhouse/{made}",
        "revision": rankhouse.__version__,
        "model_type": kinds or ["sparse"],
    }
    return ModelMeta.create_empty(given)
