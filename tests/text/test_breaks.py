"""Word boundaries: equal to Lucene's StandardTokenizer, by both of the ways they are found."""

import json
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankhouse.text import lucene as breaks
from rankhouse.text.characters import RANGES
from rankhouse.text.lucene import lower

LUCENE = json.loads(
    (Path(__file__).parents[1] / "golden" / "text_lucene_tokens.json").read_text(encoding="utf-8")
)


def test_words_of_all_scripts_are_lucenes():
    for text, words, _ in LUCENE["standard"]:
        assert breaks.words(text) == words, text


@pytest.mark.parametrize(("unit", "repeats", "before", "behind", "lengths", "end"), LUCENE["long"])
def test_words_beyond_255_units_are_cut_as_lucene_cuts_them(unit, repeats, before, behind, lengths, end):
    words = breaks.words(before + unit * repeats + behind)
    assert [len(word) for word in words] == lengths
    assert (words[-1][-8:] if words else "") == end
    assert all(len(word.encode("utf-16-le")) <= 2 * breaks.MAX_WORD_UNITS for word in words)


plain_text = st.text("abcXYZäЖ015٣ '’‘·.,:;_‿-#\"*", max_size=400)


@settings(max_examples=1000, deadline=None)
@given(plain_text)
def test_the_plain_expression_finds_what_the_full_one_finds(text):
    in_full = [match.span() for match in breaks._words_of_kinds().finditer(breaks.kinds(text))]
    assert [match.span() for match in breaks._plain_words(in_ascii=False).finditer(text)] == in_full
    assert not breaks._not_plain().search(text)


@settings(max_examples=1000, deadline=None)
@given(st.text(st.characters(max_codepoint=127), max_size=400))
def test_ascii_has_the_words_that_the_plain_expression_finds(text):
    plain = [match.span() for match in breaks._plain_words(in_ascii=False).finditer(text)]
    assert [match.span() for match in breaks._plain_words(in_ascii=True).finditer(text)] == plain


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(st.text(max_size=80))
def test_words_stand_in_the_text_in_order_and_hold_no_white_space(text):
    spans = breaks.spans(text)
    assert breaks.words(text) == [text[start:end] for start, end in spans]
    assert all(start < end for start, end in spans)
    assert all(left[1] <= right[0] for left, right in pairwise(spans))
    assert not any(set(text[start:end]) & set(" \n\t") for start, end in spans)


def test_no_ascii_letter_or_digit_is_lost():
    text = "".join(chr(code) for code in range(128)) * 3
    found = "".join(breaks.words(text))
    assert [c for c in found if c.isalnum()] == [c for c in text if c.isalnum()]


def test_each_character_has_one_kind():
    seen = {}
    for kind, ranges in RANGES.items():
        for part in ranges.split():
            first, _, last = part.partition("-")
            for code in (int(first, 16), int(last or first, 16)):
                assert seen.setdefault(code, kind) == kind
    assert breaks.kinds("a1_.' \ud800日あアก한é👍") == "ad_.'xxHJKtaae"


def test_lower_case_is_taken_character_by_character_as_java_does():
    assert lower("ΟΔΟΣ İI ẞ") == "οδοσ ii ß"
    assert lower("ABC") == "abc"
