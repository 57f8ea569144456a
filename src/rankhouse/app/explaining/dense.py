"""Retrieval by vectors, as a system that says why."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Self

from rankhouse.app.explaining.names import no_such_document
from rankhouse.app.explaining.systems import RecordedSystem, RunOnRecord, System
from rankhouse.app.rankers import ComputeOptions, DenseModel, as_encoder, dense_searcher, open_ranker
from rankhouse.core.nouns import Encoder, Query
from rankhouse.core.run import Ranking
from rankhouse.explanation.answer import Counterfactual, Explanation
from rankhouse.explanation.dense import explain_dense
from rankhouse.index.dense.exact import Searcher, search
from rankhouse.index.dense.vectors import Vectors, vectors_folder
from rankhouse.index.index import Index


@dataclass
class DenseSystem:
    """Vectors of an index, and the encoder that made them.

    Attributes:
        index: The index.
        name: The model's notation.
        searcher: What finds the nearest vectors.
        vectors: All of them.
        encoder: What encoded them.
        k: Documents a query.
    """

    index: Index
    name: str
    searcher: Searcher
    vectors: Vectors
    encoder: Encoder
    k: int = 1000
    _rankings: dict[Query, Ranking] = field(default_factory=dict, repr=False)

    @classmethod
    def open(cls, index: Index, name: str, compute: ComputeOptions, k: int) -> Self:
        """Open vectors and encoder.

        Args:
            index: The index.
            name: ``dense(RANKER)``.
            compute: How to compute.
            k: Documents a query.

        Raises:
            MissingInput: Nothing was encoded.
            WrongUse: The ranker encodes no texts.
        """
        model = DenseModel.parse(name)
        searcher = dense_searcher(index, model)
        encoder = as_encoder(open_ranker(model.ranker, compute), model.ranker)
        return cls(index, name, searcher, Vectors.open(vectors_folder(index.path, model.name)), encoder, k)

    def ranking(self, query: Query) -> Ranking:
        """Search, once a query."""
        if query not in self._rankings:
            self._rankings[query] = search(self.searcher, self.encoder, [query], self.k)[query.id]
        return self._rankings[query]

    def explain(self, query: Query, doc_id: str) -> Explanation:
        """Say which passage is nearest, and why.

        Args:
            query: The question.
            doc_id: The document.

        Raises:
            WrongUse: The index has no such document.
        """
        if doc_id not in self.index.documents:
            raise no_such_document(doc_id, self.index.documents, "the index")
        return explain_dense(self.index, self.vectors, self.encoder, query, doc_id)

    def flip(self, query: Query, doc_id: str, rival: Explanation) -> Counterfactual | None:
        """Return None: what is stored are vectors, not texts.

        Args:
            query: The question.
            doc_id: The document.
            rival: Why the other scores what it scores.
        """
        del query, doc_id, rival
        return None

    def recorded(self, given: RunOnRecord) -> System:
        """Return it tied to a run: the numbers there are compared with its own."""
        return RecordedSystem(self, given)
