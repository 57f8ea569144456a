"""How far two judges agree: shares, Cohen's kappa, and the pairs they see differently."""

from __future__ import annotations

import math
from collections import Counter
from itertools import combinations
from typing import NamedTuple

from msgspec import Struct

from rankhouse.core.qrels import Qrels
from rankhouse.labels.agreement import cohens_kappa
from rankhouse.serve.judging.store import JudgementStore


class Difference(NamedTuple):
    """A pair that two judges grade differently."""

    query_id: str
    doc_id: str
    first: int
    second: int


class AgreementInfo(Struct):
    """How far two judges agree; null where there is no such number.

    Attributes:
        first: One.
        second: The other.
        pairs: Pairs that both graded.
        same: The share of these with the same grade.
        kappa: Cohen's kappa.
        weighted: Quadratically weighted.
    """

    first: str
    second: str
    pairs: int
    same: float | None
    kappa: float | None
    weighted: float | None


def agreements(store: JudgementStore) -> list[AgreementInfo]:
    """Compare every two judges who graded a pair in common."""
    said = {judge: store.qrels_of(judge) for judge in store.judges}
    both = [agreement(one, other, said[one], said[other]) for one, other in combinations(said, 2)]
    return [one for one in both if one.pairs]


def agreement(first: str, second: str, mine: Qrels, theirs: Qrels) -> AgreementInfo:
    """Compare two judges on the pairs that both graded; NaN, null in JSON, where there is no number."""
    common = _common(mine, theirs)
    counts = Counter((one.first, one.second) for one in common)
    same = sum(count for (a, b), count in counts.items() if a == b)
    share = same / len(common) if common else math.nan
    return AgreementInfo(
        first, second, len(common), share, kappa=cohens_kappa(counts), weighted=cohens_kappa(counts, 2)
    )


def differences(mine: Qrels, theirs: Qrels) -> list[Difference]:
    """Return what two judges see differently, the largest differences first."""
    differing = (one for one in _common(mine, theirs) if one.first != one.second)
    return sorted(differing, key=lambda one: -abs(one.first - one.second))


def _common(mine: Qrels, theirs: Qrels) -> list[Difference]:
    return [
        Difference(query_id, doc_id, grade, theirs[query_id][doc_id])
        for query_id, judged in mine.items()
        for doc_id, grade in judged.items()
        if doc_id in theirs.get(query_id, {})
    ]
