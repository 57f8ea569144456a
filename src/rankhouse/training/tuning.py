"""What validation settles after a training: how deep to re-rank, and which runs to join.

Source of both: Hofstätter, Zlabinger, Hanbury, "TU Wien @ TREC Deep Learning '19", section 4 (the depth is
tuned on validation; run p3 is an ensemble). Unlike their code, nothing below the depth is thrown away.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from rankhouse.core.errors import WrongUse
from rankhouse.core.qrels import Qrels
from rankhouse.core.results import Ranking
from rankhouse.core.run import Run
from rankhouse.core.scores import with_room_below
from rankhouse.evaluation.measures import scorer
from rankhouse.ranking.fuse import linear, tune

_LEAST_QUERIES = 10
"""Fewer judged queries than this cannot tell a weight."""


def cut_at(reranked: Run, first_stage: Run, depth: int) -> Run:
    """Return the run that re-ranking only the first ``depth`` documents would have given.

    Scores of passages do not depend on each other, so one deep re-ranking holds all shallower ones.

    Args:
        reranked: The first stage's documents, rescored; those it lacks are not re-ranked.
        depth: How many documents a query to take from the top of the first stage. The rest follow below
            all others in first-stage order.

    Raises:
        WrongUse: A negative depth.
    """
    if depth < 0:
        raise WrongUse(f"depth={depth}: re-rank 0 documents a query or more")
    return Run.from_rankings({q: _cut(reranked, q, first_stage[q], depth) for q in first_stage})


def _cut(reranked: Run, query_id: str, ranking: Ranking, depth: int) -> Ranking:
    if query_id not in reranked:
        return ranking
    top = set(ranking.doc_ids[:depth])
    rescored = reranked[query_id]
    rows = [row for row, doc_id in enumerate(rescored.doc_ids) if doc_id in top]
    scored = [rescored.doc_ids[row] for row in rows]
    if not scored:
        return ranking
    pooled = set(scored)
    below = [doc_id for doc_id in ranking.doc_ids if doc_id not in pooled]
    return Ranking((*scored, *below), with_room_below(rescored.scores[rows], len(below)))


class Depth(NamedTuple):
    """The best depth and what every depth was worth."""

    depth: int
    value: float
    tried: Mapping[int, float]


def tune_depth(
    reranked: Run, first_stage: Run, qrels: Qrels, depths: Iterable[int], measure: str = "RR@10"
) -> Depth:
    """Find the re-ranking depth that is best on validation; of equal ones the smallest, which is cheapest.

    Args:
        reranked: The first stage re-ranked at the largest depth or deeper.
        depths: What to try; 0 is the first stage itself.

    Raises:
        WrongUse: No depths.
        BadData: No query is in both runs and judgements.
    """
    wanted = sorted(set(depths))
    if not wanted:
        raise WrongUse("no depths to try were given; give some, for example range(5, 101, 5)")
    value_of = scorer(qrels, measure)
    tried = {depth: value_of(cut_at(reranked, first_stage, depth)) for depth in wanted}
    best = max(wanted, key=lambda depth: (tried[depth], -depth))
    return Depth(best, tried[best], tried)


@dataclass(frozen=True)
class Ensemble:
    """Which runs were joined, and what that was worth.

    Attributes:
        names: The runs kept, in the order they were taken.
    """

    names: tuple[str, ...]
    value: float
    alone: Mapping[str, float]


def greedy_ensemble(runs: Mapping[str, Run], qrels: Qrels, measure: str = "RR@10") -> Ensemble:
    """Choose runs greedily: best first, keep each next one only if the mean of raw scores improves.

    Apply the choice elsewhere with :func:`mean_of`. Runs are re-rankings of one first stage.

    Args:
        runs: Name -> run on validation queries.

    Raises:
        WrongUse: No runs.
    """
    if not runs:
        raise WrongUse("no runs were given; an ensemble needs one or more")
    value_of = scorer(qrels, measure)
    values = {name: value_of(run) for name, run in runs.items()}
    alone = dict(sorted(values.items(), key=lambda entry: (-entry[1], entry[0])))
    first = next(iter(alone))
    members, best = [first], alone[first]
    for name in list(alone)[1:]:
        value = value_of(mean_of([runs[each] for each in (*members, name)]))
        if value > best:
            members, best = [*members, name], value
    return Ensemble(tuple(members), best, alone)


def interpolated(
    reranked: Run, first_stage: Run, qrels: Qrels, measure: str = "AP", least: int = _LEAST_QUERIES
) -> Run | None:
    """Join a re-ranking with its first stage, every query with the weight that is best for the other half.

    So what the joined run is worth is not flattered by the tuning.

    Returns:
        The joined run of the judged queries; None where fewer than ``least`` are judged.
    """
    judged = [query_id for query_id in first_stage if query_id in qrels and query_id in reranked]
    if len(judged) < least:
        return None
    joined: dict[str, Ranking] = {}
    fusion = linear()
    for part in range(2):
        own, other = judged[part::2], judged[1 - part :: 2]
        value_of = scorer({query_id: qrels[query_id] for query_id in other}, measure)
        weights = tune([r.restrict(other) for r in (reranked, first_stage)], value_of, fusion).weights
        run = fusion([r.restrict(own) for r in (reranked, first_stage)], weights)
        joined |= {query_id: run[query_id] for query_id in run}
    return Run.from_rankings(joined)


def mean_of(runs: Iterable[Run]) -> Run:
    """Average raw scores. A document that a run lacks has, in that run, its lowest score of the query.

    Raises:
        WrongUse: No runs.
    """
    given = list(runs)
    if not given:
        raise WrongUse("no runs were given; a mean needs one or more")
    if len(given) == 1:
        return given[0]
    queries = dict.fromkeys(query_id for run in given for query_id in run)
    return Run.from_rankings({query_id: _mean(given, query_id) for query_id in queries})


def _mean(runs: list[Run], query_id: str) -> dict[str, float]:
    rankings = [run[query_id] for run in runs if query_id in run and len(run[query_id].doc_ids)]
    scored = [dict(zip(r.doc_ids, r.scores.tolist(), strict=True)) for r in rankings]
    lowest = [float(r.scores[-1]) for r in rankings]
    doc_ids = dict.fromkeys(doc_id for ranking in rankings for doc_id in ranking.doc_ids)
    return {
        doc_id: sum(own.get(doc_id, low) for own, low in zip(scored, lowest, strict=True)) / len(rankings)
        for doc_id in doc_ids
    }
