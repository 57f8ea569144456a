"""Rules: one small algebra that says which pairs of query and passage are relevant.

| rule | says yes to a pair where |
|---|---|
| ``judged(qrels, at_least=1)`` | the document (or the passage) has at least this grade |
| ``taught(ranker, threshold=0.5)`` | the ranker gives it at least this probability |
| ``taught(ranker, threshold=0, best=5)`` | it is one of the document's 5 best passages by the ranker |
| ``ranked(run, k)`` | the document is among the run's first k for the query |
| ``a & b`` | both say yes; b is asked only where a said yes |
| ``a | b`` | one says yes; b is asked only where a said no |
| ``~a`` | a says no |

Label transfer (QA-DocRank, eq. 1) and the intersection of product matching are ``judged(q) & taught(t)``;
DOC-LABELLED is ``judged(q)``; annotation without people is ``taught(t)``; top-1 is ``ranked(run, 1)``.

A rule is a frozen value. ``str(rule)`` is its notation, which :func:`rankhouse.labels.rule_notation.read`
reads back; ``rule(pairs)`` answers. What is relevant to a document is said of each of its passages.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from rankhouse.core.nouns import FloatArray, Pair, Ranker
from rankhouse.core.scores import Doubles, numbers_only, one_each

BoolArray = NDArray[np.bool_]
Places = NDArray[np.int64]


class ChunkScores:
    """One chunk of n pairs, and the scores that rankers gave for some of them."""

    def __init__(self, pairs: Sequence[Pair]) -> None:
        self.pairs = pairs
        self._given: dict[int, tuple[FloatArray, BoolArray]] = {}

    def scores(self, ranker: Ranker, places: Places) -> FloatArray:
        """Return a ranker's scores (m,) of the pairs at these m places; it reads only what it has not read.

        Raises:
            BadModel: It gave another number of scores, or one that is not a number.
        """
        values, asked = self._given.setdefault(
            id(ranker), (np.full(len(self.pairs), np.nan, np.float32), np.zeros(len(self.pairs), np.bool_))
        )
        fresh = places[~asked[places]]
        if len(fresh):
            chosen = [self.pairs[i] for i in fresh.tolist()]
            values[fresh] = numbers_only(one_each(len(chosen), ranker.score(chosen)), chosen)
            asked[fresh] = True
        return values[places]

    def column(self, ranker: Ranker) -> tuple[FloatArray, BoolArray]:
        """Return all a ranker said: scores (n,), NaN where it was not asked, and where it was asked (n,)."""
        empty = np.full(len(self.pairs), np.nan, np.float32), np.zeros(len(self.pairs), np.bool_)
        return self._given.get(id(ranker), empty)


def foremost(pairs: Sequence[Pair], values: Doubles, k: int) -> BoolArray:
    """Return which of n pairs are among the k best passages of their document for their query: (n,).

    Of equally good passages the earlier ones are taken.
    """
    documents: dict[tuple[str, str], list[int]] = {}
    for place, (query, passage) in enumerate(pairs):
        documents.setdefault((query.id, passage.doc_id), []).append(place)
    answers = np.zeros(len(pairs), np.bool_)
    for places in documents.values():
        answers[sorted(places, key=lambda place: (-values[place], pairs[place].passage.index))[:k]] = True
    return answers


class Rule(ABC):
    """Says of pairs whether they are relevant. Join rules with ``&``, ``|`` and ``~``."""

    def __call__(self, pairs: Sequence[Pair]) -> BoolArray:
        """Answer for n pairs: (n,) bool.

        Raises:
            BadModel: A teacher gave something that is no score.
        """
        return self.ask(ChunkScores(pairs), np.arange(len(pairs)))

    @abstractmethod
    def ask(self, chunk: ChunkScores, places: Places) -> BoolArray:
        """Answer for the pairs at these m places of a chunk: (m,) bool.

        Args:
            chunk: Pairs, and what rankers said of them so far.
        """

    def leaves(self) -> Iterator[Rule]:
        """Stream the rules that this one is made of, in reading order; a leaf is made of itself."""
        yield self

    @property
    @abstractmethod
    def identity(self) -> str:
        """Name everything the answers depend on: contents, not file names."""

    def __and__(self, other: Rule) -> Rule:
        return And(self, other)

    def __or__(self, other: Rule) -> Rule:
        return Or(self, other)

    def __invert__(self) -> Rule:
        return Not(self)

    def __repr__(self) -> str:
        return f"<Rule {self}>"


@dataclass(frozen=True, repr=False)
class _Joint(Rule):
    """Two rules joined by a sign; the right one is asked only where the left one leaves the answer open."""

    left: Rule
    right: Rule

    sign: ClassVar[str]
    open_on: ClassVar[bool]  # the left rule's answer that leaves the joint one to the right rule
    looser: ClassVar[tuple[type[Rule], ...]]  # rules that need parentheses beside the sign

    def ask(self, chunk: ChunkScores, places: Places) -> BoolArray:
        """Ask the left rule, and the right one where that leaves the answer open: (m,)."""
        answers = self.left.ask(chunk, places)
        still_open = np.flatnonzero(answers == self.open_on)
        answers[still_open] = self.right.ask(chunk, places[still_open])
        return answers

    def leaves(self) -> Iterator[Rule]:
        """Stream the leaves of both."""
        yield from self.left.leaves()
        yield from self.right.leaves()

    @property
    def identity(self) -> str:
        """Join both."""
        return f"({self.left.identity} {self.sign} {self.right.identity})"

    def __str__(self) -> str:
        left, right = _within(self.left, *self.looser), _within(self.right, *self.looser, type(self))
        return f"{left} {self.sign} {right}"


class Or(_Joint):
    """Yes where one says yes."""

    sign, open_on, looser = "|", False, ()


class And(_Joint):
    """Yes where both say yes."""

    sign, open_on, looser = "&", True, (Or,)


@dataclass(frozen=True, repr=False)
class Not(Rule):
    """Yes where the other says no."""

    rule: Rule

    def ask(self, chunk: ChunkScores, places: Places) -> BoolArray:
        """Ask and turn round: (m,)."""
        return ~self.rule.ask(chunk, places)

    def leaves(self) -> Iterator[Rule]:
        """Stream the other's leaves."""
        yield from self.rule.leaves()

    @property
    def identity(self) -> str:
        """Turn the other's round."""
        return f"~{self.rule.identity}"

    def __str__(self) -> str:
        return f"~{_within(self.rule, And, Or)}"


def _within(rule: Rule, *looser: type[Rule]) -> str:
    return f"({rule})" if isinstance(rule, looser) else str(rule)
