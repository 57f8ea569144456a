"""LangChain: a retriever and a document compressor.

>>> RankhouseRetriever(system="bm25", index="notes.index", k=5).invoke("who steers ships?")  # doctest: +SKIP
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rankhouse.core.nouns import Document
from rankhouse.hosts.adapters import OpenRanker, OpenSystem, checked_text, host, own_or_numbered

with host("langchain", "1.4", "langchain-core"):
    from langchain_core.callbacks import CallbackManagerForRetrieverRun, Callbacks
    from langchain_core.documents import BaseDocumentCompressor
    from langchain_core.documents import Document as LangChainDocument
    from langchain_core.retrievers import BaseRetriever
    from pydantic import PrivateAttr


class RankhouseRetriever(BaseRetriever):
    """A system on an index; documents have title and text, and title, score and extra fields as metadata.

    Attributes:
        system: ``bm25``, ``bm25 % 100 >> crossencoder("DIR")``, or the System itself.
        index: An Index or its folder.
        k: Documents a question.
    """

    system: Any
    index: Any
    k: int = 10
    _open: OpenSystem = PrivateAttr()

    def model_post_init(self, context: Any, /) -> None:  # noqa: ANN401 - as the base class
        """Open the index."""
        super().model_post_init(context)
        self._open = OpenSystem(self.system, self.index)

    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun, k: int | None = None
    ) -> list[LangChainDocument]:
        del run_manager
        return [
            LangChainDocument(
                id=document.id,
                page_content=document.full_text,
                metadata={**document.extra, "title": document.title, "score": score},
            )
            for document, score in self._open.answer(query, self.k if k is None else k)
        ]


class RankhouseCompressor(BaseDocumentCompressor):
    """A ranker that reorders documents; the metadata of those it returns has its "relevance_score".

    Attributes:
        ranker: A folder, ``crossencoder("DIR", split="sentences(10, 5)")``, or any ranker.
        top_n: How many of the best are kept; None for all.
    """

    ranker: Any
    top_n: int | None = None
    _open: OpenRanker = PrivateAttr()

    def model_post_init(self, context: Any, /) -> None:  # noqa: ANN401 - as the base class
        """Open the ranker."""
        super().model_post_init(context)
        self._open = OpenRanker(self.ranker)

    def compress_documents(
        self, documents: Sequence[LangChainDocument], query: str, callbacks: Callbacks | None = None
    ) -> list[LangChainDocument]:
        """Return the documents in the ranker's order.

        Raises:
            DuplicateId: Two documents have one id.
        """
        del callbacks
        ids = own_or_numbered([one.id for one in documents], 'the "id" of the documents')
        texts = [checked_text(one.page_content, 'the "page_content"') for one in documents]
        order = self._open.order(query, list(map(Document, ids, texts)), self.top_n)
        return [
            documents[place].model_copy(
                update={"metadata": {**documents[place].metadata, "relevance_score": score}}
            )
            for place, score in order
        ]
