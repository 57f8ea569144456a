"""The service: odd requests, clients that leave, disks that fill, kills during judging and training."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import random
import socket
import struct
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote, urlencode

from .hooks import at_most
from .served import WAIT, Fault, Reply, Service, crowd, serving, verdict_of
from .verdicts import Trial
from .world import SMALL, WORDS

_ODD, _PIPELINES, _FULL, _KILLS, _TRAININGS = 40, 10, 24, 10, 12
_REQUESTS = 60  # of a trial with odd requests
_JUDGEMENTS = 80
KEEPING = ("--judgements", "judged.txt", "--queries", "queries.tsv", "--qrels", "qrels.txt")
VALUES: tuple[object, ...] = (
    *("ships", "", " ", "\x00", "\x1b[2J", "a" * 20_000, "\u202e", "\ud800", "=1+1", "%s%n{0}", "../../etc"),
    *("<script>alert(1)</script>", "\n\r\t", "bm25", "bm25(k1=nan)", "(" * 3_000, "bm25+" * 3_000 + "bm25"),
    *(None, True, 0, -1, 1, 10**30, -(10**30), 1.5, float("nan"), float("inf"), 1e308),
    *([], {}, [[]], {"a": {"a": {"a": []}}}, ["ships"] * 100, [None], [1, "a", None]),
)
FIELDS = ("query", "queries", "documents", "texts", "text_1", "text_2", "inputs", "input", "model", "top_n",
          "k", "system", "systems", "index", "document", "against", "judge", "grade", "name", "start",
          "epochs", "rate", "seed", "return_documents", "rank_fields", "mark", "next", "key")  # fmt: skip
PATHS = ("/", "/search", "/explain", "/rerank", "/v1/rerank", "/v2/rerank", "/score", "/embed", "/predict",
         "/similarity", "/tokenize", "/v1/embeddings", "/v1/models", "/info", "/api/judgements", "/judge",
         "/api/judgements/undo", "/api/judgements/qrels", "/api/judgements/agreement", "/api/compare",
         "/api/queries", "/api/trainings", "/api/trainings/x", "/api/runs/bm25", "/queries", "/compare",
         "/train", "/why", "/document", "/openapi.json", "/metrics", "/login", "/logout", "/nowhere", "/%00",
         "/..%2f..%2fetc%2fpasswd", "/api/runs/..%2f..%2fetc%2fpasswd", "/static/..%2f..%2fetc")  # fmt: skip
METHODS = ("GET", "POST", "GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH")


def trials(seed: int) -> Iterator[Trial]:
    """Return attacks on a service, each on one of its own."""
    rng = random.Random(seed)

    def drawn() -> int:
        return rng.randrange(1 << 30)

    for number in [drawn() for _ in range(_ODD)]:
        yield Trial(f"odd requests {number}", lambda f, n=number: verdict_of(lambda: _odd(f, n)))
    for number in [drawn() for _ in range(_PIPELINES)]:
        yield Trial(f"pipelines {number}", lambda f, n=number: verdict_of(lambda: _pipelines(f, n)))
    for place in range(_FULL):
        size, whole = int(2 ** rng.uniform(6, 15)), place % 2 == 0
        room = f"files of at most {size} bytes" if whole else f"a disk of {64 + size // 256} KiB"
        yield Trial(f"judging, {room}", lambda f, s=size, w=whole: verdict_of(lambda: _full(f, s, limited=w)))
    for number in [drawn() for _ in range(_KILLS)]:
        yield Trial(f"killed while judging {number}", lambda f, n=number: verdict_of(lambda: _kill(f, n)))
    for place in range(_TRAININGS):
        share, size = rng.random(), int(2 ** rng.uniform(8, 17))
        if place % 2:
            name = f"train by the service, files of at most {size} bytes"
            yield Trial(name, lambda f, s=size: verdict_of(lambda: _train_full(f, s)))
        else:
            name = f"train by the service, killed at {share:.0%}"
            yield Trial(name, lambda f, s=share: verdict_of(lambda: _train_kill(f, s)))


# --- what clients send ------------------------------------------------------------------------------------


def _odd(folder: Path, number: int) -> None:
    rng = random.Random(number)
    with serving(folder, *KEEPING) as service:
        for _ in range(_REQUESTS):
            method, path = rng.choice(METHODS), rng.choice(PATHS)
            fields = {rng.choice(FIELDS): rng.choice(VALUES) for _ in range(rng.randint(0, 6))}
            words = {k: str(v).encode("utf-8", "surrogatepass")[:6_000] for k, v in fields.items()}
            asked = path + (f"?{urlencode(words)}" if rng.random() < 0.5 else "")
            kind = rng.choice(("json", "form", "broken", "none"))
            body: object = None
            if method not in ("GET", "HEAD") or rng.random() < 0.1:
                body = {"json": fields, "form": urlencode(words).encode(), "broken": _broken(rng, fields),
                        "none": b""}[kind]  # fmt: skip
            headers = {"accept": rng.choice(("text/html", "application/json", "*/*", "\xff"))}
            if kind == "form":
                headers["content-type"] = "application/x-www-form-urlencoded"
            _fair(service.ask(method, asked, body, headers), f"{method} {asked[:200]} {str(body)[:300]}")


def _broken(rng: random.Random, fields: object) -> bytes:
    content = bytearray(json.dumps(fields).encode())
    for _ in range(rng.randint(1, 4)):
        place = rng.randrange(len(content) + 1)
        content[place : place + rng.randint(0, 3)] = rng.choice(
            (b"", b"\x00", b"\xff", b"[" * 9_000, b"1e999")
        )
    return bytes(content)


def _fair(reply: Reply, asked: str) -> None:
    if reply.status >= 500 and reply.status not in (503, 504):
        raise Fault("wrong", f"{reply.status} to {asked}")
    if b"Traceback" in reply.body:
        raise Fault("traceback", f"in the answer to {asked}")
    if b"root:x:0" in reply.body:
        raise Fault("wrong", f"a foreign file in the answer to {asked}")


def _pipelines(folder: Path, number: int) -> None:
    """Ask many things at once on one connection and leave in one of four ways."""
    rng = random.Random(number)
    requests = (
        b"GET /search?query=harbour HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b'POST /search HTTP/1.1\r\nHost: localhost\r\nContent-Length: 16\r\n\r\n{"query":"ship"}',
        b"GET /?query=ship HTTP/1.1\r\nHost: localhost\r\nAccept: text/html\r\n\r\n",
        b"POST /search HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99\r\n\r\n{",
        b"\x00 no request\r\n\r\n",
    )
    with serving(folder, "--access-log", "access.jsonl") as service:
        for _ in range(_REQUESTS):
            with service.connect() as line, contextlib.suppress(OSError):
                line.sendall(b"".join(rng.choice(requests[: 3 + rng.randrange(3)]) for _ in range(40)))
                way = rng.randrange(4)
                if way == 1:
                    line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                if way == 2:
                    line.shutdown(socket.SHUT_WR)
                if way:
                    time.sleep(rng.random() * 0.03)
    lines = [json.loads(line) for line in (folder / "access.jsonl").read_text().splitlines()]
    if odd := [line for line in lines if line["status"] >= 500 and line["status"] != 503]:
        raise Fault("wrong", f"in the access log: {odd[0]}")


# --- judgements -------------------------------------------------------------------------------------------


def _judge(service: Service, judge: str, query: str, document: str, grade: int) -> Reply:
    body = {"query": query, "document": document, "grade": grade, "judge": judge}
    return service.ask("POST", "/api/judgements", body)


def _full(folder: Path, size: int, *, limited: bool) -> None:
    """Judge where little can be written; what was acknowledged is there, the rest was refused."""
    place, before = folder, at_most(size)
    if not limited:
        place = folder / "disk"
        place.mkdir()
        if os.system(f"mount -t tmpfs -o size={64 + size // 256}k none {place}") == 0:
            before = _nothing
    try:
        _fill(folder, place, before)
    finally:
        if before is _nothing:
            os.system(f"umount {place}")


def _nothing() -> None:
    """Limit nothing."""


def _fill(folder: Path, place: Path, before: object) -> None:
    file = str(place / "new.qrels")
    arguments = (
        "--judgements",
        file,
        "--access-log",
        str(place / "access.jsonl"),
        "--queries",
        "queries.tsv",
    )
    said: dict[tuple[str, str], int] = {}
    rng = random.Random(5)
    with serving(folder, *arguments, before=before) as service:  # type: ignore[arg-type]
        for number in range(_JUDGEMENTS):
            query, document, grade = f"question {number % 7}", f"d1-{number % SMALL}", rng.randrange(3)
            reply = _judge(service, f"judge {number % 3}", query, document, grade)
            if reply.status == 200:
                said[f"judge {number % 3} {query}", document] = grade
            elif reply.status != 503 or not any(w in reply.body for w in (b"space", b"large", b"full")):
                raise Fault("wrong", f"{reply.status}: {reply.body[:200]!r}")
            _fair(service.ask("GET", f"/?query={quote(WORDS[number % 9])}"), "the page")
    for name in ("access.jsonl", "new.qrels.audit.jsonl"):
        _whole_lines(place / name)
    (place / "access.jsonl").unlink(missing_ok=True)
    _all_there(folder, arguments[:2], said)


def _whole_lines(path: Path) -> None:
    """Raise a Fault where a line that is ended is no JSON; the last may be cut off."""
    for line in path.read_bytes().splitlines(keepends=True) if path.exists() else ():
        if line.endswith(b"\n"):
            try:
                json.loads(line)
            except ValueError:
                raise Fault("wrong", f"{path.name} holds half a line: {line[-200:]!r}") from None


def _all_there(folder: Path, arguments: tuple[str, ...], said: dict[tuple[str, str], int]) -> None:
    """Start again without limits, and look for every judgement that was acknowledged."""
    log = Path(folder, f"{arguments[1]}.log.jsonl")
    with serving(folder, *arguments):
        entries = [json.loads(line) for line in log.read_bytes().splitlines()]
    kept = {(f"{e['judge']} {e['query']}", e["doc_id"]): e["grade"] for e in entries}
    if missing := [pair for pair, grade in said.items() if kept.get(pair) != grade]:
        raise Fault("lost", f"{len(missing)} of {len(said)} judgements: {missing[:2]}")


def _kill(folder: Path, number: int) -> None:
    """Kill the service while three judge at once."""
    rng, said = random.Random(number), dict[tuple[str, str], int]()
    arguments = ("--judgements", "judged.txt")
    service = Service(folder, *arguments)
    threading.Timer(rng.uniform(0.1, 1.5), service.call.kill).start()

    def judge(place: int) -> None:
        for turn in range(400):
            query, document, grade = f"question {turn % 20}", f"d1-{turn // 20}", (turn + place) % 3
            reply = _judge(service, f"judge {place}", query, document, grade)
            if reply.status != 200:
                raise Fault("wrong", f"{reply.status}: {reply.body[:200]!r}")
            said[f"judge {place} {query}", document] = grade

    crowd(3, judge)
    service.kill()
    _all_there(folder, arguments, said)


# --- trainings --------------------------------------------------------------------------------------------

_REQUEST = {"name": "mine", "start": "knrm", "epochs": 2}


def _train_kill(folder: Path, share: float) -> None:
    """Kill the service while it trains; the same request, given again, ends with a ranker."""
    service = Service(folder, *KEEPING)
    reply = service.ask("POST", "/api/trainings", _REQUEST)
    if reply.status != 201:
        raise Fault("wrong", f"{reply.status}: {reply.body[:300]!r}")
    time.sleep(share * 12)
    service.kill()
    _train_again(folder)


def _train_full(folder: Path, size: int) -> None:
    """Train where files may not grow; it fails with a reason, and with room the same request succeeds."""
    with serving(folder, *KEEPING, before=at_most(size)) as service:
        reply = service.ask("POST", "/api/trainings", _REQUEST)
        if reply.status == 201:
            job = _ended(service)
            if job["state"] == "failed" and not any(w in job["fault"] for w in ("large", "space", "full")):
                raise Fault("wrong", f"the fault does not say why: {job['fault'][-200:]}")
        elif reply.status != 503 or b"large" not in reply.body:
            raise Fault("wrong", f"{reply.status}: {reply.body[:300]!r}")
    _train_again(folder)


def _train_again(folder: Path) -> None:
    with serving(folder, *KEEPING) as service:
        jobs = service.ask("GET", "/api/trainings").data
        if any(job["state"] == "running" for job in jobs):
            raise Fault("wrong", f"nothing runs, but it says {jobs}")
        if not any(job["state"] == "done" for job in jobs):
            reply = service.ask("POST", "/api/trainings", _REQUEST)
            if reply.status != 201:
                raise Fault("wrong", f"given again: {reply.status}: {reply.body[:300]!r}")
            job = _ended(service)
            if job["state"] != "done":
                raise Fault("wrong", f"given again: {job['state']}: {job['fault'][-300:]}")
        reply = service.ask("POST", "/search", {"query": "harbour pilot", "system": "mine"})
        if reply.status != 200 or reply.data["system"] != "mine":
            raise Fault("wrong", f"what was trained does not rank: {reply.status} {reply.body[:200]!r}")


def _ended(service: Service) -> dict[str, str]:
    ends = time.monotonic() + 3 * WAIT
    while time.monotonic() < ends:
        with contextlib.suppress(http.client.HTTPException):
            job: dict[str, str] = service.ask("GET", "/api/trainings/mine").data
            if job["state"] != "running":
                return job
        time.sleep(0.2)
    raise Fault("hang", "the training does not end")
