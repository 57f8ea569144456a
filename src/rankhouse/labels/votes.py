"""Who is asked about a pair, and what each of them said, one byte a pair."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rankhouse.core.errors import WrongUse
from rankhouse.core.nouns import FloatArray, Pair
from rankhouse.labels.rules import Rule, Taught, judges, non_relevant, teachers
from rankhouse.labels.teacher_scores import Asking

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


class Parties(NamedTuple):
    """The rule, and those whose agreement is looked at; make one with :func:`parties`.

    Attributes:
        rule: What decides.
        pool: Which pairs may be negatives.
        judge: Whose yes the teacher's is compared with; None where there is no judge.
        teacher: Whose scores are kept; None where there is no teacher.
        truth: What is really relevant, where that is known of passages.
        ask_all: Ask the teacher about every pair, so that all of its errors are seen, not only those within
            what the judge calls relevant. Costs a score a pair; the labels are the same.
    """

    rule: Rule
    pool: Rule
    judge: Rule | None
    teacher: Taught | None
    truth: Rule | None
    ask_all: bool = False

    def said(self) -> dict[str, str]:
        """Name what the answers depend on, part by part."""
        return {
            "rule": self.rule.identity,
            "pool of negatives": self.pool.identity,
            "judge": self.judge.identity if self.judge else "",
            "teacher": self.teacher.identity if self.teacher else "",
            "truth": self.truth.identity if self.truth else "",
            "choice of ask_all": str(self.ask_all),
        }


def parties(
    rule: Rule,
    *,
    pool: Rule | None = None,
    judge: Rule | None = None,
    teacher: Rule | None = None,
    truth: Rule | None = None,
    ask_all: bool = False,
) -> Parties:
    """Find the judge and the teacher of a rule: the first of each that it names, unless others are given.

    Raises:
        WrongUse: ``teacher`` is no ``taught`` rule.
    """
    if teacher is not None and not isinstance(teacher, Taught):
        raise WrongUse(f"the teacher must be a taught(...) rule, not {teacher}")
    judge = judge or next(iter(judges(rule)), None)
    teacher = teacher or next(iter(teachers(rule)), None)
    return Parties(rule, pool or non_relevant(rule), judge, teacher, truth, ask_all)


def mark(who: Parties, pairs: Sequence[Pair]) -> tuple[Marks, FloatArray]:
    """Ask all parties about n pairs: their marks (n,) and the teacher's scores (n,), NaN where not asked.

    The teacher reads only what the rule, or the pool, needs it to read, unless ``ask_all``.
    """
    asking, places = Asking(pairs), np.arange(len(pairs))
    marks = np.zeros(len(pairs), np.uint8)
    yes = who.rule.ask(asking, places)
    marks[yes] |= YES
    # What the rule affirms is never a negative, so the pool is not even asked about it.
    refused = np.flatnonzero(~yes)
    marks[refused[who.pool.ask(asking, refused)]] |= POOL
    for bit, rule in ((JUDGE, who.judge), (TRUTH, who.truth)):
        if rule is not None:
            marks[rule.ask(asking, places)] |= np.uint8(bit)
    if who.teacher is None:
        return marks, np.full(len(pairs), np.nan, np.float32)
    if who.ask_all:
        asking.scores(who.teacher.ranker, places)
    scores, asked = asking.column(who.teacher.ranker)
    marks[asked] |= ASKED
    read = np.flatnonzero(asked)
    marks[read[who.teacher.ask(asking, read)]] |= TEACHER  # all of it was scored already
    return marks, scores
