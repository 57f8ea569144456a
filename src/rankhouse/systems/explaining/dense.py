"""Retrieval by vectors, as a system that says why."""

from __future__ import annotations

from rankhouse.core.errors import WrongUse
from rankhouse.core.nouns import Encoder, Query
from rankhouse.core.run import Ranking
from rankhouse.explanation.answer import Explanation
from rankhouse.explanation.stages import explain_dense
from rankhouse.index.dense.exact import search
from rankhouse.index.dense.vectors import Vectors, vectors_folder
from rankhouse.index.parts.parted_index import AnyIndex, PartedIndex
from rankhouse.systems.explaining.systems import IndexStage
from rankhouse.systems.rankers import dense_searcher
from rankhouse.systems.short_forms import first_stage
from rankhouse.systems.system import Dense


class DenseSystem(IndexStage):
    """Vectors of an index, and the encoder that made them.

    Args:
        model: ``dense(RANKER)``.

    Raises:
        MissingInput: Nothing was encoded.
    """

    def __init__(self, index: AnyIndex, model: str, encoder: Encoder, k: int) -> None:
        super().__init__(index)
        self._model, self._encoder, self._k = model, encoder, k
        chosen = first_stage(model)
        assert isinstance(chosen, Dense)
        self._searcher = dense_searcher(index, chosen)
        self._vectors_name = chosen.name

    @property
    def name(self) -> str:
        """Its notation."""
        return self._model

    def _search(self, query: Query) -> Ranking:
        return search(self._searcher, self._encoder, [query], self._k)[query.id]

    def _explain(self, query: Query, doc_id: str) -> Explanation:
        if isinstance(self.index, PartedIndex):
            raise WrongUse(
                f"{self._model}: what a score of vectors is made of is told by the index that holds them; "
                "explain it with the part that has the document"
            )
        vectors = Vectors.open(vectors_folder(self.index.path, self._vectors_name))
        return explain_dense(self.index, vectors, self._encoder, query, doc_id)
