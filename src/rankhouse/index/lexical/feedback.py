"""RM3: pseudo-relevance feedback as Anserini computes it.

Lavrenko & Croft 2001 (relevance models), Abdul-Jaleel et al. 2004 (mixed with the query: RM3).
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import NamedTuple

from rankhouse.core.errors import WrongUse
from rankhouse.core.notation import write

_PLAIN = re.compile(r"[a-z0-9]+")


class FeedbackDocument(NamedTuple):
    """A document of the first pass: its score, and its terms with their counts."""

    score: float
    terms: Sequence[tuple[str, int]]


class Expansion(NamedTuple):
    """A query and its feedback, mixed, and what each weight came from.

    Attributes:
        weights: Term -> weight, the sum of the two below.
        original: Term -> what the query gave it.
        sources: Term -> place among the feedback documents -> what that document gave it.
    """

    weights: dict[str, float]
    original: dict[str, float]
    sources: dict[str, dict[int, float]]


@dataclass(frozen=True)
class RM3:
    """Expand a query by the terms of its best documents.

    Attributes:
        terms: How many terms a document gives, and how many the expansion keeps.
        docs: How many documents of the first pass are read.
        weight: Share of the original query, between 0 and 1.
        filter: Keep only terms of letters a-z and digits. Terms shorter than 2 or longer than 20 characters
            and too common ones are left out in any case.
        common: "Too common" is to occur in more than this share of all documents; by default a tenth, in
            an index of the ``tweet`` analyzer a hundredth (.7 % above a hundred million documents).
    """

    terms: int = 10
    docs: int = 10
    weight: float = 0.5
    filter: bool = True
    common: float | None = None

    def __post_init__(self) -> None:
        for name in ("terms", "docs"):
            if getattr(self, name) < 1:
                raise WrongUse(f"rm3({name}={getattr(self, name)}): {name} must be 1 or more")
        if not 0 <= self.weight <= 1:
            raise WrongUse(f"rm3(weight={self.weight}): the original query's share must be between 0 and 1")
        if self.common is not None and not 0 <= self.common <= 1:
            raise WrongUse(f"rm3(common={self.common}): a share of all documents is between 0 and 1")

    def __str__(self) -> str:
        rest = {} if self.filter else {"filter": False}
        if self.common is not None:
            rest["common"] = self.common  # type: ignore[assignment]
        return write("rm3", terms=self.terms, docs=self.docs, weight=self.weight, **rest)

    def common_share(self, analyzer: str, documents: int) -> float:
        """Return the share of documents above which a term is too common."""
        if self.common is not None:
            return self.common
        if analyzer != "tweet":
            return 0.1
        return 0.007 if documents > 100_000_000 else 0.01

    def expand(
        self,
        query: Mapping[str, float],
        hits: Sequence[FeedbackDocument],
        is_common: Callable[[str], bool],
    ) -> Expansion:
        """Mix the query with the relevance model of the documents found.

        Args:
            query: Terms of the query with their counts.
            hits: The first pass's best documents, with their raw scores.
            is_common: Whether too many documents hold a term.
        """
        model: dict[str, float] = {}
        by_document: dict[str, dict[int, float]] = {}
        for place, document in enumerate(hits):
            weighted = self._kept(document.terms, is_common)
            total = sum(tf for _, tf in weighted)
            for term, tf in weighted:
                share = document.score * tf / total
                model[term] = model.get(term, 0.0) + share
                by_document.setdefault(term, {})[place] = share
        best = sorted(model.items(), key=_by_weight)[: self.terms]
        norm, length = sum(weight for _, weight in best), sum(query.values())
        original = {term: self.weight * count / length for term, count in query.items()}
        mixed, sources = dict(original), dict[str, dict[int, float]]()
        for term, weight in best:
            if norm:
                mixed[term] = mixed.get(term, 0.0) + (1 - self.weight) * weight / norm
                shares = by_document[term].items()
                sources[term] = {place: (1 - self.weight) * share / norm for place, share in shares}
        return Expansion(mixed, original, sources)

    def frequent(self, terms: Sequence[tuple[str, int]]) -> list[str]:
        """Return terms of a document that will be looked up, most often all: twice as many as are kept."""
        return [term for term, _ in islice(self._candidates(terms), 2 * self.terms)]

    def _candidates(self, terms: Sequence[tuple[str, int]]) -> Iterator[tuple[str, int]]:
        """Yield a document's terms that may be kept, from the most frequent down."""
        return (
            (term, tf)
            for term, tf in sorted(terms, key=_by_weight)
            if 2 <= len(term) <= 20 and (not self.filter or _PLAIN.fullmatch(term))
        )

    def _kept(
        self, terms: Sequence[tuple[str, int]], is_common: Callable[[str], bool]
    ) -> list[tuple[str, int]]:
        # One by one, so that few terms have to be looked up in the whole index.
        good = ((term, tf) for term, tf in self._candidates(terms) if not is_common(term))
        return list(islice(good, self.terms))


def _by_weight(item: tuple[str, float]) -> tuple[float, str]:
    """Order terms by falling weight; equal weights alphabetically."""
    return -item[1], item[0]


def as_likelihoods(scores: Sequence[float]) -> list[float]:
    """Turn log probabilities into weights relative to the best document's, for models that score in logs."""
    return [math.exp(score - max(scores)) for score in scores]


FEEDBACKS: dict[str, Callable[..., RM3]] = {"rm3": RM3}
