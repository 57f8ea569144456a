"""BEIR: a system as its retriever, a ranker as its reranker. Nothing of BEIR itself is imported.

>>> EvaluateRetrieval(Search("bm25")).retrieve(corpus, queries)  # doctest: +SKIP
>>> Rerank(CrossEncoder('crossencoder("DIR")')).rerank(corpus, queries, results, top_k=100)  # doctest: +SKIP
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from rankhouse.core.errors import BadData
from rankhouse.core.nouns import Document, FloatArray
from rankhouse.hosts import adapters
from rankhouse.io.inputs import as_queries
from rankhouse.systems.system import System

_on_hub = re.compile(r"[\w.-]+/[\w.-]+")


class CrossEncoder:
    """A ranker with ``predict`` and ``rank``, as ``beir.reranking.Rerank`` and sentence-transformers call it.

    >>> CrossEncoderRerankingEvaluator(samples)(CrossEncoder('crossencoder("DIR")'))  # doctest: +SKIP

    Args:
        ranker: A folder, ``crossencoder("DIR", split="sentences(10, 5)")``, any ranker, or, as in
            sentence-transformers, the name of a cross-encoder on the hub, ``OWNER/NAME``.

    Attributes:
        num_labels: One number for a pair.
        evaluations: What evaluators found: their name -> their numbers.
    """

    num_labels: Final = 1

    def __init__(self, ranker: adapters.RankerLike) -> None:
        if isinstance(ranker, str) and _on_hub.fullmatch(ranker) and not Path(ranker).exists():
            ranker = f'crossencoder("{ranker}")'
        self._open = adapters.OpenRanker(ranker)
        self.evaluations: dict[str, dict[str, float]] = {}

    def predict(self, sentences: Sequence[Sequence[str]], **options: object) -> FloatArray:
        """Score pairs of query and text: (n,) float32.

        Args:
            sentences: The pairs; a single one gives one score.
            options: Batch size, progress bar and the like, of which no score depends.

        Raises:
            BadData: A pair is no two texts.
        """
        del options
        is_one = len(sentences) == 2 and all(isinstance(text, str) for text in sentences)
        pairs: Sequence[Any] = [sentences] if is_one else sentences
        scores = self._open.scores([_pair(place, pair) for place, pair in enumerate(pairs)])
        return scores[0] if is_one else scores

    def rank(
        self,
        query: str,
        documents: Sequence[str],
        top_k: int | None = None,
        *,
        return_documents: bool = False,
        **options: object,
    ) -> list[dict[str, Any]]:
        """Order texts for a question: corpus_id (the place in what was given) and score, best first.

        Args:
            top_k: How many of the best are returned; None for all.
            return_documents: Add each one's "text".
            options: As for ``predict``.
        """
        del options
        ids = adapters.own_or_numbered([None] * len(documents), "")
        texts = [adapters.checked_text(text, f"document {place:,}") for place, text in enumerate(documents)]
        order = self._open.order(query, list(map(Document, ids, texts)), top_k)
        return [
            {"corpus_id": place, "score": score, **({"text": texts[place]} if return_documents else {})}
            for place, score in order
        ]

    @property
    def model_card_data(self) -> CrossEncoder:
        """Receiver of the numbers for a model card: itself."""
        return self

    def set_evaluation_metrics(
        self, evaluator: object, metrics: Mapping[str, Any], epoch: int = 0, step: int = 0
    ) -> None:
        """Keep what an evaluator found."""
        del epoch, step
        self.evaluations[getattr(evaluator, "name", "") or type(evaluator).__name__] = dict(metrics)


def _pair(place: int, given: Sequence[str]) -> tuple[str, str]:
    if isinstance(given, str) or len(given) != 2:
        raise BadData(f"pair {place:,} is {given!r:.80}; give [query, text]")
    query, text = given
    return adapters.checked_text(query, f"the query of pair {place:,}"), adapters.checked_text(
        text, f"the text of pair {place:,}"
    )


class Search:
    """A system as ``EvaluateRetrieval`` calls it; it indexes the corpus in a folder of its own.

    Args:
        system: ``bm25``, ``bm25 % 100 >> crossencoder("DIR")``, or the System itself.
        analyzer: "english", "tweet" or "whitespace".
    """

    def __init__(self, system: str | System, analyzer: str = "english") -> None:
        self._system = adapters.TemporarySystem(system, analyzer)
        self._indexed: int | None = None

    def search(
        self,
        corpus: Mapping[str, Mapping[str, Any]],
        queries: Mapping[str, str],
        top_k: int,
        score_function: str | None = None,
        **options: object,
    ) -> dict[str, dict[str, float]]:
        """Index a corpus, if its texts are others than before, and return query id -> document id -> score.

        Args:
            score_function: Not used: the system says how it scores.
        """
        del score_function, options
        content = 0
        for doc_id, fields in corpus.items():  # strings keep their hashes, so this takes its time but once
            content = hash((content, *_document(doc_id, fields)[:3]))
        if self._indexed != content:
            self._indexed = None
            self._system.index(_document(doc_id, fields) for doc_id, fields in corpus.items())
            self._indexed = content
        return self._system.opened.run(as_queries(queries), top_k).to_dict()


def _document(doc_id: object, fields: Mapping[str, Any]) -> Document:
    text, title = (
        adapters.checked_text(fields.get(name) or "", f'the "{name}" of document "{doc_id}"')
        for name in ("text", "title")
    )
    return Document(adapters.checked_text(doc_id, "the id of a document"), text, title)
