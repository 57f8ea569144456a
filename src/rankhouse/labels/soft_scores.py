"""Soft labels: what teachers and runs gave the pairs of a query, as one number a pair.

One source's scores stay as they are, on its own scale. Several are joined query by query, over the pairs that
all of them scored; what comes out only orders, and is of about one size from query to query. A run is a
teacher of its own queries, and several teachers can work as one.
Shapes: m pairs of a query, n pairs, r pairs that they are compared with, t sources.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from typing import Final

import numpy as np

from rankhouse.core.errors import WrongUse
from rankhouse.core.notation import choose, write
from rankhouse.core.nouns import FloatArray, Pair, Passage, Query, Ranker, fingerprint_of
from rankhouse.core.run import Run
from rankhouse.core.scores import Doubles, numbers_only, one_each
from rankhouse.io.pairs import UNDECIDED
from rankhouse.labels.journal import JournalColumns, QueryPairs
from rankhouse.labels.leaf_rules import ScoreSource, source_of_run
from rankhouse.labels.votes import POOL, YES


def z_scores(values: Doubles, among: Doubles | None = None) -> Doubles:
    """Return the mean over sources of (x - mean) / deviation within the query: (m, t) -> (m,).

    A source that gives all pairs one score has no say.

    Args:
        among: (r, t), those that mean and deviation are of; None: the scores themselves.
    """
    among = values if among is None else among
    says = np.ptp(among, axis=0) > 0  # the deviation of equal numbers need not be quite 0
    scaled = (values - among.mean(axis=0)) / np.where(says, among.std(axis=0), 1)
    return np.asarray(np.where(says, scaled, 0).mean(axis=1))


def ranks(values: Doubles, among: Doubles | None = None) -> Doubles:
    """Return the mean over sources of the share of the query's pairs that a pair beats: (m, t) -> (m,).

    1 for what all sources put first, 0 for what all put last; equal scores share their ranks.

    Args:
        among: (r, t), those that are beaten; None: the scores themselves.
    """
    among = values if among is None else among
    beaten = np.empty(values.shape)
    for column, (own, others) in enumerate(zip(values.T, np.sort(among, axis=0).T, strict=True)):
        below, up_to = (np.searchsorted(others, own, side) for side in ("left", "right"))
        beaten[:, column] = (below + up_to - 1) / 2  # a pair among them beats half of its equals
    return np.asarray((beaten.clip(0, len(among) - 1) / max(1, len(among) - 1)).mean(axis=1))


Join = Callable[[Doubles, Doubles | None], Doubles]
JOINS: Final[dict[str, Join]] = {"z-score": z_scores, "ranks": ranks}
"""Name -> what makes one score of several."""


class SoftScores:
    """The soft labels of a finished pass 1, query by query."""

    def __init__(self, sources: Sequence[ScoreSource], columns: JournalColumns, join: str) -> None:
        self._columns, self._join = columns, JOINS[join]
        self.scale = sources[0].score_scale if len(sources) == 1 else "score"
        self.scored = self.undecided = 0

    def of(self, query: QueryPairs) -> tuple[FloatArray, dict[int, int]]:
        """Return the scores (m,) of a query's pairs, NaN where none, and the label of each scored one.

        What the rule affirms is labelled afterwards; here a pair is not relevant, or undecided.
        """
        values = np.asarray(self._columns.votes.soft[query.begin : query.begin + len(query.marks)])
        places = np.flatnonzero(~np.isnan(values).any(axis=1))
        scores = np.full(len(values), np.nan, np.float32)
        scores[places] = (
            values[places, 0] if values.shape[1] == 1 else self._join(values[places].astype(float), None)
        )
        marks = query.marks[places]
        self.scored += len(places)
        self.undecided += int(np.count_nonzero(marks & (POOL | YES) == 0))
        labels = np.where(marks & POOL, 0, UNDECIDED).tolist()
        return scores, dict(zip(places.tolist(), labels, strict=True))


Reference = Callable[[Query], Sequence[Passage]]
"""Query -> the passages whose scores say what is much and what is little for it; none: those asked about."""


class RunTeacher:
    """A run as a teacher of its own questions; what it lacks gets its lowest score of the question.

    Args:
        absent: What all pairs of a question get that the run lacks; None: such questions are refused.
    """

    scale = "score"

    def __init__(self, run: Run, absent: float | None = None) -> None:
        self.run, self._absent = run, absent
        self.fingerprint = source_of_run(run)

    def knows(self, query_id: str) -> bool:
        """Return whether the run has the question."""
        return query_id in self.run

    def score(self, pairs: Sequence[Pair]) -> FloatArray:
        """Look n pairs up: (n,).

        Raises:
            WrongUse: The run lacks a question.
        """
        values, lists = np.empty(len(pairs), np.float32), dict[str, tuple[dict[str, float], float]]()
        for place, (query, passage) in enumerate(pairs):
            if query.id not in lists:
                lists[query.id] = self._list(query.id)
            row, lowest = lists[query.id]
            values[place] = row.get(passage.doc_id, lowest)
        return values

    def _list(self, query_id: str) -> tuple[dict[str, float], float]:
        """Return a question's scores, and the lowest of them."""
        if query_id in self.run and len(ranking := self.run[query_id]):
            return dict(zip(ranking.doc_ids, ranking.scores.tolist(), strict=True)), float(
                ranking.scores.min()
            )
        if self._absent is None:
            raise WrongUse(
                f'the run that teaches has no question "{query_id}"; a run scores its own questions '
                "only: give a ranker as a teacher besides, or the run of these questions"
            )
        return {}, self._absent


class JoinedTeachers:
    """Several teachers as one: each question's scores are joined over those teachers that know it.

    Args:
        reference: Passages that a question's scores are compared with, so that a pair's joined score does
            not depend on the pairs beside it; without one they are compared with each other.
    """

    scale = "score"

    def __init__(
        self, teachers: Sequence[Ranker], join: str = "z-score", reference: Reference | None = None
    ) -> None:
        if len(teachers) < 2:
            raise WrongUse(f"{len(teachers)} teachers: there is nothing to join; give two or more")
        self.teachers, self.join, self._reference = tuple(teachers), join, reference
        self._join = choose(join, JOINS, "way to join scores")
        self._among: dict[str, Doubles] = {}

    @property
    def fingerprint(self) -> str:
        """Name of everything that changes a score; "" where a teacher has none."""
        names = [fingerprint_of(teacher) for teacher in self.teachers]
        return write("joined", self.join, *names) if all(names) else ""

    def of(self, teachers: Sequence[Ranker]) -> JoinedTeachers:
        """Return other teachers, joined in the same way."""
        return JoinedTeachers(teachers, self.join, self._reference)

    def against(self, reference: Reference) -> JoinedTeachers:
        """Return the same teachers, whose scores are compared with those of these passages."""
        return JoinedTeachers(self.teachers, self.join, reference)

    def knows(self, query_id: str) -> bool:
        """Return whether a teacher knows the question."""
        return any(knows(teacher, query_id) for teacher in self.teachers)

    def score(self, pairs: Sequence[Pair]) -> FloatArray:
        """Score n pairs: (n,).

        Raises:
            WrongUse: No teacher knows a question.
            BadModel: A teacher gave something that is no score.
        """
        values = self._values(pairs)
        order = sorted(range(len(pairs)), key=lambda place: pairs[place].query.id)
        groups = [list(some) for _, some in groupby(order, lambda place: pairs[place].query.id)]
        self._compare(pairs[group[0]].query for group in groups)
        joined = np.empty(len(pairs), np.float32)
        for group in groups:
            own, query = values[group], pairs[group[0]].query
            say = ~np.isnan(own).any(axis=0)
            if not say.any():
                raise WrongUse(f'no teacher knows the question "{query.id}"; give a ranker besides the runs')
            among = self._among.get(query.id, own)
            joined[group] = self._join(own[:, say], among[:, say])
        return joined

    def _values(self, pairs: Sequence[Pair]) -> Doubles:
        """Return what every teacher gives n pairs, NaN where it does not know the question: (n, t)."""
        values = np.full((len(pairs), len(self.teachers)), np.nan)
        for column, teacher in enumerate(self.teachers):
            known = [place for place, pair in enumerate(pairs) if knows(teacher, pair.query.id)]
            some = [pairs[place] for place in known]
            if some:
                values[known, column] = numbers_only(one_each(len(some), teacher.score(some)), some)
        return values

    def _compare(self, queries: Iterable[Query]) -> None:
        """Have the passages scored that these questions' scores are compared with, once each: (r, t)."""
        if self._reference is None:
            return
        fresh = [query for query in queries if query.id not in self._among]
        pairs = [Pair(query, passage) for query in fresh for passage in self._reference(query)]
        values = self._values(pairs)
        for _, rows in groupby(range(len(pairs)), lambda place: pairs[place].query.id):
            places = list(rows)
            self._among[pairs[places[0]].query.id] = values[places]


def knows(teacher: Ranker, query_id: str) -> bool:
    """Return whether a teacher can score pairs of a question: all can but runs that lack it."""
    return not isinstance(teacher, RunTeacher | JoinedTeachers) or teacher.knows(query_id)


def members_of(teacher: Ranker) -> tuple[Ranker, ...]:
    """Return the teachers that a teacher is made of: itself, or those that are joined."""
    return teacher.teachers if isinstance(teacher, JoinedTeachers) else (teacher,)
