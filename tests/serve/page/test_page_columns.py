"""Columns beside each other, without a browser: movement, what is gone, and what a reader should know."""

from rankhouse.serve.page.ask import columns
from rankhouse.serve.page.hits import ShownAnswer
from rankhouse.serve.search.shapes import SearchHit, SearchResponse


def answer(system, *doc_ids, degraded="", warnings=()):
    hits = tuple(SearchHit(n, doc, 1 / n, doc.upper(), "", (), None) for n, doc in enumerate(doc_ids, 1))
    told = SearchResponse("i", system, "q", hits, len(hits), 0.1, degraded, warnings)
    return ShownAnswer(told, {}, f"{len(hits)} documents")


def test_movement_is_told_against_the_first_column():
    first, second = columns([answer("a", "x", "y", "z"), answer("b", "z", "y", "new")], {"y": 0})
    assert [hit.move for hit in first.hits] == [None, None, None]
    assert [(hit.move.kind, hit.move.text) for hit in second.hits] == [
        ("up", "↑2"),
        ("same", "="),
        ("new", "new"),
    ]
    assert second.hits[0].move.said == "up 2 from rank 3 of a"
    assert [hit.doc_id for hit in second.gone] == ["x"]
    assert [hit.grade for hit in second.hits] == [None, 0, None]
    assert second.hits[1].beside == ("z", "new")


def test_an_order_of_the_first_stage_and_warnings_are_told():
    (only,) = columns([answer("a", "x", degraded="too late", warnings=("cut", "grown"))], {})
    assert only.notes == ("too late", "cut", "grown")
