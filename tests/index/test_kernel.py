"""Compiled loops, numpy and brute force give the same bits, whatever is packed, pruned or damaged."""

import os
import struct
import subprocess
import sys
from contextlib import suppress

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankhouse.index.lexical import kernel, packing
from rankhouse.index.lexical.kernel import Forward, Postings
from rankhouse.index.lexical.store import Vocabulary, find_terms

if kernel.COMPILED:
    from rankhouse.index.lexical import _kernel

needs_compiled = pytest.mark.skipif(not kernel.COMPILED, reason="the kernel was not compiled on this machine")
NO_CODES = np.empty(0, np.uint8)


def plainly(function, *args):
    """Call a function with the compiled kernel switched off."""
    was, kernel.COMPILED = kernel.COMPILED, False
    try:
        return function(*args)
    finally:
        kernel.COMPILED = was


def documents(rng, rows, terms, highest):
    """Random documents as tokens and lengths; one has a word very often."""
    lengths = rng.integers(0, 30, rows).astype(np.int32)
    tokens = np.minimum(rng.zipf(1.3, lengths.sum()), terms) - 1
    if highest and rows:
        lengths[0] += highest
        tokens = np.concatenate([np.full(highest, terms - 1), tokens])
    return tokens.astype(np.int32), lengths


def forward_of(rng, rows, terms, highest=0):
    """A forward index whose terms are numbered by falling frequency, none without documents."""
    tokens, lengths = documents(rng, rows, terms, highest)
    forward = kernel.invert(tokens, lengths, terms)
    frequencies = kernel.tally(forward.terms, terms)
    number = np.full(terms, -1, np.int32)
    held = np.flatnonzero(frequencies)
    number[held[np.argsort(-frequencies[held], kind="stable")]] = np.arange(len(held), dtype=np.int32)
    return forward._replace(terms=number[forward.terms]), len(held)


@needs_compiled
@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.integers(0, 80), st.integers(1, 40))
def test_inverting_is_the_same_compiled_and_plain(seed, rows, terms):
    tokens, lengths = documents(np.random.default_rng(seed), rows, terms, 0)
    fast = kernel.invert(tokens.copy(), lengths, terms)
    slow = plainly(kernel.invert, tokens.copy(), lengths, terms)
    both = [*fast, *kernel.scatter(fast, terms)], [*slow, *plainly(kernel.scatter, slow, terms)]
    assert all(map(np.array_equal, *both))


@needs_compiled
@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 2**32),
    st.integers(1, 900),
    st.integers(1, 40),
    st.sampled_from([0, 300, 70_000]),
    st.booleans(),
)
def test_postings_are_packed_alike_and_come_back(seed, rows, terms, highest, scores):
    rng = np.random.default_rng(seed)
    forward, terms = forward_of(rng, rows, terms, highest)
    postings, codes = kernel.scatter(forward, terms), rng.integers(0, 200, rows).astype(np.uint8)
    if scores:
        drawn = rng.choice([-1.5, 0, 1e-30, 0.3, 7], len(postings.rows)) * rng.random(len(postings.rows))
        postings, codes = postings._replace(payload=drawn.astype(np.float32)), NO_CODES
    packed = packing.pack(postings, codes, rows)
    assert all(map(np.array_equal, packed, plainly(packing.pack, postings, codes, rows)))
    for term in range(terms):
        span = slice(postings.starts[term], postings.starts[term + 1])
        found = packing.unpack(packed.lists[packed.lists_at[term] :], span.stop - span.start, scores=scores)
        assert np.array_equal(found[0], postings.rows[span])
        assert np.array_equal(found[1], postings.payload[span])
        if term < len(packed.areas):
            check_areas(packed.areas[term], postings.rows[span], postings.payload[span], codes)


def check_areas(areas, rows, payload, codes):
    """Bounds are no lower than what they bound, and fours are those that hold the term."""
    bounds, _ = areas[rows // 64].T
    if payload.dtype == np.float32:
        assert ((bounds.astype(np.uint32) << 16).view(np.float32) >= payload).all()
    else:
        assert (bounds >> 8 >= np.minimum(payload, 255)).all()
        assert ((bounds & 255) <= codes[rows]).all()
    held = {(row // 64, row // 4 % 16) for row in rows.tolist()}
    assert held == {
        (area, bit) for area, word in enumerate(areas[:, 1].tolist()) for bit in range(16) if word >> bit & 1
    }


@needs_compiled
@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 80), st.integers(1, 300), st.sampled_from([0, 300, 70_000]))
def test_forward_indexes_are_packed_alike_and_come_back(seed, rows, terms, highest):
    rng = np.random.default_rng(seed)
    forward, _ = forward_of(rng, rows, terms, highest)
    packed = packing.pack_forward(forward)
    assert all(map(np.array_equal, packed, plainly(packing.pack_forward, forward)))
    some = rng.permutation(rows)[: rows // 2 + 1]
    for found in (packing.unpack_forward(*packed, some), plainly(packing.unpack_forward, *packed, some)):
        for place, row in enumerate(some.tolist()):
            held, own = (
                slice(ends[i], ends[i + 1]) for ends, i in ((found.ends, place), (forward.ends, row))
            )
            pairs = zip(forward.terms[own].tolist(), forward.tfs[own].tolist(), strict=True)
            assert sorted(pairs) == list(
                zip(found.terms[held].tolist(), found.tfs[held].tolist(), strict=True)
            )


def test_an_empty_segment_is_packed():
    nothing = Postings(np.zeros(1, np.int64), np.empty(0, np.int32), np.empty(0, np.uint8))
    for pack in (packing.pack, lambda *given: plainly(packing.pack, *given)):
        assert [array.tolist() for array in pack(nothing, np.zeros(3, np.uint8), 3)] == [[0] * 8, [0], []]
    forward = Forward(np.zeros(3, np.int64), np.empty(0, np.int32), np.empty(0, np.uint8))
    assert [array.tolist() for array in packing.pack_forward(forward)] == [[0, 0], [0, 1, 2]]


# --- damage ---------------------------------------------------------------------------------------------


def opened(rng, rows=3_000, lists=None):
    """A segment as the kernel keeps it open, and what was packed into it."""
    forward, terms = forward_of(rng, rows, 12)
    postings = kernel.scatter(forward, terms)
    codes = rng.integers(0, 9, rows).astype(np.uint8)
    packed = packing.pack(postings, codes, rows)
    ids = np.frombuffer(b"".join(b"%06d" % i for i in range(rows)), np.uint8)
    none = np.empty(0, np.int32)
    arrays = [packed.lists, packed.lists_at, np.diff(postings.starts).astype(np.int32), packed.areas]
    arrays += [codes, codes.astype(np.int32), none, none, NO_CODES, ids, np.arange(0, 6 * rows + 1, 6)]
    return arrays, terms


def ask(arrays, numbers, k=10, form=0, pruning=2, highest=40):
    """Rank for one query of terms with these numbers, each with a table for counts up to 40; and count."""
    ratio = np.linspace(1, 0.1, 256).astype(np.float32)
    table = np.ones(41 * 9, np.float32).tobytes() if form == 2 else np.ones(41).tobytes()
    known = {f"t{n}": ((1, 1), struct.pack("<dii", 1, highest, n) + table) for n in numbers}
    queries = [{term: (1.0, counts) for term, (counts, _) in known.items()}]
    segments = _kernel.open_segments([tuple(arrays)])
    model = _kernel.open_model(segments, form, False, 9, True, ratio, ratio, np.zeros(256), b"")
    for every in (0, 1):
        filled = np.empty(k, np.int64), np.empty(k, np.float32), np.empty(1, np.int64), np.empty(1, np.int64)
        _kernel.rank(model, pruning, k, every, known, queries, (*[None] * 7, *filled))
        _kernel.rank(model, pruning, 0, every, known, queries, (*[None] * 10, filled[3]))


@needs_compiled
def test_arrays_that_do_not_fit_are_refused():
    arrays, terms = opened(np.random.default_rng(0))
    for place, array in enumerate(arrays):
        if len(array) and place not in (0, 3, 9):
            short = [*arrays[:place], array[:-1], *arrays[place + 1 :]]
            with pytest.raises(ValueError, match="do not fit"):
                ask(short, [0])
    with pytest.raises(ValueError, match="damaged"):
        ask(arrays, [terms])
    with pytest.raises(ValueError, match="do not fit"):
        ask(arrays, [0], k=0)
    for form in (1, 2):
        with pytest.raises(ValueError, match="does not fit the model"):
            ask(arrays, [0], form=form, highest=41)


@needs_compiled
@pytest.mark.parametrize("place", [0, 1, 2, 3, 9, 10])
def test_damaged_arrays_raise_or_rank_but_never_crash(place):
    rng = np.random.default_rng(place)
    for _ in range(150):
        arrays, terms = opened(rng, int(rng.integers(1, 1_000)))
        raw = arrays[place].copy().view(np.uint8).ravel()
        if len(raw):
            raw[rng.integers(0, len(raw), 5)] = rng.integers(0, 256, 5)
            arrays[place] = raw.view(arrays[place].dtype)
        for pruning in (0, 2):
            with suppress(ValueError):
                ask(arrays, list(range(terms)), form=int(rng.integers(3)), pruning=pruning)


# --- strings --------------------------------------------------------------------------------------------


def test_strings_are_decoded_alike():
    blob, rows = np.frombuffer("añb€".encode(), np.uint8), np.array([3, 0, 1, 1], np.int64)
    for offsets in (np.array([0, 1, 3, 4, 7], kind) for kind in (np.int64, np.uint32)):
        assert kernel.strings(blob, offsets, rows) == ["€", "a", "ñ", "ñ"]
        assert plainly(kernel.strings, blob, offsets, rows) == ["€", "a", "ñ", "ñ"]


def packed_strings(strings):
    from rankhouse.index.lexical.store import Strings
    from rankhouse.io.checksums import CheckedArray

    return Strings(*map(CheckedArray, Strings.pack(strings)))


@settings(max_examples=100)
@given(st.lists(st.text(max_size=20), min_size=1, max_size=20))
def test_heads_of_strings_are_ordered_as_the_strings(strings):
    packed, rows = packed_strings(strings), np.arange(len(strings), dtype=np.int64)
    heads = [tuple(head) for head in packed.heads(rows).tolist()]
    for one, a in zip(strings, heads, strict=True):
        for other, b in zip(strings, heads, strict=True):
            if a < b:
                assert one.encode() < other.encode()
    assert [tuple(head) for head in plainly(packed.heads, rows).tolist()] == heads


@settings(max_examples=100)
@given(
    st.lists(st.text("abé", max_size=3), unique=True, max_size=20), st.lists(st.text("abé\ud800", max_size=3))
)
def test_strings_are_found_by_bisection(strings, wanted):
    packed = packed_strings(strings)
    order = np.array(sorted(range(len(strings)), key=strings.__getitem__), np.int32)
    counts = np.arange(len(strings), dtype=np.uint8)
    one = Vocabulary(packed.blob.unchecked, packed.offsets.unchecked, order, counts + 1, counts, counts * 2)
    none = Vocabulary(*(column[:0] for column in one))._replace(offsets=np.zeros(1, np.int64))
    places = [strings.index(one) if one in strings else -1 for one in wanted]
    found = [(2 * (p + 1), 2 * max(p, 0), max(1, 2 * p), struct.pack("iii", p, -1, p)) for p in places]
    for find in (find_terms, lambda *given: plainly(find_terms, *given)):
        assert find([one, none, one], wanted) == found


def test_the_kernel_can_be_switched_off():
    code = "from rankhouse.index.lexical import kernel; import sys; sys.exit(kernel.COMPILED)"
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | {"RANKHOUSE_NO_KERNEL": "1"}, check=False
    )
    assert done.returncode == 0
