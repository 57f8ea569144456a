"""The JSON routes of searching and judging, through the whole application."""

import pytest

pytest.importorskip("starlette")
pytest.importorskip("prometheus_client")

import msgspec
from starlette.testclient import TestClient

from rankhouse.core.nouns import Query
from rankhouse.core.run import Run
from rankhouse.io.trec import read_qrels, read_run
from rankhouse.serve.host.application import build_app
from rankhouse.serve.host.service import Service
from rankhouse.serve.host.settings import ServeOptions
from rankhouse.serve.judging.log import Audit
from rankhouse.serve.judging.store import JudgementStore
from rankhouse.serve.search.answer import search
from rankhouse.serve.search.catalogue import Catalogue
from rankhouse.serve.search.shapes import SearchBody

ASKED = "pilots steer ships"


@pytest.fixture
def served(world, rankers, tmp_path):
    """A service with everything: an index, rankers, questions, judgements, a run."""
    path = tmp_path / "judged.txt"
    options = ServeOptions(judgements=path, audit=tmp_path / "audit.jsonl", trust=True, quick=600)
    queries = (Query("q1", ASKED), Query("q2", "high water in the harbour"))
    runs = {"old run": Run.of({"q1": {"d01": 1.0, "d02": 2.0}, "q2": {"d03": 1.0}})}
    catalogue = Catalogue({"harbour": world.index}, rankers)
    store, audit = JudgementStore(path, queries), Audit(options.audit)
    service = Service(catalogue, store, queries, {}, runs, audit, options=options)
    service.warm()
    yield service
    service.training.close()
    service.system_runs.close()
    service.judgements.close()


@pytest.fixture
def ask(served):
    """A client of it."""
    with TestClient(build_app(served), base_url="http://127.0.0.1", raise_server_exceptions=False) as client:
        yield client


def fine(response, status=200):
    """The body of an answer."""
    assert response.status_code == status, response.text
    return response.json()


def test_search_by_body_and_by_address_is_what_python_gives(ask, served):
    by_body = fine(ask.post("/search", json={"query": ASKED, "system": "cross+bm25", "k": 5}))
    by_address = fine(ask.get("/search", params={"query": ASKED, "system": "cross+bm25", "k": "5"}))
    offline = search(served.catalogue, SearchBody(query=ASKED, system="cross+bm25", k=5))
    assert [hit["id"] for hit in by_body["hits"]] == [hit.doc_id for hit in offline.hits]
    assert by_body["hits"] == by_address["hits"]
    for hit, wanted in zip(by_body["hits"], offline.hits, strict=True):
        told = msgspec.structs.asdict(wanted) | {
            "id": wanted.doc_id,
            "marks": [list(mark) for mark in wanted.marks],
            "copies": list(wanted.copies),
        }
        assert hit == {name: told[name] for name in hit}
    assert (by_body["index"], by_body["system"], by_body["degraded"]) == ("harbour", "cross+bm25", "")


def test_nulls_and_unknown_fields_pass_and_a_system_of_ones_own_is_asked(ask, served):
    body = {"query": ASKED, "system": None, "index": None, "k": None, "snippets": None, "surprise": {"a": 1}}
    assert fine(ask.post("/search", json=body))["system"] == "hybrid>>cross"
    own = {
        "query": ASKED,
        "models": ["bm25", "dense('bi')"],
        "ranker": "tk",
        "depth": 7,
        "split": "words(15)",
    }
    told = fine(ask.post("/search", json=own | {"snippets": False}))
    assert (told["system"], told["hits"][0]["snippet"]) == ("own", "")
    again = fine(ask.get("/search", params=[("query", ASKED), ("models", "bm25"), ("models", "ql")]))
    assert again["system"] == "own"


@pytest.mark.parametrize(("body", "status", "param"), [
    (b"{", 400, None), ({}, 422, "query"), ({"query": ""}, 422, "query"), ({"query": 5}, 422, "query"),
    ({"query": "a", "k": "many"}, 422, "k"), ({"query": "a", "k": 0}, 422, "k"),
    ({"query": "a", "models": ["bm25", 7]}, 422, "models[1]"),
    ({"query": "a", "system": "bm25 + qll"}, 422, "system"),
    ({"query": "a", "system": "bm25 >> crossencoder('D', dept=3)"}, 422, "system"),
    ({"query": "a", "system": "bm25", "models": ["ql"]}, 422, "system"),
    ({"query": "a", "system": "bm25", "depth": 5}, 422, "system"),
    ({"query": "a", "index": "other"}, 404, "index"), ({"query": "a", "system": "other"}, 404, "system"),
    ({"query": "a", "ranker": "/etc/passwd"}, 404, "ranker"),
    ({"query": "a", "models": ["dense('/etc')"]}, 404, "ranker"),
    ({"query": "a", "models": ["guess"]}, 422, None),
    ({"query": "a", "fusion": "rrf(", "models": ["ql"]}, 422, None),
    ({"query": "a", "models": ["bm25", "ql"], "weights": [1]}, 422, None), ({"query": " "}, 422, None),
    ({"query": "a", "deadline_s": 0}, 422, "deadline_s"),
])  # fmt: skip
def test_what_is_wrong_is_named(ask, body, status, param):
    sent = {"content": body} if isinstance(body, bytes) else {"json": body}
    response = ask.post("/search", **sent)
    told = fine(response, status)
    assert told["error"]["param"] == param
    assert told["message"] == told["detail"] == told["error"]["message"] != ""


def test_by_address_what_is_wrong_is_named_too(ask):
    assert fine(ask.get("/search"), 422)["message"] == "query: is missing; /openapi.json says what it is"
    told = fine(ask.get("/search", params={"query": "a", "k": "many"}), 422)
    assert told["error"]["param"] == "k"


def test_documents_and_why(ask):
    document = fine(ask.get("/documents/harbour/d07"))
    assert document["id"] == "d07"
    assert document["passages"] is None
    shaded = fine(ask.get("/documents/harbour/d07", params={"query": ASKED, "system": "cross"}))
    assert shaded["text"] == document["text"]
    assert max(passage["share"] for passage in shaded["passages"]) == 1
    first = fine(ask.post("/search", json={"query": ASKED, "system": "tk", "k": 2}))["hits"]
    told = fine(ask.post("/explain", json={"query": ASKED, "document": first[0]["id"], "system": "tk"}))
    assert told["kind"] == "explanation"
    assert told["answer"]["score"] == pytest.approx(first[0]["score"])
    params = {"query": ASKED, "document": first[0]["id"], "against": first[1]["id"], "system": "tk"}
    told = fine(ask.get("/explain", params=params))
    assert (told["kind"], first[0]["id"] in told["sentence"]) == ("contrast", True)
    assert fine(ask.get("/explain", params={"query": ASKED, "top": 2, "system": "bm25"}))["kind"] == "ranking"
    assert fine(ask.get("/documents/harbour/none"), 404)["error"]["param"] == "id"
    assert fine(ask.get("/documents/none/d07"), 404)["error"]["param"] == "index"
    assert fine(ask.get("/documents/harbour/..%2f..%2fetc/passwd"), 404)
    assert fine(ask.post("/explain", json={"query": ASKED}), 422)


def test_a_faulty_system_before_is_named(ask):
    for before, status in (("bm52", 404), ("bm25 + qll", 422)):
        body = {"query": ASKED, "document": "d07", "system": "bm25", "before": before}
        assert fine(ask.post("/explain", json=body), status)["error"]["param"] == "before"


def test_what_there_is(ask):
    (index,) = fine(ask.get("/api/indexes"))
    assert (index["name"], index["documents"]) == ("harbour", 62)
    systems = fine(ask.get("/api/systems"))
    assert [one["name"] for one in systems] == index["systems"]
    assert fine(ask.get("/api/systems", params={"index": "none"}), 404)


def test_judging_undoing_and_agreeing(ask, served, tmp_path):
    said = fine(
        ask.post("/api/judgements", json={"query": ASKED, "document": "d01", "grade": 2, "judge": "ann"})
    )
    assert (said["query_id"], said["grade"], said["number"]) == ("q1", 2, 1)
    fine(ask.post("/api/judgements", json={"query": "q1", "document": "d01", "grade": 0, "judge": "ben"}))
    fine(ask.post("/api/judgements", json={"query": "q1", "document": "d02", "grade": 1}))
    told = fine(ask.get("/api/judgements", params={"query": "q1"}))
    assert told["grades"] == {"d01": {"ann": 2, "ben": 0}, "d02": {"anybody": 1}}
    assert told["merged"] == {"d01": 0, "d02": 1}
    assert fine(ask.get("/api/judgements"), 422)["error"]["param"] == "query"
    (both,) = fine(ask.get("/api/judgements/agreement"))
    assert (both["first"], both["second"], both["pairs"], both["same"]) == ("ann", "ben", 1, 0.0)
    text = ask.get("/api/judgements/qrels").text
    (tmp_path / "got.txt").write_text(text)
    assert (
        read_qrels(tmp_path / "got.txt") == read_qrels(served.judgements.path) == {"q1": {"d01": 0, "d02": 1}}
    )
    assert ask.get("/api/judgements/qrels", params={"judge": "ann"}).text == "q1 0 d01 2\n"
    undone = fine(ask.post("/api/judgements/undo", json={"judge": "ben"}))["undone"]
    assert (undone["document"], undone["grade"]) == ("d01", None)
    assert fine(ask.post("/api/judgements/undo", json={"judge": "ben"})) == {"undone": None}
    queries = fine(ask.get("/api/queries"))
    assert [(one["id"], one["judged"], one["relevant"]) for one in queries] == [("q1", 2, 2), ("q2", 0, 0)]
    deeds = [
        line.split('"deed":"')[1].split('"')[0]
        for line in (tmp_path / "audit.jsonl").read_text().splitlines()
    ]
    assert deeds == ["judge"] * 3 + ["undo"]
    assert fine(ask.post("/api/judgements", json={"query": "q1", "document": "none", "grade": 1}), 404)
    assert fine(ask.post("/api/judgements", json={"query": "q1", "document": "d01", "grade": 9}), 422)
    assert fine(ask.post("/api/judgements", json={"query": "q1", "document": "d01"}), 422)


def test_comparing_and_runs_as_files(ask, served, tmp_path):
    for query, document in (("q1", "d01"), ("q2", "d03")):
        fine(ask.post("/api/judgements", json={"query": query, "document": document, "grade": 2}))
    params = [("name", "old run"), ("name", "bm25"), ("measures", "AP")]
    while not (told := fine(ask.get("/api/compare", params=params)))["ready"]:
        assert told["progress"][0]["fault"] == ""
    assert [cell["system"] for cell in told["cells"]] == ["old run", "bm25"]
    assert {row["id"] for row in told["queries"]} == {"q1", "q2"}
    assert fine(ask.get("/api/compare", params={"name": "none"}), 404)["error"]["param"] == "names"
    assert fine(ask.get("/api/compare"), 422)
    for name in ("old run", "bm25"):
        (tmp_path / "got.run").write_text(ask.get(f"/api/runs/{name}").text)
        wanted = served.runs.get(name) or served.system_runs.finished(name, served.queries)
        assert read_run(tmp_path / "got.run") == wanted
    assert fine(ask.get("/api/runs/none"), 404)


def test_trainings_that_begin_and_end_are_answered_so_where_the_audit_cannot_be_written(
    ask, served, tmp_path, capsys
):
    fine(ask.post("/api/judgements", json={"query": ASKED, "document": "d01", "grade": 2, "judge": "a"}))
    audit = tmp_path / "audit.jsonl"
    audit.unlink()
    audit.mkdir()
    for wrong in ({"epochs": 0}, {"rate": 2.0}, {"seed": -1}):
        told = fine(ask.post("/api/trainings", json={"name": "mine", **wrong}), 422)
        assert told["error"]["param"] == next(iter(wrong))
    begun = fine(ask.post("/api/trainings", json={"name": "mine", "start": "knrm", "epochs": 900}), 201)
    assert begun["state"] == "running"
    assert fine(ask.delete("/api/trainings/mine"))["state"] == "cancelled"
    said = capsys.readouterr().err
    assert "no audit line of train by" in said
    assert "no audit line of cancel by" in said


def test_a_service_that_only_reads_says_so(world, rankers):
    service = Service(Catalogue({"harbour": world.index}, rankers))
    service.warm()
    with TestClient(build_app(service), base_url="http://127.0.0.1") as ask:
        told = fine(ask.post("/api/judgements", json={"query": "a", "document": "d01", "grade": 1}), 403)
        assert "only reads" in told["message"]
        assert fine(ask.get("/api/judgements/agreement"), 403)
        assert fine(ask.get("/api/trainings")) == []
        assert fine(ask.post("/api/trainings", json={"name": "mine"}), 422)
        assert fine(ask.get("/api/trainings/mine"), 404)
        assert fine(ask.get("/api/compare", params={"name": "bm25"}), 422)["message"].startswith(
            "nothing is judged"
        )
    service.system_runs.close()


def test_every_route_is_described(ask):
    paths = fine(ask.get("/openapi.json"))["paths"]
    assert {
        "/search",
        "/explain",
        "/documents/{index}/{id}",
        "/api/judgements",
        "/api/compare",
    } <= paths.keys()
    assert set(paths["/search"]) == {"get", "post"}
