"""A system at work on one question: its first stages, its fusion, its ranker.

Documents and numbers are those of ``rankhouse search``, ``rerank`` and ``fuse``, to the bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rankhouse.core import notation
from rankhouse.core.nouns import FloatArray, Query, StoredPair, StoredPassage
from rankhouse.core.run import Ranking, Run
from rankhouse.index.dense.exact import search
from rankhouse.index.lexical.search import LexicalOptions, retrieve
from rankhouse.ranking.fuse import FUSIONS, rrf
from rankhouse.ranking.pool import POOLS
from rankhouse.ranking.rerank import rerank
from rankhouse.ranking.rerank_plan import Plan
from rankhouse.serve.engine.choice import asked_split
from rankhouse.serve.engine.waiting import ENDLESS, Deadline, waited
from rankhouse.serve.errors import DeadlinePassed
from rankhouse.serve.search.recent import ReadBy
from rankhouse.systems.precomputed import PrecomputedScorer
from rankhouse.systems.short_forms import first_stage, is_dense
from rankhouse.systems.system import Dense
from rankhouse.text.split import SPLITTERS

if TYPE_CHECKING:
    from rankhouse.serve.engine.served import ServedRanker
    from rankhouse.serve.search.catalogue import Catalogue
    from rankhouse.serve.search.systems import SystemSpec
    from rankhouse.serve.search.view import IndexView

_STORED_AT_ONCE = 64
"""Stored passages scored in one turn of the model."""
_LATE = "did not answer in time"


@dataclass(frozen=True)
class Ranked:
    """What a system made of a question.

    Attributes:
        ranking: Its order.
        before: The first stage's order, where something came after it.
        degraded: Why this is only the first stage's order; "" where it is the system's.
        warnings: What the asker should know.
    """

    ranking: Ranking
    before: Ranking | None = None
    degraded: str = ""
    warnings: tuple[str, ...] = ()


class _FirstRuns(NamedTuple):
    """What the first stages found.

    Attributes:
        runs: Of each model that was in time.
        warnings: What is to be said of them.
        late: The models that were not.
    """

    runs: list[Run]
    warnings: tuple[str, ...]
    late: tuple[str, ...]


def rank(
    catalogue: Catalogue, view: IndexView, spec: SystemSpec, query: Query, deadline: Deadline = ENDLESS
) -> Ranked:
    """Rank the documents of an index for a question.

    Raises:
        UnknownName: The system names a ranker that is not here.
        WrongUse: An unknown model, feedback, fusion, splitter or pool.
        Overloaded: A model has too much to do.
        DeadlinePassed: The time was over before anything was found.
    """
    fusion = notation.make(spec.fusion or "rrf", FUSIONS, "method of fusion")
    ranker = catalogue.ranker(spec.ranker) if spec.ranker else None
    plan = reading_plan(view, ranker, spec, deadline) if ranker else Plan()
    runs, warnings, late = _found(catalogue, view, spec, query, deadline)
    if late or ranker:  # a ranker reads what its first stages find together, each as good as the other
        first = runs[0] if len(runs) == 1 else rrf()(runs).top(spec.k)
    else:
        first = runs[0] if len(runs) == 1 else fusion(runs, spec.weights).top(spec.k)
    if late:
        return Ranked(
            first[query.id], None, f"{' and '.join(late)} {_LATE}: this is the others' order", warnings
        )
    if ranker is None:
        return Ranked(first[query.id], runs[0][query.id] if len(runs) > 1 else None, "", warnings)
    key = ReadBy.of(spec, ranker.fingerprint, query.text)
    ranking = view.recent.get(key)
    if ranking is None:
        try:
            ranking = rerank(ranker.blocking(deadline), first, [query], view.index.documents, plan)[query.id]
        except DeadlinePassed:
            late_one = f"{ranker.name} {_LATE}: this is the first stage's order"
            return Ranked(first[query.id], None, late_one, warnings)
        view.recent.put(key, ranking)
    if spec.fusion:
        ranking = fusion([*runs, Run.from_rankings({query.id: ranking})], spec.weights)[query.id]
    return Ranked(ranking, first[query.id], "", warnings)


def _found(
    catalogue: Catalogue, view: IndexView, spec: SystemSpec, query: Query, deadline: Deadline
) -> _FirstRuns:
    """Search with every model; of several, those count that are in time."""
    runs, warnings, late = list[Run](), list[str](), list[str]()
    for model in spec.models:
        if not is_dense(model):
            first_stage(model, spec.feedback)
            lexical = LexicalOptions(model, spec.feedback, spec.k, threads=1)
            runs.append(retrieve(view.index, [query], lexical))
            continue
        dense = first_stage(model)
        assert isinstance(dense, Dense)
        encoder, vectors = catalogue.ranker(dense.ranker), view.searcher(dense)
        warnings += filter(None, [vectors.warning])
        try:
            runs.append(search(vectors.searcher, encoder.blocking(deadline), [query], spec.k))
        except DeadlinePassed:
            late.append(encoder.name)
    if not runs:
        raise DeadlinePassed(f"{' and '.join(late)} {_LATE}; ask for less, or wait longer")
    return _FirstRuns(runs, tuple(warnings), tuple(late))


def reading_plan(
    view: IndexView, ranker: ServedRanker, spec: SystemSpec, deadline: Deadline = ENDLESS
) -> Plan:
    """Settle how a ranker reads: as asked, else as what is stored for it was cut, else in its own way.

    Raises:
        WrongUse: An unknown splitter or pool.
    """
    cut = str(asked_split(spec.split)) if spec.split else ""
    scorer = view.stored(ranker, cut)
    state = scorer.store.state if scorer else None
    split, pool = cut or (state.split if state else ""), spec.pool or (state.pool if state else "")
    return Plan(
        split=notation.make(split, SPLITTERS, "splitter") if split else ranker.split,
        pool=notation.make(pool, POOLS, "pool") if pool else ranker.pool,
        depth=spec.depth,
        stored=_InTurns(scorer, ranker, deadline) if scorer else None,
    )


class _InTurns:
    """What is stored for a ranker, scored in the ranker's thread, in turn with all other work of it."""

    def __init__(self, scorer: PrecomputedScorer, ranker: ServedRanker, deadline: Deadline) -> None:
        self._scorer, self._ranker, self._deadline = scorer, ranker, deadline

    def passages(self, doc_id: str) -> Sequence[StoredPassage] | None:
        """Return a document's passages; None where nothing is stored of it."""
        return self._scorer.passages(doc_id)

    def score(self, pairs: Sequence[StoredPair]) -> FloatArray:
        """Score n pairs: (n,) float32."""
        scores = np.empty(len(pairs), np.float32)
        for start in range(0, len(pairs), _STORED_AT_ONCE):
            some = pairs[start : start + _STORED_AT_ONCE]
            done = self._ranker.call(partial(self._scorer.score, some), self._deadline)
            scores[start : start + len(some)] = waited(done, self._deadline)
        return scores
