"""``rankhouse up`` on a folder never read before: a page at once, then search without a loss."""

import base64
import hashlib
import http.client
import re
import signal
import socket
import threading
import time
from pathlib import Path

import pytest

from rankhouse.io.scratch import try_lock

pytestmark = pytest.mark.kill

PROGRAM = """
import sys, time, webbrowser
from pathlib import Path
from rankhouse.cli import main as cli
from rankhouse.core.errors import OutputFailed
from rankhouse.serve.folder.files import FolderReader

def documents(self, names, read=FolderReader.documents):
    for number, document in enumerate(read(self, names)):
        yield document
        while number == 1 and not Path("go").exists():
            time.sleep(0.01)
        if Path("fail").exists():
            raise OutputFailed("notes/.rankhouse: the disk is full")

FolderReader.documents = documents
webbrowser.open = lambda address: Path("opened").open("a").write(address + "\\n")
cli.main()
"""
KEY = "a-key-of-more-than-sixteen-signs"
HTML = {"Accept": "text/html"}


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "notes").mkdir()
    for number in range(4):
        (tmp_path / "notes" / f"secret{number}.md").write_text(f"# Note {number}\nShips carry grain.\n")
    return tmp_path / "notes"


@pytest.fixture
def up(tmp_path, load):
    """Begin ``up`` on a folder; its reading stops after two documents until there is a file named go."""
    life, started = load("test_host_life"), []

    def begin(*arguments, port=0):
        given = ("up", "notes", "--lexical", "--port", port, *arguments)
        started.append(life.Process(tmp_path, *given, program=PROGRAM))
        return started[-1]

    yield begin
    for one in started:
        one.process.kill()
        one.process.communicate()


@pytest.fixture
def reading(up, load):
    """Begin it and wait until it reads."""

    def begin(*arguments):
        process = up(*arguments)
        client = load("conftest").Client(process.port())
        ends = time.monotonic() + 120
        while "read: 25%" not in client.get("/readyz").json.get("work", ""):
            assert time.monotonic() < ends
            time.sleep(0.01)
        return process, client

    return begin


def shown(answer):
    """The words of a page."""
    body = answer.body.decode().split("<main")[1].split("<script")[0]
    return " ".join(re.sub("<[^>]*>", " ", body.partition(">")[2]).split())


def test_the_page_is_there_while_files_are_read_and_becomes_search(folder, reading, tmp_path):
    process, client = reading("--open")
    until(tmp_path / "opened")
    page = client.get("/?query=grain", **HTML)
    assert (page.status, page.headers["retry-after"]) == (503, "1")
    assert "1 of 4 files read 28 bytes of 112 bytes" in shown(page)
    assert b'<progress aria-label="Files read" max="1" value="0.25">' in page.body
    assert b"secret" not in page.body
    assert b'<noscript><meta http-equiv="refresh" content="1"></noscript>' in page.body
    [script] = re.findall(b"<script>(.*?)</script>", page.body, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script).digest()).decode()
    assert f"script-src 'sha256-{digest}'" in page.headers["content-security-policy"]
    (tmp_path / "go").touch()
    client.wait(200)
    answer = client.get("/?query=grain", **HTML)
    assert answer.status == 200
    assert b'class="hit"' in answer.body
    assert client.get("/search?query=grain").json["found"] == 4
    process.process.send_signal(signal.SIGTERM)
    assert process.end() == 0
    assert (tmp_path / "opened").read_text() == f"http://127.0.0.1:{client.port}/\n", "once"
    said = [
        process.said.index(text)
        for text in ("reading files: ", "4 documents of 4 files indexed", "serves 1 index at")
    ]
    assert said == sorted(said)
    assert folder.is_dir()


def test_programs_are_told_what_happens_in_their_own_shape(folder, reading):
    process, client = reading()
    told = "the service has begun; files are being read: 25%"
    for path in ("/search?query=grain", "/api/systems", "/work", "/openapi.json"):
        answer = client.get(path)
        assert (answer.status, answer.headers["retry-after"]) == (503, "1"), path
        error = answer.json["error"]
        assert (error["code"], error["type"]) == ("unavailable", "overloaded_error")
        assert error["message"].startswith(told)
        assert "ask again" in error["message"]
    assert client.post("/rerank", {"query": "a", "documents": ["b"]}).json["message"].startswith(told)
    hugging_face = client.post("/embed", {"inputs": "a"})
    assert hugging_face.status == 503
    assert hugging_face.json["error_type"] == "unhealthy"
    assert hugging_face.json["error"].startswith(told)
    assert (client.get("/healthz").status, client.get("/healthz").json) == (200, {"status": "ok"})
    ready = client.get("/readyz")
    assert ready.status == 503
    assert ready.json["status"] == "starting"
    assert ready.json["work"].startswith("Files are being read: 25%")
    assert client.get("/", Host="evil.example").status == 403
    assert process.process.poll() is None


def test_no_connection_is_lost_when_search_takes_over(folder, reading, tmp_path):
    _, client = reading()
    answers, faults, is_over = [], [], threading.Event()

    def ask():
        while not is_over.is_set():
            try:
                answers.append(client.get("/", **HTML).status)
            except (OSError, http.client.HTTPException) as error:
                faults.append(error)

    threads = [threading.Thread(target=ask) for _ in range(4)]
    with client.connect() as idle, client.connect() as half:
        half.sendall(b"GET /search?query=grain HTTP/1.1\r\n")
        for thread in threads:
            thread.start()
        (tmp_path / "go").touch()
        client.wait(200)
        half.sendall(b"Host: localhost\r\n\r\n")
        assert half.recv(1000).startswith(b"HTTP/1.1 200 ")
        idle.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert idle.recv(1000).startswith(b"HTTP/1.1 200 ")
        seen = len(answers)
        while len(answers) < seen + 8 and not faults:
            time.sleep(0.01)
        is_over.set()
        for thread in threads:
            thread.join(120)
    assert not faults
    assert set(answers) == {503, 200}


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_while_files_are_read_leaves_no_index_and_no_lock(folder, reading, number, code):
    process, client = reading()
    with client.connect():
        process.process.send_signal(number)
        assert process.end() == code
    assert "Traceback" not in process.said
    left = {path.name for path in (folder / ".rankhouse").iterdir()}
    assert not left & {"index", "next", "files.json", "contents.json"}
    lock = try_lock(folder / ".rankhouse" / ".up.lock")
    assert lock is not None
    lock.release()
    with pytest.raises(OSError, match="refused"):
        client.get("/healthz")


def test_a_reading_that_was_killed_is_begun_again(folder, reading, up, load, tmp_path):
    process, _ = reading()
    process.process.kill()
    process.end()
    (tmp_path / "go").touch()
    client = load("conftest").Client(up().port())
    client.wait(200)
    assert client.get("/search?query=grain").json["found"] == 4


def test_a_failure_while_files_are_read_ends_with_its_message(folder, reading, tmp_path):
    process, client = reading()
    assert client.get("/", **HTML).status == 503
    (tmp_path / "fail").touch()
    (tmp_path / "go").touch()
    assert process.end() == 1
    assert process.said.endswith("rankhouse: notes/.rankhouse: the disk is full\n")
    assert "Traceback" not in process.said


def test_a_folder_without_documents_ends_with_its_message(up, tmp_path):
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "photo.jpg").write_bytes(b"\xff\xd8")
    process = up()
    assert process.end() == 1
    assert "rankhouse: notes: holds no document (it holds .jpg: 1)" in process.said


def test_a_port_in_use_is_said_before_anything_is_read(folder, up):
    with socket.create_server(("127.0.0.1", 0)) as other:
        process = up(port=other.getsockname()[1])
        assert process.end() == 2
    assert "nothing can listen on 127.0.0.1" in process.said
    assert not (folder / ".rankhouse").exists()


def test_a_second_one_on_the_folder_is_refused_while_the_first_reads(folder, reading, up, tmp_path):
    _, client = reading()
    second = up()
    assert second.end() == 2
    assert "another rankhouse up is at work on it" in second.said
    assert "http" not in second.said
    (tmp_path / "go").touch()
    client.wait(200)


def test_only_who_has_a_key_sees_how_far_the_reading_is(folder, reading, tmp_path):
    keys = tmp_path / "keys.txt"
    keys.write_text(f"anna {KEY}\n")
    keys.chmod(0o600)
    process, client = reading("--key-file", keys)
    away = client.get("/", **HTML)
    assert (away.status, away.headers["location"]) == (303, "/login?next=%2F")
    assert client.get("/search?query=grain").status == 401
    form = client.get("/login?next=%2F", **HTML)
    assert form.status == 200
    assert b'name="key"' in form.body
    for seen in (away, form, client.get("/search?query=grain"), client.get("/readyz")):
        assert b"secret" not in seen.body
        assert b"4 files" not in seen.body
    urlencoded = {"content-type": "application/x-www-form-urlencoded"}
    assert client.post("/login", b"key=wrong&next=/", urlencoded).status == 401
    came = client.post("/login", f"key={KEY}&next=/".encode(), urlencoded)
    assert came.status == 303
    cookie = came.headers["set-cookie"].partition(";")[0]
    early = client.get("/", Cookie=cookie, **HTML)
    assert "1 of 4 files read" in shown(early)
    assert b'action="/logout"><button title="Signed in as anna">Sign out</button>' in early.body
    assert client.post("/logout", b"", {**urlencoded, "Cookie": cookie}).status == 303
    assert client.get("/search?query=a", Authorization=f"Bearer {KEY}").status == 503
    deeds = [
        line for line in (folder / ".rankhouse" / "audit.jsonl").read_text().splitlines() if "anna" in line
    ]
    assert len(deeds) == 1
    assert process.process.poll() is None


def until(path):
    """Wait for a file; the limit is for a hang."""
    ends = time.monotonic() + 120
    while not Path(path).exists():
        assert time.monotonic() < ends, path
        time.sleep(0.01)
