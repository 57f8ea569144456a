"""Documents with their passages' scores, and why they stand where they stand, through the service."""

import math
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from rankhouse.core.errors import WrongUse
from rankhouse.core.nouns import Query
from rankhouse.explanation.methods import ExplainOptions
from rankhouse.serve.engine.waiting import Deadline
from rankhouse.serve.errors import DeadlinePassed, UnknownName
from rankhouse.serve.page.document import lines_of
from rankhouse.serve.page.why import called, in_words
from rankhouse.serve.search.answer import search
from rankhouse.serve.search.documents import passages_with_scores, read_document
from rankhouse.serve.search.shapes import ExplainBody, SearchBody
from rankhouse.serve.search.why import explain
from rankhouse.systems.execution import Execution
from rankhouse.systems.explaining import Question, ask
from rankhouse.systems.rankers import ComputeOptions
from rankhouse.systems.short_forms import asked_form
from rankhouse.systems.stage import Stage

ASKED = "pilots steer ships"


def shade(service, doc_id, query=ASKED, system="", **more):
    """The passages of a document with their scores."""
    return passages_with_scores(
        service.catalogue, *read_document(service.catalogue, "", doc_id), query, system, **more
    )


def first(service, system, place=0):
    """The document at a place of a ranking."""
    return search(service.catalogue, SearchBody(query=ASKED, system=system)).hits[place].doc_id


@pytest.mark.parametrize("system", ["bm25", "hybrid", "cross", "tk", "cross+bm25"])
def test_lines_make_up_the_text_and_the_best_passage_is_the_documents_score(service, world, system):
    for doc_id in ("d00", "d07", "d01", "blank", "titled"):
        shaded, (_, document) = (
            shade(service, doc_id, system=system),
            read_document(service.catalogue, "", doc_id),
        )
        end = len(document.text)
        for found in (None, (end // 3, end // 2)):
            lines = [*lines_of(shaded.passages, (0, end), found)]
            assert "".join(document.text[a:b] for a, b in lines) == document.text
            assert (
                found is None or not end or {found[0], found[1]} <= {edge for line in lines for edge in line}
            )
        for passage in shaded.passages:
            assert 0 <= passage.share <= 1
            assert 0 <= passage.start <= passage.end <= end
        if doc_id != "blank":
            assert shaded.best.share in (0.0, 1.0)
        else:
            assert shaded.best is None
    shaded = shade(service, "d07", system=system)
    assert len(shaded.passages) > 3 or shaded.split == "whole"


def test_the_best_passage_of_a_ranker_has_the_score_of_the_search(service):
    hit = search(service.catalogue, SearchBody(query=ASKED, system="cross")).hits[0]
    shaded = shade(service, hit.doc_id, system="cross")
    assert (shaded.best.score, shaded.scorer, shaded.split) == (hit.score, "cross", "sentences(10, 5)")


def test_words_shade_the_passage_that_holds_them(service):
    hit = search(service.catalogue, SearchBody(query="moon", system="bm25")).hits[0]
    shaded, (_, document) = (
        shade(service, hit.doc_id, "moon", "bm25"),
        read_document(service.catalogue, "", hit.doc_id),
    )
    best = document.text[shaded.best.start : shaded.best.end]
    assert "moon" in best.lower() or "moon" in document.title
    others = shade(service, hit.doc_id, "nothing of this", "bm25").passages
    assert {passage.score for passage in others} <= {0.0} or "the" in document.text


def test_documents_that_are_not_there(service):
    with pytest.raises(
        UnknownName, match='no document "d0" in harbour, which has 62; did you mean "d0'
    ) as told:
        read_document(service.catalogue, "", "d0")
    assert (told.value.status, told.value.param) == (404, "id")
    with pytest.raises(WrongUse, match="query is empty"):
        shade(service, "d00", " ")


# system of the service -> models, feedback, ranker and fusion as options of rankhouse explain
AS_OPTIONS = {
    "bm25": (["bm25"], "", "", ""),
    "bm25+rm3": (["bm25"], "rm3", "", ""),
    "dense": (["dense('bi')"], "", "", ""),
    "hybrid": (["bm25", "dense('bi')"], "", "", ""),
    "cross": (["bm25"], "", "cross", ""),
    "tk": (["bm25"], "", "tk", ""),
    "cross+bm25": (["bm25"], "", "cross", "rrf"),
}


@pytest.mark.parametrize("system", AS_OPTIONS)
def test_why_is_what_the_command_says(service, world, system):
    """The same parts, cost and sentence as rankhouse explain, whatever models a system has."""
    one, other = first(service, system), first(service, system, 1)
    told = explain(
        service.catalogue, ExplainBody(query=ASKED, document=one, system=system, against=other, passes=64)
    )
    compute = ComputeOptions("fp32", "cpu", 1)
    models, feedback, ranker, fusion = AS_OPTIONS[system]
    models = [model.replace("'bi'", repr(world.specs["bi"])) for model in models]
    cut = str(service.catalogue.ranker(ranker).split) if ranker else ""
    stage = Stage(world.specs[ranker], split=cut, depth=100) if ranker else None
    work = Execution(service.catalogue.view().index, [Query("query", ASKED)], compute)
    asked = Question((one,), other, options=ExplainOptions(passes=64))
    offline = ask(work, asked_form(models, feedback, fusion, None, k=1000, stage=stage), asked)
    assert (told.score, told.first.score) == (offline.score, offline.first.score)
    assert [part.value for part in told.parts] == [part.value for part in offline.parts]
    assert told.first.cost == offline.first.cost
    assert math.isclose(math.fsum(p.value for p in told.parts) + told.gap, told.score, abs_tol=1e-5)


def test_the_page_calls_the_runs_of_a_hybrid_words_and_meaning(service):
    doc_id = first(service, "hybrid")
    told = explain(service.catalogue, ExplainBody(query=ASKED, document=doc_id, system="hybrid"))
    said = called(told.sentence(), in_words([told]))
    assert ": its meaning +" in said or ", its meaning +" in said
    assert "its words" in said
    assert '"' not in said
    words = explain(service.catalogue, ExplainBody(query=ASKED, document=doc_id, system="bm25"))
    assert in_words([words]) == {}


def test_parts_sum_to_the_score_that_the_search_shows(service):
    for system in ("bm25", "tk", "cross", "dense"):
        hit = search(service.catalogue, SearchBody(query=ASKED, system=system)).hits[0]
        told = explain(service.catalogue, ExplainBody(query=ASKED, document=hit.doc_id, system=system))
        assert told.score == pytest.approx(hit.score, rel=1e-6)


def test_the_first_of_a_ranking_and_a_move(service):
    ranking = explain(service.catalogue, ExplainBody(query=ASKED, system="bm25", top=3))
    assert [one.doc_id for one in ranking.documents] == [first(service, "bm25", place) for place in range(3)]
    moved = explain(
        service.catalogue,
        ExplainBody(query=ASKED, document=first(service, "cross"), system="cross", before="bm25", passes=16),
    )
    assert moved.after.rank == 1
    assert moved.before.rank >= 1


def test_a_document_below_the_depth_is_told_as_not_read(service):
    below = search(service.catalogue, SearchBody(query=ASKED, system="bm25")).hits[4].doc_id
    told = explain(service.catalogue, ExplainBody(query=ASKED, document=below, ranker="cross", depth=2))
    assert told.method == "placeholder"


@pytest.mark.parametrize(("request_", "said"), [
    (ExplainBody(query="", document="d00"), "query is empty"),
    (ExplainBody(query="ships"), "give document"),
    (ExplainBody(query="ships", document="d00", top=2), "give document"),
    (ExplainBody(query="ships", top=50), "ask for 1 to 20"),
    (ExplainBody(query="ships", top=2, against="d00"), "leave out against"),
    (ExplainBody(query="ships", document="d00", passes=1), "passes=1: give 2 to 1,024"),
    (ExplainBody(query="ships", document="d00", against="d00", system="bm25"), "compared with itself"),
    (ExplainBody(query="ships", document="d00", system="cross", method="guess"), "not a known method"),
])  # fmt: skip
def test_what_cannot_be_asked_is_refused(service, request_, said):
    with pytest.raises(WrongUse, match=said):
        explain(service.catalogue, request_)
    with pytest.raises(UnknownName, match='no document "d0x"'):
        explain(service.catalogue, ExplainBody(query="ships", document="d0x"))


@pytest.mark.slow
def test_many_explanations_of_several_models_at_once_wait_for_none_of_each_other(service):
    """Those of one model, of another and of both together: all end, with the numbers they have alone."""
    one = first(service, "bm25")
    systems = ("dense", "hybrid", "cross", "tk", "tk+bm25")
    asked = [ExplainBody(query=ASKED, document=one, system=system, passes=16) for system in systems]
    own = {"models": ["bm25", "dense('bi')"], "fusion": "rrf", "depth": 5, "passes": 8}
    asked += [ExplainBody(query=ASKED, document=one, ranker=ranker, **own) for ranker in ("cross", "tk")]
    alone = [explain(service.catalogue, request).score for request in asked]
    with ThreadPoolExecutor(6) as pool:
        futures = [pool.submit(explain, service.catalogue, request) for request in asked * 3]
        searches = [
            pool.submit(search, service.catalogue, SearchBody(query=ASKED, system="cross")) for _ in range(4)
        ]
        assert [future.result(120).score for future in futures] == alone * 3
        assert len({future.result(120).hits for future in searches}) == 1


def test_a_deadline_ends_the_wait(service, busy):
    with busy(service.catalogue.ranker("tk")), pytest.raises(DeadlinePassed):
        explain(service.catalogue, ExplainBody(query=ASKED, document="d00", system="tk", deadline_s=0.05))
    with busy(service.catalogue.ranker("cross")), pytest.raises(DeadlinePassed):
        shade(service, "d00", system="cross", deadline=Deadline.after(0.05))
    assert np.isfinite(
        explain(service.catalogue, ExplainBody(query=ASKED, document="d00", system="tk", deadline_s=60)).score
    )
