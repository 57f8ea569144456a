"""Soft labels: what teachers and runs gave the pairs of a query, as one number a pair.

One source's scores stay as they are, on its own scale. Several are joined query by query, over the pairs that
all of them scored; what comes out only orders, and is of about one size from query to query.
Shapes: m pairs of a query, t sources.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from rankhouse.core.nouns import FloatArray
from rankhouse.core.scores import Doubles
from rankhouse.io.pairs import UNDECIDED
from rankhouse.labels.journal import Columns
from rankhouse.labels.leaf_rules import ScoreSource
from rankhouse.labels.pair_table import QueryPairs
from rankhouse.labels.votes import POOL, YES


def z_scores(values: Doubles, among: Doubles | None = None) -> Doubles:
    """Return the mean over sources of (x - mean) / deviation within the query: (m, t) -> (m,).

    A source that gives all pairs one score has no say.

    Args:
        values: The scores.
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
        values: The scores.
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
    """The soft labels of a finished pass 1, query by query.

    Args:
        sources: Who gave scores.
        columns: What they gave.
        join: Name of what joins several.

    Attributes:
        scale: The scale of the scores.
        scored: Pairs with a score so far.
        undecided: Those of them that the rule calls neither relevant nor not.
    """

    def __init__(self, sources: Sequence[ScoreSource], columns: Columns, join: str) -> None:
        self._columns, self._join = columns, JOINS[join]
        self.scale = sources[0].score_scale if len(sources) == 1 else "score"
        self.scored = self.undecided = 0

    def of(self, query: QueryPairs) -> tuple[FloatArray, dict[int, int]]:
        """Return the scores (m,) of a query's pairs, NaN where none, and the label of each scored one.

        What the rule affirms is labelled afterwards; here a pair is not relevant, or undecided.
        """
        values = np.asarray(self._columns.soft[query.begin : query.begin + len(query.marks)])
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
