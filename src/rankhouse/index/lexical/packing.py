"""Postings and the forward index as they lie in files: packed, and unpacked again.

The compiled kernel reads and writes the same bytes; ``_postings.h`` describes them.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rankhouse.index.lexical import kernel
from rankhouse.index.lexical.kernel import Bytes, Float32s, Forward, Int32s, Int64s, Postings

if kernel.COMPILED:
    from rankhouse.index.lexical import _kernel

PACK: Final = 128
"""Postings a block."""
AREA: Final = 64
"""Documents under one bound of a frequent term; terms in at least one of so many have bounds."""
_SKIP, _HEAD, _PAD = 12, 4, 8
_AT_ONCE: Final = 1 << 18


class PackedLists(NamedTuple):
    """Postings as they lie in files."""

    lists: Bytes  # the lists of all terms, (bytes,)
    lists_at: Int64s  # where each begins and the last ends, (terms + 1,)
    # of the first terms, the frequent ones, a bound for every 64 documents and which fours of these hold the
    # term, (terms, areas, 2)
    areas: NDArray[np.uint16]


def frequent_terms(starts: Int64s, documents: int) -> int:
    """Count the terms at the beginning, the most frequent ones, that have bounds of areas."""
    frequencies = np.diff(starts)
    return int(np.searchsorted(-frequencies * AREA, -documents, side="right"))


def pack(postings: Postings, codes: Bytes, documents: int) -> PackedLists:
    """Pack postings whose terms come by falling frequency, none without documents.

    Args:
        codes: Length code of each document; none for scores.
    """
    starts, rows, payload = postings
    kind = 0 if payload.dtype == np.float32 else payload.itemsize
    areas = np.zeros((frequent_terms(starts, documents), -(-documents // AREA), 2), np.uint16)
    if kernel.COMPILED:
        terms = len(starts) - 1
        room = len(rows) * 8 + (len(rows) // PACK + terms) * (_SKIP + 2) + terms * _HEAD + _PAD
        lists, lists_at = np.empty(room, np.uint8), np.empty(terms + 1, np.int64)
        given = (starts, rows, payload, kind, codes, documents)
        return PackedLists(lists[: _kernel.pack(*given, lists, lists_at, areas)], lists_at, areas)
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
    return PackedLists(np.concatenate([*parts, np.zeros(_PAD, np.uint8)]), lists_at, areas)


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


def _pack_lists(postings: Postings, bounds: NDArray[np.uint16], first: int, end: int) -> tuple[Bytes, Int64s]:
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
    if kernel.COMPILED:
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
        packed[starts[some] + byte] = values[some] >> 7 * byte & 127 | np.where(
            sizes[some] > byte + 1, 128, 0
        )
    return packed, np.concatenate([[0], np.cumsum(np.bincount(owner, sizes, len(ends) - 1))]).astype(np.int64)


def unpack_forward(packed: Bytes, at: Int64s, rows: Int64s) -> Forward:
    """Unpack documents; the terms of each are sorted."""
    if kernel.COMPILED:
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
    counts = 1 + (gaps & 1)
    rest = np.ones(len(values), bool)
    rest[heads] = False
    rest[np.repeat(heads + 1, n) + inside] = False
    counts[counts > 1] += values[rest]
    return Forward(ends, (steps - np.repeat(bases, n) - 1).astype(np.int32), counts.astype(np.uint32))
