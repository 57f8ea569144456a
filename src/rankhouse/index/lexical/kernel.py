"""The hot loops of the lexical index: compiled where a compiler was there at install, else numpy.

Both give the same bits: scores are float32 a term, added in float64 in the order of the terms, rounded to
float32 once a document. The compiled kernel leaves out what cannot be among the best; numpy adds everything.
What postings are packed into says ``_postings.h``.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, Final, NamedTuple

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
Bytes = NDArray[np.uint8]

PACK: Final = 128
"""Postings a block."""
AREA: Final = 64
"""Documents under one bound of a frequent term; terms in at least one of so many have bounds."""
_SKIP, _HEAD, _PAD = 12, 4, 8
_AT_ONCE: Final = 1 << 18


class Forward(NamedTuple):
    """Documents -> their distinct terms: ends (rows + 1,), terms and tfs (entries,)."""

    ends: Int64s
    terms: Int32s
    tfs: Counts


class Postings(NamedTuple):
    """Terms -> their documents: starts (terms + 1,), rows ascending and payload (entries,), counts or scores."""

    starts: Int64s
    rows: Int32s
    payload: Counts | Float32s


class Packed(NamedTuple):
    """Postings as they lie in files.

    Attributes:
        lists: The lists of all terms, (bytes,).
        lists_at: Where each begins and the last ends, (terms + 1,).
        areas: Of the first terms, the frequent ones, a bound for every 64 documents and which fours of these hold
            the term, (terms, areas, 2).
    """

    lists: Bytes
    lists_at: Int64s
    areas: NDArray[np.uint16]


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


# --- packed postings --------------------------------------------------------------------------------------


def frequent_terms(starts: Int64s, documents: int) -> int:
    """Count the terms at the beginning, the most frequent ones, that have bounds of areas."""
    frequencies = np.diff(starts)
    return int(np.searchsorted(-frequencies * AREA, -documents, side="right"))


def pack(postings: Postings, codes: Bytes, documents: int) -> Packed:
    """Pack postings whose terms come by falling frequency, none without documents.

    Args:
        codes: Length code of each document; none for scores.
        documents: How many documents there are.
    """
    starts, rows, payload = postings
    kind = 0 if payload.dtype == np.float32 else payload.itemsize
    areas = np.zeros((frequent_terms(starts, documents), -(-documents // AREA), 2), np.uint16)
    if COMPILED:
        terms = len(starts) - 1
        room = len(rows) * 8 + (len(rows) // PACK + terms) * (_SKIP + 2) + terms * _HEAD + _PAD
        lists, lists_at = np.empty(room, np.uint8), np.empty(terms + 1, np.int64)
        given = (starts, rows, payload, kind, codes, documents)
        return Packed(lists[: _kernel.pack(*given, lists, lists_at, areas)], lists_at, areas)
    bounds = _bounds(postings, codes)
    for term, (first, end) in enumerate(pairwise(starts[: len(areas) + 1].tolist())):
        some = rows[first:end]
        edges = np.flatnonzero(np.diff(some // AREA, prepend=-1))
        fours = np.left_shift(1, some // 4 & 15).astype(np.uint16)
        areas[term, some[edges] // AREA, 0] = _joint(bounds[first:end], edges, kind)
        areas[term, some[edges] // AREA, 1] = np.bitwise_or.reduceat(fours, edges)
    parts, lists_at = list[Bytes](), np.zeros(len(starts), np.int64)
    term = used = 0
    while term < len(starts) - 1:
        end = max(term + 1, int(np.searchsorted(starts, starts[term] + _AT_ONCE, side="right")) - 1)
        chunk, at = _pack_lists(postings, bounds, term, end)
        lists_at[term : end + 1] = used + at
        parts.append(chunk)
        term, used = end, used + len(chunk)
    return Packed(np.concatenate([*parts, np.zeros(_PAD, np.uint8)]), lists_at, areas)


def _bounds(postings: Postings, codes: Bytes) -> NDArray[np.uint16]:
    """Return the bound of each posting."""
    if postings.payload.dtype == np.float32:
        bits = postings.payload.astype(np.float32).view(np.uint32).astype(np.int64)
        return np.where(postings.payload > 0, (bits + 0xFFFF) >> 16, 0).astype(np.uint16)
    counts = np.minimum(postings.payload, 255).astype(np.uint16)
    return counts << np.uint16(8) | (codes[postings.rows] if len(codes) else np.uint16(0))


def _joint(bounds: NDArray[np.uint16], edges: Int64s, kind: int) -> NDArray[np.uint16]:
    """Return the bounds of stretches, which begin at the edges."""
    if kind == 0:
        return np.maximum.reduceat(bounds, edges)
    codes = np.minimum.reduceat(bounds & np.uint16(255), edges)
    return np.maximum.reduceat(bounds >> np.uint16(8), edges) << np.uint16(8) | codes


def _pack_lists(
    postings: Postings, bounds: NDArray[np.uint16], first: int, end: int
) -> tuple[Bytes, Int64s]:
    """Pack the lists of some terms: the bytes, and where each begins and the last ends."""
    starts = postings.starts[first : end + 1] - postings.starts[first]
    span = slice(int(postings.starts[first]), int(postings.starts[end]))
    rows, payload, bounds = postings.rows[span].astype(np.int64), postings.payload[span], bounds[span]
    kind = 0 if payload.dtype == np.float32 else payload.itemsize
    sizes = np.diff(starts)
    in_list = np.arange(len(rows)) - np.repeat(starts[:-1], sizes)
    gaps = np.diff(rows, prepend=-1) - 1
    gaps[starts[:-1]] = rows[starts[:-1]]
    edges = np.flatnonzero(in_list % PACK == 0)
    n = np.diff(edges, append=len(rows))
    gap_bits = _bits_of(np.maximum.reduceat(gaps, edges))
    more = np.zeros(len(rows), np.int64) if kind == 0 else payload.astype(np.int64) - 1
    count_bits = _bits_of(np.maximum.reduceat(more, edges))
    gap_bytes = (n * gap_bits + 7) >> 3
    block_bytes = gap_bytes + (4 * n if kind == 0 else (n * count_bits + 7) >> 3)
    blocks = -(-sizes // PACK)
    owner = np.repeat(np.arange(len(sizes)), blocks)
    heads = np.where(sizes < PACK, _HEAD, _SKIP * blocks)
    list_bytes = heads + np.bincount(owner, block_bytes, len(sizes)).astype(np.int64)
    at = np.concatenate([[0], np.cumsum(list_bytes)])
    before = np.cumsum(block_bytes) - block_bytes
    base = np.concatenate([[0], np.cumsum(blocks)])[:-1]
    in_blocks = before - before[base][owner]  # bytes of the list's blocks before this one
    block_at = at[owner] + heads[owner] + in_blocks
    out = np.zeros(int(at[-1]), np.uint8)
    block, place = np.repeat(np.arange(len(n)), n), in_list % PACK
    _put_bits(out, block_at[block] * 8 + place * gap_bits[block], gaps, gap_bits[block])
    payload_at = block_at + gap_bytes
    if kind == 0:
        where = (payload_at[block] + 4 * place)[:, None] + np.arange(4)
        out[where] = payload.view(np.uint8).reshape(-1, 4)
    else:
        _put_bits(out, payload_at[block] * 8 + place * count_bits[block], more, count_bits[block])
    facts = np.empty((len(n), 4), np.uint8)
    facts[:, 0], facts[:, 1] = gap_bits, count_bits
    facts[:, 2:] = _joint(bounds, edges, kind).astype("<u2").view(np.uint8).reshape(-1, 2)
    is_short = (sizes < PACK)[owner]
    out[at[owner[is_short]][:, None] + np.arange(4)] = facts[is_short]
    is_long = ~is_short
    skip_at = at[owner] + _SKIP * (np.arange(len(n)) - base[owner])
    skips = np.empty((int(is_long.sum()), _SKIP), np.uint8)
    skips[:, :4] = rows[edges + n - 1][is_long].astype("<i4").view(np.uint8).reshape(-1, 4)
    skips[:, 4:8] = (in_blocks + block_bytes)[is_long].astype("<u4").view(np.uint8).reshape(-1, 4)
    skips[:, 8:] = facts[is_long]
    out[skip_at[is_long][:, None] + np.arange(_SKIP)] = skips
    return out, at


def _bits_of(values: Int64s) -> Int64s:
    """Count the bits of numbers of 32 bits."""
    return np.where(values > 0, np.frexp(values.astype(np.float64))[1], 0).astype(np.int64)


def _put_bits(out: Bytes, at: Int64s, values: Int64s, bits: Int64s) -> None:
    """Set bits from places on; nothing else may be there."""
    for bit in range(int(bits.max(initial=0))):
        some = np.flatnonzero((bits > bit) & (values >> bit & 1 > 0))
        places = at[some] + bit
        # Two values of one byte have different bits of it.
        np.bitwise_or.at(out, places >> 3, np.left_shift(1, places & 7).astype(np.uint8))


def unpack(lists: Bytes, n: int, *, scores: bool = False) -> tuple[Int32s, Int32s | Float32s]:
    """Unpack a list of n postings: rows and counts, or scores, (n,) each.

    Args:
        lists: Its bytes, and eight bytes more.
    """
    blocks = -(-n // PACK)
    if n < PACK:
        facts, heads, ends = lists[None, :_HEAD], _HEAD, np.zeros(1, np.int64)
    else:
        skips = lists[: _SKIP * blocks].reshape(blocks, _SKIP)
        facts, heads = skips[:, 8:], _SKIP * blocks
        ends = np.concatenate([[0], skips[:, 4:8].copy().view("<u4")[:-1, 0]]).astype(np.int64)
    sizes = np.full(blocks, PACK, np.int64)
    sizes[-1] = n - PACK * (blocks - 1)
    block, place = np.repeat(np.arange(blocks), sizes), np.arange(n) % PACK
    bits = facts[:, :2].astype(np.int64)
    starts = heads + ends
    gaps = _bits_at(lists, starts[block] * 8 + place * bits[block, 0], bits[block, 0])
    rows = (np.cumsum(gaps + 1) - 1).astype(np.int32)
    starts += (sizes * bits[:, 0] + 7) >> 3
    if scores:
        where = (starts[block] + 4 * place)[:, None] + np.arange(4)
        return rows, lists[where].view("<f4")[:, 0]
    counts = 1 + _bits_at(lists, starts[block] * 8 + place * bits[block, 1], bits[block, 1])
    return rows, counts.astype(np.int32)


def _bits_at(packed: Bytes, at: Int64s, bits: Int64s) -> Int64s:
    """Read numbers of so many bits, up to 32, at places in bits."""
    value = np.zeros(len(at), np.int64)
    for byte in range(5):
        value |= packed[(at >> 3) + byte].astype(np.int64) << (8 * byte)
    return value >> (at & 7) & ((np.int64(1) << bits) - 1)


# --- forward index ----------------------------------------------------------------------------------------


def pack_forward(forward: Forward) -> tuple[Bytes, Int64s]:
    """Pack the terms of documents: the bytes, and where each document begins and the last ends.

    Of each document: how many terms, the gaps between their sorted numbers, twice each and one more where the
    term occurs again, and these counts less 2, as numbers of 7 bits a byte.
    """
    ends, terms, tfs = forward
    if COMPILED:
        room, at = np.empty(9 * len(terms) + 5 * len(ends), np.uint8), np.empty(len(ends), np.int64)
        return room[: _kernel.pack_forward(ends, terms, tfs, tfs.itemsize, room, at)], at
    row = np.repeat(np.arange(len(ends) - 1), np.diff(ends))
    order = np.lexsort((terms, row))
    terms, tfs = terms[order].astype(np.int64), tfs[order].astype(np.int64)
    gaps = np.diff(terms, prepend=-1) - 1
    first = ends[:-1][np.diff(ends) > 0]
    gaps[first] = terms[first]
    again = tfs > 1
    values = np.concatenate([np.diff(ends), 2 * gaps + again, tfs[again] - 2])
    # Numbers of a document stand together: how many, then gaps, then counts.
    part = np.repeat([0, 1, 2], [len(ends) - 1, len(terms), int(again.sum())])
    owner = np.concatenate([np.arange(len(ends) - 1), row, row[again]])
    place = np.lexsort((part, owner))
    values, owner = values[place], owner[place]
    sizes = np.maximum(1, (_bits_of(values) + 6) // 7)
    starts = np.cumsum(sizes) - sizes
    packed = np.empty(int(sizes.sum()), np.uint8)
    for byte in range(int(sizes.max(initial=0))):
        some = sizes > byte
        packed[starts[some] + byte] = values[some] >> 7 * byte & 127 | np.where(sizes[some] > byte + 1, 128, 0)
    return packed, np.concatenate([[0], np.cumsum(np.bincount(owner, sizes, len(ends) - 1))]).astype(np.int64)


def unpack_forward(packed: Bytes, at: Int64s, rows: Int64s) -> Forward:
    """Unpack documents; the terms of each are sorted."""
    if COMPILED:
        entries = int((at[rows + 1].astype(np.int64) - at[rows].astype(np.int64)).sum())
        ends, terms = np.empty(len(rows) + 1, np.int64), np.empty(entries, np.int32)
        tfs = np.empty(entries, np.uint32)
        n = _kernel.unpack_forward(packed, at, rows, ends, terms, tfs)
        return Forward(ends, terms[:n], tfs[:n])
    starts, stops = at[rows].astype(np.int64), at[rows + 1].astype(np.int64)
    sizes = stops - starts
    before = np.cumsum(sizes) - sizes
    some = packed[np.repeat(starts - before, sizes) + np.arange(int(sizes.sum()))]
    last = np.flatnonzero(some < 128)
    first = np.concatenate([[0], last[:-1] + 1])
    shifts = 7 * (np.arange(len(some)) - np.repeat(first, last - first + 1))
    values = np.add.reduceat((some & 127).astype(np.int64) << shifts, first) if len(some) else last
    owner = np.searchsorted(before, first, side="right") - 1
    numbers = np.bincount(owner, minlength=len(rows))
    heads = np.cumsum(numbers) - numbers
    n = values[heads]
    ends = np.concatenate([[0], np.cumsum(n)])
    inside = np.arange(int(ends[-1])) - np.repeat(ends[:-1], n)
    gaps = values[np.repeat(heads + 1, n) + inside]
    steps = np.cumsum((gaps >> 1) + 1)
    bases = np.concatenate([[0], steps])[ends[:-1]]
    tfs = 1 + (gaps & 1)
    rest = np.ones(len(values), bool)
    rest[heads] = False
    rest[np.repeat(heads + 1, n) + inside] = False
    tfs[tfs > 1] += values[rest]
    return Forward(ends, (steps - np.repeat(bases, n) - 1).astype(np.int32), tfs.astype(np.uint32))


# --- ranking ----------------------------------------------------------------------------------------------


def search(opened: object, options: tuple[int, ...], arrays: tuple[NDArray[Any], ...]) -> tuple[int, int]:
    """Find the best documents for each of several queries, compiled only; ``_kernel.rank`` says how."""
    form, rising, exact, codes, k, is_sorted = options
    return _kernel.rank(opened, form, rising, exact, codes, k, is_sorted, arrays)


def open_segments(segments: Sequence[tuple[NDArray[Any], ...]]) -> object:
    """Keep the arrays of segments open for :func:`search`; compiled only."""
    return _kernel.open(list(segments))


class Scored(NamedTuple):
    """What a term adds to documents of a segment: rows ascending and values, float64, (n,) each."""

    rows: Int32s
    values: Float64s


def rank(
    terms: Sequence[Scored], prior: Float64s | None, id_rank: Int32s, dead: Int32s, k: int
) -> tuple[Int32s, Float32s]:
    """Find the best k documents of a segment that hold any of the terms, by adding up all.

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
    scores = (sums[touched] if prior is None else sums[touched] + prior[touched]).astype(np.float32)
    if len(touched) > k:
        least = np.partition(scores, len(scores) - k)[len(scores) - k]
        touched, scores = touched[scores >= least], scores[scores >= least]
    order = np.lexsort((id_rank[touched], -scores))[:k]
    return touched[order].astype(np.int32), scores[order]


# --- strings ----------------------------------------------------------------------------------------------


def find(words: list[str], hashes: Int64s, numbers: Int32s, out: Int32s, unknown: Int64s) -> int:
    """Look words up in a table of hashes; compiled only (``numbers`` has the plain way)."""
    return _kernel.find(words, hashes, numbers, out, unknown)


def put(keys: Int64s, values: Int32s, hashes: Int64s, numbers: Int32s) -> None:
    """Put hashes of new words into a table of hashes; compiled only."""
    _kernel.put(keys, values, hashes, numbers)


def places(blob: Bytes, offsets: Int64s, order: Int32s, strings_: list[str]) -> Int64s:
    """Find strings among those of a blob: their numbers, -1 for none.

    Args:
        order: Numbers as the strings are sorted by their bytes; empty where they are.
    """
    found = np.full(len(strings_), -1, np.int64)
    if COMPILED:
        _kernel.places(blob, offsets, order, strings_, found)
        return found
    raw, at = memoryview(blob), memoryview(offsets)
    numbers = memoryview(order) if len(order) else range(len(at) - 1)
    for i, string in enumerate(strings_):
        wanted = string.encode("utf-8", "surrogatepass")
        place = bisect_left(numbers, wanted, key=lambda number: bytes(raw[at[number] : at[number + 1]]))
        if place < len(numbers):
            number = numbers[place]
            if bytes(raw[at[number] : at[number + 1]]) == wanted:
                found[i] = number
    return found


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
