"""What became of pseudo-queries, for people: counts by kind, samples, and what was thrown away and why."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from rankhouse.core.sampling import order
from rankhouse.labels.pseudo_queries import PseudoQueries, PseudoQuery
from rankhouse.labels.round_trip import RoundTrip
from rankhouse.page.html import write_page
from rankhouse.page.tables import Table

_TEMPLATE: Final = Path(__file__).parent / "templates" / "pseudo_queries.html.j2"
_SAMPLES: Final = 12


class PseudoReport(NamedTuple):
    """What was asked, kept and thrown away.

    Attributes:
        kept: The questions that are learned from.
        dropped: Reason -> some of those that are not.
        counts: Reason -> how many.
        silent: Documents that ask nothing.
    """

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
        return {heading: _table(some, seed) for heading, some in by_kind.items()}


def _table(some: Sequence[PseudoQuery], seed: int) -> Table:
    drawn = sorted(some, key=lambda query: order(seed, f"{query.doc_id} {query.text}"))[:_SAMPLES]
    rows = tuple((query.text, query.doc_id, query.kind) for query in drawn)
    return Table(("question", "document", "kind"), rows, legend=f"{len(rows):,} samples")


def write_pseudo_report(report: PseudoReport, path: Path | str, title: str) -> None:
    """Write the page.

    Raises:
        MissingExtra: jinja2 is not installed.
        OutputFailed: The file cannot be written.
    """
    content = {"title": title, "counts": report.counts_table(), "samples": report.samples()}
    write_page(_TEMPLATE, content, path)
