"""A client that hangs up: its search is not computed any more; others' are."""

import json
import time

import pytest

pytest.importorskip("uvicorn")

from rankhouse.serve.host.service import Service
from rankhouse.serve.host.settings import ServeOptions
from rankhouse.serve.search.catalogue import Catalogue


def asking(client, body):
    """Send a question and do not read the answer."""
    content = json.dumps(body).encode()
    head = f"POST /search HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: {len(content)}\r\n\r\n".encode()
    connection = client.connect()
    connection.sendall(head + content)
    return connection


def until(condition):
    """Wait for something."""
    ends = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < ends
        time.sleep(0.01)


@pytest.mark.parametrize("system", ["cross", "cross+bm25"])
def test_who_hangs_up_frees_the_model(world, rankers, running, busy, counting, monkeypatch, system):
    catalogue = Catalogue({"harbour": world.index}, rankers)
    service, ranker = Service(catalogue, options=ServeOptions(port=0, quick=0)), rankers["cross"]
    counts = counting(ranker)
    monkeypatch.setattr(Service, "close", lambda _: None)  # other tests go on with these rankers
    with running(service) as client:
        client.wait(200)
        with busy(ranker):
            connections = [
                asking(client, {"query": "pilots steer ships", "system": system}) for _ in range(3)
            ]
            until(lambda: ranker.worker.waiting_jobs == 3)
            for connection in connections:
                connection.close()
            until(lambda: not service.tasks)
            assert counts.rows == 0
        until(lambda: ranker.worker.waiting_jobs == 0)
        assert counts.rows == 0
        told = client.post("/search", {"query": "pilots steer ships", "system": system})
        assert (told.status, told.json["degraded"]) == (200, "")
    assert counts.rows > 0


@pytest.mark.parametrize(
    ("asked", "status", "reason"),
    [
        (
            b"GET /search?query=" + b"a" * 70_000 + b" HTTP/1.1",
            b"400 Bad Request",
            "longer than 65,535 bytes",
        ),
        (b"no request at all", b"400 Bad Request", "longer than 65,535 bytes"),
        (
            b"GET /search HTTP/1.1" + b"".join(b"\r\nx-%d: %b" % (n, b"a" * 7_000) for n in range(12)),
            b"431 Request Header Fields Too Large",
            "longer than 65,536 bytes",
        ),
    ],
)
def test_what_is_no_request_is_refused_as_everything_is(world, running, asked, status, reason):
    service = Service(Catalogue({"harbour": world.index}, {}), options=ServeOptions(port=0))
    with running(service) as client:
        client.wait(200)
        with client.connect() as connection:
            # What is larger than allowed is sent without its end, so that nothing is left unread.
            connection.sendall(asked + (b"" if status[:3] == b"431" else b"\r\nhost: 127.0.0.1\r\n\r\n"))
            head, _, body = b"".join(iter(lambda: connection.recv(1 << 16), b"")).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 " + status)
        assert b"content-type: application/json" in head
        assert b"connection: close" in head
        told = json.loads(body)
        assert told["error"]["type"] == "invalid_request_error"
        assert f"{reason}; send long texts in a body" in told["message"]
        assert client.post("/search", {"query": "pilots steer ships", "system": "bm25"}).status == 200
