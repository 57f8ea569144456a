"""Counterfactuals: the least that would have to go from a document for its rival to stand above it.

As CREDENCE (Rorseth et al., arXiv 2302.04983) asks for them, but found exactly where that is affordable:
choices of sentences are tried in the order of their size, so the first that flips the order is a least one.
Of many sentences those that hold the document up most go first, what need not go is put back, and then all
smaller choices are tried as far as the budget goes.
Every choice is scored by the ordinary path: the document without them is cut, scored and pooled again.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from itertools import combinations

import numpy as np

from rankhouse.core.nouns import Document, Pair, Passage, Query, Ranker
from rankhouse.explanation.answer import Counterfactual
from rankhouse.explanation.methods import ExplainOptions, finite_scores, uncached
from rankhouse.explanation.removal import most_units, unit_for, units_of
from rankhouse.explanation.units import Unit, joined, without
from rankhouse.ranking.pool import Pool, best, pooled_ones
from rankhouse.text.split import Split, Whole, readable

ALWAYS_TRIED = 8
"""Texts of at most so many units have all choices of them tried."""


def flip(
    ranker: Ranker,
    query: Query,
    document: Document,
    rival: tuple[str, float],
    split: Split | None = None,
    pool: Pool | None = None,
    options: ExplainOptions | None = None,
) -> Counterfactual | None:
    """Find the least that must be left out of a document to put it below its rival.

    Up to 8 sentences, or words of short texts, the answer is exact: no smaller choice flips the order, and
    None says that none does but the whole text, or that the rival stands above already. Beyond, ``minimal``
    says whether all smaller choices were tried, and None only that none was found.

    Args:
        document: The document above; its title is one unit.
        rival: The document that is to stand above, and its score by the same ranker for the same query.

    Raises BadModel: a score is not a finite number; WrongUse: the pool does not work on the ranker's scale;
    MissingExtra: the package that finds sentences is not installed.
    """
    search = _Search(
        uncached(ranker), query, document, split or Whole(), pool=pool or best(), options=options
    )
    rival_id, bound = rival
    before = search.scores([()])[0]
    if before < bound:
        return None
    choice, smaller_tried = search.least_below(bound)
    if not choice:
        return None
    return Counterfactual(
        document.id,
        tuple(search.units[at].text for at in choice),
        search.places(choice),
        search.unit,
        before=before,
        after=search.scores([choice])[0],
        rival=rival_id,
        rival_score=float(bound),
        minimal=smaller_tried and not search.in_blocks,
    )


class _Search:
    """The choices of a document's units, and the score without each."""

    def __init__(
        self,
        ranker: Ranker,
        query: Query,
        document: Document,
        split: Split,
        pool: Pool,
        options: ExplainOptions | None,
    ) -> None:
        options = options or ExplainOptions()
        self._ranker, self._query, self._document = ranker, query, document
        self._split, self._pool = split, pool
        self._scale = pool.check(ranker)
        self._passage_scores: dict[Passage, float] = {}
        n_passages = len(self._passages(document))
        text = document.text
        self.unit = options.unit or unit_for(ranker, document.full_text)
        units = units_of(text, self.unit)
        self._bounded = most_units(text, 1 << 60)
        self._affordable = min(options.passes // max(n_passages, 1), self._bounded)
        # A third of the budget is for single units, the others for many together and for putting back.
        self._blocks = joined(text, units, max(8, self._affordable // 3))
        self.in_blocks = len(self._blocks) < len(units)
        title = Unit(document.title.strip(), 0, 0)
        self._titles = [title] if title.text else []
        self.units = [*self._titles, *self._blocks]

    def scores(self, choices: Sequence[Collection[int]]) -> list[float]:
        """Return the document's score without each choice of units, as a run would hold it."""
        cut = [self._passages(self._without(choice)) for choice in choices]
        known = self._passage_scores
        new = list(dict.fromkeys(p for passages in cut for p in passages if p not in known))
        pairs = [Pair(self._query, passage) for passage in new]
        known.update(zip(new, finite_scores(self._ranker, pairs).tolist(), strict=True))
        return [self._pooled(passages) for passages in cut]

    def _passages(self, document: Document) -> Sequence[Passage]:
        """Return the passages that are scored: those with text, for FirstP the first only."""
        return pooled_ones(readable(document, self._split), self._pool)

    def least_below(self, bound: float) -> tuple[tuple[int, ...], bool]:
        """Find the least choice that puts the document below a score; () if there is none.

        Returns:
            The choice, and whether all smaller ones were tried.
        """
        n = len(self.units)
        every = n <= ALWAYS_TRIED and not self.in_blocks and 1 << n <= self._bounded
        singly = [(at,) for at in range(n)] if n > 1 else []
        scores = self.scores(singly)
        if (lowest := min(scores, default=bound)) < bound:
            return singly[scores.index(lowest)], True
        choice = () if every else self._greedy(bound, scores)
        if not choice and not every:
            return (), False
        tried = n
        for size in range(2, len(choice) or n):
            tried += math.comb(n, size)
            if tried > self._affordable and not every:
                return choice, False
            choices = list(combinations(range(n), size))
            scores = self.scores(choices)
            if (lowest := min(scores)) < bound:
                return choices[scores.index(lowest)], True
        return choice, True

    def _greedy(self, bound: float, singly: Sequence[float]) -> tuple[int, ...]:
        """Leave out what holds the document up most, then put back what need not go."""
        order = sorted(range(len(singly)), key=lambda at: (singly[at], at))
        ways: list[tuple[int, ...]] = [tuple(sorted(order[:size])) for size in range(2, len(order))]
        choice = self._first_below(bound, ways)
        for _ in range(8):
            fewer = [tuple(at for at in choice if at != one) for one in choice]
            scores = self.scores(fewer)
            by_need = sorted(range(len(choice)), key=lambda i: (scores[i], i))  # what is needed least, first
            if not choice or scores[by_need[0]] >= bound:
                break
            back = [{choice[i] for i in by_need[:size]} for size in range(len(choice) - 1, 0, -1)]
            choice = self._first_below(bound, [tuple(at for at in choice if at not in some) for some in back])
        return choice

    def _first_below(self, bound: float, choices: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
        """Return the first of some choices that puts the document below a score; () if none does."""
        scores = self.scores(choices)
        return next((choice for choice, score in zip(choices, scores, strict=True) if score < bound), ())

    def places(self, choice: Iterable[int]) -> tuple[tuple[int, int], ...]:
        """Return (passage, place among its units) of each unit, where it is read for the first time.

        A unit that is no unit of any passage (a title that runs on into a sentence, a block) has the place of
        the one that holds its beginning.
        """
        read = [
            (passage.index, place, " ".join(unit.text.split()))
            for passage in self._passages(self._document)
            for place, unit in enumerate(units_of(passage.text, self.unit))
        ]
        found = []
        for at in choice:
            text = " ".join(self.units[at].text.split())
            earlier = sum(" ".join(unit.text.split()) == text for unit in self.units[:at])
            same = [(index, place) for index, place, said in read if said == text]
            near = [(index, place) for index, place, said in read if text in said or said in text]
            found.append((same[earlier:] or same or near or [(0, 0)])[0])
        return tuple(found)

    def _without(self, choice: Collection[int]) -> Document:
        n_titles = len(self._titles)
        text = without(self._document.text, self._blocks, {at - n_titles for at in choice if at >= n_titles})
        keeps_title = not n_titles or 0 not in choice
        return self._document._replace(text=text, title=self._document.title if keeps_title else "")

    def _pooled(self, passages: Sequence[Passage]) -> float:
        """Pool passages' scores in float32; a document without any stands below all that have some."""
        if not passages:
            return -math.inf
        scores = [self._passage_scores[passage] for passage in passages]
        return float(np.float32(self._pool(scores, self._scale, [passage.index for passage in passages])))
