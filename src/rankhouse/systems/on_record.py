"""A run as a system: its numbers alone, or tied to the system that made it, which its tag may name."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from rankhouse.core.errors import WrongUse
from rankhouse.core.nouns import Query, Ranking
from rankhouse.core.run import Run
from rankhouse.io.trec import read_run, run_tag
from rankhouse.systems.names import unknown
from rankhouse.systems.system import FirstStage, System

CLOSE: Final = 1e-3
"""Tolerance between a number of a run and a system's own, relative to it (to 1 where it is smaller)."""

USUAL: Final = "rankhouse"
"""The tag of a run whose maker says nothing else."""
_RERANKED: Final = re.compile(r"[a-z][a-z0-9_]*-([0-9a-f]{8})").fullmatch


def read_record(path: Path) -> OnRecord:
    """Return a run in a file, with its name and tag."""
    return OnRecord(read_run(path), path.name, read_tag(path))


def read_tag(path: Path) -> str:
    """Return the tag of a TREC run's first line; the usual one where there is no line, or no tag."""
    return run_tag(path) or USUAL


def tagged_fingerprint(tag: str) -> str:
    """Return the eight digits of the ranker that a tag names; "" where it names none."""
    found = _RERANKED(tag)
    return found[1] if found else ""


@dataclass(frozen=True, eq=False, repr=False)
class OnRecord(FirstStage):
    """A run in place of a system."""

    record: Run  # the run
    label: str  # what people call it
    tag: str = ""  # of its lines, which may name a ranker; "" for none
    maker: System | None = None  # the system that made it; None where nobody says

    def __str__(self) -> str:
        return f"<run {self.label}>"

    def made_by(self, maker: System) -> OnRecord:
        """Return the run tied to a system, whose numbers are compared with the run's before it explains."""
        return replace(self, maker=maker.maker if isinstance(maker, OnRecord) and maker.maker else maker)

    def ranking(self, query: Query) -> Ranking:
        """Look a query up; WrongUse where the run does not have it."""
        if query.id not in self.record:
            raise unknown("query", query.id, self.record, self.label)
        return self.record[query.id]

    def found(self, queries: Sequence[Query]) -> Run:
        """Return the run of some queries. Errors: as for :meth:`ranking`."""
        return Run.from_rankings({query.id: self.ranking(query) for query in queries})

    def number(self, query: Query, doc_id: str) -> float:
        """Return the score of a document; WrongUse where the run does not have it for the query."""
        ranking = self.ranking(query)
        if doc_id not in ranking.doc_ids:
            raise unknown("document", doc_id, ranking.doc_ids, f"{self.label} for query {query.id}")
        return float(ranking.scores[ranking.doc_ids.index(doc_id)])

    def disagreement(self, said: float, score: float, system: str) -> WrongUse:
        """Return the error for a run that another system made."""
        tag = f" (tag {self.tag})" if self.tag not in ("", USUAL) else ""
        return WrongUse(
            f"{self.label}{tag} has {said:.6g} where {system} gives {score:.6g}: another system made the "
            "run. Name the model, feedback or ranker that made it, with its --split and --pool; or, if it is "
            "the first stage from which the ranker takes its documents, give it as --first-stage RUN"
        )


def agrees(score: float, said: float) -> bool:
    """Return whether two numbers are one score, up to rounding."""
    return score == said or abs(score - said) <= CLOSE * max(1.0, abs(score))
