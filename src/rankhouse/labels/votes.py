"""Votes on pairs: the judges and teachers asked, and their answers, one byte a pair."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rankhouse.core.errors import WrongUse
from rankhouse.core.nouns import FloatArray, Pair
from rankhouse.labels.leaf_rules import (
    ScoreSource,
    TeacherRule,
    judges,
    non_relevant,
    score_sources,
    teachers,
)
from rankhouse.labels.rules import ChunkScores, Rule

Marks = NDArray[np.uint8]

YES: Final = 1
"""The rule says the pair is relevant."""
POOL: Final = 2
"""The pair may serve as a negative."""
JUDGE: Final = 4
"""The judge says yes."""
ASKED: Final = 8
"""The teacher was asked."""
TEACHER: Final = 16
"""The teacher was asked and says yes."""
TRUTH: Final = 32
"""The pair is truly relevant, where truth is known."""


_BLOCK: Final = 1 << 18  # pairs looked at together: bounds the memory


class Counts:
    """Numbers of pairs with each mark.

    Args:
        each: (256,).
    """

    def __init__(self, each: NDArray[np.int64]) -> None:
        self._each = each

    def having(self, bits: int, lacking: int = 0) -> int:
        """Count the pairs whose marks have all of some bits and none of others."""
        kinds = np.arange(256)
        return int(self._each[((kinds & bits) == bits) & ((kinds & lacking) == 0)].sum())


class Votes(NamedTuple):
    """Votes on n pairs; both may lie on disk.

    Attributes:
        marks: (n,) bits.
        scores: (n,) the teacher's scores, NaN where it was not asked.
        soft: (n, t) what each source of soft labels gave, NaN where it gave none; t is 0 without them.
    """

    marks: Marks
    scores: FloatArray
    soft: FloatArray = np.empty((0, 0), np.float32)

    def blocks(self) -> Iterator[Votes]:
        """Stream them in blocks that fit into memory."""
        for start in range(0, len(self.marks), _BLOCK):
            yield Votes(self.marks[start : start + _BLOCK], self.scores[start : start + _BLOCK])

    def counts(self) -> Counts:
        """Count the marks."""
        each = np.zeros(256, np.int64)
        for block in self.blocks():
            each += np.bincount(block.marks, minlength=256)
        return Counts(each)


class Panel(NamedTuple):
    """The rule, and those whose agreement is looked at; make one with :func:`panel_of`.

    Attributes:
        pool: Rule of the pairs that may be negatives.
        judge: The judge whose yes the teacher's is compared with; None where there is no judge.
        teacher: The teacher whose scores are kept; None where there is no teacher.
        truth: The truly relevant pairs, where that is known of passages.
        sources: Sources whose scores become soft labels; none by default.
        ask_all: Ask the teacher about every pair, so that all of its errors are seen, not only those within
            what the judge calls relevant. Costs a score a pair; the labels are the same.
    """

    rule: Rule
    pool: Rule
    judge: Rule | None
    teacher: TeacherRule | None
    truth: Rule | None
    ask_all: bool = False
    sources: tuple[ScoreSource, ...] = ()

    def identity(self) -> dict[str, str]:
        """Name what the answers depend on, part by part."""
        return {
            "rule": self.rule.identity,
            "pool of negatives": self.pool.identity,
            "judge": self.judge.identity if self.judge else "",
            "teacher": self.teacher.identity if self.teacher else "",
            "truth": self.truth.identity if self.truth else "",
            "choice of ask_all": str(self.ask_all),
            **({"soft labels": " ".join(source.source for source in self.sources)} if self.sources else {}),
        }


def panel_of(
    rule: Rule,
    *,
    pool: Rule | None = None,
    judge: Rule | None = None,
    teacher: Rule | None = None,
    truth: Rule | None = None,
    ask_all: bool = False,
    scores: bool = False,
) -> Panel:
    """Find the judge and the teacher of a rule: the first of each that it names, unless others are given.

    Args:
        pool: Which pairs may be negatives; by default see :func:`~rankhouse.labels.leaf_rules.non_relevant`.
        scores: Keep what every teacher and run of the rule gives, for soft labels.

    Raises:
        WrongUse: ``scores`` where the rule has neither; ``teacher`` is no ``taught`` rule.
    """
    if teacher is not None and not isinstance(teacher, TeacherRule):
        raise WrongUse(f"the teacher must be a taught(...) rule, not {teacher}")
    judge = judge or next(iter(judges(rule)), None)
    teacher = teacher or next(iter(teachers(rule)), None)
    sources = score_sources(rule) if scores else ()
    if scores and not sources:
        raise WrongUse(
            f"the rule  {rule}  has nothing that scores pairs, so there are no scores to keep; join a "
            'teacher, & taught("DIR"), or a run, & ranked("RUN", 100)'
        )
    return Panel(
        rule, pool or non_relevant(rule), judge, teacher, truth=truth, ask_all=ask_all, sources=sources
    )


def vote(panel: Panel, pairs: Sequence[Pair]) -> Votes:
    """Ask all of a panel about n pairs.

    The teacher reads only what the rule, or the pool, needs it to read, unless ``ask_all``.

    Raises:
        BadModel: A teacher gave something that is no score.
    """
    chunk, places = ChunkScores(pairs), np.arange(len(pairs))
    marks = np.zeros(len(pairs), np.uint8)
    yes = panel.rule.ask(chunk, places)
    marks[yes] |= YES
    # What the rule affirms is never a negative, so the pool is not even asked about it.
    refused = np.flatnonzero(~yes)
    marks[refused[panel.pool.ask(chunk, refused)]] |= POOL
    for bit, rule in ((JUDGE, panel.judge), (TRUTH, panel.truth)):
        if rule is not None:
            marks[rule.ask(chunk, places)] |= np.uint8(bit)
    if panel.teacher is None:
        return Votes(marks, np.full(len(pairs), np.nan, np.float32), _soft(panel, chunk))
    if panel.ask_all:
        chunk.scores(panel.teacher.ranker, places)
    scores, asked = chunk.column(panel.teacher.ranker)
    marks[asked] |= ASKED
    read = np.flatnonzero(asked)
    marks[read[panel.teacher.ask(chunk, read)]] |= TEACHER  # all of it was scored already
    return Votes(marks, scores, _soft(panel, chunk))


def _soft(panel: Panel, chunk: ChunkScores) -> FloatArray:
    """Return what every source gives for the pairs that any of them was asked about: (n, t)."""
    soft = np.full((len(chunk.pairs), len(panel.sources)), np.nan, np.float32)
    asked = [source.was_asked(chunk) for source in panel.sources]
    wanted = (
        np.ones(len(chunk.pairs), np.bool_) if panel.ask_all else np.any(asked, axis=0) if asked else None
    )
    if wanted is not None:
        places = np.flatnonzero(wanted)
        for column, source in enumerate(panel.sources):
            soft[places, column] = source.soft_scores(chunk, places)
    return soft
