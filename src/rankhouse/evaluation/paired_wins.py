"""Two systems, one question: who finds a right document first where the other does not, and how far away.

The annotation paper (Chiu, Shinzato, section 5.2) counts for how many test queries only one of two models has
a right document on top (its table 6), and cuts the queries into five ranges of equal size by the distance at
which the first model finds its top document (its figure 2). Here likewise, for any two runs.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from rankhouse.core.errors import BadData, WrongUse
from rankhouse.core.overlap import NOTHING, warn_of_mismatch
from rankhouse.core.qrels import Qrels, relevant
from rankhouse.core.run import Run
from rankhouse.page.tables import Table


class WinCounts(NamedTuple):
    """Queries by who is right."""

    neither: int
    only_first: int
    only_second: int
    both: int

    @property
    def queries(self) -> int:
        """How many there are."""
        return sum(self)

    @property
    def p(self) -> float:
        """The two-sided exact probability of so uneven a split by chance (sign test, McNemar's exact).

        1 where the two never differ.
        """
        split = self.only_first + self.only_second
        if not split:
            return 1.0
        from scipy.stats import binomtest  # noqa: PLC0415 - takes half a second to load

        return float(binomtest(self.only_first, split).pvalue)


class ScoreRange(NamedTuple):
    """One of the ranges that queries are cut into."""

    nearest: float
    farthest: float
    counts: WinCounts


class PairedWins(NamedTuple):
    """How often each of two systems is right where the other is not.

    Attributes:
        counts: Who is right, over all queries.
        ranges: The same by the score of the first system's top document, highest first.
    """

    first: str
    second: str
    counts: WinCounts
    ranges: tuple[ScoreRange, ...]


def paired_wins(first: Run, second: Run, qrels: Qrels, names: tuple[str, str], ranges: int = 5) -> PairedWins:
    """Compare the top documents of two runs.

    Only queries that have a relevant document count. A query that a run does not have is wrong there; one
    that the first run does not have is farthest of all. Equal scores are ordered by query id.

    Args:
        first: By whose scores the ranges are cut: the higher the nearer.
        ranges: How many, of equal size or one more.

    Raises:
        WrongUse: Fewer than one range.
        BadData: Fewer judged queries than ranges.

    Warns:
        RankhouseWarning: A run and the judgements hardly name a query, or no document, alike.
    """
    if ranges < 1:
        raise WrongUse(f"ranges={ranges}: one or more are possible")
    judged = sorted(query_id for query_id in qrels if relevant(qrels, query_id))
    if len(judged) < ranges:
        raise BadData(
            f"{len(judged):,} queries have a relevant document, too few for {ranges} ranges; give fewer "
            "ranges, or the judgements that belong to the runs"
        )
    for run, name in zip((first, second), names, strict=True):
        warn_of_mismatch({q: run[q].doc_ids for q in run}, name, qrels, "the judgements", documents=NOTHING)
    scores = {query_id: _top_score(first, query_id) for query_id in judged}
    order = sorted(judged, key=lambda query_id: -scores[query_id])
    tops = [{q: run[q].doc_ids[:1] for q in run} for run in (first, second)]
    right = [[bool(relevant(qrels, q).intersection(top.get(q, ()))) for top in tops] for q in order]
    cut = [
        ScoreRange(scores[order[rows[0]]], scores[order[rows[-1]]], _count(right[rows[0] : rows[-1] + 1]))
        for rows in np.array_split(np.arange(len(order)), ranges)
    ]
    return PairedWins(*names, _count(right), tuple(cut))


def counts_table(wins: PairedWins) -> Table:
    """Return one row a kind of query: how many of them there are."""
    counts, queries = wins.counts, wins.counts.queries
    rows = [
        (kind, f"{count:,}", f"{count / queries:.1%}")
        for kind, count in zip(_kinds(wins), counts, strict=True)
    ]
    legend = f"{queries:,} queries; p = {counts.p:.4f} that only one is right by chance (exact sign test)"
    return Table(("", "queries", "share"), tuple(rows), legend=legend)


def ranges_table(wins: PairedWins) -> Table:
    """Return one row a range, nearest first: shares of the four kinds of queries."""
    rows = [
        (
            f"{number}: {one.nearest:.4f} to {one.farthest:.4f}",
            f"{one.counts.queries:,}",
            *(f"{count / one.counts.queries:.1%}" for count in one.counts),
        )
        for number, one in enumerate(wins.ranges, 1)
    ]
    legend = f"Ranges by the score of the top document of {wins.first}, nearest first."
    return Table((f"score by {wins.first}", "queries", *_kinds(wins)), tuple(rows), legend=legend)


def record(wins: PairedWins) -> dict[str, object]:
    """Return all numbers by name."""
    counts = wins.counts
    return {
        "first": wins.first,
        "second": wins.second,
        "queries": counts.queries,
        "p": counts.p,
        **counts._asdict(),
        "ranges": [
            {"nearest": _finite(r.nearest), "farthest": _finite(r.farthest), **r.counts._asdict()}
            for r in wins.ranges
        ],
    }


def _kinds(wins: PairedWins) -> tuple[str, str, str, str]:
    return "both wrong", f"only {wins.first} right", f"only {wins.second} right", "both right"


def _top_score(run: Run, query_id: str) -> float:
    return float(run[query_id].scores[0]) if query_id in run and run[query_id].doc_ids else -math.inf


def _count(right: list[list[bool]]) -> WinCounts:
    kinds = ([False, False], [True, False], [False, True], [True, True])
    return WinCounts(*map(right.count, kinds))


def _finite(score: float) -> float | None:
    return score if math.isfinite(score) else None
