"""LlamaIndex: a retriever and a node postprocessor.

>>> RankhouseRetriever("bm25", "notes.index", k=5).retrieve("who steers ships?")  # doctest: +SKIP
"""

from __future__ import annotations

import asyncio
from typing import Any

from rankhouse.core.errors import WrongUse
from rankhouse.core.nouns import Document
from rankhouse.hosts.adapters import OpenRanker, OpenSystem, check_scores, checked_ids, checked_text, host
from rankhouse.index.sharded.sharded_index import AnyIndex
from rankhouse.io.files import PathLike
from rankhouse.systems.system import System

with host("llamaindex", "0.14.19", "llama-index-core"):
    from llama_index.core.bridge.pydantic import PrivateAttr
    from llama_index.core.postprocessor.types import BaseNodePostprocessor
    from llama_index.core.retrievers import BaseRetriever
    from llama_index.core.schema import MetadataMode, NodeWithScore, QueryBundle, TextNode


class RankhouseRetriever(BaseRetriever):
    """A system on an index; nodes have title and text, and in the metadata the title and extra fields.

    Args:
        system: ``bm25``, ``bm25 % 100 >> crossencoder("DIR")``, or the System itself.
        index: An Index or its folder.
        k: Nodes a question.
    """

    def __init__(self, system: str | System, index: AnyIndex | PathLike, k: int = 10) -> None:
        super().__init__()
        self._open, self.k = OpenSystem(system, index), k

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return [
            NodeWithScore(
                node=TextNode(
                    id_=document.id,
                    text=document.full_text,
                    metadata={**document.extra, "title": document.title},
                    # The title begins the text already.
                    excluded_embed_metadata_keys=["title"],
                    excluded_llm_metadata_keys=["title"],
                ),
                score=score,
            )
            for document, score in self._open.answer(query_bundle.query_str, self.k)
        ]

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return await asyncio.to_thread(self._retrieve, query_bundle)


class RankhousePostprocessor(BaseNodePostprocessor):
    """A ranker that reads the texts of nodes, without their metadata, and reorders them.

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

    @classmethod
    def class_name(cls) -> str:
        """Return the name by which LlamaIndex stores it."""
        return "RankhousePostprocessor"

    def _postprocess_nodes(
        self, nodes: list[NodeWithScore], query_bundle: QueryBundle | None = None
    ) -> list[NodeWithScore]:
        if query_bundle is None:
            raise WrongUse(
                "RankhousePostprocessor reads nodes for a question; give query_str or query_bundle"
            )
        ids = checked_ids([one.node.node_id for one in nodes], 'the "node_id" of the nodes')
        check_scores([one.score for one in nodes], 'the "score" of the nodes')
        texts = [checked_text(one.node.get_content(MetadataMode.NONE), "the text of a node") for one in nodes]
        order = self._open.order(query_bundle.query_str, list(map(Document, ids, texts)), self.top_n)
        return [NodeWithScore(node=nodes[place].node, score=score) for place, score in order]
