import json
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankhouse.core.errors import MissingExtra, WrongUse
from rankhouse.text.words import BLINGFIRE, blingfire, splitter, whitespace

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "blingfire_words.json").read_text("utf-8"))


@pytest.mark.parametrize(("text", "words"), GOLDEN["cases"])
def test_words_are_those_of_the_tk_authors(text, words):
    assert blingfire(lower=False)(text) == words


def test_lower_case_comes_after_splitting():
    assert splitter("blingfire")("The U.S.A. can't") == ["the", "u.s.a.", "ca", "n't"]


def test_posts_are_split_at_white_space_and_keep_their_case():
    assert splitter("whitespace")(" RT @User: Go#Go\tnow ") == ["RT", "@User:", "Go#Go", "now"]
    assert splitter("whitespace(lower=True)")("RT Me") == ["rt", "me"]


@pytest.mark.parametrize("split", [blingfire(), whitespace()])
@settings(max_examples=60, deadline=None)
@given(text=st.text(st.characters(), max_size=60))
def test_any_text_gives_words_without_white_space(split, text):
    words = split(text)
    assert all(word and not any(sign.isspace() for sign in word) for word in words)
    " ".join(words).encode()


def test_a_lone_surrogate_is_a_space():
    assert blingfire()("naïve \ud800 cats\ud812dogs") == ["naïve", "cats", "dogs"]
    assert whitespace()("a\udfffb") == ["a", "b"]


def test_an_unknown_splitter_lists_the_known_ones():
    with pytest.raises(WrongUse, match="blingfire, whitespace"):
        splitter("spacy")


def test_without_blingfire_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, BLINGFIRE, None)
    with pytest.raises(MissingExtra, match=r"rankhouse\[neural\]"):
        blingfire()
