"""A proxy in front: forwarded headers, links and redirects, cookies, chunks, slow clients, keep-alive.

Where nginx and openssl are there, a part of the trials goes through nginx with TLS; the others send what a
proxy sends.
"""

from __future__ import annotations

import http.client
import json
import random
import re
import shutil
import ssl
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from .served import WAIT, Fault, Service, _die_with_parent, _free_port, serving, verdict_of
from .verdicts import Trial

_TRIALS, _REQUESTS = 24, 60
_PUBLIC, _EVIL, _KEY = "search.example.org", "evil.example.com", "0123456789abcdef0123"
_PROTOCOLS = ("https", "http", "", "https, http", "javascript", "wss", "ht\ttp", "https://" + _EVIL)
_PATHS = ("/", "/?query=ship", "/queries", "/queries/", "/search/", "/login", "/compare/", "/train",
          "/login?next=//" + _EVIL, "/nowhere", "//" + _EVIL + "/", "/openapi.json")  # fmt: skip
_CONFIG = """daemon off; worker_processes 1; pid {f}/nginx.pid; error_log {f}/nginx.err;
events {{ worker_connections 256; }}
http {{ access_log off; client_body_temp_path {f}/b; proxy_temp_path {f}/p; fastcgi_temp_path {f}/f;
  uwsgi_temp_path {f}/u; scgi_temp_path {f}/s;
  server {{ listen 127.0.0.1:{outer} ssl; ssl_certificate {f}/cert.pem; ssl_certificate_key {f}/key.pem;
    location / {{ proxy_pass http://127.0.0.1:{inner}; proxy_http_version 1.1; proxy_set_header Connection "";
      proxy_set_header Host $http_host; proxy_set_header X-Forwarded-Proto $scheme;
      proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for; proxy_request_buffering {buffers}; }} }} }}
"""


def trials(seed: int) -> Iterator[Trial]:
    """Return services behind a proxy, each asked many things."""
    rng = random.Random(seed)
    kinds = [("forwarded headers", _forwarded), ("chunks", _chunks)]
    if shutil.which("nginx") and shutil.which("openssl"):
        kinds.append(("nginx", _nginx))
    for place in range(_TRIALS):
        name, attack = kinds[place % len(kinds)]
        number = rng.randrange(1 << 30)
        yield Trial(
            f"{name} {number}",
            lambda f, a=attack, n=number: verdict_of(lambda: a(f, random.Random(n))),
        )


def _arguments(folder: Path) -> tuple[str, ...]:
    (folder / "keys.txt").write_text(f"ann {_KEY}\n")
    (folder / "keys.txt").chmod(0o600)
    return ("--allow-host", _PUBLIC, "--key-file", "keys.txt", "--judgements", "judged.txt")


def _forwarded(folder: Path, rng: random.Random) -> None:
    with serving(folder, *_arguments(folder)) as service:
        for _ in range(_REQUESTS):
            protocol = rng.choice(_PROTOCOLS)
            headers = {"host": _PUBLIC, "x-forwarded-host": _EVIL, "forwarded": f"host={_EVIL};proto=https",
                       "x-forwarded-for": rng.choice(("203.0.113.9", "x" * 3_000, "[::1]:x, 1", "")),
                       "x-forwarded-proto": protocol, "accept": "text/html"}  # fmt: skip
            line = http.client.HTTPConnection("127.0.0.1", service.port, timeout=WAIT)
            _look(line, rng, headers, is_secure=protocol == "https")
            line.close()


def _look(
    line: http.client.HTTPConnection, rng: random.Random, headers: dict[str, str], *, is_secure: bool
) -> None:
    """Ask for a page or sign in, and look where the answer leads."""
    signs = rng.random() < 0.3
    path = "/login" if signs else rng.choice(_PATHS)
    if not signs and rng.random() < 0.7:
        headers = headers | {"authorization": f"Bearer {_KEY}"}
    body = f"key={_KEY}&next=/queries".encode() if signs else None
    if signs:
        headers = headers | {"content-type": "application/x-www-form-urlencoded"}
    line.request("POST" if signs else "GET", path, body, headers)
    answer = line.getresponse()
    text, there = answer.read().decode(errors="replace"), answer.headers.get("location", "")
    if answer.status >= 500:
        raise Fault("wrong", f"{answer.status} to {path} with {headers}")
    parts = urlsplit(there)
    if parts.netloc not in ("", _PUBLIC) or (parts.scheme and is_secure and parts.scheme != "https"):
        raise Fault("wrong", f"{path} leads to {there}")
    if links := re.findall(rf'(?:href|action|src)="(?:https?:)?//(?:{_EVIL}|127\.|localhost)[^"]*"', text):
        raise Fault("wrong", f"{path} holds {links[0]}")
    cookie = answer.headers.get("set-cookie", "")
    if cookie and ("secure" in cookie.lower()) != is_secure:
        raise Fault("wrong", f"{headers.get('x-forwarded-proto')}: {cookie.partition(';')[2]}")


def _chunks(folder: Path, rng: random.Random) -> None:
    """Send the same question whole, in chunks, and slowly, on one connection: one answer."""
    with serving(folder) as service:
        _same_answers(service, rng)


def _same_answers(service: Service, rng: random.Random) -> None:
    body = json.dumps({"query": "harbour ship", "k": 5, "pad": "x" * rng.choice((0, 900, 70_000))}).encode()
    wanted = _found(service.ask("POST", "/search", body).body)
    with service.connect() as line:
        for turn in range(_REQUESTS):
            line.sendall(b"POST /search HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n")
            rest = body
            while rest:
                size = rng.choice((1, 7, 4_096, len(rest))) if len(rest) < 2_000 else rng.randint(900, 30_000)
                line.sendall(b"%x\r\n%b\r\n" % (len(rest[:size]), rest[:size]))
                rest = rest[size:]
                if turn % 10 == 0 and rng.random() < 0.2:
                    time.sleep(0.02)
            line.sendall(b"0\r\n\r\n")
            answer = http.client.HTTPResponse(line)
            answer.begin()
            if answer.status != 200 or _found(answer.read()) != wanted:
                raise Fault("wrong", f"turn {turn}: {answer.status}, another answer")


def _found(body: bytes) -> object:
    return json.loads(body)["hits"]


# --- nginx --------------------------------------------------------------------------------------------------


def _nginx(folder: Path, rng: random.Random) -> None:
    with serving(folder, *_arguments(folder)) as service, _tls(folder, service, rng) as (port, context):
        line = http.client.HTTPSConnection("127.0.0.1", port, timeout=WAIT, context=context)
        for _ in range(_REQUESTS):  # one connection, kept alive
            _look(line, rng, {"host": _PUBLIC, "accept": "text/html"}, is_secure=True)
        line.close()


@contextmanager
def _tls(folder: Path, service: Service, rng: random.Random) -> Iterator[tuple[int, ssl.SSLContext]]:
    """Run nginx before a service while a block runs."""
    outer = _free_port()
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", f"/CN={_PUBLIC}",
         "-keyout", folder / "key.pem", "-out", folder / "cert.pem"],
        check=True, capture_output=True,
    )  # fmt: skip
    buffers = rng.choice(("on", "off"))
    config = _CONFIG.format(f=folder, outer=outer, inner=service.port, buffers=buffers)
    (folder / "nginx.conf").write_text(config)
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    process = subprocess.Popen(
        ["nginx", "-c", folder / "nginx.conf", "-p", folder], stderr=subprocess.DEVNULL,
        preexec_fn=_die_with_parent,  # noqa: PLW1509 - a trial's process has one thread here
    )  # fmt: skip
    try:
        time.sleep(1.0)
        yield outer, context
    finally:
        process.terminate()
        process.wait(WAIT)
