"""A service's life as a process: it says where it is, drains on a signal, and ends with the right code."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from rankhouse.core.errors import RankhouseError

pytestmark = pytest.mark.kill

SRC = Path(__file__).parents[2] / "src"
SLOW = """
import sys, time, asyncio, threading
from pathlib import Path
from anyio import to_thread
from starlette.responses import PlainTextResponse
from starlette.routing import Route
from rankhouse.cli import main as cli
from rankhouse.serve.host import application, serving
from rankhouse.serve.host.service import Service

async def slow(request):
    Path("begun").touch()
    while not Path("release").exists():
        await asyncio.sleep(0.01)
    return PlainTextResponse("done")

async def stuck(request):
    Path("begun").touch()
    await to_thread.run_sync(time.sleep, 600)
    return PlainTextResponse("done")

application.GROUPS += (lambda service: [Route("/slow", slow), Route("/stuck", stuck)],)
warm, bind = Service.warm, serving.bind
def warm_slowly(self):
    if warming == "fails":
        raise cli.RankhouseError("the model is no good")
    while warming == "waits" and not Path("warm").exists():
        time.sleep(0.01)
    warm(self)
def bind_and_tell(*address):
    listener = bind(*address)
    Path("port.part").write_text(str(listener.getsockname()[1]))
    Path("port.part").rename("port")
    return listener
Service.warm, serving.bind = warm_slowly, bind_and_tell
warming = sys.argv.pop(1)
cli.main()
"""


class Process:
    """``rankhouse serve`` with a slow route or two, as a process of its own."""

    def __init__(self, folder, *arguments, warming="", program=SLOW):
        self.process = subprocess.Popen(
            [sys.executable, "-c", program, *([warming] if program == SLOW else []), *map(str, arguments)],
            cwd=folder,
            stderr=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(SRC), "COLUMNS": "200"},
        )
        self.said = ""

    def port(self):
        while not (match := re.search(r"http://[^:]+:(\d+)/", self.said)):
            line = self.process.stderr.readline()
            assert line, self.said
            self.said += line
        return int(match[1])

    def end(self, seconds=120):
        """Wait for its end; the limit is for a hang, and a grace that is to be cut short is longer."""
        _, err = self.process.communicate(timeout=seconds)
        self.said += err
        return self.process.returncode


@pytest.fixture
def serve(tmp_path):
    started = []

    def begin(*arguments, **more):
        started.append(Process(tmp_path, "serve", *arguments, **more))
        return started[-1]

    yield begin
    for one in started:
        if one.process.poll() is None:
            one.process.kill()
        one.process.communicate()


@pytest.fixture
def index(tmp_path):
    from rankhouse.core.nouns import Document
    from rankhouse.index.lexical.build import build

    build(
        [Document("d1", "Pilots steer ships."), Document("d2", "A lock lifts ships.")], tmp_path / "my.index"
    )
    return tmp_path / "my.index"


@contextmanager
def asking(client, path, folder):
    """A connection on which a request is at work."""
    with client.connect() as line:
        line.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        until(folder / "begun")
        yield line


def ask_later(client, path, answers, folder):
    thread = threading.Thread(target=lambda: answers.append(client.get(path)))
    thread.start()
    until(folder / "begun")
    return thread


def until(path):
    """Wait for a file; the limit is for a hang."""
    ends = time.monotonic() + 120
    while not path.exists():
        assert time.monotonic() < ends, path
        time.sleep(0.01)


@pytest.fixture
def client_of(load):
    return lambda process: load("conftest").Client(process.port())


@pytest.fixture
def ready(serve, index, client_of):
    """From further arguments to a service that is ready, and a client of it."""

    def begin(*arguments):
        process = serve(index, "--port", 0, *arguments)
        client = client_of(process)
        client.wait(200)
        return process, client

    return begin


def test_a_drain_answers_probes_and_what_is_in_progress_and_ends_with_0(ready, tmp_path):
    process, client = ready("--grace", 600)
    answers = []
    thread = ask_later(client, "/slow", answers, tmp_path)
    process.process.send_signal(signal.SIGTERM)
    client.wait(503)
    assert client.get("/readyz").json == {"status": "draining"}
    assert client.get("/healthz").status == 200
    late = client.get("/slow")
    assert (late.status, late.headers["retry-after"], late.headers["connection"]) == (503, "1", "close")
    (tmp_path / "release").touch()
    thread.join(120)
    assert answers[0].status == 200
    assert answers[0].body == b"done"
    assert process.end() == 0
    assert "1 requests in progress have 600 s" in process.said


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_idle_service_ends_at_once_with_0(ready, number):
    process, client = ready("--grace", 600)
    with client.connect() as idle:
        idle.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert idle.recv(1000)
        process.process.send_signal(number)
        assert process.end() == 0
    assert "Traceback" not in process.said


@pytest.mark.parametrize("path", ["/slow", "/stuck"])
def test_what_outlasts_the_grace_is_cut_off(ready, path, tmp_path):
    process, client = ready("--grace", 1)
    with asking(client, path, tmp_path) as line:
        begun = time.monotonic()
        process.process.send_signal(signal.SIGTERM)
        assert line.recv(1000).startswith(b"HTTP/1.1 503 ")
        assert process.end() == 0
    assert time.monotonic() - begun > 0.9  # it had its grace
    assert "1 requests had not ended in time" in process.said
    assert "Traceback" not in process.said


def test_a_second_signal_ends_at_once(ready, tmp_path):
    process, client = ready("--grace", 600)
    with asking(client, "/stuck", tmp_path):
        process.process.send_signal(signal.SIGINT)
        client.wait(503)
        time.sleep(1)  # sooner it would be the first one again
        process.process.send_signal(signal.SIGINT)
        assert process.end() == 130
    assert "Traceback" not in process.said


def test_a_signal_that_comes_twice_is_one(ready, tmp_path):
    """As timeout(1) sends it: to the process and to its group."""
    process, client = ready("--grace", 600)
    answers = []
    thread = ask_later(client, "/slow", answers, tmp_path)
    process.process.send_signal(signal.SIGTERM)
    process.process.send_signal(signal.SIGTERM)
    client.wait(503)
    (tmp_path / "release").touch()
    thread.join(120)
    assert answers[0].status == 200
    for _ in range(20):
        process.process.send_signal(signal.SIGTERM)
        time.sleep(0.01)
    assert process.end() == 0
    assert "Traceback" not in process.said


def test_a_client_that_hung_up_does_not_hold_the_process(ready, tmp_path):
    process, client = ready("--grace", 600)
    with asking(client, "/stuck", tmp_path):
        pass
    process.process.send_signal(signal.SIGTERM)
    assert process.end() == 0


@pytest.fixture
def starting(serve, index, load, tmp_path):
    """A service that warms up until there is a file "warm", and a client that has seen it."""
    process = serve(index, "--port", 0, warming="waits")
    until(tmp_path / "port")
    client = load("conftest").Client(int((tmp_path / "port").read_text()))
    assert client.get("/readyz").json == {"status": "starting"}
    return process, client


def test_until_its_models_are_warm_a_service_is_not_ready(starting, tmp_path):
    process, client = starting
    early = client.get("/metrics")
    assert (early.status, early.headers["retry-after"]) == (503, "1")
    (tmp_path / "warm").touch()
    client.wait(200)
    assert process.port() == client.port
    assert client.get("/metrics").status == 200


def test_a_signal_during_the_warm_up_ends_it(starting):
    process, _ = starting
    process.process.send_signal(signal.SIGTERM)
    assert process.end() == 0
    assert "Traceback" not in process.said


def test_a_warm_up_that_fails_ends_the_service_and_says_why(serve, index):
    process = serve(index, "--port", 0, warming="fails")
    assert process.end() == 1
    assert "the model is no good" in process.said
    assert "Traceback" not in process.said


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["absent.index"], 1, "absent.index"),
        ([], 2, "rankhouse up FOLDER"),
        (["my.index", "a/my.index"], 2, "already names my.index"),
        (["my.index", "--host", "0.0.0.0"], 2, "a key is needed"),
        (["my.index", "--host", "no.such.host.invalid"], 2, "a key is needed"),
        (
            ["my.index", "--host", "203.0.113.7", "--key-file", "keys.txt"],
            2,
            "nothing can listen on 203.0.113.7",
        ),
        (["my.index", "--key-file", "open.txt"], 2, "chmod 600"),
        (["my.index", "--key-file", "absent.txt"], 1, "make a key file"),
        (["my.index", "--queries", "absent.tsv"], 1, "absent.tsv"),
        (["my.index", "--run", "other.run"], 1, 'no document "foreign"'),
        (["my.index", "--pool", "max"], 2, "no ranker is served"),
        (["--ranker", "ce=absent", "--qrels", "other.run"], 2, "belongs to an index"),
        (["my.index", "--port", "70000"], 2, "70000"),
    ],
)
def test_what_cannot_be_served_is_said_in_one_line(serve, index, tmp_path, arguments, code, message):
    (tmp_path / "other.run").write_text("q1 Q0 foreign 1 2.5 tag\n")
    (tmp_path / "keys.txt").write_text("ann 0123456789abcdef\n")
    (tmp_path / "keys.txt").chmod(0o600)
    (tmp_path / "open.txt").write_text("ann 0123456789abcdef\n")
    (tmp_path / "open.txt").chmod(0o644)
    process = serve("--port", 0, *arguments) if "--port" not in arguments else serve(*arguments)
    assert process.end() == code, process.said
    assert message in process.said
    assert "Traceback" not in process.said


def test_a_port_in_use_is_said(serve, index, client_of):
    first = serve(index, "--port", 0)
    client_of(first).wait(200)
    second = serve(index, "--port", first.port())
    assert second.end() == 2
    assert "another rankhouse serve" in second.said


def test_one_judgements_file_has_one_service(serve, index, client_of):
    first = serve(index, "--port", 0, "--judgements", "mine.qrels")
    client_of(first).wait(200)
    second = serve(index, "--port", 0, "--judgements", "mine.qrels")
    assert second.end() == 2
    assert "another process is writing it" in second.said
    first.process.send_signal(signal.SIGTERM)
    assert first.end() == 0
    third = serve(index, "--port", 0, "--judgements", "mine.qrels")
    client_of(third).wait(200)


def test_the_access_log_is_json_without_questions(ready, tmp_path):
    process, client = ready("--access-log", "log/access.jsonl")
    client.get("/healthz?query=secret", X_Request_Id="abc-1")
    process.process.send_signal(signal.SIGTERM)
    assert process.end() == 0
    text = (tmp_path / "log" / "access.jsonl").read_text()
    last = json.loads(text.splitlines()[-1])
    assert (last["path"], last["status"], last["id"], last["client"]) == (
        "/healthz",
        200,
        "abc-1",
        "127.0.0.1",
    )
    assert "secret" not in text


def test_without_the_extra_the_command_says_what_to_install(tmp_path):
    program = (
        "import sys; sys.modules['uvicorn'] = None\n"
        "from rankhouse.cli import main as cli\n"
        "sys.argv = ['rankhouse', 'serve']; cli.main()"
    )
    process = Process(tmp_path, program=program)
    assert process.end() == 2
    assert 'pip install "rankhouse[serve]"' in process.said


def test_without_torch_an_index_is_served(index):
    program = f"""
import sys
for name in ("torch", "transformers", "tokenizers", "faiss"):
    sys.modules[name] = None
from pathlib import Path
from starlette.testclient import TestClient
from rankhouse.serve.host.application import build_app
from rankhouse.serve.host.service import open_service
from rankhouse.serve.host.settings import ServeOptions
service = open_service(ServeOptions({{"demo": Path({str(index)!r})}}))
service.warm()
client = TestClient(build_app(service), base_url="http://localhost")
page = client.get("/?query=lock", headers={{"accept": "text/html"}})
assert page.status_code == 200
assert "A lock lifts ships" in page.text.replace("<mark>", "").replace("</mark>", "")
assert "no ranker" in client.post("/rerank", json={{"query": "a", "documents": ["b"]}}).text
try:
    service.add_ranker("x", "absent")
except Exception as error:
    assert "rankhouse[neural]" in str(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(SRC)},
        check=False,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("host", "family"),
    [("localhost", socket.AF_INET), ("127.0.0.1", socket.AF_INET), ("::1", socket.AF_INET6)],
)
def test_what_is_listened_on(host, family):
    from rankhouse.serve.host.serving import address_of, bind

    try:
        listener = bind(host, 0)
    except RankhouseError:
        assert host == "::1"
        pytest.skip("this machine has no IPv6")
    with listener:
        assert listener.family == family
        assert address_of(host, listener).startswith(f"http://{f'[{host}]' if ':' in host else host}:")
