"""Scores that a teacher gives before the training: for pairs that are compared, and to find false negatives.

The higher a negative stands in a run, the more it teaches, and the more often it is relevant in truth.
Moreira et al., "NV-Retriever" (2024), section 3: a negative's score must stay below the relevant one's by a
margin, or below a share of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

import numpy as np

from rankhouse.core.errors import BadData, WrongUse
from rankhouse.core.nouns import FloatArray, Pair, Ranker
from rankhouse.core.progress import Progress, ignore
from rankhouse.core.scores import numbers_only, one_each
from rankhouse.labels.soft_scores import JoinedTeachers, RunTeacher
from rankhouse.training.examples import NOT_RELEVANT, RELEVANT, UNJUDGED, Examples, IntArray

Bound = Callable[[FloatArray], FloatArray]
"""The score of the relevant passage -> the highest that a negative may have."""

_PORTION: Final = 4096


def _margin(margin: float) -> Bound:
    if margin < 0:
        raise WrongUse(f"margin({margin:g}): how far below the relevant one's score, from 0 up")
    return lambda scores: scores - np.float32(margin)


def _share(share: float = 0.95) -> Bound:
    if not 0 < share <= 1:
        raise WrongUse(f"share({share:g}): of the relevant one's score, above 0 and at most 1")
    return lambda scores: scores * np.float32(share)


DENOISERS: Final[dict[str, Callable[..., Bound]]] = {"margin": _margin, "share": _share}
"""Name -> bound: ``margin(0.1)`` below the relevant passage's score, or ``share(0.95)`` of it."""


class Denoised(NamedTuple):
    """Examples without false negatives."""

    examples: Examples  # what is left
    removed: int  # negatives that the teacher likes too much
    negatives: int  # how many there were


def denoise(examples: Examples, bound: Bound) -> Denoised:
    """Leave out negatives that a teacher puts near or above the relevant passage of their query.

    Of several relevant passages the one that the teacher likes least counts, since it is relevant too. Where
    no relevant passage has a score, the query keeps its negatives.

    Raises:
        BadData: There are neither scores nor a teacher.
        BadModel: The teacher gave something that is no score.
    """
    scores = _scores(examples)
    least = np.full(len(examples.queries), np.inf, np.float32)
    relevant = (examples.label == RELEVANT) & ~np.isnan(scores)
    np.minimum.at(least, examples.query[relevant], scores[relevant])
    negative = (examples.label == NOT_RELEVANT) | (examples.label == UNJUDGED)
    known = negative & ~np.isnan(scores) & np.isfinite(least[examples.query])
    false = known & (np.nan_to_num(scores) > bound(least)[examples.query])
    return Denoised(examples.take(np.flatnonzero(~false)), int(false.sum()), int(negative.sum()))


def _scores(examples: Examples) -> FloatArray:
    """Return the scores of all examples, (n,); NaN where nobody gives one."""
    if examples.score is None and examples.teacher is None:
        raise BadData(
            "false negatives are found by a teacher's scores, and there are none; give a teacher, or pairs "
            "with scores as  rankhouse label --scores  writes them"
        )
    examples.check_scale()
    n = len(examples)
    scores = np.full(n, np.nan, np.float32) if examples.score is None else examples.score.copy()
    if examples.teacher is None:
        return scores
    missing = np.flatnonzero(np.isnan(scores))
    for start in range(0, len(missing), _PORTION):
        rows = missing[start : start + _PORTION]
        scores[rows] = ask_teacher(examples.teacher, examples.pairs(rows))
    return scores


def ask_teacher(teacher: Ranker, pairs: Sequence[Pair]) -> FloatArray:
    """Score n pairs, (n,); what is no score is the teacher's fault (BadModel)."""
    return numbers_only(one_each(len(pairs), teacher.score(pairs)), pairs)


def with_scores(
    examples: Examples, teacher: JoinedTeachers | RunTeacher, progress: Progress = ignore
) -> Examples:
    """Return examples with the scores of a run, or of several teachers joined over each query's pairs.

    Pairs of queries that no teacher knows, and pairs with a blank text, have none.

    Raises:
        WrongUse: The pairs have scores already.
        BadModel: A teacher gave something that is no score.
    """
    if examples.score is not None:
        raise WrongUse(
            "the pairs have a teacher's scores already, and what a run or several teachers say cannot be "
            "added to them; label with all of them (rankhouse label --scores), or give pairs without scores"
        )
    scores, done = np.full(len(examples), np.nan, np.float32), 0
    for rows in _portions(examples):
        progress(done, len(examples))
        pairs = examples.pairs(rows)
        known = [
            place
            for place, (query, passage) in enumerate(pairs)
            if teacher.knows(query.id) and query.text.strip() and passage.text.strip()
        ]
        if known:
            scores[rows[known]] = ask_teacher(teacher, [pairs[place] for place in known])
        done += len(rows)
    return replace(examples, score=scores, scale=teacher.scale)


def _portions(examples: Examples) -> Iterator[IntArray]:
    """Cut the rows into portions of whole queries, of about 4,096 rows."""
    begin = 0
    for end in [*np.flatnonzero(np.diff(examples.query)) + 1, len(examples)]:
        if end - begin >= _PORTION or end == len(examples):
            yield np.arange(begin, end)
            begin = int(end)
