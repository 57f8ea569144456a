"""The hot loops of the lexical index: compiled where a compiler was there at install, else numpy.

Both give the same bits: scores are float32 a term, added in float64 in the order of the terms, rounded to
float32 once a document. The compiled kernel leaves out what cannot be among the best; numpy adds everything.
What postings are packed into says ``_postings.h``.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import reduce
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rankhouse.text.lucene import plain_units

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
Bytes = NDArray[np.uint8]


class Forward(NamedTuple):
    """Documents -> their distinct terms: ends (rows + 1,), terms and tfs (entries,)."""

    ends: Int64s
    terms: Int32s
    tfs: Counts


class Table(NamedTuple):
    """Words by their hashes, by open addresses: both (slots,), a power of two; number -2: a free slot."""

    hashes: Int64s
    numbers: Int32s


class Postings(NamedTuple):
    """Terms -> documents: starts (terms + 1,), rows ascending and payload, counts or scores, (entries,)."""

    starts: Int64s
    rows: Int32s
    payload: Counts | Float32s


def counts_up_to(highest: int) -> type[np.uint8 | np.uint16 | np.uint32]:
    """Choose the smallest type for counts; one byte for nearly all collections."""
    return np.uint8 if highest < 256 else np.uint16 if highest < 65_536 else np.uint32


# --- from tokens to postings ------------------------------------------------------------------------------


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


# --- ranking ----------------------------------------------------------------------------------------------


def term_records(numbers: Int32s, highest: Int32s | int) -> NDArray[Any]:
    """Return what ``_kernel.rank`` takes of n terms, (n,): numbers in s segments, (n, s), highest counts."""
    fields = [("fact", "<f8"), ("highest", "<i4"), ("numbers", "<i4", numbers.shape[1:])]
    records = np.zeros(len(numbers), fields)
    records["numbers"], records["highest"] = numbers, highest
    return records


class TermScores(NamedTuple):
    """Scores that a term adds to documents of a segment: rows ascending and values, float64, (n,) each."""

    rows: Int32s
    values: Float64s


def rank(
    terms: Sequence[TermScores],
    prior: Float64s | None,
    id_rank: Int32s,
    dead: Int32s,
    k: int,
    *,
    every: bool = False,
) -> tuple[Int32s, Float32s]:
    """Find the best k documents of a segment that hold any of the terms, or every one, by adding up all.

    Args:
        prior: What every document that matched gets on top, (rows,) float64, or None.
        id_rank: Place of every row in the order of ids.
        dead: Rows of documents that were deleted.

    Returns:
        Rows and scores, best first; equal scores by document id, ascending.
    """
    sums = np.full(len(id_rank), -0.0)
    for rows, values in terms:
        sums[rows] += values
    sums[dead] = -0.0
    touched = np.flatnonzero((sums != 0) | ~np.signbit(sums))
    if every:
        touched = reduce(np.intersect1d, [rows for rows, _ in terms], touched)
    scores = (sums[touched] if prior is None else sums[touched] + prior[touched]).astype(np.float32)
    if len(touched) > k:
        least = np.partition(scores, len(scores) - k)[len(scores) - k]
        touched, scores = touched[scores >= least], scores[scores >= least]
    order = np.lexsort((id_rank[touched], -scores))[:k]
    return touched[order].astype(np.int32), scores[order]


# --- strings ----------------------------------------------------------------------------------------------


def find(words: list[str], table: Table, out: Int32s, unknown: Int64s) -> int:
    """Look words up in a table of hashes; compiled only (``numbers`` has the plain way)."""
    return _kernel.find(words, table.hashes, table.numbers, out, unknown)


class Split(NamedTuple):
    """Words of plain texts."""

    numbers: Int32s  # numbers of the words, (words,); those of unknown words are not set
    counts: Int32s  # how many words each text has, (texts,); -1 for one that is not plain, and was not read
    # place in ``numbers``, first unit, length, hash of each word not in the table, (unknown, 4)
    unknown: Int64s


def split(units: NDArray[np.uint16], ends: Int64s, table: Table, seed: int) -> Split:
    """Split plain texts by Unicode's rules and look the words up in a table; compiled only.

    Args:
        units: All texts as UTF-16, (units,).
        ends: Where each text ends, (texts,).
        seed: What hashes depend on, of 64 bits.
    """
    most = len(units) // 2 + len(ends)
    numbers, counts = np.empty(most, np.int32), np.empty(len(ends), np.int32)
    unknown = np.empty((most, 4), np.int64)
    words, missed = _kernel.split(
        units, ends, plain_units(), seed, table.hashes, table.numbers, numbers, counts, unknown
    )
    return Split(numbers[:words], counts, unknown[:missed])


def put(keys: Int64s, values: Int32s, table: Table) -> None:
    """Put hashes of new words into a table of hashes; compiled only."""
    _kernel.put(keys, values, table.hashes, table.numbers)


def strings(blob: Bytes, offsets: Int64s, rows: Int64s) -> list[str]:
    """Decode blob[offsets[row] : offsets[row + 1]] for every row."""
    if COMPILED:
        return _kernel.strings(blob, offsets, rows)
    raw = memoryview(blob)
    starts, ends = offsets[rows].tolist(), offsets[rows + 1].tolist()
    return [str(raw[start:end], "utf-8") for start, end in zip(starts, ends, strict=True)]


def prefixes(blob: Bytes, offsets: Int64s, rows: Int64s) -> NDArray[np.uint64]:
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
