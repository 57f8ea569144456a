"""RM3: pseudo-relevance feedback as Anserini computes it.

Lavrenko & Croft 2001 (relevance models), Abdul-Jaleel et al. 2004 (mixed with the query: RM3).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from operator import itemgetter
from typing import NamedTuple

from rankhouse.core.errors import WrongUse
from rankhouse.core.notation import write


class FeedbackDocument(NamedTuple):
    """A document of the first pass: its score, and what :meth:`RM3.ranked` leaves of its terms."""

    score: float
    terms: Sequence[tuple[str, int]]


@dataclass(frozen=True)
class Expansion:
    """A query and its feedback, mixed, and what each weight came from.

    Attributes:
        weights: Term -> weight, the sum of the two below.
        original: Term -> what the query gave it.
        shares: Of the terms that feedback gave, the place of each document that holds it among the feedback
            documents, and what it gave, before weights are scaled.
        scale: What shares are multiplied by.
    """

    weights: dict[str, float]
    original: dict[str, float]
    shares: Mapping[str, Sequence[tuple[int, float]]]
    scale: Callable[[float], float]

    @property
    def sources(self) -> dict[str, dict[int, float]]:
        """Term -> place among the feedback documents -> what that document gave it."""
        return {
            term: {place: self.scale(share) for place, share in shares}
            for term, shares in self.shares.items()
        }


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
        self, query: Mapping[str, float], hits: Sequence[FeedbackDocument], is_common: Callable[[str], bool]
    ) -> Expansion:
        """Mix the query with the relevance model of the documents found.

        Args:
            query: Terms of the query with their counts.
            hits: The first pass's best documents, with their raw scores.
            is_common: Whether too many documents hold a term.
        """
        model: dict[str, float] = {}
        shares: dict[str, list[tuple[int, float]]] = {}
        for place, document in enumerate(hits):
            # One by one, so that few terms have to be looked up in the whole index.
            kept = list(islice((item for item in document.terms if not is_common(item[0])), self.terms))
            total = sum(tf for _, tf in kept)
            for term, tf in kept:
                share = document.score * tf / total
                if term in model:
                    model[term] += share
                    shares[term].append((place, share))
                else:
                    model[term], shares[term] = share, [(place, share)]
        best = sorted(model.items(), key=_by_weight)[: self.terms]
        norm, length = sum(weight for _, weight in best), sum(query.values())
        original = {term: self.weight * count / length for term, count in query.items()}
        mixed = dict(original)
        for term, weight in best if norm else ():
            mixed[term] = mixed.get(term, 0.0) + (1 - self.weight) * weight / norm
        given = {term: shares[term] for term, _ in best} if norm else {}
        return Expansion(mixed, original, given, lambda share: (1 - self.weight) * share / norm)

    def ranked(self, terms: Sequence[tuple[str, int]]) -> list[tuple[str, int]]:
        """Return a document's terms that may be kept, from the most frequent down, equals by name."""
        # Sorted twice, which is quicker than once by a key of Python's.
        kept = sorted(
            item for item in terms if 2 <= len(item[0]) <= 20 and (not self.filter or _is_plain(item[0]))
        )
        kept.sort(key=itemgetter(1), reverse=True)
        return kept

    def frequent(self, terms: Sequence[tuple[str, int]]) -> list[str]:
        """Return the ranked terms of a document that are probably looked up: twice as many as are kept."""
        return [term for term, _ in terms[: 2 * self.terms]]


def _is_plain(term: str) -> bool:
    """Return whether a term is of letters a-z and digits."""
    return term.isascii() and term.isalnum() and (term.islower() or term.isdigit())


def _by_weight(item: tuple[str, float]) -> tuple[float, str]:
    """Order terms by falling weight; equal weights alphabetically."""
    return -item[1], item[0]


def as_likelihoods(scores: Sequence[float]) -> list[float]:
    """Turn log probabilities into weights relative to the best document's, for models that score in logs."""
    return [math.exp(score - max(scores)) for score in scores]


FEEDBACKS: dict[str, Callable[..., RM3]] = {"rm3": RM3}
