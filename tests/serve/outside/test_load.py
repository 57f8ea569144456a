"""More than the service can do at once: nothing wrong, nothing lost, nothing kept."""

import contextlib
import http.client
import itertools
import json
import os
import random
import signal
import socket
import threading
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.outside

QUERY = "boats at the coast"
WORDS = (
    "boat army bread cheap clock coast cost cross crowns data engine flour war adds after again " * 2
).split()


def text(rng, least=3, most=40):
    return " ".join(rng.choice(WORDS) for _ in range(rng.randint(least, most)))


def bodies(n, documents, seed=0):
    """Return n different requests."""
    rng = random.Random(seed)
    return [
        {"model": "tiny", "query": text(rng, 2, 5), "documents": [text(rng) for _ in range(documents)]}
        for _ in range(n)
    ]


def by_place(reply):
    """Scores in the documents' order."""
    rows = sorted(reply.json["results"], key=lambda row: row["index"])
    assert [row["index"] for row in rows] == list(range(len(rows)))
    return [row["relevance_score"] for row in rows]


def until(true, seconds=120):
    """Wait until something is true; gives whether it became so."""
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        if true():
            return True
        time.sleep(0.05)
    return False


def is_idle(service):
    return service.metric("rankhouse_queue_tokens") == 0 and service.metric("rankhouse_queue_requests") == 0


def insist(service, body, seen):
    """Ask until there is room, as the answer says when."""
    while (reply := service.post("/rerank", body)).status == 429:
        seen.append(reply)
        time.sleep(min(float(reply.headers["retry-after-ms"]) / 1000, 2.0))
    return reply


@pytest.fixture(scope="module")
def narrow(serving, tiny, tmp_path_factory):
    """A service in whose queue 20,000 tokens fit."""
    arguments = ["--ranker", f"tiny={tiny['tiny']}", "--queue", 20_000]
    with serving(tmp_path_factory.mktemp("narrow"), *arguments) as running:
        yield running


def test_a_burst_of_four_times_the_room_is_answered_without_a_wrong_score(narrow, in_threads):
    asked = bodies(40, 100)  # 40 times about 2,000 tokens
    alone = [by_place(narrow.post("/rerank", body)) for body in asked]
    refused = []
    together = in_threads(*(lambda body=body: insist(narrow, body, refused) for body in asked))
    assert [reply.status for reply in together] == [200] * len(asked)
    assert [by_place(reply) for reply in together] == alone
    assert all(int(reply.headers["retry-after"]) >= 1 for reply in refused)
    assert until(lambda: is_idle(narrow))


def test_what_is_larger_than_the_room_is_read_all_the_same(narrow):
    [body] = bodies(1, 3000)
    reply = narrow.post("/rerank", body)
    assert reply.status == 200
    assert len(reply.json["results"]) == 3000


def test_clients_that_hang_up_free_their_work(narrow):
    before = narrow.metric("rankhouse_batch_passages_sum")
    body = json.dumps(bodies(1, 20_000)[0]).encode()
    head = (
        f"POST /rerank HTTP/1.1\r\nhost: 127.0.0.1:{narrow.port}\r\ncontent-type: application/json\r\n"
        f"authorization: Bearer {narrow.key}\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    for _ in range(4):
        with socket.create_connection(("127.0.0.1", narrow.port)) as link:
            link.sendall(head.encode() + body)
            time.sleep(0.3)
    assert until(lambda: is_idle(narrow))
    assert narrow.metric("rankhouse_batch_passages_sum") - before < 4 * 20_000 / 2
    [small] = bodies(1, 3, seed=1)
    assert len(by_place(narrow.post("/rerank", small))) == 3


def test_slow_clients_keep_nobody_waiting(service):
    body = json.dumps(bodies(1, 5)[0]).encode()
    head = (
        f"POST /rerank HTTP/1.1\r\nhost: 127.0.0.1:{service.port}\r\nauthorization: Bearer {service.key}\r\n"
    )
    with contextlib.ExitStack() as stack:
        links = [
            stack.enter_context(socket.create_connection(("127.0.0.1", service.port), timeout=300))
            for _ in range(100)
        ]
        for i, link in enumerate(links):
            said = f"{head}content-length: {len(body)}\r\n\r\n".encode() + body
            link.sendall(said[: (20, len(said) // 2, len(said) - 1)[i % 3]])
        assert service.get("/healthz").status == 200
        assert all(service.post("/rerank", each).status == 200 for each in bodies(20, 5))
        links[2].sendall(body[-1:])
        assert links[2].recv(12) == b"HTTP/1.1 200"


def test_probes_are_answered_while_the_queue_is_full(narrow):
    over, seen = threading.Event(), []
    body = bodies(1, 1000)[0]

    def ask():
        while not over.is_set():
            seen.append(narrow.post("/rerank", body).status)

    others = [threading.Thread(target=ask) for _ in range(8)]
    for thread in others:
        thread.start()
    try:
        assert until(lambda: narrow.metric("rankhouse_queue_requests") > 1)
        for path in ("/healthz", "/readyz", "/metrics") * 30:
            assert narrow.get(path).status == 200
    finally:
        over.set()
        for thread in others:
            thread.join()
    assert {200, 429} >= set(seen)


BLOCK, MOST_BLOCKS = 2_000, 7
"""Requests, and how often so many are made until the memory has to be as it was."""


def test_mixed_requests_leave_memory_as_it_was(serving, tiny, tmp_path, make_index):
    """Requests that caches know do not make resident memory grow: what is kept of each would add up for ever.

    How much a process holds at most depends on which requests happen to meet, so one block of requests that
    keeps less than 3 KB of each (1 % in all) is enough.
    """
    arguments = [make_index(tmp_path), "--judgements", tmp_path / "judged.txt"]
    rankers = [part for name, spec in tiny.items() for part in ("--ranker", f"{name}={spec}")]
    with serving(tmp_path / "mixed", *arguments, *rankers, "--max-body", 1, MALLOC_ARENA_MAX="1") as running:
        count, wrong, lock = itertools.count(), [], threading.Lock()

        def ask(until_count, seed):
            rng = random.Random(seed)
            link = http.client.HTTPConnection("127.0.0.1", running.port, timeout=300)
            while next(count) < until_count:
                method, path, content, allowed = mixed(rng)
                body = content if content is None or isinstance(content, bytes) else json.dumps(content)
                headers = {"authorization": f"Bearer {running.key}"}
                headers |= {"content-type": "application/json"} if body is not None else {}
                try:
                    link.request(method, path, body, headers)
                    reply = link.getresponse()
                    reply.read()
                except (http.client.HTTPException, OSError) as error:
                    link.close()
                    with lock:
                        wrong.append((path, error))
                    continue
                if reply.status not in allowed:
                    with lock:
                        wrong.append((path, reply.status))
            link.close()

        def ask_together(until_count):
            threads = [threading.Thread(target=ask, args=(until_count, seed)) for seed in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()

        held = []
        for block in range(1, MOST_BLOCKS + 1):
            ask_together(block * BLOCK)
            assert not wrong[:5]
            held.append(resident(running.process.pid))
            if len(held) > 1 and held[-1] < held[-2] * 1.01:
                break
        else:
            pytest.fail(f"memory grows with the requests: {held}")
        assert until(lambda: is_idle(running))
        assert running.end(signal.SIGTERM) == 0


def mixed(rng):
    """Return one request of any kind: method, path, body, statuses it may be answered with."""
    documents = [text(rng) for _ in range(rng.randint(1, 12))]
    kinds = [
        ("POST", "/rerank", {"query": text(rng, 1, 4), "documents": documents}, (200,)),
        ("POST", "/v2/rerank", {"model": "tiny", "query": "q", "documents": documents, "top_n": 2}, (200,)),
        ("POST", "/rerank", {"query": text(rng, 1, 4), "texts": documents, "return_text": True}, (200,)),
        ("POST", "/rerank", {"query": "q", "documents": [text(rng, 300, 600)]}, (200,)),
        ("POST", "/score", {"text_1": "q", "text_2": documents}, (200,)),
        ("POST", "/v1/embeddings", {"model": "enc", "input": documents}, (200,)),
        ("POST", "/embed", {"inputs": documents}, (200,)),
        ("POST", "/tokenize", {"inputs": documents}, (200,)),
        ("GET", f"/search?query={rng.choice(WORDS)}", None, (200,)),
        ("GET", f"/documents/little/d{rng.randint(0, 99)}", None, (200, 404)),
        ("GET", "/v1/models", None, (200,)),
        ("GET", "/metrics", None, (200,)),
        ("GET", "/openapi.json", None, (200,)),
        ("POST", "/rerank", {"query": 3, "documents": documents}, (422,)),
        ("POST", "/rerank", {"model": "nobody", "query": "q", "documents": documents}, (404,)),
        ("POST", "/rerank", b"{", (400,)),
        ("POST", "/rerank", b" " * (1 << 21), (413,)),
        ("GET", f"/nowhere/{rng.random()}", None, (404,)),
    ]
    return rng.choices(kinds, [8] * 14 + [2] * 4)[0]


def resident(pid):
    """Return a process's resident bytes."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")


def test_sigterm_under_load_cuts_nobody_off(serving, tiny, tmp_path):
    """What was begun is answered in full; what comes later is sent elsewhere; the service ends with 0."""
    with serving(tmp_path, "--ranker", f"tiny={tiny['tiny']}") as running:
        asked, expected = bodies(8, 400), []
        expected += [by_place(running.post("/rerank", body)) for body in asked]
        seen, ready, is_over = [], threading.Barrier(9), threading.Event()

        def ask(i):
            ready.wait()
            while True:
                comes_late = is_over.is_set()
                try:
                    reply = running.post("/rerank", asked[i])
                except ConnectionError:  # the service may have ended before it took this one
                    seen.append((503, comes_late))
                    return
                seen.append((reply.status, reply.status != 200 or by_place(reply) == expected[i]))
                if reply.status == 503:
                    return

        threads = [threading.Thread(target=ask, args=(i,)) for i in range(8)]
        for thread in threads:
            thread.start()
        ready.wait()
        time.sleep(0.5)
        is_over.set()
        running.process.send_signal(signal.SIGTERM)
        assert running.process.wait(300) == 0
        for thread in threads:
            thread.join()
    assert {status for status, _ in seen} <= {200, 503}
    assert all(right for _, right in seen)
    assert sum(status == 200 for status, _ in seen) >= 8
