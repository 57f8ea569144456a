"""Documents of a request, cut into passages, scored and pooled, exactly as ``ranking.rerank`` does it.

A document that cannot be scored, being blank or unreadable for the model, never fails the others: it comes
last and is named in a warning. Shapes: n documents, p passages of all of them.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, NamedTuple, Self

import numpy as np

from rankhouse.core.errors import BadModel, name_few
from rankhouse.core.nouns import Document, FloatArray, Pair, Passage, Query
from rankhouse.core.scores import Doubles, is_probable, probabilities, with_room_below
from rankhouse.ranking.pool import Pool, pooled_ones
from rankhouse.serve.engine.choice import asked_split
from rankhouse.serve.engine.served import PairScores, ServedRanker
from rankhouse.serve.engine.waiting import ENDLESS, Deadline
from rankhouse.serve.errors import TooLarge
from rankhouse.systems.reranking import split_and_pool
from rankhouse.text.split import LocatingSplitter, Splitter, readable
from rankhouse.text.words import Span

MOST_PASSAGES: Final = 1_000_000
"""Of all documents of a request; half a kilobyte of memory each, and their texts."""
_LARGEST = float(np.finfo(np.float32).max)


@dataclass(frozen=True)
class ReadingPlan:
    """Plan of reading the documents of a request."""

    split: Splitter
    pool: Pool
    most_tokens: int | None = None
    most_passages: int | None = None

    @classmethod
    def of(cls, served: ServedRanker, split: str, pool: str, *most: int | None) -> Self:
        """Return how documents are read: as a request says, in notation, else as the ranker reads them."""
        if split:
            asked_split(split)  # which a request must not cut too finely
        cut, pooled = split_and_pool(split, pool, usual=(served.split, served.pool))
        pooled.check(served.ranker)
        return cls(cut, pooled, *most)


class PassageSpan(NamedTuple):
    """A passage of a document, where it stands in the text as given."""

    start: int
    end: int
    score: float


@dataclass
class DocumentScores:
    """Scores of n documents; those of unreadable ones are below all others."""

    raw: FloatArray  # (n,) float32 on the ranker's scale
    relevance: Doubles  # (n,) float64: probabilities where the ranker's scale has them, else as ``raw``
    order: list[int]  # places of the documents, best first; equal raw scores in the order given
    tokens: int
    warnings: list[str]
    _spans: Callable[[int], list[PassageSpan]] = field(repr=False)

    def values(self, *, raw: bool | None) -> list[float]:
        """Return the documents' scores: raw, or else their relevance."""
        values: list[float] = (self.raw if raw else self.relevance).tolist()
        return values

    def spans(
        self, document: int, threshold: float | None = None, most: int | None = None
    ) -> list[PassageSpan]:
        """Return the best passages of a document, best first, none of which overlaps a better one."""
        best: list[PassageSpan] = []
        placed: list[PassageSpan] = []  # the same in the order of the text
        for span in sorted(self._spans(document), key=lambda span: -span.score):
            if (threshold is not None and span.score < threshold) or len(best) == most:
                break
            place = bisect_left(placed, span.start, key=lambda one: one.start)
            beside = placed[max(0, place - 1) : place + 1]
            if all(span.end <= other.start or other.end <= span.start for other in beside):
                best.append(span)
                placed.insert(place, span)
        return best


class DocumentRequest:
    """A query's documents on their way through a ranker; made in a thread, as it cuts and tokenises them.

    ``future`` gets what the ranker made of the passages; hand that to :meth:`scores`.
    """

    def __init__(
        self,
        served: ServedRanker,
        query: str | Sequence[str],
        texts: Sequence[str],
        plan: ReadingPlan,
        deadline: Deadline = ENDLESS,
    ) -> None:
        self._served, self._plan = served, plan
        self._cut: list[int] = []
        self._documents: list[Document] = []
        self._passages: list[Sequence[Passage]] = []
        count, most = 0, plan.most_tokens
        _refuse_more(len(texts))
        for place, text in enumerate(texts):
            end = len(text) if most is None else served.end_of_tokens(text, most)
            if end < len(text):
                self._cut.append(place)
            document = Document(str(place), text[:end])
            passages = pooled_ones(readable(document, plan.split), plan.pool)[: plan.most_passages]
            count += len(passages)
            _refuse_more(count)
            self._documents.append(document)
            self._passages.append(passages)
        queries = [query] * len(texts) if isinstance(query, str) else query
        pairs = [
            Pair(Query("query", asked), passage)
            for asked, passages in zip(queries, self._passages, strict=True)
            for passage in passages
        ]
        self._bounds = np.cumsum([0, *(len(passages) for passages in self._passages)])
        self.future: Future[PairScores] = served.read(pairs, deadline)

    def scores(self, reading: PairScores) -> DocumentScores:
        """Pool the passages' scores."""
        pooled = self._pooled(reading.scores)
        unreadable = np.flatnonzero(np.isnan(pooled))
        raw, relevance = self._ranked(pooled, unreadable)
        order = np.argsort(-raw, kind="stable").tolist()

        def spans(place: int) -> list[PassageSpan]:
            return self._spans(place, reading.scores[self._bounds[place] : self._bounds[place + 1]])

        lost = np.diff(np.concatenate([[0], np.cumsum(reading.lost)])[self._bounds])
        warnings = self._warnings(unreadable.tolist(), lost.tolist())
        return DocumentScores(
            raw, relevance, order, int(reading.tokens.sum()), warnings=warnings, _spans=spans
        )

    def _pooled(self, scores: FloatArray) -> FloatArray:
        """Return the documents' scores (n,), NaN where none of a document's passages could be read."""
        pool, scale = self._plan.pool, self._served.scale
        pooled = np.full(len(self._passages), np.nan, np.float64)
        some = np.flatnonzero(np.diff(self._bounds))  # documents with passages
        if pool.notation == "max":  # by far the most frequent
            pooled[some] = np.fmax.reduceat(scores, self._bounds[some]) if len(some) else ()
            return pooled.astype(np.float32)
        for place in some.tolist():
            own = scores[self._bounds[place] : self._bounds[place + 1]]
            known = np.flatnonzero(~np.isnan(own)).tolist()
            if known:
                indexes = [self._passages[place][i].index for i in known]
                with suppress(BadModel):  # a score outside its scale
                    pooled[place] = pool(own[known], scale, indexes)
        with np.errstate(over="ignore"):  # as reranking does
            return pooled.astype(np.float32)

    def _ranked(self, pooled: FloatArray, unreadable: np.ndarray) -> tuple[FloatArray, Doubles]:
        """Put unreadable documents below the others; return raw scores and relevance, (n,) each."""
        raw = np.clip(pooled, -_LARGEST, _LARGEST)
        known = np.flatnonzero(~np.isnan(raw))
        below = with_room_below(raw[known], len(unreadable)) if len(known) else np.zeros(len(raw), np.float32)
        raw[known], raw[unreadable] = below[: len(known)], below[len(known) :]
        pool, own = self._plan.pool, self._served.scale
        # sums of probabilities are none
        scale = "score" if pool.missing_is_zero else own if pool.scale == "score" else pool.scale
        relevance = self._relevance(raw, scale)
        if is_probable(scale):
            relevance[unreadable] = 0.0
        return raw, relevance

    def _relevance(self, scores: FloatArray, scale: str) -> Doubles:
        try:
            return probabilities(scores, scale)
        except BadModel:  # outside the scale that the ranker declares: they order, no more
            return scores.astype(np.float64)

    def _spans(self, place: int, scores: FloatArray) -> list[PassageSpan]:
        split, document = self._plan.split, self._documents[place]
        places: list[Span] = [(0, len(document.text))]
        if isinstance(split, LocatingSplitter):
            places = split.spans(document)
        relevance = self._relevance(scores, self._served.scale)
        return [
            PassageSpan(*places[passage.index], float(score))
            for passage, score in zip(self._passages[place], relevance, strict=True)
            if not np.isnan(score)
        ]

    def _warnings(self, unreadable: Sequence[int], lost: Sequence[int]) -> list[str]:
        blank = [place for place in unreadable if not self._passages[place]]
        garbled = [place for place in unreadable if self._passages[place]]
        short = [place for place, tokens in enumerate(lost) if tokens]
        seen = self._served.ranker.max_length
        shortened = (
            f"passages beyond the {seen} tokens that the model reads at once were shortened, by "
            f"{sum(lost):,} tokens in all"
        )
        return [
            f"{text}: {name_few((f'documents[{place}]' for place in places), 10)}"
            for text, places in (
                ("without text, ranked last", blank),
                (f'the model "{self._served.name}" cannot read these, ranked last', garbled),
                (f"cut to {self._plan.most_tokens} tokens (max_tokens_per_doc)", self._cut),
                (shortened, short),
            )
            if places
        ]


def _refuse_more(passages: int) -> None:
    if passages > MOST_PASSAGES:
        raise TooLarge(
            f"documents: they make more than {MOST_PASSAGES:,} passages, the most that is read at once; send "
            "fewer, or cut them into longer passages",
            "documents",
        )
