"""Pseudo-queries: what documents ask, what is thrown away, and who comes back from the round trip."""

import numpy as np
import pytest

from rankhouse.core.errors import BadData, WrongUse
from rankhouse.core.nouns import Document
from rankhouse.core.run import Run
from rankhouse.labels.pseudo_queries import (
    ALIKE,
    AVOIDED,
    COMMON,
    KINDS,
    LONG,
    OPENINGS,
    SHORT,
    TWICE,
    PseudoOptions,
    PseudoQuery,
    WordCounts,
    ask,
)
from rankhouse.labels.round_trip import BEATEN, LOST, PseudoReport, Round, round_trip, write_pseudo_report

DOCUMENTS = [
    Document(
        "tides", "The moon pulls the sea twice a day. Harbours see high water then.", "Tides and harbours"
    ),
    Document("locks", "# Canal locks\n\nA lock lifts ships between two levels of water. It is slow.", ""),
    Document("pilots", "Pilots board ships and steer them into the harbour, at night too.", "Harbour pilots"),
    Document("grain", "Ships carried grain. Prices rose when the harvest was poor.", "Grain trade"),
    Document("coal", "Cranes unload coal from ships, and the coal burns in power stations.", "Coal"),
]
WORDS = WordCounts(DOCUMENTS)


def asked(kinds, documents=DOCUMENTS, avoid=(), **options):
    return ask(documents, WORDS, PseudoOptions(kinds=kinds, **options), avoid)


def texts(asked, doc_id=None):
    return [query.text for query in asked.queries if doc_id in (None, query.doc_id)]


def test_titles_headings_and_first_sentences_are_taken_as_they_stand():
    titles = asked(("title",))
    assert texts(titles) == ["Tides and harbours", "Harbour pilots", "Grain trade"]
    assert titles.counts == {SHORT: 1}
    assert texts(asked(("heading",))) == ["Canal locks"]
    first = asked(("first",))
    assert texts(first, "tides") == ["The moon pulls the sea twice a day"]
    assert texts(first, "grain") == ["Ships carried grain"]


def test_spans_and_crops_are_words_in_a_row_of_one_sentence():
    sentences = {
        " ".join(words)
        for document in DOCUMENTS
        for part in document.text.replace("\n\n", ". ").split(". ")
        if (words := part.strip("#. ").replace(",", "").split())
    }
    for seed in range(20):
        for query in asked(("span", "crop"), seed=seed).queries:
            assert any(f" {query.text} " in f" {sentence} " for sentence in sentences), query
            assert 2 <= len(query.text.split()) <= 12


def test_questions_open_as_questions_do_and_keywords_keep_their_order():
    for query in asked(("question",)).queries:
        assert any(query.text.startswith(f"{opening} ") for opening in OPENINGS)
    german = asked(("question",), openings=("was ist",)).queries
    assert german
    assert all(query.text.startswith("was ist ") for query in german)
    for query in asked(("keywords",)).queries:
        (document,) = [d for d in DOCUMENTS if d.id == query.doc_id]
        places = [document.text.index(word) for word in query.text.split()]
        assert places == sorted(places)


def test_sentences_that_are_questions_are_asked():
    faq = Document("faq", "Opening hours. When does the lock open? It opens at six! Why so late? Ask him.")
    assert texts(asked(("asked",), [faq])) == ["When does the lock open", "Why so late"]


def test_questions_are_about_what_a_text_repeats_in_phrases_of_one_clause():
    text = "Of the ships, zeppelins fly; the zeppelins (airships) land near the dock."
    about = Document("about", text)
    words = WordCounts([*DOCUMENTS, about])
    phrases = [
        query.text.removeprefix("about ")
        for seed in range(40)
        for query in ask([about], words, PseudoOptions(("question",), seed=seed, openings=("about",))).queries
    ]
    assert np.mean(["zeppelins" in phrase for phrase in phrases]) > 0.5
    for phrase in phrases:
        assert phrase.split()[-1] in {"zeppelins", "fly", "airships", "land", "near", "dock"}, phrase
        assert phrase.split()[0] not in {"the", "of"}


def test_spans_prefer_words_that_few_documents_have():
    rare = Document("rare", "ships ships ships ships ships zeppelin airship dock", "")
    words = WordCounts([*DOCUMENTS, rare])
    with_rare = [
        any(word in text for word in ("zeppelin", "airship", "dock"))
        for seed in range(40)
        for text in texts(ask([rare], words, PseudoOptions(kinds=("span",), seed=seed)))
    ]
    assert np.mean(with_rare) > 0.8


def test_a_documents_questions_depend_on_the_seed_and_its_id_alone():
    kinds = ("span", "question", "keywords", "crop")
    whole, alone = asked(kinds), asked(kinds, [DOCUMENTS[2]])
    assert texts(whole, "pilots") == texts(alone)
    assert texts(asked(kinds, list(reversed(DOCUMENTS))), "pilots") == texts(alone)
    assert texts(asked(kinds, seed=1), "pilots") != texts(alone)


def test_what_is_no_question_of_ones_own_is_thrown_away_and_counted():
    twins = [*DOCUMENTS, Document("copy", "Another text altogether stands here.", "Pilots: harbour")]
    titles = asked(("title", "first"), twins, avoid=["grain TRADE?"], words=(2, 6))
    assert "Harbour pilots" not in texts(titles)
    assert titles.counts == {TWICE: 2, AVOIDED: 1, SHORT: 1, LONG: 3}
    assert [query.doc_id for query in titles.dropped[TWICE]] == ["pilots", "copy"]
    nearly = Document("n", "Ships carried grain there", "Ships carried grain there")
    assert asked(("title", "first"), [nearly]).counts == {ALIKE: 1}
    common = [Document(f"d{n}", f"the ship number{n}", "The ship") for n in range(9)]
    with pytest.raises(BadData, match="none of 9 documents asks a question of 2 to 16 words"):
        ask(common, WordCounts(common), PseudoOptions(kinds=("title",)))
    some = ask(common, WordCounts(common), PseudoOptions(kinds=("title", "first")))
    assert (some.counts[COMMON], some.silent) == (9, 0)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"kinds": ("tilte",)}, 'did you mean "title"'),
        ({"kinds": ()}, "give one or more"),
        ({"words": (5, 2)}, "fewest words"),
        ({"seed": -1}, "seed"),
    ],
)
def test_wrong_options_are_refused(options, complaint):
    with pytest.raises(WrongUse, match=complaint):
        PseudoOptions(**options)


class Favourite:
    """A teacher that likes one document."""

    scale, fingerprint = "score", "favourite"

    def __init__(self, doc_id):
        self.doc_id = doc_id

    def score(self, pairs):
        return np.array([pair.passage.doc_id == self.doc_id for pair in pairs], np.float32)


def test_questions_whose_document_comes_back_are_kept():
    titles = [PseudoQuery(document.title or "x y", document.id, "title") for document in DOCUMENTS]
    questions = [(f"q{n}", question) for n, question in enumerate(titles)]
    run = Run.of({"q0": {"tides": 3.0, "coal": 1.0}, "q1": {"coal": 2.0}, "q2": {"coal": 2.0, "pilots": 1.0}})
    documents = {document.id: document for document in DOCUMENTS}
    trip = round_trip(questions, run, documents)
    assert list(trip.kept) == ["q0", "q2"]
    assert trip.counts == {LOST: 3}
    assert list(round_trip(questions, run, documents, limits=Round(first=1)).kept) == ["q0"]
    told = []
    trip = round_trip(
        questions, run, documents, Favourite("tides"), Round(best=1), lambda *at: told.append(at)
    )
    assert list(trip.kept) == ["q0", "q2"]  # for q2 none is better than another
    assert told == [(0, 2), (2, 2)]
    with pytest.raises(BadData, match=f"3 {LOST}, 2 {BEATEN}"):
        round_trip(questions, run, documents, Favourite("coal"), Round(best=1))
    assert len(round_trip(questions, run, documents, Favourite("coal"), Round(best=2)).kept) == 2
    with pytest.raises(WrongUse, match="from 1 up"):
        round_trip(questions, run, documents, limits=Round(best=0))


def test_the_page_shows_samples_and_what_was_thrown_away(tmp_path):
    pytest.importorskip("jinja2")
    some = asked(tuple(KINDS))
    run = Run.of({str(n): {query.doc_id: 1.0} for n, query in enumerate(some.queries) if n})
    trip = round_trip(
        [(str(n), query) for n, query in enumerate(some.queries)], run, {d.id: d for d in DOCUMENTS}
    )
    report = PseudoReport.of(some, trip)
    assert len(report.kept) == len(some.queries) - 1
    write_pseudo_report(report, tmp_path / "page.html", "Questions")
    page = (tmp_path / "page.html").read_text()
    assert "Kept: keywords" in page
    assert f"Thrown away: {LOST}" in page
    assert some.queries[0].text in page
