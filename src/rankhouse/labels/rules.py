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

import math
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Literal

import numpy as np

from rankhouse.core.errors import RankhouseWarning, WrongUse
from rankhouse.core.notation import write
from rankhouse.core.nouns import Pair, Ranker
from rankhouse.core.qrels import Qrels
from rankhouse.core.run import Run
from rankhouse.core.scores import PROBABLE, RAW, probabilities
from rankhouse.labels.fingerprints import qrels_digest, run_digest
from rankhouse.labels.teacher_scores import Asking, BoolArray, Places, foremost

PASSAGE_MARK = "#"
"""Passage judgements name passage 3 of document d as d#3."""


class Rule(ABC):
    """Says of pairs whether they are relevant. Join rules with ``&``, ``|`` and ``~``."""

    def __call__(self, pairs: Sequence[Pair]) -> BoolArray:
        """Answer for n pairs: (n,) bool.

        Raises:
            BadModel: A teacher gave something that is no score.
        """
        return self.ask(Asking(pairs), np.arange(len(pairs)))

    @abstractmethod
    def ask(self, asking: Asking, places: Places) -> BoolArray:
        """Answer for the pairs at these m places of a chunk: (m,) bool."""

    @abstractmethod
    def leaves(self) -> Iterator[Judged | Taught | Ranked]:
        """Return the rules that this one is made of, in reading order."""

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
class Judged(Rule):
    """Yes where a judge gave at least this grade; make one with :func:`judged`."""

    qrels: Qrels = field(hash=False)
    at_least: int
    by: Literal["document", "passage"]
    name: str

    def ask(self, asking: Asking, places: Places) -> BoolArray:
        """Look the grades up: (m,)."""
        answers = np.zeros(len(places), np.bool_)
        for i, place in enumerate(places.tolist()):
            query, passage = asking.pairs[place]
            key = passage.doc_id if self.by == "document" else passage_key(passage.doc_id, passage.index)
            grade = self.qrels.get(query.id, {}).get(key)
            answers[i] = grade is not None and grade >= self.at_least
        return answers

    def leaves(self) -> Iterator[Judged | Taught | Ranked]:
        """Return itself."""
        yield self

    @property
    def identity(self) -> str:
        """Hash the judgements."""
        return write("judged", qrels_digest(self.qrels), self.at_least, self.by)

    def __str__(self) -> str:
        said: dict[str, object] = {} if self.at_least == 1 else {"at_least": self.at_least}
        return write("judged", self.name, **said | ({} if self.by == "document" else {"by": self.by}))


@dataclass(frozen=True, repr=False)
class Taught(Rule):
    """Yes where a ranker's score reaches the threshold; make one with :func:`taught`."""

    ranker: Ranker = field(hash=False)
    threshold: float
    scale: str
    name: str
    best: int = 0

    @property
    def said(self) -> str:
        """The scale of the scores: as this rule says, else as the ranker declares, else "score"."""
        return self.scale or str(getattr(self.ranker, "scale", "score"))

    def ask(self, asking: Asking, places: Places) -> BoolArray:
        """Have the pairs scored, compare with the threshold, keep the best of each document: (m,)."""
        values = probabilities(asking.scores(self.ranker, places), self.said)
        answers = np.asarray(values >= self.threshold)
        if self.best:
            answers &= foremost([asking.pairs[place] for place in places.tolist()], values, self.best)
        return answers

    def leaves(self) -> Iterator[Judged | Taught | Ranked]:
        """Return itself."""
        yield self

    @property
    def identity(self) -> str:
        """Name the ranker by its fingerprint, where it has one, else by its name."""
        ranker = (
            str(getattr(self.ranker, "fingerprint", "")) or f"{type(self.ranker).__qualname__} {self.name}"
        )
        best = {"best": self.best} if self.best else {}
        return write("taught", ranker, self.threshold, self.said, **best)

    def __str__(self) -> str:
        said: dict[str, object] = {"scale": self.scale} if self.scale else {}
        said |= {"best": self.best} if self.best else {}
        return write("taught", self.name, threshold=self.threshold, **said)


@dataclass(frozen=True, repr=False)
class Ranked(Rule):
    """Yes where the document is among a run's first k; make one with :func:`ranked`."""

    run: Run = field(hash=False)
    k: int
    name: str

    def ask(self, asking: Asking, places: Places) -> BoolArray:
        """Look the documents up in the ranking: (m,)."""
        firsts: dict[str, frozenset[str]] = {}
        answers = np.zeros(len(places), np.bool_)
        for i, place in enumerate(places.tolist()):
            query, passage = asking.pairs[place]
            if query.id not in firsts:
                found = self.run[query.id].doc_ids[: self.k] if query.id in self.run else ()
                firsts[query.id] = frozenset(found)
            answers[i] = passage.doc_id in firsts[query.id]
        return answers

    def leaves(self) -> Iterator[Judged | Taught | Ranked]:
        """Return itself."""
        yield self

    @property
    def identity(self) -> str:
        """Hash the first k documents of every query."""
        return write("ranked", run_digest(self.run, self.k), self.k)

    def __str__(self) -> str:
        return write("ranked", self.name, self.k)


@dataclass(frozen=True, repr=False)
class And(Rule):
    """Yes where both say yes."""

    left: Rule
    right: Rule

    def ask(self, asking: Asking, places: Places) -> BoolArray:
        """Ask the right rule only where the left one said yes: (m,)."""
        answers = self.left.ask(asking, places)
        still_open = np.flatnonzero(answers)
        answers[still_open] = self.right.ask(asking, places[still_open])
        return answers

    def leaves(self) -> Iterator[Judged | Taught | Ranked]:
        """Return the leaves of both."""
        yield from self.left.leaves()
        yield from self.right.leaves()

    @property
    def identity(self) -> str:
        """Join both."""
        return f"({self.left.identity} & {self.right.identity})"

    def __str__(self) -> str:
        return f"{_within(self.left, Or)} & {_within(self.right, Or, And)}"


@dataclass(frozen=True, repr=False)
class Or(Rule):
    """Yes where one says yes."""

    left: Rule
    right: Rule

    def ask(self, asking: Asking, places: Places) -> BoolArray:
        """Ask the right rule only where the left one said no: (m,)."""
        answers = self.left.ask(asking, places)
        still_open = np.flatnonzero(~answers)
        answers[still_open] = self.right.ask(asking, places[still_open])
        return answers

    def leaves(self) -> Iterator[Judged | Taught | Ranked]:
        """Return the leaves of both."""
        yield from self.left.leaves()
        yield from self.right.leaves()

    @property
    def identity(self) -> str:
        """Join both."""
        return f"({self.left.identity} | {self.right.identity})"

    def __str__(self) -> str:
        return f"{self.left} | {_within(self.right, Or)}"


@dataclass(frozen=True, repr=False)
class Not(Rule):
    """Yes where the other says no."""

    rule: Rule

    def ask(self, asking: Asking, places: Places) -> BoolArray:
        """Ask and turn round: (m,)."""
        return ~self.rule.ask(asking, places)

    def leaves(self) -> Iterator[Judged | Taught | Ranked]:
        """Return the other's leaves."""
        yield from self.rule.leaves()

    @property
    def identity(self) -> str:
        """Turn the other's round."""
        return f"~{self.rule.identity}"

    def __str__(self) -> str:
        return f"~{_within(self.rule, And, Or)}"


def judged(qrels: Qrels, at_least: int = 1, by: str = "document", name: str = "") -> Rule:
    """Make a rule of judgements; what nobody judged is not relevant.

    Args:
        qrels: Query id -> document id -> grade.
        at_least: The lowest grade that counts as relevant.
        by: "document": a grade holds for all passages. "passage": passage i of document d is judged as "d#i".
        name: What stands for the judgements in the notation, usually the file; else a hash of them.

    Raises:
        WrongUse: ``at_least`` is no whole number, or ``by`` another word.
    """
    if isinstance(at_least, bool) or not isinstance(at_least, int):
        raise WrongUse(f"judged: at_least={at_least!r}, but a grade is a whole number")
    if by not in ("document", "passage"):
        raise WrongUse(f'judged: by={by!r}; choose "document" or "passage"')
    level: Literal["document", "passage"] = "document" if by == "document" else "passage"
    return Judged(qrels, at_least, level, name or f"qrels-{qrels_digest(qrels)[:8]}")


def taught(
    ranker: Ranker, threshold: float = 0.5, scale: str = "", name: str = "", best: int | None = None
) -> Rule:
    """Make a rule of a teacher: yes where it gives at least the threshold.

    On the scales "logit", "probability" and "logprob" the threshold is a probability, so 0.5 is where a
    two-class model would say "relevant". On "similarity" and "score" it is compared with the score itself.

    Args:
        ranker: The teacher; wrap it in a cached ranker to keep its scores.
        threshold: The least that counts as relevant.
        scale: The scale of its scores; by default what its attribute ``scale`` declares.
        name: What stands for it in the notation, usually its folder; else its fingerprint or type.
        best: Accept at most so many passages of a document (of those it is asked about); None: all. A teacher
            of another domain orders the passages of one document better than those of different queries.

    Raises:
        WrongUse: A scale that does not exist, or a threshold that is none on it.
    """
    name = name or str(getattr(ranker, "fingerprint", "")) or type(ranker).__qualname__
    if best is not None and (isinstance(best, bool) or not isinstance(best, int) or best < 1):
        raise WrongUse(f"taught: best={best!r}, but it is how many passages of a document count, from 1 up")
    rule = Taught(ranker, threshold, scale, name, best or 0)
    if rule.said not in (*PROBABLE, *RAW):
        raise WrongUse(
            f'"{rule.said}" is no scale of scores known here; choose from: {", ".join((*PROBABLE, *RAW))}'
        )
    if isinstance(threshold, bool) or not isinstance(threshold, int | float) or math.isnan(threshold):
        raise WrongUse(f"taught: threshold={threshold!r}, but it must be a number")
    if rule.said in PROBABLE and not 0 <= threshold <= 1:
        raise WrongUse(
            f'taught: threshold={threshold!r}, but on the scale "{rule.said}" it is a probability from 0 to '
            '1; to compare raw scores say scale="score"'
        )
    if not scale and rule.said == "score":
        warnings.warn(
            f'the teacher "{name}" declares no scale, so the threshold {threshold} is compared with its raw '
            'scores; say scale="logit", "probability", "logprob" or "score" in the rule',
            RankhouseWarning,
            stacklevel=2,
        )
    return rule


def ranked(run: Run, k: int, name: str = "") -> Rule:
    """Make a rule of a run: yes to the documents among the first k of their query.

    Args:
        run: The ranking.
        k: How many count, from 1 up.
        name: What stands for the run in the notation, usually the file; else a hash of its first k.

    Raises:
        WrongUse: k is no whole number of at least 1.
    """
    if isinstance(k, bool) or not isinstance(k, int) or k < 1:
        raise WrongUse(f"ranked: k={k!r}, but it is how many documents count, a whole number from 1 up")
    return Ranked(run, k, name or f"run-{run_digest(run, k)[:8]}")


def judges(rule: Rule) -> list[Judged]:
    """List the distinct judges of a rule, in reading order."""
    return list(dict.fromkeys(leaf for leaf in rule.leaves() if isinstance(leaf, Judged)))


def teachers(rule: Rule) -> list[Taught]:
    """List the distinct teachers of a rule, in reading order."""
    return list(dict.fromkeys(leaf for leaf in rule.leaves() if isinstance(leaf, Taught)))


def non_relevant(rule: Rule) -> Rule:
    """Return the rule that says which pairs may serve as negatives of this one.

    Where judges say what is relevant, a pair is non-relevant if none of them says yes; what a teacher refuses
    among the relevant is doubtful, and neither. Without a judge, whatever the rule refuses is non-relevant.
    """
    found = list(dict.fromkeys(_affirmed(rule, affirmed=True)))
    if not found:
        return Not(rule)
    refusals: list[Rule] = [Not(judge) for judge in found]
    return reduce(And, refusals)


def _affirmed(rule: Rule, *, affirmed: bool) -> Iterator[Rule]:
    """Return the judges whose yes speaks for relevance: those under an even number of ~."""
    match rule:
        case Judged() if affirmed:
            yield rule
        case Not():
            yield from _affirmed(rule.rule, affirmed=not affirmed)
        case And() | Or():
            yield from _affirmed(rule.left, affirmed=affirmed)
            yield from _affirmed(rule.right, affirmed=affirmed)


def passage_key(doc_id: str, index: int) -> str:
    """Name a passage as passage judgements do: d#3."""
    return f"{doc_id}{PASSAGE_MARK}{index}"


def _within(rule: Rule, *looser: type[Rule]) -> str:
    return f"({rule})" if isinstance(rule, looser) else str(rule)
