"""Teachers: a ranker, a run, or several of both as one."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

from rankhouse.core.arguments import Option
from rankhouse.core.nouns import Ranker, TextEncoder
from rankhouse.core.run import Run
from rankhouse.io.inputs import PathLike, as_path
from rankhouse.io.trec import read_run
from rankhouse.labels.soft_scores import JOINS, JoinedTeachers, RunTeacher
from rankhouse.ranking.cache import CachedRanker
from rankhouse.systems.rankers import as_ranker

Join = Annotated[str, Option("How the scores of several teachers become one.", choices=tuple(JOINS))]
TeacherLike = PathLike | Ranker | Run
"""A ranker or what opens one, or a run with scores or its file."""


def open_teacher(
    given: Sequence[TeacherLike], join: str, cache: Path | None, stack: ExitStack, *, encoders: bool = True
) -> Ranker:
    """Open what is learned from: the only teacher, or all of them joined.

    Raises MissingExtra without torch or transformers, BadModel where a folder holds no ranker, WrongUse for
    what is no ranker or run, an unknown family, and an unknown way to join scores.

    Args:
        cache: Where to keep the scores of rankers; None: nowhere.
        encoders: Whether the scores of those that have vectors are kept, too.
    """
    teachers = [_open(one) for one in given]
    if cache is not None:
        for place, one in enumerate(teachers):
            if not isinstance(one, RunTeacher) and (encoders or not isinstance(one, TextEncoder)):
                teachers[place] = stack.enter_context(CachedRanker(one, cache))
    return teachers[0] if len(teachers) == 1 else JoinedTeachers(teachers, join)


def _open(given: TeacherLike) -> Ranker:
    if isinstance(given, Run):
        return RunTeacher(given)
    if isinstance(given, str | os.PathLike) and (path := as_path(given, "the teacher")).is_file():
        return RunTeacher(read_run(path))
    return as_ranker(given)
