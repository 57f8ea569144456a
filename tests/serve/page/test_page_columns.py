"""Columns beside each other, without a browser: movement, what is gone, and what a reader should know."""

import re
from types import SimpleNamespace

from rankhouse.serve.page.ask import ShownAnswer
from rankhouse.serve.page.render import filled
from rankhouse.serve.search.shapes import SearchHit, SearchResponse


def answer(system, *doc_ids, degraded="", warnings=()):
    hits = tuple(SearchHit(n, doc, 1 / n, doc.upper(), "", (), None) for n, doc in enumerate(doc_ids, 1))
    told = SearchResponse("i", system, "q", hits, len(hits), 0.1, degraded, warnings)
    return ShownAnswer(told)


def columns(*answers, grades, saved=False):
    """The sections of a page of answers."""
    names = [one.answer.system for one in answers]
    places = {hit.doc_id: hit.rank for hit in answers[0].answer.hits}
    asked = SimpleNamespace(url=SimpleNamespace(path="/"), query_params=SimpleNamespace(multi_items=list))
    frame = {"saved": saved, "request": asked, "caller": "", "indexes": ("i",), "has_files": False,
             "work": SimpleNamespace(sentence="", share=0)}  # fmt: skip
    form = {
        "title": "q",
        "query": "q",
        "index": "i",
        "systems": names,
        "chosen": names,
        "default": "",
        "live": False,
        "k": 10,
        "depths": [10],
    }
    found = {"columns": answers, "places": places, "grades": grades, "labels": {0: "no"}}
    text = filled("ask.html.j2", {**frame, **form, **found, "facts": "", "fault": "", "examples": ()})
    return [part.partition("</section>")[0] for part in text.split("<section")[1:]]


def test_movement_is_told_against_the_first_column():
    one, other = answer("a", "x", "y", "z"), answer("b", "z", "y", "new")
    first, second = columns(one, other, grades={"y": 0})
    assert 'class="move' not in first
    moves = re.findall(r'<(\w+) class="move (\w+)"(.*?)><span aria-hidden="true">(.*?)<', second)
    assert [(tag, kind, text) for tag, kind, _, text in moves] == [
        ("a", "up", "↑2"),
        ("span", "same", "="),
        ("span", "new", "new"),
    ]
    assert "doc=z" in moves[0][2]
    assert "before=a" in moves[0][2]
    assert ">up 2 from rank 3 of a<" in second
    assert ">new, not shown by a<" in second
    assert re.findall("gone</span> (.*)</li>", second) == ["1. <bdi>X</bdi>"]
    assert second.count('class="grade no">no<') == 1
    assert "doc=y&amp;rival=z&amp;rival=new" in second
    assert "doc=z&amp;rival=y" in second
    saved = columns(one, other, grades={}, saved=True)[1]
    assert '<span class="move up"><span' in saved
    assert "href" not in saved


def test_an_order_of_the_first_stage_and_warnings_are_told():
    told = answer("a", "x", degraded="too late", warnings=("cut", "grown"))
    (only,) = columns(told, grades={})
    assert re.findall("<li>(.*)</li>", only) == ["Too late.", "Cut.", "Grown."]
