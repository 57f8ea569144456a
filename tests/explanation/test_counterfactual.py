"""Counterfactuals: each flips the order by the ordinary path, and none smaller does."""

import json
import re
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankhouse.core.nouns import Document, Pair, Passage, Query
from rankhouse.core.run import Run
from rankhouse.explanation.counterfactual import flip
from rankhouse.explanation.methods import ExplainOptions
from rankhouse.ranking import pool as pools
from rankhouse.ranking.rerank import Plan, rerank
from rankhouse.text.split import Sentences, Whole, Words

QUERY = Query("q", "who steers ships")


class Planted:
    """A ranker whose score is a formula of the passage's words."""

    def __init__(self, formula):
        self.formula, self.pairs = formula, 0

    def score(self, pairs):
        self.pairs += len(pairs)
        return np.array([self.formula(re.findall(r"\w+", p.text.lower())) for _, p in pairs], np.float32)


def counting(word="ships"):
    return Planted(lambda said: said.count(word))


def sentence(*words):
    """A sentence with these words; a few of them are more than a short text, which is read by words."""
    return " ".join(["It", "says", *words, *["nothing"] * 12]) + "."


def reranked(ranker, document, rival, plan):
    run = Run.of({"q": {document.id: 2.0, rival.id: 1.0}})
    return rerank(ranker, run, [QUERY], {document.id: document, rival.id: rival}, plan)["q"]


def test_the_sentences_that_hold_a_document_up_are_found(long_text):
    found = flip(counting(), QUERY, Document("A", long_text), ("B", 1.5))
    assert found.removed == ("Pilots steer ships, and ships follow them.",)
    assert (found.before, found.after, found.rival_score) == (3, 1, 1.5)
    assert (found.places, found.unit, found.minimal) == (((0, 2),), "sentence", True)
    assert "would score 1 instead of 3 and stand below B (1.5)." in found.sentence()
    both = flip(counting(), QUERY, Document("A", long_text), ("B", 1))
    assert both.places == ((0, 0), (0, 2))


def test_a_threshold_on_two_words_falls_with_either(long_text):
    both = Planted(lambda said: float({"grain", "prices"} <= set(said)))
    found = flip(both, QUERY, Document("A", long_text), ("B", 0.5))
    assert len(found.removed) == 1
    either = Planted(lambda said: float(bool({"grain", "prices"} & set(said))))
    found = flip(either, QUERY, Document("A", long_text), ("B", 0.5))
    assert found.places == ((0, 0), (0, 3))


def test_nothing_flips_what_no_sentence_holds_up(long_text):
    constant = Planted(lambda said: 1.0)
    assert flip(constant, QUERY, Document("A", long_text), ("B", 0.5)) is None
    assert constant.pairs == 2**5 - 1
    assert flip(constant, QUERY, Document("A", long_text), ("B", 2.0)) is None
    assert flip(constant, QUERY, Document("A", ""), ("B", 0.5)) is None


def test_a_tie_is_no_flip(long_text):
    assert flip(counting(), QUERY, Document("A", long_text), ("B", 3)).after < 3
    assert flip(counting(), QUERY, Document("A", "ships ships"), ("B", 1)) is None


def test_short_texts_are_looked_at_word_by_word():
    found = flip(counting(), QUERY, Document("A", "ships and more ships"), ("B", 2))
    assert (found.unit, found.removed, len(found.places)) == ("word", ("ships",), 1)
    repeated = flip(counting(), QUERY, Document("A", "ships and ships or ships"), ("B", 2))
    assert repeated.places == ((0, 0), (0, 2))


def test_a_title_is_a_unit_of_its_own(long_text):
    found = flip(counting("harbours"), QUERY, Document("A", long_text, title="Harbours"), ("B", 0.5))
    assert found.removed == ("Harbours",)
    assert found.places == ((0, 0),)


@given(
    table=st.lists(st.tuples(st.integers(-2, 4), st.integers(0, 3)), min_size=2, max_size=7),
    bound=st.integers(0, 5),
    notation=st.sampled_from(["whole", "sentences", "words"]),
    pool=st.sampled_from(["max", "sum", "first", "mean"]),
)
def test_every_answer_is_what_brute_force_finds(table, bound, notation, pool):
    """Sentences have worths of their own, and some count only beside another: no formula is monotone."""
    words = {f"w{at}": worth for at, (worth, _) in enumerate(table)}
    partner = {f"w{at}": f"w{other}" for at, (_, other) in enumerate(table)}
    ranker = Planted(lambda said: sum(words.get(w, 0) for w in said if w in partner and partner[w] in said))
    split = {"whole": Whole(), "sentences": Sentences(3, 2), "words": Words(20)}[notation]
    chosen = pools.POOLS[pool]()
    sentences = [sentence(name) for name in words]
    document, rival = Document("A", " ".join(sentences)), ("B", float(bound) - 0.5)

    def score(kept):
        passages = split(Document("A", " ".join(kept)))
        if pool == "first":
            passages = passages[:1]
        pairs = [(QUERY, passage) for passage in passages]
        return chosen(ranker.score(pairs), "score", [p.index for p in passages])

    options = ExplainOptions(unit="sentence")
    found = flip(ranker, QUERY, document, rival, split, chosen, options)
    if score(sentences) < rival[1]:
        assert found is None
        return
    flips = [
        set(gone)
        for size in range(1, len(sentences))
        for gone in combinations(range(len(sentences)), size)
        if score([s for at, s in enumerate(sentences) if at not in gone]) < rival[1]
    ]
    assert (found is None) == (not flips)
    if found:
        gone = {sentences.index(text) for text in found.removed}
        assert gone in flips
        assert len(gone) == min(map(len, flips))
        assert not any(smaller < gone for smaller in flips)
        assert found.minimal
        assert found.after == score([s for at, s in enumerate(sentences) if at not in gone])


@pytest.mark.quick("whole-*")
@pytest.mark.parametrize("name", ["crossencoder", "monot5"])
@pytest.mark.parametrize("split", [Whole(), Sentences(2, 1)], ids=str)
def test_a_reranked_order_flips(name, split, opened, long_text, known_words):
    """The whole way: what rerank puts first stands second without the sentences named."""
    ranker = opened(name)
    texts = [
        long_text,
        " ".join(reversed(long_text.split(". "))),
        " ".join(f"{w.title()}!" for w in known_words[:9]),
    ]
    documents = [Document(f"d{at}", text, title="Ships") for at, text in enumerate(texts)]
    plan = Plan(split=split, pool=pools.best())
    flipped = 0
    for first, second in combinations(documents, 2):
        ranked = reranked(ranker, first, second, plan)
        by_id = {each.id: each for each in documents}
        above, below = (by_id[hit.doc_id] for hit in ranked)
        found = flip(ranker, QUERY, above, (below.id, ranked[1].score), split, plan.pool)
        if found is None:
            continue
        flipped += 1
        assert found.before == ranked[0].score
        left = above.text
        title = above.title
        for text in found.removed:
            title, left = ("", left) if text == title else (title, left.replace(text, "", 1))
        left = " ".join(left.split())
        ranked = reranked(ranker, above._replace(text=left, title=title), below, plan)
        assert ranked[0].doc_id == below.id
        assert ranked[1].score == pytest.approx(found.after, abs=1e-5)
    assert flipped


def test_long_texts_are_searched_greedily_and_say_so():
    held = [f"held{at}" for at in range(0, 30, 3)]
    text = " ".join(sentence(f"held{at}") for at in range(30))
    ranker = Planted(lambda said: sum(word in said for word in held))
    found = flip(ranker, QUERY, Document("A", text), ("B", 5.5))
    assert len(found.removed) == 5
    assert all(int(place) % 3 == 0 for _, place in found.places)
    assert not found.minimal
    assert "perhaps not the least" in found.sentence()
    two = flip(ranker, QUERY, Document("A", text), ("B", 8.5))
    assert len(two.removed) == 2
    assert two.minimal  # no single one flips it, and all single ones were tried


def test_greedy_puts_back_what_need_not_go():
    """The most harmful single sentences are not all needed once the pair that counts has gone."""

    def formula(said):
        lures = sum(f"s{at}" in said for at in range(3))
        return 10 * (1 - ("a1" not in said and "a2" not in said and "a3" not in said)) + 0.1 * lures

    names = [*(f"s{at}" for at in range(3)), "a1", "a2", "a3", *(f"n{at}" for at in range(30))]
    text = " ".join(sentence(name) for name in names)
    found = flip(Planted(formula), QUERY, Document("A", text), ("B", 5), options=ExplainOptions(passes=150))
    assert found.places == ((0, 3), (0, 4), (0, 5))


def test_a_smaller_choice_than_the_greedy_one_is_looked_for():
    """Six lures would do, one after the other; a pair of which neither counts alone does as well."""

    def formula(said):
        return sum(f"s{at}" in said for at in range(8)) + 9 * ("a1" in said or "a2" in said)

    text = " ".join(sentence(name) for name in (*(f"s{at}" for at in range(8)), "a1", "n1", "a2"))
    ranker = Planted(formula)
    found = flip(ranker, QUERY, Document("A", text), ("B", 11.5))
    assert found.places == ((0, 8), (0, 10))
    assert found.minimal
    assert ranker.pairs < 100
    hurried = flip(ranker, QUERY, Document("A", text), ("B", 11.5), options=ExplainOptions(passes=40))
    assert len(hurried.removed) == 6
    assert not hurried.minimal


@pytest.mark.slow
def test_a_document_of_a_hundred_thousand_words_ends(fresh):
    text = " ".join(sentence(f"w{at % 90}") for at in range(7_000)) + " Ships."
    ranker = counting()
    found = flip(ranker, QUERY, Document("A", text), ("B", 0.5))
    assert not found.minimal
    assert ranker.pairs < 300
    split = counting()
    assert flip(split, QUERY, Document("A", text), ("B", 0.5), split=Words(100)).removed
    assert split.pairs < 30_000


def test_same_bytes_again(opened, long_text):
    ranker = opened("crossencoder")
    document = Document("A", long_text)
    bound = float(ranker.score([Pair(QUERY, Passage("A", 0, long_text))])[0])
    found = [flip(ranker, QUERY, document, ("B", bound)) for _ in "ab"]
    assert found[0] is not None
    assert json.dumps(found[0].to_dict()) == json.dumps(found[1].to_dict())
