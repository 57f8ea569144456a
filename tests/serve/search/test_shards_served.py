"""An index in parts, served: it answers, explains and shows what the whole index does."""

import time

import pytest
from msgspec.structs import replace

from rankhouse.api.index import Index
from rankhouse.core.errors import RankhouseWarning, WrongUse
from rankhouse.index.sharded.shard import LocalShards, ShardFailed
from rankhouse.index.sharded.sharded_index import ShardedIndex
from rankhouse.serve.errors import UnknownName
from rankhouse.serve.search.answer import search
from rankhouse.serve.search.catalogue import Catalogue, IndexView
from rankhouse.serve.search.documents import passages_with_scores, read_document
from rankhouse.serve.search.shapes import ExplainBody, SearchBody
from rankhouse.serve.search.why import explain
from rankhouse.systems.rankers import ComputeOptions, open_ranker

ASKED = "pilots steer ships"
SYSTEMS = ["bm25", "bm25+rm3", "ql", "dense", "hybrid", "cross", "tk", "cross+bm25"]


@pytest.fixture(scope="module")
def parts(world, tmp_path_factory):
    """The collection in three parts, each encoded."""
    folder = tmp_path_factory.mktemp("served") / "parts"
    documents = list(Index.open(world.index).documents.stream())
    encoder = open_ranker(world.specs["bi"], ComputeOptions("fp32", "cpu", 1))
    for number in range(3):
        some = documents[number * 21 : number * 21 + 21]
        index = Index.build(some, folder / f"{number}" / "index", workers=1)
        if any(not document.full_text.strip() for document in some):
            with pytest.warns(RankhouseWarning, match="no text"):
                index.encode(encoder, split="words(20)")
        else:
            index.encode(encoder, split="words(20)")
    return folder


@pytest.fixture
def parted(parts, rankers, service):
    """A service of the parts, like the one of the whole."""
    return type(service)(Catalogue({"harbour": parts}, rankers))


@pytest.mark.quick("bm25*", "dense", "cross")
@pytest.mark.parametrize("system", SYSTEMS)
def test_answers_are_those_of_the_whole(service, parted, system):
    for question in (ASKED, "high water in the harbour", "the of"):
        one, other = (
            search(each.catalogue, SearchBody(query=question, system=system, k=30))
            for each in (service, parted)
        )
        if system in ("dense", "hybrid"):  # the vectors of parts may be elsewhere: words choose the passage
            one, other = (
                replace(each, hits=[replace(hit, snippet="", marks=()) for hit in each.hits])
                for each in (one, other)
            )
        assert one.hits == other.hits
        assert (one.found, one.degraded, one.warnings) == (other.found, other.degraded, other.warnings)


@pytest.mark.parametrize("system", ["bm25", "bm25+rm3", "cross", "tk"])
def test_why_is_told_as_of_the_whole(service, parted, system):
    doc_id, other = (
        hit.doc_id for hit in search(service.catalogue, SearchBody(query=ASKED, system=system)).hits[:2]
    )
    asked = ExplainBody(query=ASKED, document=doc_id, system=system, against=other, passes=32)
    assert explain(service.catalogue, asked).to_dict() == explain(parted.catalogue, asked).to_dict()
    shaded = [
        passages_with_scores(each.catalogue, *read_document(each.catalogue, "", doc_id), ASKED, system)
        for each in (service, parted)
    ]
    assert shaded[0] == shaded[1]


def test_what_needs_one_index_says_so(parted):
    doc_id = search(parted.catalogue, SearchBody(query=ASKED, system="dense")).hits[0].doc_id
    with pytest.raises(WrongUse, match="explain it with the shard that has the document"):
        explain(parted.catalogue, ExplainBody(query=ASKED, document=doc_id, system="dense"))
    with pytest.raises(UnknownName, match='no document "nowhere" in harbour, which has 62'):
        read_document(parted.catalogue, "", "nowhere")


class FadingParts(LocalShards):
    """Parts of which one dies: a request to it learns so a moment later."""

    is_dead = False

    def ask(self, requests):
        if self.is_dead and 1 in requests:
            time.sleep(0.3)
            raise ShardFailed(1, self.names[1], "killed")
        return super().ask(requests)


def test_a_partial_answer_says_what_it_lacks_and_how_long_all_of_it_took(parts, rankers, service):
    held = FadingParts.open([parts])
    view = IndexView("harbour", ShardedIndex.reach(held), partial=True)
    parted = type(service)(Catalogue({"harbour": parts}, rankers, held=lambda name, path: view))
    assert search(parted.catalogue, SearchBody(query=ASKED, system="bm25")).degraded == ""
    held.is_dead = True
    answer = search(parted.catalogue, SearchBody(query=ASKED, system="bm25"))
    assert answer.degraded == f"the documents of {held.names[1]} are missing: no answer from there"
    assert answer.seconds >= 0.3
    with pytest.raises(ShardFailed):
        search(parted.catalogue, SearchBody(query=ASKED, system="bm25", partial=False))


def test_a_part_that_grows_is_taken_up(parted, parts):
    before = len(search(parted.catalogue, SearchBody(query="zeppelin", system="bm25")).hits)
    Index.open(parts / "1" / "index").append([{"id": "new", "text": "A zeppelin."}])
    assert before == 0
    assert [
        hit.doc_id for hit in search(parted.catalogue, SearchBody(query="zeppelin", system="bm25")).hits
    ] == ["new"]
