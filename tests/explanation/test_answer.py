"""The shape of answers: parts sum up, contrasts are antisymmetric, everything becomes JSON."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankhouse.core.nouns import Query
from rankhouse.explanation.answer import Counterfactual, Explanation, Grid, Part, ReadText, Word
from rankhouse.explanation.contrast import contrast

QUERY = Query("q1", "who steers ships?")


def explained(doc_id, score, parts, **rest):
    return Explanation(QUERY, doc_id, score, "term weights", True, "bm25", tuple(parts), **rest)


numbers = st.floats(-1e3, 1e3, width=32)
leaves = st.builds(Part, st.sampled_from("abcdef"), numbers)
trees = st.lists(
    st.builds(
        lambda name, parts: Part(name, sum(p.value for p in parts), parts=tuple(parts)),
        st.sampled_from("uvwxyz"),
        st.lists(leaves, max_size=4),
    ),
    max_size=5,
)


def total(parts):
    return sum(part.value for part in parts)


def flat(parts, above=""):
    for part in parts:
        yield f"{above}/{part.name}", part.value
        yield from flat(part.parts, f"{above}/{part.name}")


@pytest.mark.slow
@given(trees, trees)
def test_a_contrast_sums_to_the_difference_and_is_antisymmetric(first, second):
    a, b = explained("a", total(first), first), explained("b", total(second), second)
    there, back = contrast(a, b), contrast(b, a)
    assert there.gap == pytest.approx(0, abs=1e-6)
    assert there.score == -back.score
    assert dict(flat(there.parts)) == {name: -value for name, value in flat(back.parts)}
    for part in there.parts:
        assert not part.parts or total(part.parts) == pytest.approx(part.value, abs=1e-6)


def test_gap_is_what_the_parts_leave():
    assert explained("a", 3.0, [Part("x", 1.0), Part("y", 1.5)]).gap == 0.5


def test_sentences():
    a = explained("a", 3.0, [Part("ships", 4.0), Part("length", -1.0), Part("who", 0.0)])
    b = explained("b", 1.0, [Part("ships", 1.0)])
    assert a.sentence() == 'a scores 3 (bm25): "ships" +4, "length" -1.'
    assert contrast(a, b).sentence() == 'a is 2 above b: "ships" +3, "length" -1.'
    assert contrast(b, a).sentence() == 'b is 2 below a: "ships" -3, "length" +1.'
    assert "same score" in contrast(a, a).sentence()
    assert explained("c", 0.0, []).sentence() == "c scores 0 (bm25): nothing adds to it."


def test_sentences_round_as_tables_do_and_quote_what_was_left_out():
    long = f"sentence: {'Pilots steer. ' * 6}"
    parts = [Part(long, 0.00123456), Part("rest", 1.06), Part("word: sea", -0.25)]
    assert explained("a", 0.81123456, parts).sentence() == (
        "a scores 0.8112 (bm25): the rest +1.06, the sentence "
        '"Pilots steer. Pilots steer. Pilots steer. Pilots…" +0.0012, the word "sea" -0.25.'
    )


def test_everything_becomes_json():
    words = (Word("ships", 1.0, "ships", 1.0), Word("sail", None, read=False))
    flip = Counterfactual("a", ("Ships sail.",), ((0, 0),), "sentence", 3.0, 0.5, "b", 1.0, True)
    a = explained(
        "a",
        3.0,
        [Part("ships", 3.0, "tf 2", {"tf": 2.0}, (Part("x", 3.0),), explained("a", 1.0, []))],
        counterfactual=flip,
        texts=(ReadText(0, words),),
        grids=(Grid("cosines", ("ships",), ("ships", "sail"), np.ones((1, 2), np.float32)),),
        notes=("1 word was not read",),
    )
    told = json.loads(json.dumps(a.to_dict()))
    assert told["query"] == {"id": "q1", "text": "who steers ships?"}
    assert told["document"] == "a"
    assert told["gap"] == 0
    assert told["parts"][0]["why"]["score"] == 1.0
    assert told["texts"][0]["words"][1]["read"] is False
    assert told["counterfactual"]["minimal"] is True
    assert "stand below b" in flip.sentence()
    both = json.loads(json.dumps(contrast(a, explained("b", 1.0, []), flip).to_dict()))
    assert both["against"] == "b"
    assert both["score"] == pytest.approx(sum(part["value"] for part in both["parts"]) + both["gap"])
