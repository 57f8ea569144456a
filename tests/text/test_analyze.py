"""Analysers: equal to Lucene and Anserini on recorded tokens, and in agreement with themselves."""

import gzip
import json
import pickle
import subprocess
import sys
from itertools import pairwise, product
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankhouse.core.errors import WrongUse
from rankhouse.core.notation import make
from rankhouse.text import analyze, lucene
from rankhouse.text.analyze import ANALYZERS, STOP_WORDS, Analyzer
from rankhouse.text.snippets import snippet

GOLDEN = Path(__file__).parents[1] / "golden"
ANSERINI = json.loads((GOLDEN / "text_analyzers.json").read_text(encoding="utf-8"))
LUCENE = json.loads((GOLDEN / "text_lucene_tokens.json").read_text(encoding="utf-8"))
DATA = Path(__file__).parents[3] / "shared" / "data"

any_text = st.text(max_size=60) | st.text(
    st.sampled_from(
        "abzAZ019 ''’’.,:;_-#@/&\n\u00a0éßΣİ日あア한ก\u0e31א\"\u0301\u200d\ufe0f\u20e3☀👍🏽🇩🅰\ud800"
    ),
    max_size=40,
)


@pytest.fixture(params=sorted(ANALYZERS))
def analyzer(request):
    return ANALYZERS[request.param]()


@pytest.mark.parametrize(("text", "terms"), ANSERINI["english"])
def test_english_gives_anserinis_terms(text, terms):
    assert ANALYZERS["english"]()(text) == terms


@pytest.mark.parametrize(("text", "terms"), ANSERINI["tweet"])
def test_tweet_gives_anserinis_terms(text, terms):
    assert ANALYZERS["tweet"]()(text) == terms


def test_english_gives_the_terms_lucene_indexed_and_searched():
    english = ANALYZERS["english"]()
    assert [english(text) for text, _ in ANSERINI["documents"]] == [
        terms for _, terms in ANSERINI["documents"]
    ]
    assert [english(text) for text, _ in ANSERINI["queries"]] == [terms for _, terms in ANSERINI["queries"]]
    assert len(ANSERINI["documents"]) == 30


def test_stop_words_are_lucenes():
    assert sorted(STOP_WORDS) == sorted(ANSERINI["stop_words"])


def test_english_gives_lucenes_terms_on_texts_of_all_scripts():
    english = ANALYZERS["english"]()
    assert len(LUCENE["standard"]) > 300
    for text, _, terms in LUCENE["standard"]:
        assert english(text) == terms, text


def test_tweet_gives_anserinis_terms_on_torn_links_tags_and_names():
    tweet = ANALYZERS["tweet"]()
    assert len(LUCENE["tweet"]) > 400
    for text, terms in LUCENE["tweet"]:
        assert tweet(text) == terms, text


def test_stemming_comes_after_stopping():
    assert ANALYZERS["english"]()("its the ITS The it's") == ["it", "it"]


@settings(max_examples=300)
@given(any_text | st.text("TheiseduSr'’ .1é", max_size=40))
def test_terms_at_once_are_those_of_each_word(text):
    english = ANALYZERS["english"]()
    assert english(text) == [term for word in english.words(text) if (term := english.term(word))]


def wanted_of(analyzer, text):
    """Every other term of a text, and some that are not in it."""
    return dict.fromkeys([*analyzer(text)[::2], "i", "dy", "absent", "café"], 1.0)


@settings(max_examples=300, deadline=None)
@given(any_text | st.text("TheiseduSr'’ .1éyK", max_size=60))
def test_matches_are_the_spans_of_the_terms_that_are_wanted(text):
    for factory in ANALYZERS.values():
        analyzer = factory()
        wanted = wanted_of(analyzer, text)
        assert analyzer.matches(text, wanted) == [one for one in analyzer.spans(text) if one[2] in wanted]


@pytest.mark.parametrize("read", ["terms", "matches"])
def test_a_term_that_is_no_text_is_refused_by_the_compiled_reader(read):
    porter = pytest.importorskip("rankhouse.text._porter")
    wanted = ({"caf": 1.0},) if read == "matches" else ()
    with pytest.raises(TypeError, match="argument"):
        getattr(porter, read)("a café", lucene.plain_units(), STOP_WORDS, len, *wanted)


def test_every_short_word_matches_its_term():
    """The compiled reader passes over words by their first letters, which a stemmer may change."""
    english = ANALYZERS["english"]()
    words = ["".join(letters) for n in range(1, 6) for letters in product("aeisydng", repeat=n)]
    terms = [(word, term) for word in words if (term := english.term(word))]
    assert len(terms) > 37_000
    assert [
        word for word, term in terms if english.matches(word, {term: 1.0}) != [(0, len(word), term)]
    ] == []


def test_whitespace_changes_nothing():
    assert ANALYZERS["whitespace"]()("  The\tC++ runs,\u00a0İ\n") == ["The", "C++", "runs,", "İ"]


@settings(max_examples=300, deadline=None)
@given(any_text)
def test_terms_words_and_spans_tell_the_same(text):
    for factory in ANALYZERS.values():
        analyzer = factory()
        words = analyzer.words(text)
        terms = analyzer(text)
        spans = list(analyzer.spans(text))
        assert terms == [term for word in words if (term := analyzer.term(word))]
        assert [term for _, _, term in spans] == terms
        assert all(start < end for start, end, _ in spans)
        assert all(left[1] <= right[0] for left, right in pairwise(spans))


@settings(max_examples=200, deadline=None)
@given(any_text)
def test_spans_cut_the_words_out_of_the_original_text(text):
    for name in ("english", "whitespace"):
        analyzer = ANALYZERS[name]()
        kept = [word for word in analyzer.words(text) if analyzer.term(word)]
        assert [text[start:end] for start, end, _ in analyzer.spans(text)] == kept


def test_tweet_spans_point_at_what_was_read():
    text = "See Example.com/A @User: it's (#Tag)"
    assert [(text[start:end], term) for start, end, term in ANALYZERS["tweet"]().spans(text)] == [
        ("See", "see"),
        ("Example.com/A", "Example.com/A"),
        ("@User", "@user"),
        ("it's", "it"),
        ("#Tag", "#tag"),
    ]


def test_every_split_of_a_text_at_white_space_gives_the_same_terms(analyzer):
    text = "Running @user http://t.co/AbC U.S.A. naïve 日本 3.14 it's foo_bar #tag " * 20
    assert [term for token in text.split() for term in analyzer(token)] == analyzer(text)


def test_an_analyzer_survives_pickling_and_is_equal_by_name(analyzer):
    analyzer("some words first, so that something is cached")
    again = pickle.loads(pickle.dumps(analyzer))
    assert again == analyzer
    assert hash(again) == hash(analyzer)
    assert again("Running Boats") == analyzer("Running Boats")
    assert str(analyzer) == analyzer.name
    assert len({factory() for factory in ANALYZERS.values()}) == len(ANALYZERS)
    assert make(analyzer.name, ANALYZERS, "analyzer") == analyzer


def test_an_analyzer_is_made_of_the_bricks_it_is_given():
    shout = Analyzer("shout", str.split, analyze.locate_tokens, str.upper)
    assert shout("a b") == ["A", "B"]
    assert list(shout.spans("a  b")) == [(0, 1, "A"), (3, 4, "B")]
    assert shout != Analyzer("shout", str.split, analyze.locate_tokens, str.lower)


def test_an_unknown_name_lists_the_analyzers():
    with pytest.raises(WrongUse, match="choose from: english, tweet, whitespace"):
        make("englsh", ANALYZERS, "analyzer")


def test_a_small_cache_changes_no_term(monkeypatch):
    text = "boats pilots running harbours boats leaving " * 5
    expected = ANALYZERS["english"]()(text)
    monkeypatch.setattr(analyze, "_CACHED_TERMS", 2)
    assert ANALYZERS["english"]()(text) == expected


def test_huge_words_are_not_cached():
    analyzer = ANALYZERS["whitespace"]()
    assert analyzer("x" * 1000) == ["x" * 1000]
    assert not analyzer._terms


@pytest.mark.parametrize(
    "text",
    [
        "",
        " \n",
        "_" * 200_000,
        "\u200d" * 50_000,
        "a" * 300_000,
        "#" * 100_000,
        "(" * 50_000,
        "_\u0301" * 30_000,
    ],
)
def test_monotonous_texts_come_to_an_end(analyzer, text):
    assert len(analyzer(text)) <= len(text)


def test_analysing_needs_no_torch():
    code = "import sys, rankhouse.text.analyze as a; a.english()('x'); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.skipif(not DATA.is_dir(), reason="the measured collections are not beside this checkout")
def test_collections_have_the_published_numbers_of_terms():
    with gzip.open(DATA / "vaswani" / "corpus.jsonl.gz", "rt", encoding="utf-8") as lines:
        documents = [json.loads(line) for line in lines]
    english = ANALYZERS["english"]()
    terms = [term for document in documents for term in english(f"{document['title']} {document['text']}")]
    assert len(documents) == 11_429
    assert (len(set(terms)), len(terms)) == (7_963, 306_495)


@given(st.text(st.sampled_from("ab \t\n\r\x0b\x1c\x85\xa0\u2028\u200b\x00é"), max_size=12))
def test_snippets_squeeze_all_white_space_of_a_text(text):
    assert snippet(text, {}, ANALYZERS["english"]()).text == " ".join(text.split())
