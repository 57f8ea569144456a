"""Leaves of rules: judgements, a teacher, a run; :mod:`rankhouse.labels.rules` joins them.

``judged``, ``taught`` and ``ranked`` make them, in Python as in the notation.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property, reduce
from hashlib import blake2b
from typing import ClassVar, Final, Literal

import numpy as np

from rankhouse.core.arguments import check_whole
from rankhouse.core.errors import BadData, WrongUse, warn
from rankhouse.core.notation import write
from rankhouse.core.nouns import FloatArray, Ranker, fingerprint_of
from rankhouse.core.qrels import Qrels
from rankhouse.core.run import Run
from rankhouse.core.scores import check_scale, is_probable, probabilities, scale_of
from rankhouse.labels.rules import And, BoolArray, ChunkScores, Not, Or, Places, Rule, foremost


def _digest(parts: Iterable[bytes]) -> str:
    digest = blake2b(digest_size=16)
    for part in parts:
        digest.update(part)
    return digest.hexdigest()


def qrels_digest(qrels: Qrels) -> str:
    """Hash judgements, whatever their order, to 32 hexadecimal digits."""
    rows = {q: (f"{d} {g}" for d, g in sorted(qrels[q].items())) for q in sorted(qrels)}
    return _digest((f"\n{query_id}\t" + "\t".join(row)).encode() for query_id, row in rows.items())


def run_digest(run: Run, depth: int) -> str:
    """Hash the first ``depth`` documents of every query, in order, to 32 hexadecimal digits."""
    return _digest((f"\n{q}\t" + "\t".join(run[q].doc_ids[:depth])).encode() for q in run)


def source_of_run(run: Run) -> str:
    """Name a run as a source of scores: by its documents and what it gives them."""
    scores = _digest(run[query_id].scores.tobytes() for query_id in run)
    return write("ranked", run_digest(run, max(1, run.rows)), scores)


PASSAGE_MARK = "#"
"""Passage judgements name passage 3 of document d as d#3."""
_IS_PASSAGE: Final = re.compile(rf".*{PASSAGE_MARK}\d+", re.DOTALL).fullmatch


@dataclass(frozen=True, repr=False)
class JudgeRule(Rule):
    """Yes where a judge gave at least this grade; make one with :func:`judged`."""

    qrels: Qrels = field(hash=False)
    at_least: int
    by: Literal["document", "passage"]
    name: str

    def ask(self, chunk: ChunkScores, places: Places) -> BoolArray:
        """Look the judgements up: (m,)."""
        pairs, by_document = [chunk.pairs[place] for place in places.tolist()], self.by == "document"
        keys = (
            (query.id, passage.doc_id if by_document else passage_key(passage.doc_id, passage.index))
            for query, passage in pairs
        )
        return np.fromiter(map(self._relevant.__contains__, keys), np.bool_, len(pairs))

    @cached_property
    def _relevant(self) -> frozenset[tuple[str, str]]:
        """(query id, document or passage) of what has the grade."""
        return frozenset(
            (query_id, key)
            for query_id, grades in self.qrels.items()
            for key, grade in grades.items()
            if grade >= self.at_least
        )

    @property
    def identity(self) -> str:
        """Hash the judgements."""
        return write("judged", qrels_digest(self.qrels), self.at_least, self.by)

    def __str__(self) -> str:
        options: dict[str, object] = {} if self.at_least == 1 else {"at_least": self.at_least}
        return write("judged", self.name, **options | ({} if self.by == "document" else {"by": self.by}))


@dataclass(frozen=True, repr=False)
class TeacherRule(Rule):
    """Yes where a ranker's score reaches the threshold; make one with :func:`taught`."""

    ranker: Ranker = field(hash=False)
    threshold: float
    scale: str
    name: str
    best: int = 0

    @property
    def score_scale(self) -> str:
        """The scale of the scores: as this rule says, else as the ranker declares, else "score"."""
        return self.scale or scale_of(self.ranker)

    def ask(self, chunk: ChunkScores, places: Places) -> BoolArray:
        """Have the pairs scored, compare with the threshold, keep the best of each document: (m,)."""
        values = probabilities(chunk.scores(self.ranker, places), self.score_scale)
        answers = np.asarray(values >= self.threshold)
        if self.best:
            answers &= foremost([chunk.pairs[place] for place in places.tolist()], values, self.best)
        return answers

    @property
    def identity(self) -> str:
        """Name the ranker by its fingerprint, where it has one, else by its name."""
        ranker = fingerprint_of(self.ranker) or f"{type(self.ranker).__qualname__} {self.name}"
        best = {"best": self.best} if self.best else {}
        return write("taught", ranker, self.threshold, self.score_scale, **best)

    def soft_scores(self, chunk: ChunkScores, places: Places) -> FloatArray:
        """Return the ranker's scores of the pairs at these places: (m,)."""
        return chunk.scores(self.ranker, places)

    def was_asked(self, chunk: ChunkScores) -> BoolArray:
        """Return which of the chunk's n pairs the ranker has read: (n,)."""
        return chunk.column(self.ranker)[1]

    @property
    def source(self) -> str:
        """Name where the scores come from, whatever the threshold."""
        return write("taught", fingerprint_of(self.ranker) or self.name, self.score_scale)

    def __str__(self) -> str:
        options: dict[str, object] = {"scale": self.scale} if self.scale else {}
        options |= {"best": self.best} if self.best else {}
        return write("taught", self.name, threshold=self.threshold, **options)


@dataclass(frozen=True, repr=False)
class RunRule(Rule):
    """Yes where the document is among a run's first k; make one with :func:`ranked`."""

    run: Run = field(hash=False)
    k: int
    name: str

    def ask(self, chunk: ChunkScores, places: Places) -> BoolArray:
        """Look the documents up in the ranking: (m,)."""
        pairs = [chunk.pairs[place] for place in places.tolist()]
        keys = ((query.id, passage.doc_id) for query, passage in pairs)
        return np.fromiter(map(self._first.__contains__, keys), np.bool_, len(pairs))

    @cached_property
    def _first(self) -> frozenset[tuple[str, str]]:
        """(query id, document) of the first k."""
        return frozenset((q, doc_id) for q in self.run for doc_id in self.run[q].doc_ids[: self.k])

    @property
    def identity(self) -> str:
        """Hash the first k documents of every query."""
        return write("ranked", run_digest(self.run, self.k), self.k)

    score_scale: ClassVar[str] = "score"

    def soft_scores(self, chunk: ChunkScores, places: Places) -> FloatArray:
        """Look the scores of the pairs' documents up: (m,), NaN where the run does not have one."""
        pairs = [chunk.pairs[place] for place in places.tolist()]
        scores = (self._scores.get(query.id, {}).get(passage.doc_id, math.nan) for query, passage in pairs)
        return np.fromiter(scores, np.float32, len(pairs))

    def was_asked(self, chunk: ChunkScores) -> BoolArray:
        """Return which of the chunk's n pairs are of a document that the run has: (n,)."""
        return ~np.isnan(self.soft_scores(chunk, np.arange(len(chunk.pairs))))

    @cached_property
    def _scores(self) -> dict[str, dict[str, float]]:
        """Query id -> document -> score."""
        return {q: dict(zip(r.doc_ids, r.scores.tolist(), strict=True)) for q, r in self.run.items()}

    @property
    def source(self) -> str:
        """Name where the scores come from, however many count as relevant."""
        return source_of_run(self.run)

    def __str__(self) -> str:
        return write("ranked", self.name, self.k)


ScoreSource = TeacherRule | RunRule
"""Leaves that score pairs besides answering."""


def judged(qrels: Qrels, at_least: int = 1, by: str = "document", name: str = "") -> Rule:
    """Make a rule of judgements; what nobody judged is not relevant.

    Args:
        at_least: The lowest grade that counts as relevant.
        by: "document": a grade holds for all passages. "passage": passage i of document d is judged as "d#i".
        name: Name of the judgements in the notation, usually the file; else a hash of them.

    Raises:
        WrongUse: ``at_least`` is no whole number, or ``by`` another word.
        BadData: Passages shall be judged, and no id names one.
    """
    check_whole("judged", at_least=at_least)
    if by not in ("document", "passage"):
        raise WrongUse(f'judged: by={by!r}; choose "document" or "passage"')
    first = next((key for grades in qrels.values() for key in grades), None)
    if by == "passage" and first and not any(_IS_PASSAGE(key) for grades in qrels.values() for key in grades):
        raise BadData(
            f'judged({name or "..."}, by="passage"): none of its ids names a passage, as passage 3 of '
            f'document d is judged as "d{PASSAGE_MARK}3"; the first is "{first}"; leave by="passage" out if '
            "documents are judged"
        )
    level: Literal["document", "passage"] = "document" if by == "document" else "passage"
    return JudgeRule(qrels, at_least, level, name or f"qrels-{qrels_digest(qrels)[:8]}")


def taught(
    ranker: Ranker, threshold: float = 0.5, scale: str = "", name: str = "", best: int | None = None
) -> Rule:
    """Make a rule of a teacher: yes where it gives at least the threshold.

    On the scales "logit", "probability" and "logprob" the threshold is a probability, so 0.5 is where a
    two-class model would say "relevant". On "similarity" and "score" it is compared with the score itself.

    Args:
        ranker: The teacher; wrap it in a cached ranker to keep its scores.
        scale: The scale of its scores; by default what its attribute ``scale`` declares.
        name: Its name in the notation, usually its folder; else its fingerprint or type.
        best: Accept at most so many passages of a document (of those it is asked about); None: all. A teacher
            of another domain orders the passages of one document better than those of different queries.

    Raises:
        WrongUse: A scale that does not exist, or a threshold that is none on it.
    """
    name = name or fingerprint_of(ranker) or type(ranker).__qualname__
    if best is not None:
        check_whole("taught", 1, best=best)
    rule = TeacherRule(ranker, threshold, scale, name, best=best or 0)
    check_scale(rule.score_scale)
    if isinstance(threshold, bool) or not isinstance(threshold, int | float) or math.isnan(threshold):
        raise WrongUse(f"taught: threshold={threshold!r}, but it must be a number")
    if is_probable(rule.score_scale) and not 0 <= threshold <= 1:
        raise WrongUse(
            f'taught: threshold={threshold!r}, but on scale "{rule.score_scale}" it is '
            'a probability from 0 to 1; to compare raw scores say scale="score"'
        )
    if not scale and rule.score_scale == "score":
        warn(
            f'the teacher "{name}" declares no scale, so the threshold {threshold} is compared with its raw '
            'scores; say scale="logit", "probability", "logprob" or "score" in the rule'
        )
    return rule


def ranked(run: Run, k: int, name: str = "") -> Rule:
    """Make a rule of a run: yes to the documents among the first k of their query.

    Args:
        name: Name of the run in the notation, usually the file; else a hash of its first k.

    Raises:
        WrongUse: k is no whole number of at least 1.
    """
    check_whole("ranked", 1, k=k)
    return RunRule(run, k, name or f"run-{run_digest(run, k)[:8]}")


def judges(rule: Rule) -> list[JudgeRule]:
    """List the distinct judges of a rule, in reading order."""
    return list(dict.fromkeys(leaf for leaf in rule.leaves() if isinstance(leaf, JudgeRule)))


def teachers(rule: Rule) -> list[TeacherRule]:
    """List the distinct teachers of a rule, in reading order."""
    return list(dict.fromkeys(leaf for leaf in rule.leaves() if isinstance(leaf, TeacherRule)))


def score_sources(rule: Rule) -> tuple[ScoreSource, ...]:
    """List the leaves of a rule that score pairs, teachers and runs, each source once, in reading order."""
    found: dict[str, ScoreSource] = {}
    for leaf in rule.leaves():
        if isinstance(leaf, TeacherRule | RunRule):
            found.setdefault(leaf.source, leaf)
    return tuple(found.values())


def non_relevant(rule: Rule) -> Rule:
    """Return the rule that says which pairs may serve as negatives of this one.

    Where judges say what is relevant, a pair is non-relevant if none of them says yes; what a teacher refuses
    among the relevant is doubtful, and neither. Without a judge, whatever the rule refuses is non-relevant.
    """
    affirmative = list(dict.fromkeys(_affirmed(rule, affirmed=True)))
    refusals: list[Rule] = [Not(judge) for judge in affirmative]
    return reduce(And, refusals) if refusals else Not(rule)


def _affirmed(rule: Rule, *, affirmed: bool) -> Iterator[Rule]:
    """Return the judges whose yes speaks for relevance: those under an even number of ~."""
    match rule:
        case JudgeRule() if affirmed:
            yield rule
        case Not():
            yield from _affirmed(rule.rule, affirmed=not affirmed)
        case And() | Or():
            yield from _affirmed(rule.left, affirmed=affirmed)
            yield from _affirmed(rule.right, affirmed=affirmed)


def passage_key(doc_id: str, index: int) -> str:
    """Name a passage as passage judgements do: d#3."""
    return f"{doc_id}{PASSAGE_MARK}{index}"
