"""Rankers for Python: opened from a folder, a checkpoint or their notation, on the device at hand."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, cast

from rankhouse.core.arguments import checked
from rankhouse.core.nouns import Ranker
from rankhouse.core.run import Run
from rankhouse.io.inputs import as_path, wrong_kind
from rankhouse.io.trec import read_run
from rankhouse.labels.soft_scores import RunTeacher
from rankhouse.systems.rankers import ComputeOptions
from rankhouse.systems.rankers import open_ranker as _open

if TYPE_CHECKING:
    from rankhouse.models.ranker import NeuralRanker

TeacherLike = str | os.PathLike[str] | Ranker | Run
"""A ranker or what opens one, or a run with scores or its file."""


@checked
def open_ranker(
    spec: str | os.PathLike[str], *, precision: str = "auto", device: str = "auto", threads: int = 0
) -> NeuralRanker:
    """Open a ranker: a bundle, the folder of a training, or a published checkpoint by its family.

    >>> import rankhouse as rh
    >>> index = rh.Index.build([{"id": "a", "text": "ships sail"}, {"id": "b", "text": "ships sink"}], "i")
    >>> queries, qrels = {"q": "sail"}, {"q": {"a": 1, "b": 0}}
    >>> _ = rh.train("knrm(width=8, min_count=1)", index, out="trained", queries=queries, qrels=qrels)
    >>> ranker = rh.open_ranker("trained")
    >>> len(ranker.rank("sail", ["ships sail", "ships sink"], k=1).doc_ids)
    1

    Args:
        spec: A folder, or the notation ``monot5("castorini/monot5-base-msmarco")``, ``crossencoder("DIR")``,
            ``biencoder("DIR")``; "default" is all-MiniLM where its package is installed, else a published
            cross-encoder.
        precision: "auto", "fp32", "bf16" or "int8".
        device: "auto", "cpu" or "cuda".
        threads: Processor threads; 0 for all.

    Raises:
        MissingExtra: torch is not installed.
        MissingInput: There is no such folder.
        BadModel: The folder or checkpoint cannot be used.
        WrongUse: An unknown family or argument.
    """
    return _open(str(as_path(spec, "the ranker")), ComputeOptions(precision, device, threads))


def as_ranker(given: str | os.PathLike[str] | Ranker) -> Ranker:
    """Return a ranker: itself, or opened from its notation with everything chosen by default.

    Raises:
        WrongUse: It is neither a ranker nor its notation.
    """
    if isinstance(given, str | os.PathLike):
        return open_ranker(given)
    if isinstance(given, type) or not callable(getattr(given, "score", None)):
        raise wrong_kind("the ranker", given, "an object with score(pairs), a folder, or a notation")
    return given


def as_teachers(given: TeacherLike | Sequence[TeacherLike]) -> list[Ranker]:
    """Return what is learned from: rankers and runs, from one of them or a list.

    Raises:
        WrongUse: One is neither a ranker nor a run.
    """
    several = given if isinstance(given, list | tuple) else [cast(TeacherLike, given)]
    return [_as_teacher(one) for one in several]


def _as_teacher(given: TeacherLike) -> Ranker:
    if isinstance(given, Run):
        return RunTeacher(given)
    if isinstance(given, str | os.PathLike) and (path := as_path(given, "the teacher")).is_file():
        return RunTeacher(read_run(path))
    return as_ranker(given)
