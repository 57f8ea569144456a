"""A system at work on one question: its first stages, its fusion, its ranker."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from rankhouse.core import notation
from rankhouse.core.nouns import Query
from rankhouse.core.run import Ranking, Run
from rankhouse.index.lexical.search import LexicalOptions, retrieve
from rankhouse.index.lexical.weighting import WEIGHTINGS
from rankhouse.ranking.fuse import FUSIONS

if TYPE_CHECKING:
    from rankhouse.app.serve.search.catalogue import Catalogue
    from rankhouse.app.serve.search.systems import SystemSpec
    from rankhouse.app.serve.search.view import IndexView


@dataclass(frozen=True)
class Ranked:
    """What a system made of a question.

    Attributes:
        ranking: Its order.
        before: The first stage's order, where something came after it.
        degraded: Why this is only the first stage's order; "" where it is the system's.
        warnings: What the asker should know.
    """

    ranking: Ranking
    before: Ranking | None = None
    degraded: str = ""
    warnings: tuple[str, ...] = ()


def rank(
    catalogue: Catalogue, view: IndexView, spec: SystemSpec, query: Query, until: float | None = None
) -> Ranked:
    """Rank the documents of an index for a question.

    Args:
        catalogue: The rankers that the system names.
        view: The index.
        spec: The system.
        query: The question.
        until: When, by ``time.monotonic``, the first stage's order is good enough; None waits.

    Raises:
        WrongUse: An unknown model, feedback, fusion or ranker.
    """
    del catalogue, until
    runs = [_first_stage(view, model, spec, query) for model in spec.models]
    fusion = notation.make(spec.fusion or "rrf", FUSIONS, "method of fusion")
    joined = runs[0] if len(runs) == 1 else fusion(runs, spec.weights).top(spec.k)
    return Ranked(joined[query.id], runs[0][query.id] if len(runs) > 1 else None)


def _first_stage(view: IndexView, model: str, spec: SystemSpec, query: Query) -> Run:
    notation.choose(notation.parse(model).name, WEIGHTINGS, "model")
    return retrieve(view.index, [query], LexicalOptions(model, spec.feedback, spec.k, threads=1))
