"""Why a fusion gives a document its score: what each run adds to the sum. No torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from rankhouse.core import notation
from rankhouse.core.errors import BadData, WrongUse
from rankhouse.core.nouns import Query
from rankhouse.core.run import Run
from rankhouse.explanation.answer import Explanation, Part
from rankhouse.ranking.fuse import FUSIONS, Addend, Fusion, linear

_AGREE: Final = 1e-5

SUMS: dict[str, Callable[..., Fusion]] = FUSIONS | {"mean": lambda: linear("raw")}
"""Methods of fusion whose score is a sum over runs."""


def explain_fused(
    method: str,
    runs: Mapping[str, Run],
    query: Query,
    doc_id: str,
    weights: Sequence[float] | None = None,
    whys: Mapping[str, Explanation] | None = None,
    fused: Run | None = None,
) -> Explanation:
    """Explain a document's score in a fusion: a part for each run.

    Args:
        method: In notation: ``linear("min-max")``, ``rrf``, ``combsum``, ``combmnz``, ``mean``.
        weights: One a run, as it was fused with; equal if not given.
        whys: Run's name -> why the document has the score it has there, for those that are known.

    Raises:
        WrongUse: No such method, fewer than two runs, weights that do not fit, or the fusion lacks the
            document.
        BadData: The fusion at hand is not that of these runs.
    """
    fusion = notation.make(method, SUMS, "fusion that is a sum over runs")
    several = [run.restrict([query.id]) for run in runs.values()]
    if notation.parse(method).name == "mean":  # of the runs that say anything of the query
        weights = _equal_shares(several, query.id)
    addends = fusion.addends(several, query.id, doc_id, weights)
    ranking = fusion(several, weights)[query.id]
    score = float(ranking.scores[ranking.doc_ids.index(doc_id)])
    known = whys or {}
    parts = [_of_run(name, one, fusion, known.get(name)) for name, one in zip(runs, addends, strict=True)]
    return Explanation(
        query,
        doc_id,
        score if fused is None else _number_of(fused, query, doc_id, score, method),
        "sum over runs",
        exact=True,
        unit=notation.parse(method).name,
        parts=tuple(parts),
        cost=sum(why.cost for why in known.values()),
    )


def _equal_shares(runs: Sequence[Run], query_id: str) -> list[float] | None:
    has = [query_id in run and bool(len(run[query_id].doc_ids)) for run in runs]
    return [1 / sum(has) if one else 0.0 for one in has] if any(has) else None


def _of_run(name: str, one: Addend, fusion: Fusion, why: Explanation | None) -> Part:
    times = f" x {one.votes} runs that have it" if fusion.votes else ""
    if one.weight == 0:
        note = "weight 0: takes no part"
    elif not one.rank:
        worth = f"counts as its lowest, {one.value:.4g}" if fusion.missing == "min" else "adds nothing"
        note = f"does not have the document; {worth}"
    else:
        note = f"rank {one.rank:,}, score {one.score:.6g}: {one.value:.4g} x weight {one.weight:g}{times}"
    facts: dict[str, float] = {"weight": one.weight, "value": one.value}
    facts |= {"rank": one.rank, "score": one.score} if one.rank else {}
    facts |= {"votes": one.votes} if fusion.votes else {}
    return Part(name, one.added, note, facts, why=why)


def _number_of(fused: Run, query: Query, doc_id: str, score: float, method: str) -> float:
    """Return the score that a fusion at hand has, if it can be that of these runs."""
    ranking = fused.get(query.id)
    if ranking is None or doc_id not in ranking.doc_ids:
        raise WrongUse(f'the fused run has no document "{doc_id}" for query "{query.id}"')
    number = float(ranking.scores[ranking.doc_ids.index(doc_id)])
    if abs(number - score) > _AGREE * max(1, abs(score)):
        raise BadData(
            f'the fused run has {number:.6g} for document "{doc_id}" and query "{query.id}", but {method} of '
            f"these runs gives {score:.6g}; give the runs, the method and the weights that it was fused with"
        )
    return number
