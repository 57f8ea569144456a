"""Haystack: a retriever and a ranker, as components of its pipelines.

>>> RankhouseRetriever("bm25", "notes.index", top_k=5).run("who steers ships?")["documents"]  # doctest: +SKIP
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from rankhouse.core.errors import WrongUse
from rankhouse.core.nouns import Document as OwnDocument
from rankhouse.hosts import adapters
from rankhouse.index.sharded.sharded_index import AnyIndex
from rankhouse.io.files import PathLike
from rankhouse.systems.stage import Live, Stage
from rankhouse.systems.system import RerankedSystem, System

with adapters.host("haystack", "3.0", "haystack-ai"):
    from haystack import Document, component, default_to_dict


@component
class RankhouseRetriever:
    """A system on an index; documents have title and text, and in "meta" the title and extra fields.

    Args:
        system: ``bm25``, ``bm25 % 100 >> crossencoder("DIR")``, or the System itself.
        index: An Index or its folder.
        top_k: Documents a question.
    """

    def __init__(self, system: str | System, index: AnyIndex | PathLike, top_k: int = 10) -> None:
        self._open, self.top_k = adapters.OpenSystem(system, index), adapters.count(top_k)

    def to_dict(self) -> dict[str, Any]:
        """Return what a pipeline is saved as.

        Raises:
            WrongUse: A ranker of the system is an object, which no file holds.
        """
        system = self._open.system
        if any(
            isinstance(part, RerankedSystem) and isinstance(part.stage.ranker, Live) for part in system.walk()
        ):
            raise WrongUse(f"{system}: a ranker that is an object is not saved; save it, and name its folder")
        where = str(self._open.index.path)
        saved: dict[str, Any] = default_to_dict(self, system=str(system), index=where, top_k=self.top_k)
        return saved

    @component.output_types(documents=list[Document])
    def run(self, query: str, top_k: int | None = None) -> dict[str, list[Document]]:
        """Answer a question."""
        found = self._open.answer(query, self.top_k if top_k is None else top_k)
        return {
            "documents": [
                Document(
                    id=one.id, content=one.full_text, meta={**one.extra, "title": one.title}, score=score
                )
                for one, score in found
            ]
        }


@component
class RankhouseRanker:
    """A ranker that reorders documents.

    Args:
        ranker: A folder, ``crossencoder("DIR", split="sentences(10, 5)")``, or any ranker.
        top_k: How many of the best are kept; None for all.
    """

    def __init__(self, ranker: adapters.RankerLike, top_k: int | None = None) -> None:
        self._open, self.top_k = adapters.OpenRanker(ranker), top_k

    def to_dict(self) -> dict[str, Any]:
        """Return what a pipeline is saved as.

        Raises:
            WrongUse: The ranker is an object, which no file holds.
        """
        if isinstance(self._open.stage.ranker, Live):
            raise WrongUse(
                f"{self._open.stage}: an object is not saved; save the ranker, and name its folder"
            )
        stage = self._open.stage
        ranker = str(stage.ranker if stage == Stage(stage.ranker) else stage)
        saved: dict[str, Any] = default_to_dict(self, ranker=ranker, top_k=self.top_k)
        return saved

    @component.output_types(documents=list[Document])
    def run(
        self, query: str, documents: list[Document], top_k: int | None = None
    ) -> dict[str, list[Document]]:
        """Order documents for a question.

        Raises:
            BadData: A document without text, or with a score that is no number.
            DuplicateId: Two documents have one id.
        """
        ids = adapters.checked_ids([one.id for one in documents], 'the "id" of the documents')
        adapters.check_scores([one.score for one in documents], 'the "score" of the documents')
        texts = [
            adapters.checked_text(one.content, f'the "content" of document "{one.id}"') for one in documents
        ]
        order = self._open.order(
            query, list(map(OwnDocument, ids, texts)), self.top_k if top_k is None else top_k
        )
        return {"documents": [replace(documents[place], score=score) for place, score in order]}
