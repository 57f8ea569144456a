"""The passages behind an answer: by vectors, by words, and the floor below which nothing is an answer."""

import numpy as np
import pytest

from rankhouse.core.nouns import Query
from rankhouse.serve.engine.waiting import ENDLESS
from rankhouse.serve.errors import DeadlinePassed
from rankhouse.serve.search.answer import search
from rankhouse.serve.search.passages import (
    MOST_PASSAGES,
    PassageFinder,
    content_words,
    floor_of,
    random_questions,
    words_nowhere,
)
from rankhouse.serve.search.shapes import SearchBody
from rankhouse.text.split import Words

ASKED = "pilots steer ships"


def found(service, system, question=ASKED, k=10):
    """An answer's documents with what was found of each."""
    hits = search(service.catalogue, SearchBody(query=question, system=system, k=k)).hits
    view = service.catalogue.view()
    documents = view.index.documents.fetch([hit.doc_id for hit in hits])
    finder = PassageFinder(service.catalogue, view, service.catalogue.system(system), question, ENDLESS)
    return finder, documents, finder.find(documents)


@pytest.mark.parametrize("system", ["dense", "hybrid"])
def test_the_first_passage_is_the_nearest_vector(service, rankers, system):
    _, documents, seen = found(service, system)
    encoder = rankers["bi"].ranker
    asked = encoder.encode_queries([ASKED])[0]
    several = 0
    for document, one in zip(documents, seen, strict=True):
        if not document.text.strip():
            continue
        spans = Words(20).spans(document)
        scores = encoder.encode_passages([p.text for p in Words(20)(document)]) @ asked
        assert one.spans[0] == spans[int(np.argmax(scores))]
        assert one.nearness is not None
        assert len(one.spans) <= MOST_PASSAGES
        several += len(one.spans) > 1
    assert several


@pytest.mark.parametrize("system", ["dense", "hybrid"])
def test_the_snippet_is_the_passage_of_the_nearest_vector(service, rankers, system):
    """It was the stretch with most of the question's words, which is seldom the passage that answers."""
    encoder, within = rankers["bi"].ranker, 0
    asked = encoder.encode_queries([ASKED])[0]
    answer = search(service.catalogue, SearchBody(query=ASKED, system=system, k=20))
    view = service.catalogue.view()
    for hit, document in zip(
        answer.hits, view.index.documents.fetch([one.doc_id for one in answer.hits]), strict=True
    ):
        if document.text.strip():
            scores = encoder.encode_passages([p.text for p in Words(20)(document)]) @ asked
            start, end = Words(20).spans(document)[int(np.argmax(scores))]
            assert hit.snippet == " ".join(document.text[start:end].split())
            terms = [view.index.analyzer(hit.snippet[a:b]) for a, b in hit.marks]
            assert all(one[0] in {"pilot", "steer", "ship"} for one in terms)
            within += start > 0
    assert within
    whole = service.catalogue.view().places.get(("words(20)", document.id))
    assert whole == Words(20).spans(document)


def test_a_question_is_encoded_once_for_documents_and_passages(service, monkeypatch):
    served, texts = service.catalogue.ranker("bi"), []
    encode = served.encode

    def counted(some, side, deadline):
        texts.extend(some)
        return encode(some, side, deadline)

    monkeypatch.setattr(served, "encode", counted)
    for _ in range(2):
        search(service.catalogue, SearchBody(query="asked for the first time", system="dense", k=10))
    assert texts.count("asked for the first time") == 1


def test_as_many_passages_as_there_are_documents(service):
    _, documents, seen = found(service, "dense", k=5)
    firsts = sum(bool(one.spans) for one in seen)
    assert firsts <= sum(len(one.spans) for one in seen) <= len(documents) + firsts


def test_words_show_the_windows_that_hold_most_of_them(service):
    finder, documents, seen = found(service, "bm25", "the pilots of the harbour")
    assert set(finder.weights) == {"pilot", "harbour"}
    analyzer = service.catalogue.view().index.analyzer
    for document, one in zip(documents, seen, strict=True):
        assert one.nearness is None
        inside = [{*analyzer(document.text[a:b])} & {*finder.weights} for a, b in one.spans]
        assert all(inside)
        assert not document.text or one.has_words
        assert all(len(words) <= len(inside[0]) for words in inside)


def test_a_late_encoder_leaves_the_words(service, monkeypatch):
    def late(*_):
        raise DeadlinePassed("late")

    monkeypatch.setattr("rankhouse.serve.search.passages.encode_queries", late)
    _, documents, seen = found(service, "dense")
    assert [one.nearness for one in seen] == [None] * len(documents)


def test_function_words_count_only_where_there_is_nothing_else(service):
    index = service.catalogue.view().index
    assert set(content_words(index, "how do I steer the ships")) == {"steer", "ship"}
    assert set(content_words(index, "who are you")) == {"who", "you"}


def test_words_that_no_document_has(service):
    index = service.catalogue.view().index
    assert words_nowhere(index, "do walruses have tusks") == ["walruses", "tusks"]
    assert words_nowhere(index, "walruses in the harbour") == []
    assert words_nowhere(index, "") == []


def test_the_floor_is_the_same_each_time_and_above_most_scores(service, rankers):
    view = service.catalogue.view()
    finder, _, _ = found(service, "dense")
    vectors, encoder = finder._vectors, rankers["bi"].ranker
    floor = floor_of(view.index, vectors, encoder)
    assert floor == floor_of(view.index, vectors, encoder) == finder.floor
    questions = random_questions(view.index, np.random.default_rng(0))
    assert 60 <= len(questions) <= 64  # one draw falls on the document without text
    assert {len(one.split()) for one in questions[:-1]} == {3}
    point = encoder.encode_queries([Query("q", questions[0]).text])[0]
    assert floor > np.median(vectors.rows[:] @ point)


def test_only_what_is_far_and_has_no_word_is_left_out(service):
    finder, documents, seen = found(service, "dense", "walruses")
    finder.floor = sorted(one.nearness for one in seen if one.nearness is not None)[5]
    far = [finder.is_far(one) for one in seen]
    assert far.count(True) == 5
    finder.weights = dict.fromkeys(content_words(service.catalogue.view().index, "ships"), 1.0)
    assert not any(map(finder.is_far, (one for one in finder.find(documents) if one.has_words)))
