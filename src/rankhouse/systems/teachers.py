"""Teachers: a ranker, a run, or several of both as one."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

from rankhouse.core.errors import WrongUse
from rankhouse.core.nouns import Ranker, TextEncoder
from rankhouse.core.options import Option
from rankhouse.io.trec import read_run
from rankhouse.labels.soft_scores import JOINS, JoinedTeachers, RunTeacher
from rankhouse.ranking.cache import CachedRanker
from rankhouse.systems.rankers import ComputeOptions, open_ranker

Join = Annotated[str, Option("What makes one score of several teachers'.", choices=tuple(JOINS))]


def open_teacher(
    specs: Sequence[str], join: str, cache: Path | None, stack: ExitStack, *, encoders: bool = True
) -> Ranker:
    """Open what is learned from.

    Args:
        cache: Where to keep the scores of rankers; None: nowhere.

    Raises:
        MissingExtra: torch or transformers is not installed.
        BadModel: A folder holds no ranker.
        WrongUse: An unknown family, or a way to join scores that does not exist.
    """
    return joined([_open(spec, cache, stack, encoders=encoders) for spec in specs], join)


def _open(spec: str, cache: Path | None, stack: ExitStack, *, encoders: bool) -> Ranker:
    if Path(spec).is_file():
        return RunTeacher(read_run(spec))
    return kept(open_ranker(spec, ComputeOptions()), cache, stack, encoders=encoders)


def kept(ranker: Ranker, cache: Path | None, stack: ExitStack, *, encoders: bool = True) -> Ranker:
    """Return a ranker whose scores are kept.

    Args:
        ranker: Any; a run's scores are there already.
        cache: Where to keep them; None: nowhere.
    """
    if cache is None or isinstance(ranker, RunTeacher) or (isinstance(ranker, TextEncoder) and not encoders):
        return ranker
    return stack.enter_context(CachedRanker(ranker, cache))


def joined(teachers: Sequence[Ranker], join: str) -> Ranker:
    """Return one teacher: the only one, or all of them joined.

    Raises:
        WrongUse: None was given, or a way to join scores that does not exist.
    """
    if not teachers:
        raise WrongUse("no teacher was given; name a ranker, or a run with scores")
    return teachers[0] if len(teachers) == 1 else JoinedTeachers(teachers, join)
