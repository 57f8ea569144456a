"""What a ranker made of a question serves columns, pages and explanations, and is forgotten in time."""

import numpy as np
import pytest

from rankhouse.core.nouns import Ranking
from rankhouse.serve.search.answer import search
from rankhouse.serve.search.catalogue import KEPT, Recent
from rankhouse.serve.search.shapes import ExplainBody, SearchBody
from rankhouse.serve.search.why import explain
from rankhouse.systems import notation

ASKED = "pilots steer ships"


@pytest.fixture
def rows(service, counting):
    """From a block of work to the passages that the cross-encoder computed for it."""
    counts = counting(service.catalogue.ranker("cross"))

    def computed(work):
        before = counts.rows
        work()
        return counts.rows - before

    return computed


def test_columns_and_explanations_read_the_documents_once(service, rows):
    read = rows(lambda: search(service.catalogue, SearchBody(query=ASKED, system="cross")))
    assert read > 40
    assert rows(lambda: search(service.catalogue, SearchBody(query=ASKED, system="cross+bm25", k=100))) == 0
    assert (
        rows(lambda: search(service.catalogue, SearchBody(query=ASKED, system="cross", deadline_s=1e-9))) == 0
    )
    best = search(service.catalogue, SearchBody(query=ASKED, system="cross+bm25")).hits[0].doc_id
    why = ExplainBody(query=ASKED, document=best, system="cross+bm25", passes=2)
    assert 0 < rows(lambda: explain(service.catalogue, why)) < read / 2
    assert rows(lambda: search(service.catalogue, SearchBody(query="grain prices", system="cross"))) > 10


@pytest.mark.slow
def test_an_explanation_says_the_same_whether_or_not_it_was_searched_for(service, world, rankers):
    fresh = type(service)(type(service.catalogue)({"harbour": world.index}, rankers))
    search(service.catalogue, SearchBody(query=ASKED, system="cross+bm25"))
    best = search(service.catalogue, SearchBody(query=ASKED, system="cross+bm25")).hits[0].doc_id
    for system in ("cross", "cross+bm25", "tk+bm25"):
        why = ExplainBody(
            query=ASKED, document=best, system=system, against="d00" if best != "d00" else "d01", passes=4
        )
        assert explain(service.catalogue, why).to_dict() == explain(fresh.catalogue, why).to_dict()


@pytest.mark.slow
def test_another_depth_split_or_pool_is_read_anew(service, rows):
    search(service.catalogue, SearchBody(query=ASKED, system="cross"))
    for change in ({"depth": 3}, {"split": "words(9)"}, {"pool": "mean"}, {"models": ["ql"]}):
        asked = SearchBody(query=ASKED, ranker="cross", **change)
        assert rows(lambda asked=asked: search(service.catalogue, asked)) > 0
        assert rows(lambda asked=asked: search(service.catalogue, asked)) == 0


def test_only_the_latest_are_kept():
    recent, ranking = Recent(KEPT), Ranking(("d1",), np.ones(1, np.float32))
    read = notation.system("bm25 >> cross")
    keys = [(read, "mark", str(number)) for number in range(KEPT + 1)]
    for key in keys[:-1]:
        recent.put(key, ranking)
    assert recent.get(keys[0]) is ranking
    recent.put(keys[-1], ranking)
    assert recent.get(keys[1]) is None
    assert recent.get(keys[0]) is ranking
    both = notation.system("rrf(bm25, bm25 >> cross)")
    assert (both.parts[1], "mark", "0") == keys[0]


def test_large_values_make_room_for_few_others():
    kept = Recent(10, len)
    for key, value in (("a", "12345"), ("b", "12345"), ("c", "1"), ("d", "1" * 11)):
        kept.put(key, value)
    assert [kept.get(key) for key in "abcd"] == [None, "12345", "1", None]
