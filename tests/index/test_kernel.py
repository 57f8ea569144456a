"""The compiled loops and the numpy ones give the same bits; both keep the best by score, then by id."""

import os
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankhouse.index.lexical import kernel
from rankhouse.index.lexical.kernel import RankColumns, ScoredPostings

needs_compiled = pytest.mark.skipif(not kernel.COMPILED, reason="the kernel was not compiled on this machine")


@pytest.fixture
def plain(monkeypatch):
    """Switch the compiled kernel off for a call."""

    def call(function, *args):
        with monkeypatch.context() as patch:
            patch.setattr(kernel, "COMPILED", False)
            return function(*args)

    return call


def segment(rng, rows, terms, highest):
    """Random documents as tokens and lengths."""
    lengths = rng.integers(0, 30, rows).astype(np.int32)
    tokens = np.minimum(rng.zipf(1.3, lengths.sum()), terms) - 1
    if highest > 30 and rows:
        lengths[0] += highest
        tokens = np.concatenate([np.full(highest, terms - 1), tokens])
    return tokens.astype(np.int32), lengths


@needs_compiled
@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32), st.integers(0, 80), st.integers(1, 40))
def test_inverting_is_the_same_compiled_and_plain(seed, rows, terms):
    tokens, lengths = segment(np.random.default_rng(seed), rows, terms, 0)
    fast = kernel.invert(tokens.copy(), lengths, terms)
    fast_postings = kernel.scatter(fast, terms)
    kernel.COMPILED = False
    try:
        slow = kernel.invert(tokens.copy(), lengths, terms)
        slow_postings = kernel.scatter(slow, terms)
    finally:
        kernel.COMPILED = True
    for one, other in zip([*fast, *fast_postings], [*slow, *slow_postings], strict=True):
        assert np.array_equal(one, other)


def make_columns(rng, rows, terms, tf_type):
    tokens, lengths = segment(rng, rows, terms, 0)
    postings = kernel.scatter(kernel.invert(tokens, lengths, terms), terms)
    id_rank = rng.permutation(rows).astype(np.int32)
    id_order = np.argsort(id_rank).astype(np.int32)
    codes = rng.integers(0, 9, rows).astype(np.uint8)
    return RankColumns(postings.rows, postings.tfs.astype(tf_type), codes, id_rank, id_order), postings


@needs_compiled
@settings(max_examples=150, deadline=None)
@given(
    st.integers(0, 2**32),
    st.sampled_from([1, 7, 300, 70_000]),
    st.sampled_from([np.uint8, np.uint16, np.uint32]),
    st.integers(1, 2000),
    st.booleans(),
    st.sampled_from([0.0, 1.0, -1.0]),
)
@pytest.mark.slow
def test_ranking_is_the_same_compiled_and_plain(seed, rows, tf_type, k, with_prior, shift):
    rng = np.random.default_rng(seed)
    columns, postings = make_columns(rng, rows, 12, tf_type)
    parts = []
    for term in rng.permutation(12)[: rng.integers(1, 6)]:
        first, end = postings.starts[term], postings.starts[term + 1]
        if first == end:
            continue
        if rng.random() < 0.7:
            # Few distinct values, so that ties and zeros are common.
            table = rng.choice([0.0, 0.5, 1.25, 2.0], (postings.tfs[first:end].max() + 1, 9)).astype(
                np.float32
            )
            parts.append(ScoredPostings(first, end, table))
        else:
            parts.append(ScoredPostings(first, end, None, rng.random(end - first).astype(np.float32)))
    prior = rng.normal(shift, 1, rows) if with_prior else None
    everything = kernel.rank(columns, parts, prior, k)[1]
    floor = float(rng.choice(everything)) if len(everything) and rng.random() < 0.5 else -np.inf
    fast = kernel.rank(columns, parts, prior, k, floor)
    kernel.COMPILED = False
    try:
        slow = kernel.rank(columns, parts, prior, k, floor)
    finally:
        kernel.COMPILED = True
    assert np.array_equal(fast[0], slow[0])
    assert np.array_equal(fast[1], slow[1])
    assert np.array_equal(slow[1], everything[everything >= floor])
    key = [(-score, columns.id_rank[row]) for row, score in zip(*slow, strict=True)]
    assert key == sorted(key)


def test_a_match_worth_nothing_is_still_a_match(plain):
    by_id = np.array([2, 1, 0], np.int32)
    rows, ones, zeros = np.array([1, 2], np.int32), np.ones(2, np.uint8), np.zeros(3, np.uint8)
    columns = RankColumns(rows, ones, zeros, by_id, by_id)
    part = ScoredPostings(0, 2, np.zeros((2, 1), np.float32))
    for rows, scores in (kernel.rank(columns, [part], None, 5), plain(kernel.rank, columns, [part], None, 5)):
        assert rows.tolist() == [2, 1]
        assert scores.tolist() == [0, 0]


@needs_compiled
def test_damaged_arrays_raise_or_rank_but_never_crash():
    rng = np.random.default_rng(0)
    columns, postings = make_columns(rng, 200, 5, np.uint8)
    table = np.ones((300, 9), np.float32)
    with pytest.raises(ValueError, match="do not fit"):
        kernel.rank(columns, [ScoredPostings(0, 10**6, table)], None, 10)
    with pytest.raises(ValueError, match="do not fit"):
        kernel.rank(columns._replace(id_rank=columns.id_rank[:-1]), [ScoredPostings(0, 1, table)], None, 10)
    wild = columns._replace(rows=rng.integers(-(2**31), 2**31 - 1, len(columns.rows)).astype(np.int32))
    kernel.rank(wild, [ScoredPostings(0, len(wild.rows), table[:2])], None, 10)
    kernel.rank(
        columns._replace(id_rank=columns.id_rank + 10**6),
        [ScoredPostings(0, int(postings.starts[1]), table)],
        None,
        10,
    )


def test_strings_are_decoded_alike(plain):
    blob, offsets = np.frombuffer("añb€".encode(), np.uint8), np.array([0, 1, 3, 4, 7], np.int64)
    rows = np.array([3, 0, 1, 1], np.int64)
    assert (
        kernel.strings(blob, offsets, rows)
        == plain(kernel.strings, blob, offsets, rows)
        == ["€", "a", "ñ", "ñ"]
    )


def test_the_kernel_can_be_switched_off():
    code = "from rankhouse.index.lexical import kernel; import sys; sys.exit(kernel.COMPILED)"
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | {"RANKHOUSE_NO_KERNEL": "1"}, check=False
    )
    assert done.returncode == 0


@settings(max_examples=100)
@given(st.lists(st.text(max_size=20), min_size=1, max_size=20))
def test_heads_of_strings_are_ordered_as_the_strings(strings):
    from rankhouse.index.lexical.store import Strings
    from rankhouse.io.checksums import CheckedArray

    packed = Strings(*map(CheckedArray, Strings.pack(strings)))
    rows = np.arange(len(strings), dtype=np.int64)
    heads = [tuple(head) for head in packed.heads(rows).tolist()]
    for one, a in zip(strings, heads, strict=True):
        for other, b in zip(strings, heads, strict=True):
            if a < b:
                assert one.encode() < other.encode()
    kernel_state, kernel.COMPILED = kernel.COMPILED, False
    try:
        assert [tuple(head) for head in packed.heads(rows).tolist()] == heads
    finally:
        kernel.COMPILED = kernel_state
