"""Rankers of a service: opened and warm before it is ready, counted while they work."""

import importlib.util
import json
import shutil
import threading
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from rankhouse.api.index import Index
from rankhouse.core.errors import RankhouseError
from rankhouse.core.nouns import Document, Pair, Passage, Query
from rankhouse.io.outputs import write_json
from rankhouse.serve.host.service import Phase, open_service
from rankhouse.serve.host.settings import ServeOptions
from rankhouse.serve.search.systems import doubt_of
from rankhouse.systems.rankers import ComputeOptions

pytest.importorskip("torch")
from rankhouse.adaptation.adapt import AdaptResult

_spec = importlib.util.spec_from_file_location("tiny_models", Path(__file__).with_name("tiny_models.py"))
tiny_models = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(tiny_models)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    return tiny_models.tiny_model("crossencoder", tmp_path_factory.mktemp("models"))


def test_a_service_is_ready_when_its_rankers_are_warm_and_counts_their_work(running, tiny):
    options = ServeOptions(rankers={"ce": tiny}, port=0, compute=ComputeOptions("fp32", "cpu", 1))
    service = open_service(options)
    assert service.phase is Phase.STARTING
    with running(service) as client:
        client.wait(200)
        ranker = service.catalogue.ranker("ce")
        before = client.get("/metrics").body.decode()
        assert 'rankhouse_queue_tokens{model="ce"} 0.0' in before
        ranker.submit([Pair(Query("q", "a"), Passage("d", 0, "a b c"))] * 7).result(120)
        after = client.get("/metrics").body.decode()
        assert (
            _number(after, "rankhouse_batch_passages_sum") - _number(before, "rankhouse_batch_passages_sum")
            == 7
        )
        assert _number(after, "rankhouse_batch_seconds_count") > _number(
            before, "rankhouse_batch_seconds_count"
        )
        for stage in ("queue", "tokenise", "compute"):
            assert f'rankhouse_model_seconds_count{{model="ce",stage="{stage}"}}' in after
        assert 'rankhouse_requests_total{method="GET",route="/metrics",status="200"}' in after
    assert not [thread for thread in threading.enumerate() if thread.name == "model-ce"]


def _number(text, name):
    return float(next(line for line in text.splitlines() if line.startswith(f"{name}{{")).split()[-1])


def test_a_ranker_that_cannot_be_opened_is_said(tmp_path):
    service = open_service(ServeOptions(rankers={"ce": str(tmp_path / "absent")}))
    with pytest.raises(RankhouseError, match="absent"):
        service.warm()
    assert service.phase is Phase.STARTING
    service.close()


@pytest.mark.parametrize(
    ("quick", "trust", "usual", "told"),
    [
        (600.0, True, "ce", "ce ranks by default: it takes "),
        (1e-9, True, "bm25", "ce ranks only when it is chosen: it takes "),
        (0.0, True, "bm25", "ce ranks only when it is chosen: as --quick 0 says"),
        (600.0, False, "bm25", "ce ranks only when it is chosen: it has no report"),
    ],
)
def test_a_ranker_that_is_quick_enough_answers_everybody_who_names_no_system(
    running, tiny, tmp_path, capsys, quick, trust, usual, told
):
    documents = [Document(f"d{n}", f"{' '.join(tiny_models.WORDS[n:])} ships") for n in range(20)]
    Index.build(documents, tmp_path / "index")
    compute = ComputeOptions("fp32", "cpu", 1)
    options = ServeOptions({"my": tmp_path / "index"}, {"ce": tiny}, port=0, compute=compute, quick=quick)
    options = replace(options, trust=trust)
    with running(service := open_service(options)) as client:
        client.wait(200)
        assert told in capsys.readouterr().err
        systems = {one["name"]: one["default"] for one in client.get("/api/systems").json}
        assert [name for name, is_default in systems.items() if is_default] == [usual]
        assert client.post("/search", {"query": "ships"}).json["system"] == usual
        assert client.post("/search", {"query": "ships", "system": "ce"}).json["system"] == "ce"
        page = client.get("/?query=ships", accept="text/html").body.decode()
        assert f'<h2 id="system-1">{usual}</h2>' in page
        assert told.split(":")[0] in page
        assistant = pytest.importorskip("rankhouse.serve.mcp").search(service.catalogue, "ships")
        assert assistant.data["system"] == usual
        assert f"ranked by {usual}" in assistant.text
        asked = client.get("/?query=ships&system=ql", accept="text/html").body.decode()
        assert '<h2 id="system-1">ql</h2>' in asked, "what is chosen wins"


@pytest.mark.parametrize(
    ("student", "first_stage", "usual", "told"),
    [
        (
            0.41,
            0.47,
            "bm25",
            "only when it is chosen: on its held-out questions it has nDCG@10 0.410, its first",
        ),
        (0.52, 0.47, "tk", "ranks by default: it takes "),
    ],
)
def test_a_ranker_whose_report_has_it_below_its_first_stage_is_no_default(
    running, tmp_path, capsys, student, first_stage, usual, told
):
    """A TK of 60 steps became the default of a folder, since it was quick, and answers got worse."""
    adapted = tmp_path / "mine"
    adapted.mkdir()
    shutil.move(tiny_models.tiny_model("tk", tmp_path / "models"), adapted / "ranker")
    result = AdaptResult(
        ranker=str(adapted), system="", steps=60, questions=9, student_weight=0.5, first_stage="bm25",
        held_out={"first stage": first_stage, "student": student, "joined": 0.6}, test={},
    )  # fmt: skip
    write_json(adapted / "adapted.json", msgspec.to_builtins(result))
    Index.build(
        [Document(f"d{n}", f"{' '.join(tiny_models.WORDS[n:])} ships") for n in range(20)], tmp_path / "index"
    )
    compute = ComputeOptions("fp32", "cpu", 1)
    options = ServeOptions(
        {"my": tmp_path / "index"}, {"tk": str(adapted)}, port=0, compute=compute, quick=600
    )
    with running(open_service(options)) as client:
        client.wait(200)
        said = capsys.readouterr().err
        assert told in said
        assert f"nDCG@10 {student:.3f}, its first stage {first_stage:.3f}" in said
        assert client.post("/search", {"query": "ships"}).json["system"] == usual
        page = client.get("/?query=ships", accept="text/html").body.decode()
        assert f"nDCG@10 {student:.3f}, its first stage {first_stage:.3f}" in page
    with running(open_service(replace(options, trust=True))) as client:
        client.wait(200)
        assert client.post("/search", {"query": "ships"}).json["system"] == "tk"


def test_reports_of_rankers_are_read(tmp_path):
    assert doubt_of("crossencoder('nobody/nothing')")[0].startswith("it has no report")
    assert doubt_of(f"causal('D', instruction='{'x' * 3000}')")[0].startswith("it has no report")
    (tmp_path / "ranker").mkdir()
    lines = [{"step": 1, "epoch": 0, "measure": "AP", "value": one, "first_stage": 0.3} for one in (0.2, 0.4)]
    (tmp_path / "log.jsonl").write_text("\n".join(json.dumps(line) for line in lines))
    for spec in (str(tmp_path), str(tmp_path / "ranker"), f"tk({str(tmp_path / 'ranker')!r})"):
        worth = "on its validation questions it has AP 0.400, its first stage 0.300"
        assert doubt_of(spec) == ("", worth)
    (tmp_path / "adapted.json").write_text("{")
    assert "cannot be read" in doubt_of(str(tmp_path))[0]
