"""Questions asked of a service: the same documents and numbers as the command line's."""

from dataclasses import dataclass

import pytest

from rankhouse.api.index import Index
from rankhouse.core.errors import WrongUse
from rankhouse.serve.errors import UnknownName
from rankhouse.serve.search.answer import search
from rankhouse.serve.search.catalogue import Catalogue
from rankhouse.serve.search.shapes import SearchBody
from rankhouse.systems.execution import LOOKED_AT

DOCUMENTS = [
    {"id": "d1", "title": "Pilots", "text": "Pilots board ships and steer them into the harbour."},
    {"id": "d2", "text": "The moon pulls the sea; harbours see high water twice a day."},
    {"id": "d3", "text": "A lock lifts ships between two levels of water."},
    {"id": "d4", "text": "the of and"},
]


@dataclass
class Parts:
    """A service's part that searching needs."""

    catalogue: Catalogue


@pytest.fixture
def service(tmp_path):
    Index.build(DOCUMENTS, tmp_path / "my.index", workers=1)
    return Parts(Catalogue({"harbour": tmp_path / "my.index"}))


def test_the_answer_is_what_the_front_door_gives(service, tmp_path):
    answer = search(service.catalogue, SearchBody(query="pilots steer ships", system="bm25"))
    offline = Index.open(tmp_path / "my.index").search("pilots steer ships")
    assert [(h.doc_id, h.score, h.title, h.snippet, h.marks) for h in answer.hits] == [
        (h.doc_id, h.score, h.title, h.text, h.marks) for h in offline.hits
    ]
    assert (answer.index, answer.system, answer.degraded, answer.found) == ("harbour", "bm25", "", 2)
    assert answer.hits[0].before is None


def test_unknown_names_list_the_choices(service):
    with pytest.raises(UnknownName, match=r'no index "harbor" \(did you mean "harbour"'):
        search(service.catalogue, SearchBody(query="ships", index="harbor"))
    with pytest.raises(UnknownName, match=r'no system "bm52" \(did you mean "bm25"'):
        search(service.catalogue, SearchBody(query="ships", system="bm52"))


@pytest.mark.parametrize(("request_", "said"), [
    (SearchBody(query="  "), "query is empty"),
    (SearchBody(query="ships", k=0), "ask for 1 to 1,000"),
    (SearchBody(query="ships", k=1001), "ask for 1 to 1,000"),
])  # fmt: skip
def test_what_cannot_be_asked_is_refused(service, request_, said):
    with pytest.raises(WrongUse, match=said):
        search(service.catalogue, request_)


def test_documents_added_while_serving_are_found_by_the_next_question(service, tmp_path):
    held = service.catalogue.view()
    Index.open(tmp_path / "my.index").append([{"id": "d5", "text": "Tugs tow ships."}], workers=1)
    assert [
        hit.doc_id for hit in search(service.catalogue, SearchBody(query="tugs", system="bm25")).hits
    ] == ["d5"]
    assert len(held.index) == 4
    assert len(service.catalogue.view().index) == 5


def test_why_nothing_was_found_is_said(service):
    (said,) = search(service.catalogue, SearchBody(query="Zeppelins, the airships", system="bm25")).warnings
    assert said == "nothing was found; the terms searched for were: zeppelin, airship"
    (said,) = search(service.catalogue, SearchBody(query="where would Zeppelins?", system="bm25")).warnings
    assert said == "nothing was found; the terms searched for were: zeppelin", "function words are not missed"
    (said,) = search(service.catalogue, SearchBody(query="the of", system="bm25")).warnings
    assert said.endswith("none, only stop words or punctuation")


def test_of_a_very_long_document_the_beginning_is_looked_at_for_a_stretch_to_show(tmp_path):
    words = "one more line of a log " * (LOOKED_AT // 20)
    Index.build(
        [{"id": "log", "text": f"It begins with tugs. {words} It ends with pilots."}],
        tmp_path / "i",
        workers=1,
    )
    service = Parts(Catalogue({"logs": tmp_path / "i"}))
    (hit,) = search(service.catalogue, SearchBody(query="tugs pilots", system="bm25")).hits
    assert hit.snippet.startswith("It begins with tugs.")
    (hit,) = search(service.catalogue, SearchBody(query="pilots", system="bm25")).hits
    assert (hit.snippet[:9], hit.marks) == ("It begins", ())
