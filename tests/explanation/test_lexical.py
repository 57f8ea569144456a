"""Term weights: the parts are the run's own addends, every term has one, every word knows its share."""

import math
import random

import pytest

from rankhouse.core.errors import WrongUse
from rankhouse.core.nouns import Document, Query
from rankhouse.explanation.contrast import contrast
from rankhouse.explanation.lexical import MOST_WORDS, TIES, LexicalExplainer
from rankhouse.index.index import Index
from rankhouse.index.lexical.build import BuildOptions, append, build
from rankhouse.index.lexical.search import LexicalOptions, retrieve

WORDS = [f"{a}{b}" for a in ("wind", "ship", "lamp", "stone", "river") for b in ("", "s", "ing", "er", "ed")]
MODELS = [
    "bm25(k1=1.2, b=0.75)",
    'bm25(lengths="exact")',
    "ql(mu=30)",
    'ql(form="indri")',
    'ql(form="indri", mu=100, combine="sum")',
    "jm(lambda=0.3)",
    "bm25f(title=3)",
]
SEARCHES = [LexicalOptions(m, f, k=400) for m in MODELS for f in ("", "rm3(terms=5, docs=4, filter=False)")]


def explain_lexical(index, query, doc_id, model="bm25", feedback=""):
    return LexicalExplainer(index, LexicalOptions(model, feedback)).explain(query, doc_id)


def random_documents(n):
    rng = random.Random(7)
    for i in range(n):
        words = [WORDS[min(int(rng.expovariate(0.2)), 24)] for _ in range(rng.randrange(70))]
        words += ["ship"] * 300 if i % 29 == 5 else []  # beyond the engine's tables of counts
        yield Document(f"d{i * 7919 % 1000:03}", " ".join(words), "The lamps" if i % 5 == 0 else "")


@pytest.fixture(scope="module")
def index(tmp_path_factory):
    """Several segments, empty documents among the others."""
    out, documents = tmp_path_factory.mktemp("explained") / "index", list(random_documents(200))
    for first in range(0, 200, 50):
        (append if first else build)(documents[first : first + 50], out, BuildOptions(workers=1, fields=True))
    return Index.open(out)


QUERIES = [
    Query("q1", "the ships' rivers"),
    Query("q2", "lamp stone stone winding"),
    Query("q3", "shipping unheardof"),
    Query("q4", "ship"),
]


def made_of(tmp_path, *texts):
    some = [Document(f"d{i}", text) for i, text in enumerate(texts)]
    build(some, tmp_path / "i", BuildOptions(workers=1, fields=True))
    return Index.open(tmp_path / "i")


def adds_up(parts, value):
    """Whether parts, and theirs, sum to what they should."""
    assert math.fsum(part.value for part in parts) == pytest.approx(value, abs=1e-5 * max(1, abs(value)))
    for part in parts:
        if part.parts:
            adds_up(part.parts, part.value)


@pytest.mark.parametrize("search", SEARCHES, ids=lambda s: f"{s.model}+{s.feedback[:3]}")
def test_parts_sum_to_the_score_of_the_run(index, search):
    run, explainer = retrieve(index, QUERIES, search), LexicalExplainer(index, search)
    rng = random.Random(3)
    for query in QUERIES:
        ranking = run[query.id]
        numbers = dict(zip(ranking.doc_ids, ranking.scores.tolist(), strict=True))
        for doc_id in rng.sample(ranking.doc_ids, 25):
            answer = explainer.explain(query, doc_id)
            assert answer.score == numbers[doc_id]
            assert answer.exact
            assert answer.cost == 0
            adds_up(answer.parts, answer.score)


@pytest.mark.parametrize("search", SEARCHES[::2], ids=lambda s: s.model)
def test_contrasts_sum_to_the_difference(index, search):
    explainer = LexicalExplainer(index, search)
    first, second = (explainer.explain(QUERIES[1], doc_id) for doc_id in ("d000", "d595"))
    there, back = contrast(first, second), contrast(second, first)
    assert abs(there.gap) <= 1e-5 * max(1, abs(there.score))
    assert {p.name: p.value for p in back.parts} == {p.name: -p.value for p in there.parts}


@pytest.mark.parametrize("search", SEARCHES[::2], ids=lambda s: s.model)
def test_a_document_that_no_search_returns_has_its_true_score(tmp_path, search):
    found = made_of(tmp_path, "ships sail", "nothing of the kind here", "ship")
    answer = LexicalExplainer(found, search).explain(Query("q", "ships"), "d1")
    parts = {part.name: part.value for part in answer.parts}
    assert parts["ship"] == 0
    assert "d1" not in retrieve(found, [Query("q", "ships")], search)["q"].doc_ids
    assert any("does not return it" in note for note in answer.notes)
    if "indri" in search.model:
        mu, length, p = 100 if "100" in search.model else 2500, 3, 2 / 6
        by_hand = math.log(mu * p / (length + mu))
        assert answer.score == pytest.approx(by_hand, abs=1e-6)
        assert parts["document prior"] == pytest.approx(by_hand, abs=1e-6)
    else:
        assert answer.score == 0


def test_below_the_depth_is_said(index):
    search = LexicalOptions(k=10)
    deep = retrieve(index, QUERIES[3:], LexicalOptions(k=1000))["q4"]
    answer = LexicalExplainer(index, search).explain(QUERIES[3], deep.doc_ids[30])
    assert answer.score == pytest.approx(float(deep.scores[30]), abs=1e-5)
    assert any("not among the first 10 documents" in note for note in answer.notes)
    top = LexicalExplainer(index, search).explain(QUERIES[3], deep.doc_ids[9])
    assert not any("not among" in note for note in top.notes)


def test_every_word_of_the_query_has_a_part_with_its_reason(tmp_path):
    found = made_of(tmp_path, "Ships sail. Two ships!", "boats")
    answer = explain_lexical(found, Query("q", "The SHIP's boats of zebras, shipping"), "d0")
    notes = {part.name: part.note for part in answer.parts}
    assert notes == {
        "ship": 'query word "SHIP\'s", "shipping" (2 times); tf 2, in 1 of 2 documents',
        "boat": 'query word "boats"; not in the document; in 1 of 2 documents',
        "zebra": 'query word "zebras"; not in the collection',
        "The": "removed by the english analyzer (stop word)",
        "of": "removed by the english analyzer (stop word)",
    }
    assert [part.value > 0 for part in answer.parts] == [True, False, False, False, False]
    assert answer.query_words == ("ship", "boat", "zebra")


def test_a_term_spelt_like_a_stop_word_keeps_its_own_part(tmp_path):
    answer = explain_lexical(made_of(tmp_path, "ins and outs", "other"), Query("q", "in ins"), "d0")
    assert [part.name for part in answer.parts] == ["in", "in (dropped)"]
    assert answer.parts[0].value > 0


def test_leaves_are_those_of_the_formula(index):
    query, doc_id = Query("q", "stone stone"), retrieve(index, [Query("q", "stone")])["q"].doc_ids[3]
    (part,) = explain_lexical(index, query, doc_id, "bm25(k1=1.2, b=0.75)").parts
    facts, length = part.facts, len(index.analyzer(index.documents[doc_id].full_text))
    assert (facts["boost"], facts["k1"], facts["b"]) == (2, 1.2, 0.75)
    assert facts["length"] <= length == facts.get("true length", facts["length"])
    n, df = index.collection.with_terms, facts["documents"]
    assert facts["idf"] == pytest.approx(math.log(1 + (n - df + 0.5) / (df + 0.5)))
    mean = index.collection.tokens / n
    norm = facts["tf"] + 1.2 * (0.25 + 0.75 * facts["length"] / mean)
    assert facts["saturation"] == pytest.approx(facts["tf"] / norm, rel=1e-5)
    assert part.value == pytest.approx(2 * facts["idf"] * facts["saturation"], rel=1e-5)


def test_lucenes_cut_at_zero_is_said(tmp_path):
    found = made_of(tmp_path, "ship " + "boat " * 200, "ship " * 30)
    (part,) = explain_lexical(found, Query("q", "ships"), "d0", "ql(mu=10)").parts
    assert part.value == 0
    assert part.note.endswith("cut at 0")
    assert [one.name for one in part.parts] == ["term weight", "document norm", "cut at 0"]
    assert part.parts[0].value > 0 > part.parts[1].value
    adds_up(part.parts, 0)


def test_what_keeps_ties_in_order_is_a_part_and_a_note(tmp_path):
    found = made_of(tmp_path, *["same words"] * 40)
    query = Query("q", "words")
    run = retrieve(found, [query])["q"]
    answer = explain_lexical(found, query, run.doc_ids[39])
    assert answer.score == run.scores[39] < run.scores[0]
    assert answer.parts[-1].name == TIES
    assert answer.parts[-1].value == pytest.approx(run.scores[39] - run.scores[0])
    assert any("tied with documents above it" in note for note in answer.notes)
    first = explain_lexical(found, query, run.doc_ids[0])
    assert (first.score, [part.name for part in first.parts]) == (run.scores[0], ["word"])


def test_every_expansion_term_is_traced_to_its_feedback_documents(tmp_path):
    found = made_of(
        tmp_path, "ships sail oceans", "ships carry grain grain", *[f"filler{i} words{i}" for i in range(30)]
    )
    answer = explain_lexical(found, Query("q", "ships"), "d1", "bm25", "rm3(terms=4, docs=2, weight=0.6)")
    parts = {part.name: part for part in answer.parts}
    grain, ship = parts["grain"], parts["ship"]
    assert grain.note.startswith("feedback; tf 2")
    assert [(p.name, [d.name for d in p.parts]) for p in grain.parts] == [("feedback", ["d1"])]
    assert [p.name for p in ship.parts] == ["query", "feedback"]
    assert {d.name for d in ship.parts[1].parts} == {"d0", "d1"}
    weight = ship.parts[0].facts["weight"] + sum(d.facts["weight"] for d in ship.parts[1].parts)
    assert ship.parts[0].facts["weight"] == 0.6
    assert weight == pytest.approx(ship.facts["boost"])
    assert parts["ocean"].value == 0
    assert "not in the document" in parts["ocean"].note
    (grid,) = answer.grids
    assert set(grid.columns) == {"query", "d0", "d1"}
    assert float(grid.values.sum()) == pytest.approx(1)
    assert any("itself one of these feedback documents" in note for note in answer.notes)
    adds_up(answer.parts, answer.score)


def test_words_share_their_terms_addend_and_keep_their_spelling(tmp_path):
    text = "The (Ships), state-of-the-art ships: ship"
    answer = explain_lexical(made_of(tmp_path, text, "boats"), Query("q", "ship art"), "d0")
    (read,) = answer.texts
    assert "".join(word.text for word in read.words) == text.replace(" ", "")
    values = {part.name: part.value for part in answer.parts}
    by_text = {word.text: (word.value, word.match) for word in read.words}
    assert by_text["The"] == (None, "")
    assert by_text["(Ships),"] == by_text["ship"] == (values["ship"] / 3, "ship")
    assert by_text["art"] == (values["art"], "art")
    assert by_text["state-of-the-"] == (0.0, "")
    coloured = sum(word.value or 0 for word in read.words)
    assert coloured == pytest.approx(answer.score)


@pytest.mark.slow
def test_a_very_long_document_is_listed_in_part_and_scored_whole(tmp_path):
    found = made_of(tmp_path, "word " * 100_000 + "ship", "boats")
    answer = explain_lexical(found, Query("q", "ship"), "d0")
    assert answer.score > 0
    assert len(answer.texts[0].words) == MOST_WORDS
    assert any("of 100,001 words are listed" in note for note in answer.notes)


@pytest.mark.parametrize("text", ["", "the of", "zebras"])
def test_a_query_that_finds_nothing_says_so(tmp_path, text):
    answer = explain_lexical(made_of(tmp_path, "ships", ""), Query("q", text), "d1", feedback="rm3")
    assert answer.score == 0
    assert answer.gap == 0
    assert any("search" in note for note in answer.notes)


def test_an_unknown_document_is_refused(index):
    with pytest.raises(WrongUse, match='"nowhere": the index .* has no such document'):
        explain_lexical(index, QUERIES[0], "nowhere")


def test_an_explanation_is_the_same_each_time(index):
    answers = [explain_lexical(index, QUERIES[0], "d000", feedback="rm3").to_dict() for _ in range(2)]
    assert str(answers[0]) == str(answers[1])
