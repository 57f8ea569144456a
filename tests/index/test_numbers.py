"""Numbers of words: the same from the compiled table and from the plain dict, however the words come."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankhouse.index.lexical import kernel
from rankhouse.index.lexical.analysis import DROPPED, Numbers
from rankhouse.text import lucene
from rankhouse.text.analyze import english

ENGLISH = english()


def normal(word):
    return "" if word.startswith("the") else word.lower()


words = st.lists(st.text("abcDéthe ", max_size=4), max_size=60)


@pytest.mark.slow
@settings(max_examples=150)
@given(st.lists(words, max_size=5))
def test_the_table_gives_the_numbers_of_the_plain_dict(chunks):
    fast, slow = Numbers(normal), Numbers(normal)
    for chunk in chunks:
        found = fast.of(chunk)
        was, kernel.COMPILED = kernel.COMPILED, False
        try:
            assert np.array_equal(found, slow.of(chunk))
        finally:
            kernel.COMPILED = was
    assert list(fast.terms.items()) == list(slow.terms.items())


@pytest.mark.slow
def test_a_table_grows_with_its_words():
    numbers = Numbers(normal)
    many = [f"w{i}" for i in range(200_000)]
    assert numbers.of(many[:10]).tolist() == list(range(10))
    assert np.array_equal(numbers.of(many), np.arange(200_000))
    assert np.array_equal(numbers.of(many[::-1]), np.arange(200_000)[::-1])
    assert numbers.of(["the", "w5", "THEN"]).tolist() == [DROPPED, 5, 200_000]


def test_words_of_the_same_bytes_are_two_words():
    # In memory "Am" and U+6D41 are the same two bytes, and Python gives both one hash.
    numbers = Numbers(str)
    assert numbers.of(["Am", "\u6d41", "no", "\u6f6e", "Am"]).tolist() == [0, 1, 2, 3, 0]
    assert numbers.of(["\u6f6e", "no", "\u6d41"]).tolist() == [3, 2, 1]


PIECES = (
    *"aZ09 _.,:';-\n",
    *("\u00e9", "\u0430", "\u05d0", "\u304b", "\u30ab", "\u6d41", "\u0e01", "\u0301", "\u200d", "\ufe0f"),
    *("\U0001f469", "\U0001f1e9", "\ud800", "\udc00", "\u2019", "\u00b7", "\u20e3"),
    *("word", "_" * 254, "x" * 255),
)


@pytest.mark.slow
@settings(max_examples=300)
@given(st.lists(st.lists(st.sampled_from(PIECES), max_size=30).map("".join), max_size=6))
def test_compiled_words_are_those_of_the_expressions(texts):
    fast, slow = Numbers(str), Numbers(str)
    numbers, counts = fast.of_texts(texts, ENGLISH)
    expected = [lucene.words(text) for text in texts]
    assert counts.tolist() == [len(words) for words in expected]
    assert np.array_equal(numbers, slow.of([word for words in expected for word in words]))
    assert list(fast.terms) == list(slow.terms)


@pytest.mark.slow
def test_compiled_words_of_every_character_between_letters_and_digits():
    characters = map(chr, (*range(1, 0x3200), *range(0x3200, 0x10000, 17)))
    texts = [f"a{c}b 1{c}2 {c}a_{c} {c}" for c in characters]
    numbers, counts = Numbers(str).of_texts(texts, ENGLISH)
    expected = [lucene.words(text) for text in texts]
    assert counts.tolist() == [len(words) for words in expected]
    assert np.array_equal(numbers, Numbers(str).of([word for words in expected for word in words]))


@pytest.mark.skipif(not kernel.COMPILED, reason="the kernel was not compiled on this machine")
def test_tables_that_do_not_fit_are_refused():
    ends = np.zeros(3, np.int64), np.full(3, -2, np.int32)
    with pytest.raises(ValueError, match="do not fit"):
        kernel.find(["a"], kernel.Table(*ends), np.empty(1, np.int32), np.empty(1, np.int64))
    full = np.zeros(2, np.int64), np.zeros(2, np.int32)
    with pytest.raises(ValueError, match="no room"):
        kernel.put(np.ones(1, np.int64), np.ones(1, np.int32), kernel.Table(*full))
