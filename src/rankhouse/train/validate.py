"""Validation is what the ranker will be used for: re-rank a run and measure it."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from rankhouse.core.errors import RankhouseWarning
from rankhouse.core.nouns import Query, Ranker
from rankhouse.core.qrels import Qrels
from rankhouse.core.run import Run
from rankhouse.evaluate.measures import scorer
from rankhouse.rank.rerank import Documents, Plan, rerank


@dataclass(frozen=True)
class Validation:
    """What to validate on.

    Attributes:
        run: The first stage.
        queries: Their texts.
        qrels: Their judgements.
        documents: The documents by id.
        plan: Split, pool and depth of re-ranking.
    """

    run: Run
    queries: Sequence[Query]
    qrels: Qrels
    documents: Documents
    plan: Plan = field(default_factory=lambda: Plan(depth=100))


class Verdict(NamedTuple):
    """What a ranker is worth on validation, and the run that says so."""

    value: float
    run: Run


class Judge:
    """Validates again and again with judgements made ready once.

    Args:
        validation: What to validate on.
        measure: In ir_measures' notation.

    Attributes:
        first_stage: What the run is worth as it is.

    Raises:
        BadData: No query of the run is judged.
        WrongUse: The measure cannot be computed.
    """

    def __init__(self, validation: Validation, measure: str) -> None:
        self.validation = validation
        self._value_of = scorer(validation.qrels, measure)
        self.first_stage = self._value_of(validation.run)
        self._again = False

    def __call__(self, ranker: Ranker) -> Verdict:
        """Re-rank and measure; what re-ranking warns of is said the first time only."""
        given = self.validation
        queries = [query for query in given.queries if query.id in given.run]
        with warnings.catch_warnings():
            if self._again:
                warnings.simplefilter("ignore", RankhouseWarning)
            run = rerank(ranker, given.run, queries, given.documents, given.plan)
        self._again = True
        return Verdict(self._value_of(run), run)
