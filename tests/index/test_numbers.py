"""Numbers of words: the same from the compiled table and from the plain dict, however the words come."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankhouse.index.lexical import kernel
from rankhouse.index.lexical.analysis import DROPPED, Numbers


def normal(word):
    return "" if word.startswith("the") else word.lower()


words = st.lists(st.text("abcDéthe ", max_size=4), max_size=60)


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


def test_a_table_grows_with_its_words():
    numbers = Numbers(normal)
    many = [f"w{i}" for i in range(200_000)]
    assert numbers.of(many[:10]).tolist() == list(range(10))
    assert np.array_equal(numbers.of(many), np.arange(200_000))
    assert np.array_equal(numbers.of(many[::-1]), np.arange(200_000)[::-1])
    assert numbers.of(["the", "w5", "THEN"]).tolist() == [DROPPED, 5, 200_000]


@pytest.mark.skipif(not kernel.COMPILED, reason="the kernel was not compiled on this machine")
def test_tables_that_do_not_fit_are_refused():
    ends = np.zeros(3, np.int64), np.full(3, -2, np.int32)
    with pytest.raises(ValueError, match="do not fit"):
        kernel.find(["a"], *ends, np.empty(1, np.int32), np.empty(1, np.int64))
    full = np.zeros(2, np.int64), np.zeros(2, np.int32)
    with pytest.raises(ValueError, match="no room"):
        kernel.put(np.ones(1, np.int64), np.ones(1, np.int32), *full)
