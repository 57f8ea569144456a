"""The round trip: a pseudo-query is kept if a first stage and a teacher bring its document back.

After Alberti et al., "Synthetic QA corpora generation with roundtrip consistency" (2019), and the filter of
Promptagator (Dai et al. 2022), with a teacher in place of a reader.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np

from rankhouse.core.errors import BadData, WrongUse
from rankhouse.core.nouns import Documents, Pair, Passage, Query, Ranker
from rankhouse.core.progress import Progress, ignore
from rankhouse.core.run import Run
from rankhouse.core.sampling import order
from rankhouse.core.scores import numbers_only, one_each
from rankhouse.labels.pseudo_queries import PseudoQueries, PseudoQuery, drop
from rankhouse.page.html import write_page
from rankhouse.page.tables import Table

LOST, BEATEN = "not found by the first stage", "not among the teacher's best"


class RoundTrip(NamedTuple):
    """Pseudo-queries that came back, and those that did not."""

    kept: dict[str, PseudoQuery]
    dropped: dict[str, list[PseudoQuery]]
    counts: Counter[str]


class Round(NamedTuple):
    """Bound on how far a document may fall behind.

    Attributes:
        first: It is among so many of the first stage.
        best: It is among so many of the teacher's, of those of the first stage.
    """

    first: int = 20
    best: int = 5


def round_trip(
    asked: Sequence[tuple[str, PseudoQuery]],
    run: Run,
    documents: Documents,
    teacher: Ranker | None = None,
    limits: Round = Round(),  # noqa: B008 - immutable
    progress: Progress | None = None,
) -> RoundTrip:
    """Keep the questions whose document comes back.

    Args:
        asked: (query id, question).
        run: A first stage's run for them.
        teacher: The ranker that reads them; None asks the first stage only.
        progress: Progress callback, in questions.

    Raises:
        BadData: No question comes back.
        BadModel: The teacher gave something that is no score.
        WrongUse: Limits below 1.
    """
    if limits.first < 1 or limits.best < 1:
        raise WrongUse(f"first={limits.first}, best={limits.best}: both are whole numbers from 1 up")
    trip, nearest = RoundTrip({}, {}, Counter()), run.top(limits.first)
    found: list[tuple[str, PseudoQuery, Sequence[str]]] = []
    for query_id, question in asked:
        ranking = nearest[query_id].doc_ids if query_id in nearest else ()
        if question.doc_id not in ranking:
            drop(question, LOST, trip.dropped, trip.counts)
        else:
            found.append((query_id, question, ranking))
    # Neighbours come again and again.
    passage = lru_cache(4096)(lambda doc_id: Passage(doc_id, 0, documents[doc_id].full_text))
    step, tell = max(1, 4096 // limits.first), progress or ignore
    tell(0, len(found))
    for start in range(0, len(found), step):
        some = found[start : start + step]
        for (query_id, question, _), place in zip(some, _places(some, passage, teacher), strict=True):
            if place < limits.best:
                trip.kept[query_id] = question
            else:
                drop(question, BEATEN, trip.dropped, trip.counts)
        tell(start + len(some), len(found))
    if not trip.kept:
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in trip.counts.most_common())
        raise BadData(
            f"none of {len(asked):,} pseudo-queries brings its own document back "
            f"({reasons or 'there are none'}): are run and documents those of the questions? Else allow "
            "deeper ranks"
        )
    return trip


def _places(
    some: Sequence[tuple[str, PseudoQuery, Sequence[str]]],
    passage: Callable[[str], Passage],
    teacher: Ranker | None,
) -> list[int]:
    """Return at which place, from 0, the teacher puts each question's own document."""
    if teacher is None:
        return [0] * len(some)
    pairs = [
        Pair(Query(query_id, question.text), passage(doc_id))
        for query_id, question, ranking in some
        for doc_id in ranking
    ]
    scores = numbers_only(one_each(len(pairs), teacher.score(pairs)), pairs)
    ends = np.cumsum([len(ranking) for _, _, ranking in some])[:-1]
    own = zip(
        (ranking.index(question.doc_id) for _, question, ranking in some), np.split(scores, ends), strict=True
    )
    return [int((scores > scores[place]).sum()) for place, scores in own]


_TEMPLATE: Final = Path(__file__).parent / "templates" / "pseudo_queries.html.j2"


class PseudoReport(NamedTuple):
    """Pseudo-queries written, kept and dropped."""

    kept: Sequence[PseudoQuery]
    dropped: dict[str, list[PseudoQuery]]
    counts: Counter[str]
    silent: int

    @classmethod
    def of(cls, asked: PseudoQueries, trip: RoundTrip) -> PseudoReport:
        """Put asking and round trip together."""
        kept = list(trip.kept.values())
        return cls(kept, asked.dropped | trip.dropped, asked.counts + trip.counts, asked.silent)

    def counts_table(self) -> Table:
        """Return one row a kind, then one a reason."""
        kinds = Counter(query.kind for query in self.kept)
        rows = [("kept", kind, f"{count:,}") for kind, count in kinds.most_common()]
        rows += [("thrown away", reason, f"{count:,}") for reason, count in self.counts.most_common()]
        total = len(self.kept) + self.counts.total()
        legend = f"{len(self.kept):,} of {total:,} questions kept; {self.silent:,} documents ask nothing"
        return Table(("questions", "kind or reason", "how many"), tuple(rows), legend=legend)

    def samples(self, seed: int = 0) -> dict[str, Table]:
        """Return some of each kind that were kept, and some of each reason: heading -> table."""
        by_kind: dict[str, list[PseudoQuery]] = {}
        for query in self.kept:
            by_kind.setdefault(f"Kept: {query.kind}", []).append(query)
        by_kind |= {f"Thrown away: {reason}": some for reason, some in self.dropped.items()}
        tables = {}
        for heading, some in by_kind.items():
            drawn = sorted(some, key=lambda query: order(seed, f"{query.doc_id} {query.text}"))[:12]
            rows = tuple((query.text, query.doc_id, query.kind) for query in drawn)
            legend = f"{len(rows):,} samples"
            tables[heading] = Table(("question", "document", "kind"), rows, legend=legend)
        return tables


def write_pseudo_report(report: PseudoReport, path: Path | str, title: str) -> None:
    """Write the page; errors as of :func:`rankhouse.page.html.write_page`."""
    content = {"title": title, "counts": report.counts_table(), "samples": report.samples()}
    write_page(_TEMPLATE, content, path)
