"""How far two judges agree: shares, Cohen's kappa, and the pairs they see differently."""

from __future__ import annotations

import math
from collections import Counter
from itertools import combinations
from typing import NamedTuple

from rankhouse.core.qrels import Qrels
from rankhouse.labels.agreement import cohens_kappa
from rankhouse.serve.judging.store import JudgementStore


class Difference(NamedTuple):
    """A pair that two judges grade differently."""

    query_id: str
    doc_id: str
    first: int
    second: int


class JudgeAgreement(NamedTuple):
    """Two judges.

    Attributes:
        first: One.
        second: The other.
        pairs: How many pairs both graded.
        same: The share of these with the same grade; NaN without pairs.
        kappa: Cohen's; NaN where there is none.
        weighted: The quadratically weighted one.
        differences: What they see differently, the largest first.
    """

    first: str
    second: str
    pairs: int
    same: float
    kappa: float
    weighted: float
    differences: tuple[Difference, ...]


def agreements(store: JudgementStore) -> list[JudgeAgreement]:
    """Compare every two judges who graded a pair in common."""
    said = {judge: store.qrels_of(judge) for judge in store.judges}
    both = [agreement(one, other, said[one], said[other]) for one, other in combinations(said, 2)]
    return [one for one in both if one.pairs]


def agreement(first: str, second: str, mine: Qrels, theirs: Qrels) -> JudgeAgreement:
    """Compare two judges on the pairs that both graded."""
    common = [
        Difference(query_id, doc_id, grade, theirs[query_id][doc_id])
        for query_id, judged in mine.items()
        for doc_id, grade in judged.items()
        if doc_id in theirs.get(query_id, {})
    ]
    counts = Counter((one.first, one.second) for one in common)
    same = sum(count for (a, b), count in counts.items() if a == b)
    differing = sorted(
        (one for one in common if one.first != one.second), key=lambda d: -abs(d.first - d.second)
    )
    return JudgeAgreement(
        first,
        second,
        len(common),
        same / len(common) if common else math.nan,
        cohens_kappa(counts),
        cohens_kappa(counts, 2),
        tuple(differing),
    )
