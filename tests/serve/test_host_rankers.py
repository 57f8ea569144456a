"""Rankers of a service: opened and warm before it is ready, counted while they work."""

import importlib.util
import threading
from pathlib import Path

import pytest

from rankhouse.api.index import Index
from rankhouse.core.errors import RankhouseError
from rankhouse.core.nouns import Document, Pair, Passage, Query
from rankhouse.serve.host.service import Phase, open_service
from rankhouse.serve.host.settings import ServeOptions
from rankhouse.systems.rankers import ComputeOptions

pytest.importorskip("torch")

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
    ("quick", "usual", "told"),
    [
        (600.0, "ce", "ce ranks by default: it takes "),
        (1e-9, "bm25", "ce ranks only when it is chosen: it takes "),
        (0.0, "bm25", "ce ranks only when it is chosen: as --quick 0 says"),
    ],
)
def test_a_ranker_that_is_quick_enough_answers_everybody_who_names_no_system(
    running, tiny, tmp_path, capsys, quick, usual, told
):
    documents = [Document(f"d{n}", f"{' '.join(tiny_models.WORDS[n:])} ships") for n in range(20)]
    Index.build(documents, tmp_path / "index")
    compute = ComputeOptions("fp32", "cpu", 1)
    options = ServeOptions({"my": tmp_path / "index"}, {"ce": tiny}, port=0, compute=compute, quick=quick)
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
