"""Span corruption: pieces of a text are cut out of it, and a sequence-to-sequence model says what they were.

Raffel et al., "Exploring the Limits of Transfer Learning", JMLR 2020, section 3.1.4 and figure 2: 15 % of the
tokens go, in spans of 3 on average; in the input a span leaves a sentinel, in the target each sentinel is
followed by what stood there. As in the authors' code all rows of one length have the same number of tokens
cut and of spans, a row begins with kept tokens and ends with a span, and the target has no last sentinel.
Shapes: n rows, t tokens of a row before anything is cut, s spans, i input tokens, o target tokens.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rankhouse.core.errors import WrongUse

IntArray = NDArray[np.int64]

_LONGEST = 65_536


class SpanBatch(NamedTuple):
    """What a model reads (n, i) and what it is to say (n, o), both with the end token last."""

    inputs: IntArray
    targets: IntArray


class Specials(NamedTuple):
    """Ids of the tokens that stand for no text: the end, and the sentinels in their order."""

    end: int
    sentinels: IntArray


@dataclass(frozen=True)
class Corruption:
    """How much is cut out of a row.

    Attributes:
        length: Most tokens of the input, i, its end token among them.
        density: Share of the tokens that are cut.
        span: Tokens of a span on average.

    Raises:
        WrongUse: Numbers with which nothing would be cut, or nothing kept.
    """

    length: int = 512
    density: float = 0.15
    span: float = 3.0

    def __post_init__(self) -> None:
        if not 0 < self.density < 1 or self.span < 1:
            raise WrongUse(
                f"density={self.density}, span={self.span}: give a share between 0 and 1 and a mean span "
                "of 1 token or more; T5 was trained with density=0.15, span=3"
            )
        if not 8 <= self.length <= _LONGEST:
            raise WrongUse(
                f"length={self.length}: an input has from 8 to {_LONGEST:,} tokens; T5 was trained with 512"
            )

    def _of(self, tokens: int) -> tuple[int, int]:
        """Tokens cut and spans of a row of so many tokens."""
        noise = min(max(round(tokens * self.density), 1), tokens - 1)
        spans = min(max(round(noise / self.span), 1), noise, tokens - noise)
        return noise, spans

    @cached_property
    def tokens(self) -> int:
        """t: the longest row whose input is no longer than ``length``."""
        tokens = 2
        while True:
            noise, spans = self._of(tokens + 1)
            if tokens + 1 - noise + spans + 1 > self.length:
                return tokens
            tokens += 1

    @property
    def spans(self) -> int:
        """s: spans of a row."""
        return self._of(self.tokens)[1]

    @property
    def targets(self) -> int:
        """o: tokens of a target."""
        return sum(self._of(self.tokens)) + 1

    def masks(self, rows: int, rng: np.random.Generator) -> NDArray[np.bool_]:
        """Draw which tokens are cut: (n, t), every way of cutting s spans as likely as any other."""
        noise, spans = self._of(self.tokens)
        intact = _parts(rows, self.tokens - noise, spans, rng)
        cut = _parts(rows, noise, spans, rng)
        lengths = np.stack([intact, cut], axis=2).reshape(-1)  # kept, cut, kept, cut ... row after row
        is_cut = np.tile(np.array([False, True]), rows * spans)
        return np.repeat(is_cut, lengths).reshape(rows, self.tokens)

    def apply(self, tokens: IntArray, specials: Specials, rng: np.random.Generator) -> SpanBatch:
        """Cut spans out of rows (n, t)."""
        cut = self.masks(len(tokens), rng)
        end = np.full((len(tokens), 1), specials.end)
        inputs = _replace(tokens, cut, specials.sentinels)
        targets = _replace(tokens, ~cut, specials.sentinels)
        return SpanBatch(np.concatenate([inputs, end], 1), np.concatenate([targets, end], 1))


def _parts(rows: int, total: int, parts: int, rng: np.random.Generator) -> IntArray:
    """Split a number into positive parts at random: (n, parts)."""
    places = np.argsort(rng.random((rows, total - 1)), axis=1)[:, : parts - 1] + 1
    edges = np.concatenate(
        [np.zeros((rows, 1), np.int64), np.sort(places, 1), np.full((rows, 1), total)], axis=1
    )
    return np.diff(edges)


def _replace(tokens: IntArray, gone: NDArray[np.bool_], sentinels: IntArray) -> IntArray:
    """Put one sentinel in the place of each stretch that is gone; all rows lose equally many tokens."""
    before = np.concatenate([np.zeros((len(gone), 1), bool), gone[:, :-1]], axis=1)
    begins = gone & ~before
    number = np.maximum(np.cumsum(begins, axis=1) - 1, 0)
    marked = np.where(begins, sentinels[number], tokens)
    left: IntArray = marked[~gone | begins].reshape(len(tokens), -1)
    return left
