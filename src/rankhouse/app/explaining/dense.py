"""Retrieval by vectors, as a system that says why."""

from __future__ import annotations

from rankhouse.app.explaining.systems import IndexStage
from rankhouse.app.rankers import ComputeOptions, DenseModel, as_encoder, dense_searcher, open_ranker
from rankhouse.core.nouns import Query
from rankhouse.core.run import Ranking
from rankhouse.explanation.answer import Explanation
from rankhouse.explanation.dense import explain_dense
from rankhouse.index.dense.exact import search
from rankhouse.index.dense.vectors import Vectors, vectors_folder
from rankhouse.index.index import Index


class DenseSystem(IndexStage):
    """Vectors of an index, and the encoder that made them.

    Args:
        index: The index.
        model: ``dense(RANKER)``.
        compute: How to compute.
        k: Documents a query.

    Raises:
        MissingInput: Nothing was encoded.
        WrongUse: The ranker encodes no texts.
    """

    def __init__(self, index: Index, model: str, compute: ComputeOptions, k: int) -> None:
        super().__init__(index)
        self._model, self._k = model, k
        chosen = DenseModel.parse(model)
        self._searcher = dense_searcher(index, chosen)
        self._vectors = Vectors.open(vectors_folder(index.path, chosen.name))
        self._encoder = as_encoder(open_ranker(chosen.ranker, compute), chosen.ranker)

    @property
    def name(self) -> str:
        """Its notation."""
        return self._model

    def _search(self, query: Query) -> Ranking:
        return search(self._searcher, self._encoder, [query], self._k)[query.id]

    def _explain(self, query: Query, doc_id: str) -> Explanation:
        return explain_dense(self.index, self._vectors, self._encoder, query, doc_id)
