"""The hot loops of the lexical index: compiled where a compiler was there at install, else numpy.

Both give the same bits: scores are float32 a term, added in float64, rounded to float32 once a document.
"""

from __future__ import annotations

import math
import os
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

try:
    if os.environ.get("RANKHOUSE_NO_KERNEL"):
        raise ImportError
    from rankhouse.index.lexical import _kernel

    COMPILED = True
except ImportError:  # no compiler at install, or the kernel switched off
    COMPILED = False

Int64s = NDArray[np.int64]
Int32s = NDArray[np.int32]
Counts = NDArray[np.uint8 | np.uint16 | np.uint32]
Float32s = NDArray[np.float32]
Float64s = NDArray[np.float64]


class Forward(NamedTuple):
    """Documents -> their distinct terms: ends (rows + 1,), terms and tfs (entries,)."""

    ends: Int64s
    terms: Int32s
    tfs: Counts


class Postings(NamedTuple):
    """Terms -> their documents: starts (terms + 1,), rows ascending and tfs (entries,)."""

    starts: Int64s
    rows: Int32s
    tfs: Counts


class ScoredPostings(NamedTuple):
    """What one query term adds to the documents of one segment.

    Attributes:
        first: Position of its first posting.
        end: Position after its last.
        table: Scores [tf][length code], float32, or None.
        scores: One score a posting, float32, where a table would be too large.
    """

    first: int
    end: int
    table: Float32s | None
    scores: Float32s | None = None


class RankColumns(NamedTuple):
    """What ranking needs of a segment: postings; length code and id rank of every document; rows by id."""

    rows: Int32s
    tfs: Counts
    codes: NDArray[np.uint8]
    id_rank: Int32s
    id_order: Int32s


def counts_up_to(highest: int) -> type[np.uint8 | np.uint16 | np.uint32]:
    """Choose the smallest type for counts; one byte for nearly all collections."""
    return np.uint8 if highest < 256 else np.uint16 if highest < 65_536 else np.uint32


def invert(tokens: Int32s, lengths: Int32s, terms: int) -> Forward:
    """Count the distinct terms of every document.

    Args:
        tokens: Term numbers of all documents, one after the other, (tokens,); overwritten.

    Returns:
        The forward index; the order of a document's terms is that of their first occurrence.
    """
    if COMPILED:
        ends = np.empty(len(lengths) + 1, np.int64)
        seen_at = np.full(terms, -1, np.int64)
        highest = _kernel.highest(tokens, lengths, seen_at, np.empty(terms, np.uint32))
        tfs = np.empty(len(tokens), counts_up_to(highest))
        seen_at.fill(-1)
        filled = _kernel.invert(tokens, lengths, seen_at, ends, tokens, tfs, tfs.itemsize)
        return Forward(ends, tokens[:filled], tfs[:filled])
    row = np.repeat(np.arange(len(lengths), dtype=np.int64), lengths)
    _, first, counts = np.unique(row * max(1, terms) + tokens, return_index=True, return_counts=True)
    by_place = np.argsort(first)
    places = first[by_place]
    ends = np.concatenate([[0], np.cumsum(np.bincount(row[places], minlength=len(lengths)))])
    tfs = counts[by_place].astype(counts_up_to(int(counts.max(initial=0))))
    return Forward(ends.astype(np.int64), tokens[places], tfs)


def find(words: list[str], hashes: Int64s, numbers: Int32s, out: Int32s, unknown: Int64s) -> int:
    """Look words up in a table of hashes; compiled only (``numbers`` has the plain way)."""
    return _kernel.find(words, hashes, numbers, out, unknown)


def put(keys: Int64s, values: Int32s, hashes: Int64s, numbers: Int32s) -> None:
    """Put hashes of new words into a table of hashes; compiled only."""
    _kernel.put(keys, values, hashes, numbers)


def tally(numbers: Int32s, n: int, times: Counts | None = None) -> Int64s:
    """Count how often each number below n occurs, in blocks: numpy counts copies of 8 bytes each."""
    counts = np.zeros(n, np.int64)
    for start in range(0, len(numbers), 1 << 20):
        span = slice(start, start + (1 << 20))
        weights = None if times is None else times[span]
        counts += np.bincount(numbers[span], weights, n).astype(np.int64, copy=False)
    return counts


def scatter(forward: Forward, terms: int) -> Postings:
    """Turn a forward index into postings, documents ascending within a term."""
    starts = np.concatenate([[0], np.cumsum(tally(forward.terms, terms))]).astype(np.int64)
    if COMPILED:
        rows, tfs = np.empty(len(forward.terms), np.int32), np.empty_like(forward.tfs)
        size = tfs.itemsize
        _kernel.scatter(forward.ends, forward.terms, forward.tfs, size, starts[:-1].copy(), rows, tfs)
        return Postings(starts, rows, tfs)
    by_term = np.argsort(forward.terms, kind="stable")
    row = np.repeat(np.arange(len(forward.ends) - 1, dtype=np.int32), np.diff(forward.ends))
    return Postings(starts, row[by_term], forward.tfs[by_term])


def rank(
    columns: RankColumns,
    parts: list[ScoredPostings],
    prior: Float64s | None,
    k: int,
    floor: float = -math.inf,
) -> tuple[Int32s, Float32s]:
    """Find the best k documents of a segment that hold any of the terms.

    Args:
        prior: What every document that matched gets on top, (rows,) float64, or None.
        k: How many to keep, 1 or more.

    Returns:
        Rows and scores, best first; equal scores by document id, ascending.
    """
    if COMPILED:
        return _rank_compiled(columns, parts, prior, k, floor=floor)
    sums = np.full(len(columns.codes), -0.0)
    for part in parts:
        rows = columns.rows[part.first : part.end]
        if part.table is None:
            assert part.scores is not None
            sums[rows] += part.scores
        else:
            sums[rows] += part.table[columns.tfs[part.first : part.end], columns.codes[rows]]
    touched = np.flatnonzero((sums != 0) | ~np.signbit(sums))
    scores = (sums[touched] if prior is None else sums[touched] + prior[touched]).astype(np.float32)
    touched, scores = touched[scores >= floor], scores[scores >= floor]
    if len(touched) > k:
        least = np.partition(scores, len(scores) - k)[len(scores) - k]
        touched, scores = touched[scores >= least], scores[scores >= least]
    order = np.lexsort((columns.id_rank[touched], -scores))[:k]
    return touched[order].astype(np.int32), scores[order]


def _rank_compiled(
    columns: RankColumns, parts: list[ScoredPostings], prior: Float64s | None, k: int, floor: float
) -> tuple[Int32s, Float32s]:
    spans = np.empty((len(parts), 5), np.int64)
    tables, scores = list[Float32s](), list[Float32s]()
    table_at = score_at = n_codes = 0
    for span, part in zip(spans, parts, strict=True):
        if part.table is not None:
            span[:] = part.first, part.end, table_at, -1, len(part.table)
            tables.append(part.table.ravel())
            table_at += part.table.size
            n_codes = part.table.shape[1]
        elif part.scores is not None:
            span[:] = part.first, part.end, -1, score_at, 0
            scores.append(part.scores)
            score_at += len(part.scores)
    k = min(k, len(columns.codes))
    rows, values = np.empty(k, np.int32), np.empty(k, np.float32)
    count = _kernel.rank(
        columns.rows,
        columns.tfs,
        columns.tfs.itemsize,
        columns.codes,
        n_codes,
        spans,
        _joined(tables),
        _joined(scores),
        columns.id_rank,
        columns.id_order,
        np.empty(0) if prior is None else prior,
        floor,
        rows,
        values,
    )
    return rows[:count], values[:count]


def strings(blob: NDArray[np.uint8], offsets: Int64s, rows: Int64s) -> list[str]:
    """Decode blob[offsets[row] : offsets[row + 1]] for every row."""
    if COMPILED:
        return _kernel.strings(blob, offsets, rows)
    raw = memoryview(blob)
    starts, ends = offsets[rows].tolist(), offsets[rows + 1].tolist()
    return [str(raw[start:end], "utf-8") for start, end in zip(starts, ends, strict=True)]


def prefixes(blob: NDArray[np.uint8], offsets: Int64s, rows: Int64s) -> NDArray[np.uint64]:
    """Return the first 16 bytes of every row's string as two numbers, (rows, 2), in the strings' order."""
    pairs = np.empty((len(rows), 2), np.uint64)
    if COMPILED:
        _kernel.prefixes(blob, offsets, rows, pairs)
        return pairs
    raw = memoryview(blob)
    starts, ends = offsets[rows].tolist(), offsets[rows + 1].tolist()
    heads = b"".join(
        bytes(raw[a : min(b, a + 16)]).ljust(16, b"\0") for a, b in zip(starts, ends, strict=True)
    )
    return np.frombuffer(heads, ">u8").astype(np.uint64).reshape(-1, 2)


def _joined(arrays: list[Float32s]) -> Float32s:
    return np.concatenate(arrays) if arrays else np.empty(0, np.float32)
