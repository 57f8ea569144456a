"""Run -> Run by comparing passages two by two: the last stage, for the best few documents of a query.

Pradeep, Nogueira, Lin 2021 ("expando-mono-duo"): with p[i, j] the probability that document i is more
relevant than j, documents are ordered by

| notation | score of document i |
|---|---|
| ``sym-sum`` | sum over j of p[i, j] + (1 - p[j, i]): both orders of every two; the paper's choice |
| ``sum`` | sum over j of p[i, j]: only as the first of the two |

Probabilities are added, not their logarithms: a single lost comparison near 0 would outweigh all others (the
paper's SUM-LOG and SYM-SUM-LOG). A score depends on the documents compared, which are the query's first
``depth``, and on nothing else: not on their order.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Literal, Protocol

import numpy as np

from rankhouse.core.errors import WrongUse
from rankhouse.core.notation import choose
from rankhouse.core.nouns import Documents, FloatArray, Pair, Passage, Query, Ranker
from rankhouse.core.progress import Progress
from rankhouse.core.run import Run
from rankhouse.core.scores import Doubles, in_chunks
from rankhouse.ranking.rerank import (
    Candidate,
    Columns,
    Plan,
    Report,
    candidates,
    completed,
    query_texts,
    settled,
)
from rankhouse.text.split import Split, Whole

DEPTH = 50
"""Documents of a query that are compared: 2,450 comparisons, as in the paper."""


class PairwiseRanker(Protocol):
    """Anything that says which of two passages answers a query better."""

    def preferences(self, query: Query, passages: Sequence[Passage]) -> FloatArray:
        """Compare every two of k passages in both orders: (k, k) probabilities for the row's passage."""
        ...


@dataclass(frozen=True)
class PairwisePlan:
    """Plan of pairwise comparisons.

    Attributes:
        depth: k, how many documents a query are compared, k * (k - 1) comparisons.
        aggregate: How preferences become scores: "sym-sum" or "sum".
        split: The splitter of documents into passages, of which one speaks for its document.
        chooser: The ranker that chooses it, the best by its score; None where documents are not cut.
        tail: Treatment of the documents below: "keep" or "drop".
    """

    depth: int = DEPTH
    aggregate: str = "sym-sum"
    split: Split = field(default_factory=Whole)
    chooser: Ranker | None = None
    tail: Literal["keep", "drop"] = "keep"

    def __post_init__(self) -> None:
        choose(self.aggregate, AGGREGATES, "way to make scores of preferences")
        if self.chooser is None and not isinstance(self.split, Whole):
            raise WrongUse(
                f"split {self.split}: one passage must speak for its document; name the ranker that chooses "
                'it, like  duot5("DIR", passages=\'monot5("DIR")\')'
            )

    @property
    def plan(self) -> Plan:
        """Plan of fetching and cutting documents."""
        return Plan(split=self.split, depth=self.depth, tail=self.tail)


def comparisons(run: Run, depth: int) -> int:
    """Count the comparisons that reranking a run takes, before any is made."""
    sizes = (min(depth, len(run[query_id].scores)) for query_id in run)
    return sum(k * (k - 1) for k in sizes)


def rerank_pairwise(
    ranker: PairwiseRanker,
    run: Run,
    queries: Iterable[Query],
    documents: Documents,
    plan: PairwisePlan | None = None,
    report: Report | None = None,
    progress: Progress | None = None,
) -> Run:
    """Reorder the best documents of every query by comparing them two by two.

    Args:
        run: The stage before, for example monoT5's.
        report: Filled with what happened; its passages are comparisons.
        progress: Progress callback, in comparisons.

    Raises:
        BadData: A query of the run has no text among ``queries``.
        DuplicateId: Two queries have one id.
        BadModel: A preference is not a number.
    """
    plan, report = plan or PairwisePlan(), Report() if report is None else report
    texts, steps, aggregate = query_texts(run, queries, report), plan.plan, AGGREGATES[plan.aggregate]
    total = comparisons(run, plan.depth)
    ranked: dict[str, Columns] = {}
    walk = candidates(run, texts, documents, steps, report=report)
    for query_id, some in groupby(walk, lambda one: one.query.id):
        doc_ids, passages = _chosen([one for one in some if len(one.passages)], plan.chooser)
        scores = aggregate(ranker.preferences(texts[query_id], passages).astype(np.float64))
        report.queries += bool(passages)
        report.documents += len(passages)
        report.passages += len(passages) * (len(passages) - 1)
        ranked[query_id] = settled(
            query_id, run[query_id], dict(zip(doc_ids, scores.tolist(), strict=True)), steps
        )
        if progress is not None:
            progress(report.passages, total)
    return completed(run, ranked, steps, report)


def _chosen(documents: Sequence[Candidate], chooser: Ranker | None) -> tuple[list[str], list[Passage]]:
    """Return the ids of a query's documents, and the passage of each that its ranker puts first."""
    passages = [[p for p in one.passages if isinstance(p, Passage)] for one in documents]
    ids = [one.doc_id for one in documents]
    if chooser is None or all(len(own) == 1 for own in passages):
        return ids, [own[0] for own in passages]
    pairs = [Pair(one.query, p) for one, own in zip(documents, passages, strict=True) for p in own]
    scores = np.split(in_chunks(chooser.score, pairs, Plan().chunk), np.cumsum(list(map(len, passages)))[:-1])
    return ids, [own[int(np.argmax(some))] for own, some in zip(passages, scores, strict=True)]


def sym_sum(preferences: Doubles) -> Doubles:
    """Add preferences in both orders: (k, k) -> (k,)."""
    others = 1 - np.eye(len(preferences))
    return _sums(preferences * others + (1 - preferences.T) * others)


def first_sum(preferences: Doubles) -> Doubles:
    """Add the preferences for a document as the first of two: (k, k) -> (k,)."""
    return _sums(preferences * (1 - np.eye(len(preferences))))


def _sums(rows: Doubles) -> Doubles:
    """Add each row exactly, so that the order of documents cannot change a bit."""
    return np.array([math.fsum(row) for row in rows], np.float64)


AGGREGATES: dict[str, Callable[[Doubles], Doubles]] = {"sym-sum": sym_sum, "sum": first_sum}
"""Name -> what makes scores (k,) of preferences (k, k)."""
