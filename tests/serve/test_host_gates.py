"""Who may come in, under which name, from which page: asked of a running service."""

import stat

import pytest
from starlette.responses import PlainTextResponse
from starlette.routing import Route, Router
from starlette.testclient import TestClient

from rankhouse.core.errors import BadData, MissingInput, WrongUse
from rankhouse.serve.contracts.routes import EMBEDDING_PATHS, RERANK_PATHS, SCORE_PATHS
from rankhouse.serve.host.application import RouterByPath
from rankhouse.serve.host.gates import CONTENT_POLICY, READING_POSTS, Keys
from rankhouse.serve.host.service import open_service
from rankhouse.serve.host.serving import check_exposure
from rankhouse.serve.host.settings import ServeOptions

KEY, READER = "correct-horse-battery-staple", "only-reading-1234567"


@pytest.fixture
def key_file(tmp_path):
    path = tmp_path / "keys.txt"
    path.write_text(f"# people\nann {KEY}\nbot {READER} read  # a robot\n")
    path.chmod(0o600)
    return path


@pytest.fixture
def guarded(running, key_file, tmp_path):
    options = ServeOptions(port=0, key_file=key_file, audit=tmp_path / "audit.jsonl")
    with running(open_service(options)) as client:
        yield client


@pytest.fixture
def open_to_all(running):
    with running(open_service(ServeOptions(port=0, allow_hosts=("rank.example.org",)))) as client:
        yield client


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "10.0.0.1", "[::ffff:1.2.3.4", ""]
)
def test_a_foreign_host_is_refused(open_to_all, host):
    answer = open_to_all.get("/metrics", Host=host)
    assert answer.status == 403
    assert ("--allow-host" if host[:1] not in ("", "[") else "one Host header") in answer.json["message"]


@pytest.mark.parametrize(
    "host",
    ["evil.example@127.0.0.1", "127.0.0.1/evil", "127.0.0.1#evil", "127.0.0.1?evil", "local\thost",
     "127.0.0.1:abc", "127.0.0.1:80\xe9"],
)  # fmt: skip
def test_what_is_no_host_is_refused(open_to_all, host):
    with open_to_all.connect() as line:
        line.sendall(f"GET /metrics HTTP/1.1\r\nHost: {host}\r\n\r\n".encode("latin-1"))
        assert line.recv(100).startswith((b"HTTP/1.1 403", b"HTTP/1.1 400"))


@pytest.mark.parametrize("host", ["localhost:8080", "127.0.0.1", "[::1]:80", "RANK.example.org"])
def test_own_names_pass(open_to_all, host):
    assert open_to_all.get("/metrics", Host=host).status == 200


def test_two_hosts_are_refused(open_to_all):
    with open_to_all.connect() as line:
        line.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n")
        assert line.recv(100).startswith((b"HTTP/1.1 403", b"HTTP/1.1 400"))


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://127.0.0.1:1"},
        {"Origin": "http://[evil"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site", "Origin": "http://localhost:99"},
        {"Referer": "http://evil.example/form.html"},
    ],
)
def test_writes_from_other_pages_are_refused(open_to_all, headers):
    answer = open_to_all.post("/logout", b"", headers)
    assert answer.status == 403
    assert "another site" in answer.json["message"]


def test_writes_from_own_pages_and_programs_pass(open_to_all):
    own = f"127.0.0.1:{open_to_all.port}"
    for headers in (
        {},
        {"Origin": f"http://{own}"},
        {"Origin": "https://rank.example.org"},
        {"Sec-Fetch-Site": "same-origin", "Origin": f"http://{own}"},
        {"Sec-Fetch-Site": "none"},
        {"Referer": f"http://{own}/judge?query=x"},
    ):
        assert open_to_all.post("/logout", b"", headers).status == 303, headers


@pytest.mark.slow
def test_every_path_but_the_probes_needs_the_key(guarded):
    routes = guarded.server.config.app.routes
    paths = {
        r.path.replace("{", "").replace("}", "").replace(":path", "") for r in routes if hasattr(r, "path")
    }
    assert {"/healthz", "/readyz", "/metrics", "/login"} <= paths
    for path in sorted(paths | {"/", "/nothing/here", "/rerank", "//metrics", "/healthz/", "/HEALTHZ"}):
        for method in ("GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH"):
            for headers in ({}, {"Authorization": "Bearer wrong"}, {"X-API-Key": READER[:-1]}):
                status = guarded.ask(method, path, headers=headers).status
                if path in {"/healthz", "/readyz", "/login"}:
                    assert status != 403
                else:
                    assert status == 401, (method, path, headers)


def test_a_wrong_key_is_told_from_none(guarded):
    assert b"a key is needed" in guarded.get("/metrics").body
    assert b"not in the service's key file" in guarded.get("/metrics", Authorization="Bearer wrong").body


def test_the_key_opens(guarded):
    for headers in (
        {"Authorization": f"Bearer {KEY}"},
        {"Authorization": f"bearer  {READER} "},
        {"X-API-Key": KEY},
    ):
        assert guarded.ask("GET", "/metrics", headers=headers).status == 200


def test_a_reading_key_changes_nothing(guarded):
    """Whatever room adds a route that is posted to: it is shut to readers unless named as a question."""
    reader, writer = {"Authorization": f"Bearer {READER}"}, {"Authorization": f"Bearer {KEY}"}
    for method in ("POST", "PUT", "PATCH", "DELETE"):
        answer = guarded.ask(method, "/judge", headers=reader)
        assert answer.status == 403
        assert "reads only" in answer.json["message"]
        assert guarded.ask(method, "/judge", headers=writer).status in {405, 422}
    app = guarded.server.config.app
    changing = {
        r.path for r in app.routes if isinstance(r, Route) and (r.methods or set()) - {"GET", "HEAD"}
    } - READING_POSTS
    assert not [path for path in changing if path in RERANK_PATHS + SCORE_PATHS + EMBEDDING_PATHS]
    for path in changing:
        assert guarded.ask("POST", path, headers=reader).status == 403, path


def test_a_browser_is_led_to_the_form_and_back(guarded, tmp_path):
    first = guarded.get("/metrics?x=%2F1&y=2", Accept="text/html,*/*")
    assert first.status == 303
    there = first.headers["location"]
    form = guarded.get(there)
    assert form.status == 200
    assert b'value="/metrics?x=%2F1&amp;y=2"' in form.body
    assert "sha256-" in form.headers["content-security-policy"]
    urlencoded = {"content-type": "application/x-www-form-urlencoded"}
    wrong = guarded.post("/login", b"key=no&next=/metrics", urlencoded)
    assert wrong.status == 401
    assert "set-cookie" not in wrong.headers
    right = guarded.post("/login", f"key={KEY}&next=%2Fmetrics%3Fx%3D1".encode(), urlencoded)
    assert right.status == 303
    assert right.headers["location"] == "/metrics?x=1"
    cookie = right.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert KEY not in cookie
    session = cookie.partition(";")[0]
    assert guarded.get("/metrics", Cookie=f"other={{}}; {session}; x=1").status == 200
    assert guarded.get("/metrics", Cookie=session[:-1] + ("0" if session[-1] != "0" else "1")).status == 401
    assert guarded.get("/metrics", Cookie=session.replace("ann", "bot")).status == 401
    lines = (tmp_path / "audit.jsonl").read_text().splitlines()
    assert ['"deed":"refused"' in lines[0], '"who":"ann"' in lines[1], len(lines)] == [True, True, 2]
    assert stat.S_IMODE((tmp_path / "audit.jsonl").stat().st_mode) == 0o600


def test_who_has_no_key_sends_no_large_bodies(guarded):
    assert guarded.post("/login", b"key=" + b"x" * 8_000).status == 401
    assert guarded.post("/login", b"key=" + b"x" * 9_000).status == 413
    assert guarded.post("/rerank", b"x" * 1_000_000).status == 401


@pytest.mark.parametrize(
    "there", ["//evil.example", "https://evil.example", "/\\evil.example", "javascript:x", "a\nb"]
)
def test_signing_in_leads_to_no_other_site(guarded, there):
    body = f"key={KEY}&next=".encode() + there.encode()
    assert guarded.post("/login", body).headers["location"] == "/"


def test_sessions_end_with_time_and_with_their_key(key_file, monkeypatch):
    keys = Keys.read(key_file)
    session = keys.session(keys.caller(KEY))
    assert keys.of_session(session).name == "ann"
    key_file.write_text(f"ann {KEY}-new\n")
    assert Keys.read(key_file).of_session(session) is None
    for broken in ("", "ann", "ann|9", "ann|٣|x", "ann|99999999999|" + "0" * 64, f"{session}\udcff"):
        assert keys.of_session(broken) is None
    import time

    now = time.time()
    monkeypatch.setattr("rankhouse.serve.host.gates.time.time", lambda: now + 8 * 24 * 3600)
    assert keys.of_session(session) is None


def test_answers_have_the_security_headers(open_to_all):
    for path in ("/healthz", "/metrics", "/nothing"):
        headers = open_to_all.get(path).headers
        assert headers["content-security-policy"] == CONTENT_POLICY
        assert headers["x-content-type-options"] == "nosniff"
        assert "server" not in headers


def test_beyond_loopback_a_key_is_needed(key_file):
    for host in ("0.0.0.0", "::", "192.168.1.5", "example.org"):
        with pytest.raises(WrongUse, match="a key is needed"):
            check_exposure(ServeOptions(host=host))
        check_exposure(ServeOptions(host=host, key_file=key_file))
    for host in ("127.0.0.1", "localhost", "::1", "127.9.9.9"):
        check_exposure(ServeOptions(host=host))


def test_listening_beyond_loopback_takes_addresses_but_no_foreign_names(running, key_file):
    with running(open_service(ServeOptions(host="0.0.0.0", port=0, key_file=key_file))) as client:
        bearer = {"Authorization": f"Bearer {KEY}"}
        assert client.ask("GET", "/metrics", headers={"Host": "10.1.2.3:80", **bearer}).status == 200
        assert client.ask("GET", "/metrics", headers={"Host": "evil.example", **bearer}).status == 403


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("", "holds no key"),
        ("ann short", "at least 16"),
        (f"ann {KEY} admin", "NAME KEY read"),
        (f"ann {KEY}\nann {READER}", "there twice"),
        (f"ann {KEY}\nbob {KEY}", "there twice"),
        (f"an/n {KEY}", "a name has"),
        ("ann ключ-ключ-ключ-ключ", "ASCII"),
    ],
)
def test_what_is_no_key_file(tmp_path, lines, message):
    path = tmp_path / "keys.txt"
    path.write_text(lines)
    path.chmod(0o600)
    with pytest.raises(BadData, match=message):
        Keys.read(path)


def test_a_key_file_that_others_read_is_refused(key_file, tmp_path):
    key_file.chmod(0o644)
    with pytest.raises(WrongUse, match="chmod 600"):
        Keys.read(key_file)
    with pytest.raises(MissingInput, match="make a key file"):
        Keys.read(tmp_path / "absent.txt")


@pytest.mark.parametrize("path", ["/a", "/b", "/a/", "/b/", "/c/x", "/c/known", "/nowhere"])
@pytest.mark.parametrize("method", ["GET", "POST", "HEAD"])
def test_a_router_by_path_answers_as_the_plain_one_does(path, method):
    def says(text):
        return lambda request: PlainTextResponse(f"{text} {request.path_params}")

    routes = [
        Route("/a", says("get"), methods=["GET"]),
        Route("/c/{name}", says("any")),
        Route("/a", says("post"), methods=["POST"]),
        Route("/c/known", says("never")),
        Route("/b/", says("slash")),
    ]
    plain, by_path = (
        TestClient(Router(routes)),
        TestClient(RouterByPath(routes)),
    )
    first, second = (one.request(method, path, follow_redirects=False) for one in (plain, by_path))
    assert (first.status_code, first.text, first.headers) == (second.status_code, second.text, second.headers)
