"""Word-level rankers explained exactly: what holds for every family."""

import json
import math
from operator import itemgetter
from pathlib import Path
from runpy import run_path

import msgspec
import numpy as np
import pytest

from rankhouse.core.errors import WrongUse
from rankhouse.explanation.contrast import contrast
from rankhouse.explanation.methods import ExplainOptions, explain_pair, own_method
from rankhouse.explanation.units import NO_WORDS

DESIGNS, at_work, fresh, pair, random_pairs, shaken = itemgetter(
    "DESIGNS", "at_work", "fresh", "pair", "random_pairs", "shaken"
)(run_path(str(Path(__file__).with_name("word_rankers.py"))))
ADDITIVE = ("knrm", "conv_knrm", "tk")
"""Families whose passage words sum to the score, with the part of no words."""


RANKERS = [
    pytest.param((name, by), marks=pytest.mark.slow if name == "tk windows" else (), id=f"{name} {by}")
    for name in DESIGNS
    for by in (0.0, 0.3, 1.0)
]


@pytest.fixture(scope="module", params=RANKERS)
def ranker(request):
    name, by = request.param
    made = at_work(shaken(fresh(name), by))
    made.name = name
    return made


@pytest.fixture(scope="module", params=DESIGNS)
def family(request):
    made = at_work(shaken(fresh(request.param), 0.5))
    made.name = request.param
    return made


def close(value, expected):
    return abs(value - expected) <= 1e-5 * max(1, abs(expected))


def check_tree(part):
    if part.parts:
        assert close(math.fsum(finer.value for finer in part.parts), part.value), part.name
        for finer in part.parts:
            check_tree(finer)


def test_answers_are_json_as_the_command_writes_it(family):
    first, second = (explain_pair(family, pair("river tall", text, text)) for text in ("tall river", "river"))
    told = contrast(first, second).to_dict()
    assert json.loads(msgspec.json.encode(told)) == json.loads(json.dumps(told))


@pytest.mark.quick("knrm 0.3", "drmm 0.3")
def test_parts_sum_to_the_score_at_every_depth(ranker):
    for each in random_pairs(60):
        answer = explain_pair(ranker, each)
        assert answer.exact
        assert answer.score == float(ranker.score([each])[0])
        assert abs(answer.gap) <= 1e-5 * max(1, abs(answer.score))
        assert len({part.name for part in answer.parts}) == len(answer.parts)
        for part in answer.parts:
            check_tree(part)


@pytest.mark.quick("tk 0.3", "drmm 0.3", "knrm 0.3", "pacrr_drmm 0.3")
def test_words_and_grids_sum_to_the_score(ranker):
    for each in random_pairs(20, seed=1):
        answer = explain_pair(ranker, each)
        assert answer.grids[0].name == "cosines"
        assert answer.grids[0].values.shape == (
            len(answer.query_words),
            len(ranker.model.reader.words(each)[1]),
        )
        if ranker.name in ADDITIVE:
            nothing = next(part.value for part in answer.parts if part.name == NO_WORDS)
            read = [word.value for word in answer.texts[0].words if word.read]
            assert close(math.fsum([nothing, *read]), answer.score)
            assert close(sum(grid.values.sum(dtype=np.float64) for grid in answer.grids[1:]), answer.score)


def test_a_document_against_another(ranker):
    query = "river tall the river"
    first, second = (
        explain_pair(ranker, pair(query, text, text)) for text in ("the old river runs", "tall tree")
    )
    forth, back = contrast(first, second), contrast(second, first)
    assert close(math.fsum(part.value for part in forth.parts), first.score - second.score)
    assert {p.name: p.value for p in forth.parts} == {p.name: -p.value for p in back.parts}
    nothing = [part.value for part in forth.parts if part.name == NO_WORDS]
    assert nothing == ([] if ranker.name == "tk windows" else [0.0])


def test_texts_without_words(family):
    for query, passage in (("", ""), ("river tall", ""), ("", "river tall"), ("  ", "river")):
        answer = explain_pair(family, pair(query, passage))
        assert close(math.fsum(part.value for part in answer.parts), answer.score)
        assert all(word.value == 0 for word in answer.texts[0].words)
        assert any(note.startswith("The query has no words") for note in answer.notes) == (not query.strip())
        assert ("The passage has no words." in answer.notes) == (not passage)
        json.dumps(answer.to_dict())
    empty = explain_pair(family, pair("river tall", ""))
    assert all(part.value == 0 for part in empty.parts if part.name != NO_WORDS)


def test_words_that_were_not_read_are_listed_and_counted(family):
    answer = explain_pair(family, pair("river " * 8, "tree " * 40, index=3))
    (text,) = answer.texts
    assert text.index == 3
    assert [word.read for word in text.words] == [True] * 30 + [False] * 10
    assert all(word.value is None for word in text.words[30:])
    assert "2 of the query's 8 words were not read: the ranker reads 6." in answer.notes
    assert "10 of the passage's 40 words were not read: the ranker reads 30." in answer.notes
    long = explain_pair(family, pair("river", "tree " * 5000))
    assert len(long.texts[0].words) == 530
    assert any("4,970 of the passage's 5,000 words" in note and "first 500" in note for note in long.notes)


def test_unknown_words_are_named(family):
    answer = explain_pair(family, pair("river zzz", "zzz yyy tree zzz"))
    assert 'Not in the vocabulary, all read as the same unknown word: "zzz", "yyy".' in answer.notes
    assert not any("vocabulary" in note for note in explain_pair(family, pair("river", "tree")).notes)


def test_passage_words_name_the_query_word_they_match_best(family):
    answer = explain_pair(family, pair("tall river river", "old river"))
    word = answer.texts[0].words[1]
    assert (word.text, word.match) == ("river", "river") or family.name == "conv_knrm"
    assert word.similarity == pytest.approx(float(answer.grids[0].values[:, 1].max().clip(-1, 1)))
    assert answer.grids[0].rows == ("tall", "river", "river (2nd)")


def test_the_same_input_gives_the_same_bytes(family):
    each = random_pairs(3)[2]
    once, again = (json.dumps(explain_pair(family, each).to_dict()) for _ in range(2))
    assert once == again
    assert json.loads(once)["ranker"] == family.fingerprint


def test_other_weights_give_another_explanation(family):
    each = pair("tall river club", "the old river runs of the tall tree")
    before = explain_pair(family, each)
    after = explain_pair(at_work(shaken(fresh(family.name, seed=8), 0.5, seed=2)), each)
    shares = [np.array([part.value for part in answer.parts]) for answer in (before, after)]
    assert not np.allclose(*shares, rtol=0.05)


def test_a_method_refuses_a_ranker_of_another_family(family):
    other = at_work(fresh("drmm" if family.name == "knrm" else "knrm"))
    with pytest.raises(WrongUse, match="parts this method reads off"):
        own_method(family)(other, pair("river", "tree"), ExplainOptions())
