"""What a PAIRS file holds: pairs, queries, and by judgements that may know better, how many are right.

The annotation paper (Chiu, Shinzato, section 4.3.3 and table 4) compares policies by these: relevant pairs,
and queries that have any.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from rankhouse.core.qrels import Qrels, relevant
from rankhouse.io.pairs import LabelledPair


class PairsSummary(NamedTuple):
    """What was counted.

    Attributes:
        pairs: All of them.
        relevant: Those labelled so.
        queries: Queries with any pair.
        queries_relevant: Queries with a relevant pair.
        most: Most relevant pairs of one query.
        right: Relevant pairs that the judgements confirm; None without judgements.
        found: Distinct documents in them; None without judgements.
        wanted: Relevant documents by the judgements, of the queries of interest; None without judgements.
    """

    pairs: int
    relevant: int
    queries: int
    queries_relevant: int
    most: int
    right: int | None = None
    found: int | None = None
    wanted: int | None = None

    @property
    def precision(self) -> float | None:
        """Share of the relevant pairs that are right; None where it is not known."""
        return self.right / self.relevant if self.right is not None and self.relevant else None

    @property
    def recall(self) -> float | None:
        """Share of what is right that is there; None where it is not known."""
        return self.found / self.wanted if self.found is not None and self.wanted else None


def summarise_pairs(pairs: Iterable[LabelledPair], qrels: Qrels | None = None) -> PairsSummary:
    """Count the pairs of a file; a document counts once as found, however many of its passages do."""
    every: Counter[str] = Counter()
    yes: Counter[str] = Counter()
    positives: set[tuple[str, str]] = set()
    right = 0
    for pair in pairs:
        every[pair.query_id] += 1
        if pair.label <= 0:
            continue
        yes[pair.query_id] += 1
        if qrels is not None and qrels.get(pair.query_id, {}).get(pair.doc_id, 0) > 0:
            right += 1
            positives.add((pair.query_id, pair.doc_id))
    counted = PairsSummary(every.total(), yes.total(), len(every), len(yes), max(yes.values(), default=0))
    if qrels is None:
        return counted
    wanted = sum(len(relevant(qrels, query_id)) for query_id in qrels)
    return counted._replace(right=right, found=len(positives), wanted=wanted)
