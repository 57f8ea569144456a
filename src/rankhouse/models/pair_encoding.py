"""Texts and pairs -> ids: a text is tokenised once, and pairs are put together from their texts' ids.

Only the passage may be shortened; the query only where it would leave the passage less than a quarter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer
from torch import Tensor

from rankhouse.core.errors import BadModel, WrongUse
from rankhouse.core.nouns import Pair
from rankhouse.models.text_ids import IdArray, Ids, TextIds, plain
from rankhouse.nn.layers.ragged import Packed, Ragged


class PassageTokens(NamedTuple):
    """Places of a passage's tokens in a pair's row, and in its text."""

    start: int  # place of the first of them in the row
    spans: tuple[tuple[int, int], ...]  # (start, end) characters of the text for each one that is read
    total: int  # how many tokens the passage has, read or not

    @property
    def characters_read(self) -> int | None:
        """Characters read, from the beginning of the text; None: all of them."""
        return None if len(self.spans) == self.total else max((end for _, end in self.spans), default=0)


@dataclass(frozen=True)
class Layout:
    """The fixed ids around query and passage: head, query, middle, passage, tail."""

    head: tuple[int, ...]  # before the query
    middle: tuple[int, ...]  # between them
    tail: tuple[int, ...]  # after the passage; never cut
    # the segment id of each of the five parts; empty for models that have none
    segments: tuple[int, ...] = ()

    @property
    def fixed(self) -> int:
        """Number of ids besides query and passage."""
        return len(self.head) + len(self.middle) + len(self.tail)


class PairReader:
    """Puts pairs together.

    Args:
        whole: For tokenizers whose pieces do not join: gives the ids of a finished pair; used where it fits.
    """

    def __init__(
        self,
        texts: TextIds,
        layout: Layout,
        max_length: int,
        whole: Callable[[str, str], list[int]] | None = None,
        prompt: str = "",
    ) -> None:
        self._prompt = prompt
        if max_length < layout.fixed + 2:
            raise WrongUse(
                f"max_length={max_length}: {layout.fixed} tokens are the model's own; "
                f"give at least {layout.fixed + 2}, so that one token of query and passage fit"
            )
        self.texts, self._layout, self._max_length, self._whole = texts, layout, max_length, whole

    @property
    def joins(self) -> bool:
        """Whether a pair is its pieces put together, so that ids of a passage serve any query."""
        return self._whole is None

    @property
    def max_length(self) -> int:
        """Most ids a row may have."""
        return self._max_length

    def __call__(self, pairs: Sequence[Pair]) -> Packed:
        """Encode n pairs."""
        texts = [(self._prompt + pair.query.text, pair.passage.text) for pair in pairs]
        queries = self.texts(query for query, _ in texts)
        return self._joined(queries, self.texts(passage for _, passage in texts), texts)

    def passage_tokens(self, pair: Pair) -> PassageTokens:
        """Return where a passage's tokens stand; of a tokenizer whose pieces do not join, only nearly."""
        spans = self.texts.spans(pair.passage.text)
        query = self.texts([self._prompt + pair.query.text])[0]
        q, p = fit(query.total, len(spans), self._max_length - self._layout.fixed)
        start = len(self._layout.head) + q + len(self._layout.middle)
        return PassageTokens(start, tuple(spans[:p]), len(spans))

    def join(self, queries: Sequence[str], passages: Sequence[Ids]) -> Packed:
        """Encode n pairs whose passages' ids are known; only for tokenizers whose pieces join."""
        return self._joined(self.texts(self._prompt + query for query in queries), passages, ())

    def _joined(
        self, queries: Sequence[Ids], passages: Sequence[Ids], texts: Sequence[tuple[str, str]]
    ) -> Packed:
        room = self._max_length - self._layout.fixed
        head, middle, tail = (
            np.array(part, np.int32) for part in (self._layout.head, self._layout.middle, self._layout.tail)
        )
        sizes = np.empty((len(queries), 5), np.int64)
        lost, query_lost = np.zeros((2, len(queries)), np.int64)
        parts: list[IdArray] = []
        for row, (query, passage) in enumerate(zip(queries, passages, strict=True)):
            q, p = fit(query.total, passage.total, room)
            query_lost[row] = query.total - q
            lost[row] = query_lost[row] + passage.total - p
            if self._whole is not None and not lost[row]:
                own = np.array(self._whole(*texts[row]), np.int32)
                if len(own) <= self._max_length:
                    parts.append(own)
                    sizes[row] = (len(own), 0, 0, 0, 0)
                    continue
            parts += (head, query.kept[:q], middle, passage.kept[:p], tail)
            sizes[row] = (len(head), q, len(middle), p, len(tail))
        return self._packed(parts, sizes, torch.from_numpy(lost), torch.from_numpy(query_lost))

    def _packed(
        self, parts: list[IdArray], sizes: NDArray[np.int64], lost: Tensor, query_lost: Tensor
    ) -> Packed:
        values = np.concatenate([np.empty(0, np.int32), *parts]).astype(np.int64)
        ids = Ragged(torch.from_numpy(values), torch.from_numpy(sizes.sum(1)))
        segments = None
        if self._layout.segments:
            pattern = np.tile(np.array(self._layout.segments, np.int64), len(sizes))
            segments = torch.from_numpy(np.repeat(pattern, sizes.reshape(-1)))
        return Packed(ids, lost, segments, query_lost)


class TextReader:
    """Puts single texts between the model's own tokens; what does not fit is cut off at the end."""

    def __init__(self, texts: TextIds, layout: Layout, max_length: int) -> None:
        if max_length < layout.fixed + 1:
            raise WrongUse(
                f"max_length={max_length}: {layout.fixed} tokens are the model's own; "
                f"give at least {layout.fixed + 1}, so that one token of a text fits"
            )
        self.texts, self._layout, self._room = texts, layout, max_length - layout.fixed

    def __call__(self, texts: Iterable[str]) -> Packed:
        """Encode n texts."""
        head, tail = (np.array(part, np.int32) for part in (self._layout.head, self._layout.tail))
        ids = self.texts(texts)
        parts = [part for text in ids for part in (head, text.kept[: self._room], tail)]
        lengths = np.array([min(text.total, self._room) for text in ids], np.int64)
        lost = np.array([text.total for text in ids], np.int64) - lengths
        values = np.concatenate([np.empty(0, np.int32), *parts]).astype(np.int64)
        rows = Ragged(torch.from_numpy(values), torch.from_numpy(lengths + self._layout.fixed))
        return Packed(rows, torch.from_numpy(lost))

    def tokens(self, text: str) -> PassageTokens:
        """Return where a text's tokens stand in its row."""
        spans = self.texts.spans(text)
        return PassageTokens(len(self._layout.head), tuple(spans[: self._room]), len(spans))


def fit(query: int, passage: int, room: int) -> tuple[int, int]:
    """Return how many tokens of query and passage are kept.

    The passage is shortened first, but never below a quarter of the room for the query's sake.
    """
    if query + passage <= room:
        return query, passage
    rest = min(passage, max(room - query, room // 4, 1))
    return min(query, room - rest), rest


def pair_layout(tokenizer: Tokenizer, segments: bool) -> Layout:
    """Find out what a tokenizer puts around a pair.

    Raises BadModel: the tokenizer puts nothing around a pair, so that its ends cannot be found.
    """
    probe = plain(tokenizer).encode("a", "a")
    sides = probe.sequence_ids
    first, second = [[i for i, side in enumerate(sides) if side == s] for s in (0, 1)]
    if not first or not second or len(sides) == len(first) + len(second):
        raise BadModel(
            "the tokenizer puts no special tokens around a pair of texts (read: "
            f"{probe.tokens}); a cross-encoder's tokenizer.json needs a post-processor for pairs"
        )
    q, p = slice(first[0], first[-1] + 1), slice(second[0], second[-1] + 1)
    ids, kinds = probe.ids, probe.type_ids
    middle = slice(q.stop, p.start)
    kind = (kinds[0], kinds[q.start], kinds[q.stop], kinds[p.start], kinds[-1])
    return Layout(tuple(ids[: q.start]), tuple(ids[middle]), tuple(ids[p.stop :]), kind if segments else ())


def text_layout(tokenizer: Tokenizer) -> Layout:
    """Find out what a tokenizer puts around a single text.

    Raises BadModel: nothing: an empty text would then have no tokens at all.
    """
    probe = plain(tokenizer).encode("a")
    own = [i for i, side in enumerate(probe.sequence_ids) if side == 0]
    if not own or len(own) == len(probe.ids):
        raise BadModel(
            f"the tokenizer puts no special tokens around a text (read: {probe.tokens}); "
            "a bi-encoder's tokenizer.json needs a post-processor"
        )
    return Layout(tuple(probe.ids[: own[0]]), (), tuple(probe.ids[own[-1] + 1 :]))
