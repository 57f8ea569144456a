"""Judged pairs scored for calibration: documents of a run, read as reranking reads them, or PAIRS."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from rankhouse.core.errors import WrongUse
from rankhouse.core.nouns import Query, Ranker
from rankhouse.core.progress import Progress
from rankhouse.core.qrels import Qrels
from rankhouse.core.run import Run
from rankhouse.core.scores import base_of, scale_of
from rankhouse.evaluation.calibration import JudgedScores
from rankhouse.index.index import Index
from rankhouse.io.duplicate_ids import by_id, require_texts
from rankhouse.io.pairs import LabelledPair
from rankhouse.ranking.rerank import Counter, candidates, in_portions, scored
from rankhouse.ranking.rerank_plan import Plan, Report
from rankhouse.systems.reranking import RerankOptions, reading_plan, with_cache

_POOLS = ("max", "first")
"""Pools that choose one passage's score, so that what is fitted on documents holds for passages."""


@dataclass(frozen=True)
class JudgedRun:
    """Candidates and what the judges say of them.

    Attributes:
        run: The candidates.
        queries: Texts of its queries.
        qrels: The judgements.
        index: Where the documents are.
        relevant_from: The lowest grade that means relevant.
        judged_only: Leave out what nobody judged; else it is not relevant.
    """

    run: Run
    queries: Sequence[Query]
    qrels: Qrels
    index: Index
    relevant_from: int = 1
    judged_only: bool = False

    @cached_property
    def candidates(self) -> Run:
        """The documents that count, in the run's order."""
        if not self.judged_only:
            return self.run
        rows = {q: zip(*self.run[q][:2], strict=True) for q in self.run if q in self.qrels}
        return Run.of((q, d, float(s)) for q, row in rows.items() for d, s in row if d in self.qrels[q])

    def is_relevant(self, query_id: str, doc_id: str) -> bool:
        """Return what the judges say."""
        return self.qrels.get(query_id, {}).get(doc_id, 0) >= self.relevant_from


def judged_documents(
    ranker: Ranker, judged: JudgedRun, options: RerankOptions, progress: Progress | None = None
) -> JudgedScores:
    """Score a run's documents as reranking would; those without text are left out.

    Raises:
        WrongUse: A pool that makes a new number of several passages' scores.
        BadData: A query of the run has no text.
    """
    plan, scorer = reading_plan(ranker, judged.index, options)
    if plan.pool.notation not in _POOLS:
        raise WrongUse(
            f"pool {plan.pool}: makes a number that no passage has, and judgements of documents say nothing "
            f"about single passages then; calibrate with {' or '.join(_POOLS)}"
        )
    ids: list[str] = []
    scores: list[float] = []
    yes: list[bool] = []
    with ExitStack() as stack:
        ranker = with_cache(ranker, scorer, options.cache, stack)
        for query_id, doc_id, score in _pooled(ranker, judged, plan, progress):
            ids.append(query_id)
            scores.append(score)
            yes.append(judged.is_relevant(query_id, doc_id))
        return _judged(ranker, ids, scores, yes)


def _pooled(
    ranker: Ranker, judged: JudgedRun, plan: Plan, progress: Progress | None
) -> Iterator[tuple[str, str, float]]:
    """Stream (query id, document id, pooled score)."""
    run, texts = judged.candidates, by_id(judged.queries)
    require_texts([query_id for query_id in run if len(run[query_id].scores)], texts)
    report, scale = Report(), base_of(scale_of(ranker))
    counter = Counter(progress, sum(min(plan.depth, len(run[query_id].scores)) for query_id in run))
    read = candidates(run, texts, judged.index.documents, plan=plan, report=report)
    for one, values in scored(ranker, read, plan, report=report, counter=counter):
        if len(one.passages):
            indexes = [passage.index for passage in one.passages]
            yield one.query.id, one.doc_id, plan.pool(values, scale, indexes)


def judged_pairs(ranker: Ranker, pairs: Iterable[LabelledPair], relevant_from: int = 1) -> JudgedScores:
    """Score labelled pairs."""
    rows = list(pairs)
    scores = in_portions(ranker.score, [row.pair for row in rows], Plan().chunk)
    return _judged(ranker, [r.query_id for r in rows], scores, [r.label >= relevant_from for r in rows])


def _judged(
    ranker: Ranker, ids: Sequence[str], scores: Sequence[float] | np.ndarray, yes: Sequence[bool]
) -> JudgedScores:
    columns = np.asarray(scores, np.float32), np.array(yes, np.bool_)
    return JudgedScores(tuple(ids), *columns, base_of(scale_of(ranker)))
