"""Runs and systems side by side on judged questions: the numbers of rankhouse evaluate."""

import time

import msgspec
import pytest

from rankhouse.api.index import Index
from rankhouse.core.errors import WrongUse
from rankhouse.core.nouns import Query
from rankhouse.core.run import Run
from rankhouse.evaluation.compare import compare
from rankhouse.serve.errors import UnknownName, Unready
from rankhouse.serve.judging.collection import ServedCollection
from rankhouse.serve.judging.compare import CompareRequest, comparable, compare_runs
from rankhouse.serve.judging.runs import MOST_QUERIES
from rankhouse.serve.judging.store import JudgementStore
from rankhouse.serve.search.catalogue import Catalogue

DOCUMENTS = [
    {"id": "d1", "title": "Pilots", "text": "Pilots board ships and steer them into the harbour."},
    {"id": "d2", "text": "The moon pulls the sea; harbours see high water twice a day."},
    {"id": "d3", "text": "A lock lifts ships between two levels of water. Ships wait."},
    {"id": "d4", "text": "Water, water and ships."},
]
QUERIES = (Query("q1", "pilots steer ships"), Query("q2", "high water"), Query("q3", "nobody judged"))
GIVEN = {"q1": {"d1": 2, "d3": 0}, "q2": {"d2": 1}}


@pytest.fixture
def service(tmp_path):
    Index.build(DOCUMENTS, tmp_path / "my.index", workers=1)
    catalogue = Catalogue({"harbour": tmp_path / "my.index"})
    parts = ServedCollection(catalogue, queries=QUERIES, qrels=dict(GIVEN))
    parts.judgements = JudgementStore(tmp_path / "judged.txt", QUERIES)
    yield parts
    parts.system_runs.close()
    parts.judgements.close()


def done(service, request, against=""):
    """Ask until all runs are made."""
    until = time.monotonic() + 120
    request = msgspec.structs.replace(request, against=against)
    while (made := compare_runs(service, request))[1] is None:
        assert time.monotonic() < until, made
        assert not made[0].ready
        assert not made[0].notes
        time.sleep(0.01)
    return made


def test_systems_and_runs_have_the_numbers_of_evaluate(service, tmp_path):
    service.runs["old"] = Run.of({"q1": {"d3": 2.0, "d1": 1.0}, "q2": {"d4": 1.0}})
    request = CompareRequest(("old", "bm25", "ql"))
    told, comparison = done(service, request)
    index = Index.open(tmp_path / "my.index")
    judged = [query for query in QUERIES if query.id in GIVEN]
    runs = {
        "old": service.runs["old"],
        "bm25": index.retrieve(judged, "bm25"),
        "ql": index.retrieve(judged, "ql"),
    }
    offline = compare(runs, GIVEN, "nDCG@10 RR@10 AP", "old", "randomization", "holm")
    assert comparison.cells == offline.cells
    assert told.ready
    assert request.pair == ("old", "bm25")
    assert [row.text for row in told.queries] == ["high water", "pilots steer ships"]
    first = told.queries[0]
    assert first.difference == first.values["bm25"] - first.values["old"] == 1.0
    assert first.judged == 1
    assert msgspec.structs.replace(request, against="ql").pair == ("old", "ql")
    least, _ = done(service, request, against="ql")
    assert least.queries[0].difference == least.queries[0].values["ql"] - least.queries[0].values["old"]


def test_the_first_answer_says_how_far_the_runs_are_and_what_was_made_is_kept(service):
    told, _ = compare_runs(service, CompareRequest(("bm25", "ql")))
    assert [(one.system, one.total) for one in told.progress] == [("bm25", 2), ("ql", 2)]
    done(service, CompareRequest(("bm25", "ql")))
    assert compare_runs(service, CompareRequest(("bm25", "ql")))[0].ready


def test_judgements_given_here_count_over_those_given_before_at_once(service):
    _, before = done(service, CompareRequest(("bm25",), "AP"))
    service.judgements.judge("ann", "pilots steer ships", "d1", 0)
    service.judgements.judge("ann", "pilots steer ships", "d4", 2)
    service.judgements.judge("ann", "a lock", "d3", 2)
    assert service.known_qrels()["q1"] == {"d1": 0, "d3": 0, "d4": 2}
    assert [query.text for query in service.known_queries()] == [*(q.text for q in QUERIES), "a lock"]
    told, after = done(service, CompareRequest(("bm25",), "AP"))
    assert after.cell("bm25", "AP").mean != before.cell("bm25", "AP").mean
    assert len(told.queries) == 3


def test_few_judged_questions_are_warned_of_and_many_are_not(service):
    told, _ = done(service, CompareRequest(("bm25", "ql")))
    assert told.notes[-1] == (
        "only 2 judged questions: the differences may be due to chance; judge 10 or more"
    )
    for number in range(8):
        service.judgements.judge("ann", f"ships {number}", "d3", 2)
    assert not any("due to chance" in note for note in done(service, CompareRequest(("bm25", "ql")))[0].notes)


def test_a_grown_index_makes_its_runs_anew(service, tmp_path):
    _, before = done(service, CompareRequest(("bm25",), "R@10"))
    Index.open(tmp_path / "my.index").append([{"id": "d5", "text": "pilots steer"}], workers=1)
    service.judgements.judge("ann", "pilots steer ships", "d5", 2)
    _, after = done(service, CompareRequest(("bm25",), "R@10"))
    assert before.cell("bm25", "R@10").mean == after.cell("bm25", "R@10").mean == 1.0


def test_what_fails_is_told_and_tried_again_when_asked_again(service, monkeypatch):
    from rankhouse.serve.judging import runs

    rank = runs.rank
    monkeypatch.setattr(runs, "rank", lambda *_: 1 / 0)
    until = time.monotonic() + 120
    while not (told := compare_runs(service, CompareRequest(("bm25",)))[0]).notes:
        assert time.monotonic() < until
    assert told.notes == ["bm25: ZeroDivisionError: division by zero"]
    assert not told.ready
    with pytest.raises(
        Unready, match="run of bm25 is not there yet: ZeroDivisionError: division by zero; ask again"
    ):
        service.run("bm25", QUERIES, "", patience=60.0)
    monkeypatch.setattr(runs, "rank", rank)
    while not (told := compare_runs(service, CompareRequest(("bm25",)))[0]).ready:
        assert time.monotonic() < until
    assert len(told.queries) == 2


def test_what_cannot_be_compared_is_refused(service):
    assert comparable(service) == ("bm25", "bm25+rm3", "ql")
    with pytest.raises(UnknownName, match=r'no run or system "bm52" \(did you mean "bm25"'):
        compare_runs(service, CompareRequest(("bm52",)))
    with pytest.raises(WrongUse, match="0 runs: name 1 to 8"):
        compare_runs(service, CompareRequest(()))
    with pytest.raises(UnknownName, match='no run among those compared "ql"'):
        compare_runs(service, CompareRequest(("bm25", "bm25+rm3"), against="ql"))
    service.qrels = {}
    with pytest.raises(WrongUse, match="nothing is judged yet"):
        compare_runs(service, CompareRequest(("bm25",)))
    many = [Query(f"q{n}", "ships") for n in range(MOST_QUERIES + 1)]
    with pytest.raises(WrongUse, match="1,001 questions: at most 1,000"):
        service.system_runs.progress("bm25", many)
