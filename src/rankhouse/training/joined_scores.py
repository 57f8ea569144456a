"""Scores of teachers that look at a query's pairs side by side: given to all pairs before the training."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from rankhouse.core.errors import WrongUse
from rankhouse.core.nouns import Pair
from rankhouse.core.progress import Progress, ignore
from rankhouse.core.scores import numbers_only, one_each
from rankhouse.labels.soft_scores import JoinedTeachers, RunTeacher
from rankhouse.training.examples import Examples
from rankhouse.training.negatives import IntArray

_PORTION = 4096


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
        passages = examples.fetch(examples.item[rows].tolist())
        queries = [examples.queries[query] for query in examples.query[rows].tolist()]
        pairs = [Pair(query, passage) for query, passage in zip(queries, passages, strict=True)]
        known = [
            place
            for place, (query, passage) in enumerate(pairs)
            if teacher.knows(query.id) and query.text.strip() and passage.text.strip()
        ]
        if known:
            some = [pairs[place] for place in known]
            scores[rows[known]] = numbers_only(one_each(len(some), teacher.score(some)), some)
        done += len(rows)
    return replace(examples, score=scores, scale=teacher.scale)


def _portions(examples: Examples) -> Iterator[IntArray]:
    """Cut the rows into portions of whole queries, of about 4,096 rows."""
    begin = 0
    for end in [*np.flatnonzero(np.diff(examples.query)) + 1, len(examples)]:
        if end - begin >= _PORTION or end == len(examples):
            yield np.arange(begin, end)
            begin = int(end)
