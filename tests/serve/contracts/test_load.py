"""The engine behind HTTP under pressure: refusals, hang-ups, deadlines; no wrong score, no work left over."""

import http.client
import json
import random
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from rankhouse.serve.host.service import open_service
from rankhouse.serve.host.settings import Limits, ServeOptions
from rankhouse.systems.rankers import ComputeOptions


@pytest.fixture
def small(tiny, running):
    """A service with a small queue and a client of it, on a socket."""
    specs = {"m": tiny.tiny_model("crossencoder", tiny.folder)}
    limits = Limits(queue_tokens=3_000, request=300)
    opened = open_service(
        ServeOptions(rankers=specs, port=0, compute=ComputeOptions("fp32", "cpu", 1), limits=limits)
    )
    with running(opened) as client:
        client.wait(200)
        yield opened, client


def until(happened, seconds=120):
    end = time.monotonic() + seconds
    while not happened():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.01)


def settled(worker):
    until(lambda: worker.waiting_jobs == 0)
    return worker.waiting_tokens == 0


@pytest.mark.slow
def test_a_burst_is_answered_rightly_or_told_to_come_again(small, tiny):
    service, client = small
    rng = random.Random(1)
    bodies = [{"query": "storm", "documents": [tiny.text(rng, 40) for _ in range(30)]} for _ in range(40)]
    alone = [client.post("/v2/rerank", body).json["results"] for body in bodies]
    refused = []

    def ask(body):
        while (answer := client.post("/v2/rerank", body)).status == 429:
            refused.append((int(answer.headers["retry-after"]), answer.json["error"]["code"]))
            time.sleep(int(answer.headers["retry-after-ms"]) / 1000)
        assert answer.status == 200, answer.body
        return answer.json["results"]

    with ThreadPoolExecutor(40) as clients:
        assert list(clients.map(ask, bodies)) == alone
    assert all(code == "overloaded" and seconds >= 1 for seconds, code in refused)
    assert settled(service.catalogue.rankers["m"].worker)


@pytest.mark.slow
def test_a_full_queue_refuses_and_a_large_request_is_never_too_large(small, tiny):
    service, client = small
    served = service.catalogue.rankers["m"]
    release = threading.Event()
    served.call(lambda: release.wait(300))
    rng = random.Random(2)
    large = {"query": "storm", "documents": [tiny.long_text(rng, 40) for _ in range(100)]}
    answers = []
    asking = [
        threading.Thread(target=lambda: answers.append(client.post("/rerank", large))) for _ in range(2)
    ]
    for thread in asking:
        thread.start()
    until(lambda: served.worker.waiting_jobs == 2)
    refused = client.post("/rerank", large)
    assert refused.status == 429
    assert int(refused.headers["retry-after"]) >= 1
    assert (
        client.post("/rerank", {"query": "storm", "texts": ["a " * 9000]}).json["error_type"] == "overloaded"
    )
    release.set()
    for thread in asking:
        thread.join(120)
    assert [len(answer.json["results"]) for answer in answers] == [100, 100]
    assert settled(served.worker)


def test_who_hangs_up_frees_the_work(small, tiny):
    service, client = small
    served = service.catalogue.rankers["m"]
    release = threading.Event()
    served.call(lambda: release.wait(300))
    rng = random.Random(3)
    body = json.dumps({"query": "storm", "documents": [tiny.long_text(rng, 20) for _ in range(200)]})
    connection = http.client.HTTPConnection("127.0.0.1", client.port)
    connection.request("POST", "/rerank", body, {"content-type": "application/json"})
    until(lambda: served.worker.waiting_jobs == 1)
    connection.sock.close()
    connection.close()
    until(lambda: all(job.future.done() for job in list(served.worker._jobs)))
    release.set()
    assert settled(served.worker)


def test_a_service_whose_model_ended_is_not_ready(small):
    service, client = small
    service.catalogue.rankers["m"].call(sys.exit)
    until(lambda: not service.catalogue.rankers["m"].worker.alive)
    answer = client.get("/readyz")
    assert (answer.status, answer.json) == (503, {"status": "failed"})
    asked = client.post("/v2/rerank", {"query": "storm", "documents": ["harbour"]})
    assert (asked.status, asked.json["error"]["code"]) == (503, "unavailable")
    assert "start the service again" in asked.json["message"]
