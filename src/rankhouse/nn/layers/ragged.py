"""Rows of different length: kept end to end, cut into batches by a budget of tokens, padded only on demand.

A padded token costs as much as a real one and must never change a score, so rows stay ragged from the moment
text becomes ids until the one operation that needs a rectangle.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True)
class Ragged:
    """n rows end to end."""

    values: Tensor  # (t,) all rows' values, row after row
    lengths: Tensor  # (n,) int64, how many of them each row has; they sum to t

    @classmethod
    def of(cls, rows: Sequence[Sequence[int] | np.ndarray]) -> Ragged:
        """Join rows of ids to one ragged block of int64."""
        lengths = torch.tensor([len(row) for row in rows], dtype=torch.int64)
        flat = np.concatenate([np.empty(0, np.int64), *(np.asarray(row, dtype=np.int64) for row in rows)])
        return cls(torch.from_numpy(flat), lengths)

    @classmethod
    def join(cls, parts: Sequence[Ragged]) -> Ragged:
        """Put the rows of several blocks into one, in this order."""
        return cls(torch.cat([p.values for p in parts]), torch.cat([p.lengths for p in parts]))

    def __len__(self) -> int:
        return len(self.lengths)

    @property
    def offsets(self) -> Tensor:
        """(n + 1,) int64: row i is ``values[offsets[i]:offsets[i + 1]]``."""
        return torch.cat([self.lengths.new_zeros(1), self.lengths.cumsum(0)])

    def take(self, rows: Tensor) -> Ragged:
        """Return these rows, (m,) int64, in this order."""
        lengths = self.lengths[rows]
        starts = self.offsets[:-1][rows]
        shift = torch.repeat_interleave(starts - (lengths.cumsum(0) - lengths), lengths)
        return Ragged(self.values[shift + torch.arange(len(shift), device=shift.device)], lengths)

    def pad(self, fill: int = 0, at_least: int = 0) -> Tensor:
        """Return (n, longest) with ``fill`` on the right; never narrower than ``at_least``."""
        width = max(at_least, int(self.lengths.max()) if len(self) else 0)
        out = self.values.new_full((len(self), width), fill)
        out[self.mask(at_least)] = self.values
        return out

    def mask(self, at_least: int = 0) -> Tensor:
        """Return (n, longest) bool, true where :meth:`pad` holds a value of the row."""
        width = max(at_least, int(self.lengths.max()) if len(self) else 0)
        return torch.arange(width, device=self.lengths.device) < self.lengths[:, None]

    def positions(self) -> Tensor:
        """Return (t,) int64: each value's place in its row, from 0."""
        starts = self.lengths.cumsum(0) - self.lengths
        return torch.arange(len(self.values), device=starts.device) - torch.repeat_interleave(
            starts, self.lengths
        )

    def to(self, device: torch.device) -> Ragged:
        """Move to a device."""
        return Ragged(self.values.to(device), self.lengths.to(device))


@dataclass(frozen=True)
class TwoSided:
    """A batch of n pairs whose sides stay apart (TK, KNRM, samCNN ...)."""

    query: Ragged  # n rows of query token ids
    passage: Ragged  # n rows of passage token ids
    lost: Tensor  # (n,) int64, tokens of either side that did not fit
    crossed: bool = False  # whether passages come again and again, so that it pays to compute equal ones once
    # (n,) int64, the query's tokens among the lost; None where that is not known, as of parts of a batch
    query_lost: Tensor | None = None

    @classmethod
    def join(cls, parts: Sequence[TwoSided]) -> TwoSided:
        """Put the pairs of several batches into one, in this order."""
        query, passage = Ragged.join([p.query for p in parts]), Ragged.join([p.passage for p in parts])
        return cls(query, passage, torch.cat([p.lost for p in parts]))

    def __len__(self) -> int:
        return len(self.query)

    @property
    def lengths(self) -> Tensor:
        """(n,) int64: what a row costs, query and passage tokens together."""
        return self.query.lengths + self.passage.lengths

    def take(self, rows: Tensor) -> TwoSided:
        """Return these rows, (m,) int64, in this order."""
        return TwoSided(self.query.take(rows), self.passage.take(rows), self.lost[rows], self.crossed)

    def to(self, device: torch.device) -> TwoSided:
        """Move to a device."""
        return TwoSided(self.query.to(device), self.passage.to(device), self.lost.to(device), self.crossed)


@dataclass(frozen=True)
class Packed:
    """A batch of n pairs, each one row of ids: what transformers read."""

    ids: Ragged  # n rows of token ids, special tokens included; no row is empty
    lost: Tensor  # (n,) int64, tokens of the text that did not fit
    # (t,) int64, 0 for query and 1 for passage tokens; None for models that do not ask
    segments: Tensor | None = None
    query_lost: Tensor | None = None  # as :class:`TwoSided` has it

    @classmethod
    def join(cls, parts: Sequence[Packed]) -> Packed:
        """Put the rows of several batches of one model into one, in this order."""
        segments = [p.segments for p in parts if p.segments is not None]
        ids, lost = Ragged.join([p.ids for p in parts]), torch.cat([p.lost for p in parts])
        return cls(ids, lost, torch.cat(segments) if segments else None)

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def lengths(self) -> Tensor:
        """(n,) int64: tokens of each row."""
        return self.ids.lengths

    def take(self, rows: Tensor) -> Packed:
        """Return these rows, (m,) int64, in this order."""
        segments = self.segments
        if segments is not None:
            segments = Ragged(segments, self.lengths).take(rows).values
        return Packed(self.ids.take(rows), self.lost[rows], segments)

    def to(self, device: torch.device) -> Packed:
        """Move to a device."""
        segments = self.segments if self.segments is None else self.segments.to(device)
        return Packed(self.ids.to(device), self.lost.to(device), segments)


def within_budget(lengths: Tensor, budget: int) -> Iterator[Tensor]:
    """Cut rows into batches of like length that together cost at most ``budget`` tokens, padding counted.

    Args:
        lengths: (n,) int64 cost of each row.
        budget: Tokens a batch may cost; a single row above it still makes a batch of its own.

    Yields:
        (m,) int64 row numbers, longest rows first; every row comes exactly once. The order depends on the
        lengths only, so the same input is always cut the same way.
    """
    order = torch.argsort(lengths, descending=True, stable=True)
    sizes = lengths[order].tolist()
    start = 0
    while start < len(sizes):
        stop = start + max(1, budget // max(1, sizes[start]))
        yield order[start:stop]
        start = stop
