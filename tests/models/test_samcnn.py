"""Features of samCNN alone: unknown words, weights of query words, overlap."""

import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from rankhouse.core.nouns import Pair, Passage, Query
from rankhouse.models.samcnn import ProductCache, SamCNNDesign
from rankhouse.nn.layers.convolve import WideFilters

POSTS = ["harbour frozen again", "ships are leaving the harbour", "fresh bread again", "bread and ships"]
SMALL = {"width": 12, "filters": 10, "hidden": 8, "final": 6}


def pair(query, post):
    return Pair(Query("q", query), Passage("p", 0, post))


def fresh(**options):
    return SamCNNDesign(**SMALL, **options).fresh(POSTS, seed=3).eval()


def cosines(model, query, post):
    return model.evidence(pair(query, post)).matches["cosine"]


def test_an_unknown_word_matches_itself_and_hardly_another():
    match = cosines(fresh(unknown=4096), "kubica", "kubica veneta millan")[0]
    assert match[0] == pytest.approx(1, abs=1e-5)
    assert (np.abs(match[1:]) < 0.95).all()


def test_with_one_row_all_unknown_words_are_the_same():
    assert cosines(fresh(unknown=1), "kubica", "veneta millan") == pytest.approx(1, abs=1e-5)


def test_an_unknown_word_has_the_same_number_whatever_stands_around_it():
    reader = fresh(unknown=64).reader
    alone, among = reader.ids(["veneta"]), reader.ids(["bread", "veneta", "kubica"])
    assert among[1:2] == alone
    assert max(among) < len(reader)
    assert reader.ids(["bread"])[0] < len(reader.vocabulary)


def test_unknown_rows_are_as_long_as_those_of_known_words():
    model = fresh(unknown=512)
    lengths = model.embedding.weight.detach().norm(dim=1)
    known, unknown = lengths[2 : len(model.reader.vocabulary)], lengths[len(model.reader.vocabulary) :]
    assert 0.5 < float(unknown.mean() / known.mean()) < 2


def test_words_of_a_query_and_a_post_may_differ_in_case():
    evidence = fresh().evidence(pair("FROZEN Harbour", "harbour FROZEN again"))
    assert evidence.query_words == ("frozen", "harbour")
    assert evidence.matches["cosine"][0, 1] == pytest.approx(1, abs=1e-5)


def test_query_words_weigh_as_their_idf():
    model = fresh(importance="idf", unknown=4)
    batch = model.encode([pair("frozen again veneta", "bread")])
    ids = batch.query.pad()
    weights = model._importance(ids, by_idf=True)[0]
    idf = [np.log(5 / 2), np.log(5 / 3), np.log(5)]
    np.testing.assert_allclose(weights, np.array(idf) / sum(idf), rtol=1e-6)
    assert model._importance(torch.zeros(1, 2, dtype=torch.int64), by_idf=True).sum() == 0


def test_overlap_is_how_much_of_the_query_the_post_holds():
    model = fresh(overlap=True)
    pairs = [
        pair("frozen again", "again and again"),
        pair("frozen", "bread"),
        pair("", "bread"),
        pair("bread", ""),
    ]
    with torch.no_grad():
        overlap = model._overlap(model.encode(pairs), model._words(model.encode(pairs))).numpy()
    rare, common = np.log(5 / 2), np.log(5 / 3)
    best = [cosines(model, each.query.text, each.passage.text).max(1) for each in pairs[:2]]
    soft = [best[0].mean(), (best[0] * [rare, common]).sum() / (rare + common)]
    expected = [[0.5, common / (rare + common), *soft], [0, 0, *best[1], *best[1]], [0] * 4, [0] * 4]
    np.testing.assert_allclose(overlap, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_tables_of_products_bear_threads_that_score_at_once(monkeypatch):
    monkeypatch.setattr("rankhouse.models.samcnn._MOST_CACHED", 200)  # so that they are cleared often
    words, filters = torch.nn.Embedding(5, 4), WideFilters(4, 2, 1)
    cache, switch = ProductCache(words), sys.getswitchinterval()

    def score(thread: int) -> None:
        for number in range(3000):
            table = cache.table((thread * 7 + number) % 40, filters)
            assert table.filters is filters
            cache.shrink()

    sys.setswitchinterval(1e-6)
    try:
        with ThreadPoolExecutor(4) as pool:
            list(pool.map(score, range(4)))
    finally:
        sys.setswitchinterval(switch)
