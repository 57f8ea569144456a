"""BEIR's retrieval, reranking and evaluation, and sentence-transformers' evaluator, over the same facades."""

import numpy as np
import pytest

pytest.importorskip("beir", reason="BEIR is not installed; make hosts")

from beir.reranking import Rerank
from beir.retrieval.evaluation import EvaluateRetrieval
from host_material import EXPRESSIONS, QRELS, QUERIES, TEXTS, TITLES, Broken, Overlap

from rankhouse.core.errors import BadData, BadModel
from rankhouse.evaluation.measures import evaluate
from rankhouse.hosts.adapters import TemporarySystem
from rankhouse.hosts.beir import CrossEncoder, Search

pytestmark = [pytest.mark.outside, pytest.mark.filterwarnings("ignore::DeprecationWarning")]

CORPUS = {i: {"text": text, "title": TITLES.get(i, "")} for i, text in TEXTS.items()}


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_beir_retrieves_and_measures_as_the_command_line_does(expression, searched):
    expected = searched(expression)
    beir = EvaluateRetrieval(Search(expression), k_values=[1, 10])
    found = beir.retrieve(CORPUS, QUERIES)
    assert found == expected.to_dict()
    assert beir.retrieve(CORPUS, QUERIES) == found  # indexed once
    ndcg, average, recall, _ = beir.evaluate(QRELS, found, [10])
    own = evaluate(expected, QRELS, "nDCG@10 AP@10 R@10")
    assert [ndcg["NDCG@10"], average["MAP@10"], recall["Recall@10"]] == pytest.approx(
        list(own.means.values()), abs=1e-5
    )


def test_a_corpus_that_was_changed_in_place_is_indexed_again(monkeypatch):
    made, index = [], TemporarySystem.index
    monkeypatch.setattr(TemporarySystem, "index", lambda self, docs: made.append(index(self, docs)))
    search, corpus = Search("bm25"), {i: dict(fields) for i, fields in CORPUS.items()}

    def found():
        return search.search(corpus, {"q": "whales"}, 10).get("q", {})

    assert not found()
    corpus["d1"]["text"] = "A whale swims."
    assert list(found()) == ["d1"]
    corpus["d9"] = {"title": "Whales", "text": ""}
    assert set(found()) == {"d1", "d9"}
    del corpus["d1"]
    assert list(found()) == ["d9"]
    corpus = {i: dict(fields) for i, fields in corpus.items()}  # another object, the same texts
    assert list(found()) == ["d9"]
    assert len(made) == 4
    corpus["d9"]["text"] = 3
    with pytest.raises(BadData, match='the "text" of document "d9" is 3'):
        found()


def test_beir_reranks_as_the_command_line_does(reranked):
    import rankhouse as rh

    first = rh.Index.open("notes.index").retrieve(QUERIES, "bm25")
    again = Rerank(CrossEncoder("ranker"), batch_size=3).rerank(CORPUS, QUERIES, first.to_dict(), top_k=100)
    assert again == reranked(first).to_dict()


def test_passages_of_long_texts_are_pooled_as_the_command_line_does(reranked):
    import rankhouse as rh

    first = rh.Index.open("notes.index").retrieve(QUERIES, "bm25")
    model = CrossEncoder('open("ranker", split="words(4)", pool="mean")')
    again = Rerank(model).rerank(CORPUS, QUERIES, first.to_dict(), top_k=100)
    expected = reranked(first, "--split", "words(4)", "--pool", "mean").to_dict()
    for query_id, scores in expected.items():  # BEIR hands title and text over as one
        untitled = scores.keys() - TITLES.keys()
        assert {i: again[query_id][i] for i in untitled} == {i: scores[i] for i in untitled}


def test_a_pair_given_twice_has_one_score_and_order_does_not_matter(folder):
    model = CrossEncoder("ranker")
    pairs = [[QUERIES["q1"], text] for text in TEXTS.values()]
    scores = model.predict(pairs)
    assert scores.dtype == np.float32
    assert model.predict(pairs[::-1] + pairs).tolist() == [*scores[::-1], *scores]
    assert model.predict(pairs[3], batch_size=1, show_progress_bar=True) == scores[3]
    assert model.predict([]).shape == (0,)


@pytest.mark.parametrize(
    ("pairs", "words"),
    [
        ([["a"]], "pair 0 is ['a']"),
        ([["a", "b"], "ab"], "pair 1 is 'ab'"),
        ([["a", None]], "the text of pair 0 is None"),
        ([[3, "b"]], "the query of pair 0 is 3"),
    ],
)
def test_a_faulty_pair_is_named(pairs, words):
    with pytest.raises(BadData) as error:
        CrossEncoder(Overlap()).predict(pairs)
    assert words in str(error.value)


def test_other_faults_are_named():
    with pytest.raises(BadModel, match="not a number"):
        CrossEncoder(Broken()).predict([["a", "b"]])
    with pytest.raises(BadData, match='the "text" of document "d1" is 3'):
        Search("bm25").search({"d1": {"text": 3}}, QUERIES, 3)
    with pytest.raises(BadData, match="the id of a document is 1"):
        Search("bm25").search({1: {"text": "x"}}, QUERIES, 3)
