"""Rankers that compare passages two by two: opened from their notation, put behind a run."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from rankhouse.core import notation
from rankhouse.core.errors import MissingExtra, WrongUse
from rankhouse.core.nouns import Documents, Query
from rankhouse.core.progress import Progress
from rankhouse.core.run import Run
from rankhouse.ranking.pairwise import PairwisePlan, rerank_pairwise
from rankhouse.ranking.rerank import Report
from rankhouse.systems.rankers import ComputeOptions, open_ranker
from rankhouse.systems.reranking import RerankOptions, RerankResult
from rankhouse.text.split import SPLITTERS

if TYPE_CHECKING:
    from rankhouse.models.duot5 import DuoT5Ranker


def as_pairwise(ranker: object) -> object:
    """Return an object that compares passages as what can be put behind a run; any other as it is."""
    if hasattr(ranker, "preferences") and not hasattr(ranker, "score"):
        return PairwiseSystem(cast(Any, ranker), "sym-sum", "", ComputeOptions())
    return ranker


@dataclass(frozen=True)
class PairwiseSystem:
    """What ``duot5("DIR", aggregate="sym-sum", passages="")`` says, opened.

    Attributes:
        ranker: What compares.
        aggregate: How preferences become scores.
        passages: The ranker that chooses the passage of a long document, in notation; "" for none.
        compute: How both compute.
    """

    ranker: DuoT5Ranker
    aggregate: str
    passages: str
    compute: ComputeOptions

    def plan(self, options: RerankOptions) -> PairwisePlan:
        """Settle how documents are read and compared.

        Raises:
            WrongUse: Documents are cut, and no ranker is named that chooses a passage; an unknown splitter.
        """
        split = notation.make(options.split or "whole", SPLITTERS, "splitter")
        chooser = open_ranker(self.passages, self.compute) if self.passages else None
        return PairwisePlan(options.depth, self.aggregate, split, chooser, tail=options.tail)

    def rerank(
        self,
        run: Run,
        queries: Sequence[Query],
        documents: Documents,
        plan: PairwisePlan,
        progress: Progress | None = None,
    ) -> RerankResult:
        """Rerank a run.

        Raises:
            BadData: A query of the run has no text.
        """
        report, started = Report(), time.perf_counter()
        reranked = rerank_pairwise(
            self.ranker, run, queries, documents, plan=plan, report=report, progress=progress
        )
        return RerankResult(reranked, report, time.perf_counter() - started, None)


def open_pairwise(spec: str, compute: ComputeOptions) -> PairwiseSystem:
    """Open a ranker that compares, by its notation.

    Args:
        spec: ``duot5("DIR")``, with ``aggregate`` and ``passages`` besides what the checkpoint takes.

    Raises:
        MissingExtra: torch or transformers is not installed.
        BadModel: The checkpoint cannot be used.
        WrongUse: Arguments it does not take.
    """
    try:
        from rankhouse.models.duot5 import DuoT5Ranker
        from rankhouse.models.families import PAIRWISE
        from rankhouse.nn.compute import choose
    except ImportError as error:
        raise MissingExtra(f"the ranker {spec}", "neural") from error
    named = notation.parse(spec)
    own = dict(named.kwargs)
    aggregate, passages = own.pop("aggregate", "sym-sum"), own.pop("passages", "")
    if not isinstance(aggregate, str) or not isinstance(passages, str):
        raise WrongUse(f"{spec}: aggregate and passages are texts in quotes")
    PairwisePlan(aggregate=aggregate)  # a wrong word is refused before anything is opened
    model = notation.make(named._replace(kwargs=own), PAIRWISE, "family of rankers that compare")
    device = choose(compute.precision, compute.device, compute.threads or None)
    return PairwiseSystem(DuoT5Ranker(model, device), aggregate, passages, compute)
