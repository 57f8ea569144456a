"""How far two judges agree: shares, Cohen's kappa, and the pairs they see differently.

With n pairs graded by both, p_ij the share graded i by the first and j by the second, and w_ij how much such
a pair counts as disagreement:

    kappa = 1 - sum(w_ij p_ij) / sum(w_ij p_i. p_.j)

w_ij = 1 for i != j gives Cohen's kappa (1960), w_ij = (i - j)^2 the weighted one (Cohen 1968), in which the
next grade is a small disagreement. Where chance leaves no disagreement there is no kappa: NaN.
"""

from __future__ import annotations

import math
from collections import Counter
from itertools import combinations
from typing import NamedTuple

from rankhouse.app.serve.judging.store import JudgementStore
from rankhouse.core.qrels import Qrels


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
    """Compare two judges on the pairs that both graded.

    Args:
        first: Name of one.
        second: Name of the other.
        mine: What the first says.
        theirs: What the second says.
    """
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
        _kappa(counts, 0),
        _kappa(counts, 2),
        tuple(differing),
    )


def _kappa(counts: Counter[tuple[int, int]], power: int) -> float:
    """Return kappa of counted pairs of grades; disagreement counts its distance to some power."""
    n = sum(counts.values())
    rows, columns = Counter[int](), Counter[int]()
    for (a, b), count in counts.items():
        rows[a] += count
        columns[b] += count
    seen = sum(abs(a - b) ** power * count for (a, b), count in counts.items() if a != b)
    chance = sum(abs(a - b) ** power * x * y for a, x in rows.items() for b, y in columns.items() if a != b)
    return 1 - seen * n / chance if chance else math.nan
