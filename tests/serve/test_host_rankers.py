"""Rankers of a service: opened and warm before it is ready, counted while they work."""

import importlib.util
import threading
from pathlib import Path

import pytest

from rankhouse.core.errors import RankhouseError
from rankhouse.core.nouns import Pair, Passage, Query
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
