"""Teachers: a ranker, a run, a system, or several of them as one."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Final

from rankhouse.core.arguments import Option
from rankhouse.core.errors import WrongUse
from rankhouse.core.nouns import FloatArray, Pair, Query, Ranker, TextEncoder, fingerprint_of
from rankhouse.core.progress import Progress, ignore
from rankhouse.core.run import Run
from rankhouse.index.index import Index
from rankhouse.io.checksums import described
from rankhouse.io.files import PathLike, as_path
from rankhouse.io.trec import read_run
from rankhouse.labels.soft_scores import JOINS, JoinedTeachers, RunTeacher, members_of
from rankhouse.ranking.cache import CachedRanker
from rankhouse.systems.execution import Execution
from rankhouse.systems.rankers import as_ranker
from rankhouse.systems.short_forms import is_expression
from rankhouse.systems.stage import Live
from rankhouse.systems.system import Dense, RerankedSystem, System, whole

Join = Annotated[str, Option("The way to join the scores of several teachers.", choices=tuple(JOINS))]
TeacherLike = PathLike | Ranker | Run | System
"""A ranker or what opens one, a run with scores or its file, or a system or its expression."""

DEEP: Final = 200
"""Documents a question that a system which teaches finds; whatever it lacks gets the score of the last."""


class SystemTeacher:
    """A system as a teacher: what it finds for questions, in an index, is a run that teaches (:meth:`of`)."""

    scale = "score"

    def __init__(self, system: System) -> None:
        self.system = whole(system)

    @property
    def fingerprint(self) -> str:
        """The expression, with contents in place of the folders it names; "" where a ranker has none."""
        stages = [part.stage.ranker for part in self.system.walk() if isinstance(part, RerankedSystem)]
        live = [fingerprint_of(one.ranker) for one in stages if isinstance(one, Live)]
        return " ".join([described(self.system.given), *live]) if all(live) else ""

    @property
    def encoder(self) -> str:
        """The encoder of its first dense stage, in notation; "" where it has none."""
        return next((part.ranker for part in self.system.walk() if isinstance(part, Dense)), "")

    def of(self, queries: Sequence[Query], index: Index, progress: Progress = ignore) -> Run:
        """Return the first 200 documents that it finds for each question."""
        return Execution(index, queries, progress=progress).run(self.system % DEEP)

    def score(self, pairs: Sequence[Pair]) -> FloatArray:
        """Refuse: a system ranks an index, so it scores no pairs before it was run on one."""
        raise WrongUse(
            f"{self.system}: a system ranks an index for questions and cannot score {len(pairs):,} pairs by "
            "themselves; give questions and a run of them in place of pairs (--queries, --run), or a ranker "
            "as the teacher"
        )


def on_index(teacher: Ranker, queries: Sequence[Query], index: Index, progress: Progress = ignore) -> Ranker:
    """Return a teacher whose systems are replaced by the runs of what they find for these questions."""
    ready = [
        system_run(one.of(queries, index, progress)) if isinstance(one, SystemTeacher) else one
        for one in members_of(teacher)
    ]
    return teacher.of(ready) if isinstance(teacher, JoinedTeachers) else ready[0]


def system_run(run: Run) -> RunTeacher:
    """Return what a system found as a teacher; where that is nothing, all pairs of the question are equal."""
    return RunTeacher(run, absent=0.0)


def open_teacher(
    given: Sequence[TeacherLike], join: str, cache: Path | None, stack: ExitStack, *, encoders: bool = True
) -> Ranker:
    """Open what is learned from: the only teacher, or all of them joined.

    Raises MissingExtra without torch or transformers, BadModel where a folder holds no ranker, WrongUse for
    what is no ranker, run or system, an unknown family, and an unknown way to join scores.

    Args:
        cache: Folder for the scores of rankers; None: none.
        encoders: Whether the scores of those that have vectors are kept, too.
    """
    teachers = [_open(one) for one in given]
    if cache is not None:
        for place, one in enumerate(teachers):
            if not isinstance(one, RunTeacher | SystemTeacher) and (
                encoders or not isinstance(one, TextEncoder)
            ):
                teachers[place] = stack.enter_context(CachedRanker(one, cache))
    return teachers[0] if len(teachers) == 1 else JoinedTeachers(teachers, join)


def _open(given: TeacherLike) -> Ranker:
    if isinstance(given, Run):
        return RunTeacher(given)
    if isinstance(given, System):
        return SystemTeacher(given)
    if isinstance(given, str | os.PathLike) and (path := as_path(given, "the teacher")).is_file():
        return RunTeacher(read_run(path))
    if isinstance(given, str) and is_expression(given):
        from rankhouse.systems.notation import system  # knows everything that ranks

        return SystemTeacher(system(given))
    return as_ranker(given)
