"""What a client may not do to the service: send too much, send too slowly, hang up and be worked for."""

import asyncio
import contextlib
import http.client
import json
import socket
import threading
import time

import pytest
from starlette.background import BackgroundTask
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.testclient import TestClient

from rankhouse.serve.host import application, connection
from rankhouse.serve.host.service import Phase, open_service
from rankhouse.serve.host.settings import Limits, ServeOptions

LIMITS = Limits(body=100_000)
IMPATIENT = Limits(body=100_000, patience=0.6, slowest=20_000, request=1.5, grace=3.0)
RESTING = Limits(body=100_000, patience=2.5)
impatient = pytest.mark.parametrize("limits", [IMPATIENT], ids=["impatient"])


class Worker:
    """Routes that show what became of a request."""

    def __init__(self):
        self.begun, self.release = threading.Event(), threading.Event()
        self.ended, self.cancelled, self.bodies = 0, 0, 0

    async def echo(self, request: Request) -> Response:
        self.bodies += 1
        return PlainTextResponse(f"{len(await request.body())}")

    async def held(self, request: Request) -> Response:
        await request.body()
        self.bodies += 1
        while not self.release.is_set():
            await asyncio.sleep(0.01)
        return PlainTextResponse("done")

    async def slow(self, request: Request) -> Response:
        self.begun.set()
        try:
            await asyncio.sleep(float(request.query_params["seconds"]))
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        self.ended += 1
        return PlainTextResponse("done")

    async def tidying(self, request: Request) -> Response:
        async def tidy():
            await asyncio.sleep(0.2)
            self.ended += 1

        return PlainTextResponse("done", background=BackgroundTask(tidy))

    async def large(self, request: Request) -> Response:
        del request
        return Response(b"x" * 50_000_000)

    async def faulty(self, request: Request) -> Response:
        raise ValueError("a fault of ours")

    def routes(self, service):
        del service
        return [
            Route("/echo", self.echo, methods=["POST"]),
            Route("/held", self.held, methods=["POST"]),
            Route("/slow", self.slow, methods=["GET", "POST"]),
            Route("/large", self.large),
            Route("/tidying", self.tidying),
            Route("/faulty", self.faulty),
        ]


@pytest.fixture
def worker(monkeypatch):
    worker = Worker()
    monkeypatch.setattr(application, "GROUPS", (*application.GROUPS, worker.routes))
    return worker


@pytest.fixture
def limits():
    """Limits that a busy machine does not reach; those of a test of time are smaller."""
    return LIMITS


@pytest.fixture
def client(worker, running, tmp_path, limits):
    options = ServeOptions(port=0, limits=limits, access_log=tmp_path / "access.jsonl")
    with running(open_service(options)) as client:
        client.log = tmp_path / "access.jsonl"
        yield client


def until(happened):
    """Wait for something; the limit is for a hang."""
    ends = time.monotonic() + 120
    while not happened():
        assert time.monotonic() < ends
        time.sleep(0.02)


def status_of(line):
    """Take a whole answer off a connection; its head and its body may come one after the other."""
    answer = http.client.HTTPResponse(line)
    answer.begin()
    answer.read()
    answer.close()
    return answer.status


def logged(client, count):
    """Read the access log once it has so many lines."""
    until(lambda: len(client.log.read_text().splitlines()) >= count)
    return [json.loads(line) for line in client.log.read_text().splitlines()]


def test_bodies_up_to_the_limit_pass(client):
    answer = client.post("/echo", b"x" * LIMITS.body)
    assert (answer.status, answer.body) == (200, b"100000")
    line = logged(client, 1)[0]
    assert (line["path"], line["status"], line["in"], line["out"]) == ("/echo", 200, 100_000, 6)
    assert line["id"] == answer.headers["x-request-id"]


def test_a_body_that_says_it_is_too_large_is_refused_unread(client, worker):
    with client.connect() as line:
        line.sendall(b"POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100001\r\n\r\n")
        head = line.recv(10_000)
    assert head.startswith(b"HTTP/1.1 413 ")
    assert b"connection: close" in head
    assert worker.bodies == 0


def test_a_chunked_body_is_refused_as_soon_as_it_is_too_large(client, worker):
    with client.connect() as line:
        line.sendall(b"POST /echo HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n")
        chunk = b"x" * 10_000
        for _ in range(11):
            line.sendall(b"%x\r\n%b\r\n" % (len(chunk), chunk))
        assert line.recv(10_000).startswith(b"HTTP/1.1 413 ")
    assert worker.bodies == 0


def test_a_client_that_sends_all_of_a_large_body_still_reads_the_refusal(client):
    for _ in range(5):
        answer = client.post("/echo", b"x" * 5_000_000)
        assert answer.status == 413
        assert "100,000 bytes" in answer.json["message"]


def test_nobody_is_told_to_continue_with_too_large_a_body(client):
    with client.connect() as line:
        head = b"POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100001\r\n"
        line.sendall(head + b"Expect: 100-continue\r\n\r\n")
        assert line.recv(10_000).startswith(b"HTTP/1.1 413 ")


def test_all_bodies_together_have_a_bound(client, worker):
    """Four held bodies of the largest size are the most; the fifth client is asked to come again."""
    lines = [client.connect() for _ in range(5)]
    try:
        head = b"POST /held HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99000\r\n\r\n"
        for line in lines[:4]:
            line.sendall(head + b"x" * 99_000)
        until(lambda: worker.bodies == 4)
        lines[4].sendall(head)
        answer = lines[4].recv(10_000)
        assert answer.startswith(b"HTTP/1.1 429 ")
        assert b"retry-after: 1" in answer
        worker.release.set()
        assert all(line.recv(10_000).startswith(b"HTTP/1.1 200 ") for line in lines[:4])
        # An answer is on its way a moment before its body counts no more.
        until(lambda: client.post("/echo", b"x" * 99_000).status == 200)
    finally:
        for line in lines:
            line.close()


@impatient
def test_a_body_that_stops_is_ended(client, worker):
    with client.connect() as line:
        line.sendall(b"POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\nabc")
        assert line.recv(10_000).startswith(b"HTTP/1.1 408 ")
        assert line.recv(10) == b""
    assert worker.bodies == 0


@impatient
def test_a_body_that_drips_is_ended(client, worker):
    """A byte now and then keeps no connection: the whole body has a slowest rate."""
    with client.connect() as line:
        line.sendall(b"POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n")
        line.settimeout(0.05)
        answer, sent = b"", 0
        while not answer and sent < 999:
            line.sendall(b"x")
            sent += 1
            with contextlib.suppress(TimeoutError):
                answer = line.recv(10_000)
        assert answer.startswith(b"HTTP/1.1 408 ")
    assert worker.bodies == 0


@impatient
def test_a_body_has_no_credit_for_what_came_early(client, worker):
    """Else a large body without its last byte would be held for as long as all of it could have taken."""
    with client.connect() as line:
        line.sendall(
            b"POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99000\r\n\r\n" + b"x" * 90_000
        )
        assert line.recv(10_000).startswith(b"HTTP/1.1 408 ")
    assert worker.bodies == 0


@impatient
@pytest.mark.parametrize("begin", [b"", b"G", b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX: "])
def test_a_head_that_does_not_come_is_ended(client, begin):
    with client.connect() as line:
        line.settimeout(60)  # less than what an idle connection has
        line.sendall(begin)
        with contextlib.suppress(ConnectionResetError):
            assert line.recv(10) == b""


@pytest.mark.parametrize(
    "begin",
    [
        b"GET /echo HTTP/1.1\r\nHost: localhost\r\nX: ",
        b"GET /",
        b"POST /echo HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\nX: ",
    ],
)
def test_a_head_without_end_is_refused(client, begin):
    """Also of what follows a body: otherwise memory would fill as fast as the network is."""
    with client.connect() as line:
        line.sendall(begin)
        sent = 0
        with contextlib.suppress(ConnectionError):
            while sent < 50_000_000:
                line.sendall(b"x" * 10_000)
                sent += 10_000
        assert sent < 10_000_000


@pytest.mark.parametrize("asked", [b"", b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"])
def test_idle_connections_do_not_shut_others_out(client, monkeypatch, asked):
    monkeypatch.setattr(connection, "MOST_IDLE", 20)
    idle = []
    try:
        for _ in range(50):
            idle.append(client.connect())
            idle[-1].sendall(asked)
            assert not asked or status_of(idle[-1]) == 200
        assert client.get("/healthz").status == 200
        assert len(client.server.server_state.connections) <= 25
        if asked:
            idle[-1].sendall(asked)  # the youngest were left alone
            assert status_of(idle[-1]) == 200
    finally:
        for line in idle:
            line.close()


@impatient
def test_an_answer_that_nobody_takes_is_ended(client):
    with socket.socket() as line:
        line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        line.connect(("127.0.0.1", client.port))
        line.sendall(b"GET /large HTTP/1.1\r\nHost: localhost\r\n\r\n")
        until(lambda: not client.server.server_state.connections)


def test_a_large_answer_reaches_who_takes_it(client):
    assert len(client.get("/large").body) == 50_000_000


def test_who_hangs_up_frees_the_work(client, worker):
    with client.connect() as line:
        line.sendall(b"GET /slow?seconds=600 HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert worker.begun.wait(120)
    assert logged(client, 1)[0]["status"] == 499
    assert (worker.cancelled, worker.ended) == (1, 0)
    assert b'status="499"' in client.get("/metrics").body


def test_who_asks_several_things_at_once_and_leaves_is_no_fault_of_ours(client, worker, capfd):
    with client.connect() as line:
        line.sendall(b"GET /slow?seconds=600 HTTP/1.1\r\nHost: localhost\r\n\r\n" * 4)
        assert worker.begun.wait(120)
    assert [one["status"] for one in logged(client, 1)] == [499]
    assert (worker.cancelled, worker.ended) == (1, 0)
    assert capfd.readouterr().err == ""


def test_garbage_after_a_request_ends_both(client, worker, capfd):
    with client.connect() as line:
        line.sendall(b"GET /slow?seconds=600 HTTP/1.1\r\nHost: localhost\r\n\r\n\x00 no request\r\n\r\n")
        assert line.recv(1000).startswith(b"HTTP/1.1 400")
    assert logged(client, 1)[0]["status"] == 499
    assert capfd.readouterr().err == ""


def test_what_follows_an_answer_is_done_and_nobody_hung_up(client, worker):
    assert client.get("/tidying").body == b"done"
    assert logged(client, 1)[0]["status"] == 200
    assert worker.ended == 1


@impatient
def test_a_request_that_takes_too_long_is_a_504(client, worker):
    answer = client.get("/slow?seconds=600")
    assert answer.status == 504
    assert "1.5 s" in answer.json["message"]
    assert worker.cancelled == 1


def test_a_fault_of_ours_is_a_500_that_its_log_explains(client, capfd):
    answer = client.get("/faulty")
    assert answer.status == 500
    assert "ValueError" not in answer.body.decode()
    logged(client, 1)
    said = capfd.readouterr().err
    assert "ValueError: a fault of ours" in said
    assert answer.headers["x-request-id"] in said


@pytest.mark.parametrize(
    "raw",
    [
        b"\x00\xff\r\n\r\n",
        b"GET http://[ HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /\xff HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: -5\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n",
    ],
)
def test_malformed_requests_leave_the_service_well(client, raw):
    with client.connect() as line:
        line.sendall(raw)
        assert line.recv(1000)[9:12] in {b"400", b"403", b"404", b"405"}
    assert client.get("/healthz").status == 200


@pytest.mark.slow
@pytest.mark.parametrize("limits", [RESTING], ids=["resting"])
def test_requests_on_one_connection_are_all_answered(client):
    with client.connect() as line:
        one = b"POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\nabc"
        line.sendall(one * 5)
        got = b""
        while got.count(b"\r\n\r\n3") < 5:
            got += (more := line.recv(10_000))
            assert more, got
        assert got.count(b"HTTP/1.1 200") == 5
        time.sleep(2 * RESTING.patience)  # idle between requests is no slowness
        line.sendall(one)
        assert line.recv(10_000).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize(
    ("phase", "said"), [(Phase.STARTING, b"is loading its models"), (Phase.DRAINING, b"is stopping")]
)
def test_a_browser_that_comes_too_early_gets_a_page_that_reloads(phase, said):
    """Asked without a server, which ends as soon as it drains and has nothing in progress."""
    service = open_service(ServeOptions(port=0))
    service.phase = phase
    with TestClient(application.build_app(service), base_url="http://127.0.0.1") as client:
        page = client.get("/", headers={"accept": "text/html,*/*;q=0.8"})
        program = client.get("/", headers={"accept": "*/*"})
        posted = client.post("/rerank", content=b"{}", headers={"accept": "text/html"})
    service.close()
    for answer in (page, program, posted):
        assert answer.status_code == 503
        assert (answer.headers["retry-after"], answer.headers["connection"]) == ("1", "close")
    assert said in page.content
    assert b'<meta http-equiv="refresh" content="1">' in page.content
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    assert not any(mark in page.content for mark in (b"src=", b"<link", b"/static/"))  # refused, too
    assert program.json()["error_type"] == "unhealthy"
    assert posted.json()["error"]["code"] == "unavailable"
