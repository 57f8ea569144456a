"""A service under attack: started in a forked process, asked by plain HTTP, and judged by what it says."""

from __future__ import annotations

import contextlib
import ctypes
import http.client
import importlib
import json
import random
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from .calls import Call, Outcome
from .verdicts import Verdict

WAIT = 180.0  # seconds after which an answer, a start or an end counts as a hang
_MODULES = (
    "rankhouse.serve.host.serving",
    "rankhouse.serve.host.folder",
    "rankhouse.serve.mcp",
    "rankhouse.cluster.served",
)
_DIES_WITH_ITS_PARENT = 1  # PR_SET_PDEATHSIG of prctl(2)


class Reply(NamedTuple):
    """A response."""

    status: int
    headers: http.client.HTTPMessage
    body: bytes

    @property
    def data(self) -> Any:  # noqa: ANN401 - whatever JSON can hold
        """Return the body read as JSON."""
        return json.loads(self.body)


class Fault(Exception):
    """A trial that is decided."""

    def __init__(self, kind: str, why: str) -> None:
        super().__init__(why)
        self.verdict = Verdict(kind, why)


def verdict_of(attack: Callable[[], None]) -> Verdict:
    """Return what came of an attack that raises a Fault where something is not right."""
    try:
        attack()
    except Fault as fault:
        return fault.verdict
    return Verdict("right")


class Service:
    """A service in a process of its own, which ends when the trial does."""

    command: tuple[str, ...] = ("serve", "my.index", "--grace", "5")

    def __init__(
        self, folder: Path, *arguments: str, before: Callable[[], object] = lambda: None, port: int = 0
    ) -> None:
        for name in _MODULES:
            with contextlib.suppress(ImportError):
                importlib.import_module(name)
        self.folder, self.port = folder, port or _free_port()
        line = [*self.command, "--port", str(self.port), *arguments]
        self.call = Call(line, folder, lambda: (_die_with_parent(), before()))
        self._await_ready()

    def _await_ready(self) -> None:
        ends = time.monotonic() + WAIT
        while time.monotonic() < ends:
            with contextlib.suppress(OSError, http.client.HTTPException):
                if self.ask("GET", "/readyz").status == 200:
                    return
            time.sleep(0.05)
        self.call.kill()
        raise Fault("hang", f"not ready: {self.call.wait().err[-300:]}")

    def ask(
        self, method: str, path: str, body: object = None, headers: Mapping[str, str] | None = None
    ) -> Reply:
        """Ask on a connection of its own; an object that is not bytes goes as JSON."""
        line = http.client.HTTPConnection("127.0.0.1", self.port, timeout=WAIT)
        sent = dict(headers or {})
        if body is not None and not isinstance(body, bytes):
            body = json.dumps(body).encode()
            sent.setdefault("content-type", "application/json")
        try:
            line.request(method, path, body, sent)
            answer = line.getresponse()
            return Reply(answer.status, answer.headers, answer.read())
        except TimeoutError:
            raise Fault("hang", f"no answer to {method} {path[:100]}") from None
        finally:
            line.close()

    def connect(self) -> socket.socket:
        """Return a connection of raw bytes."""
        return socket.create_connection(("127.0.0.1", self.port), timeout=WAIT)

    def check_alive(self, after: str) -> None:
        """Raise a Fault where the service does not answer a probe."""
        try:
            status = self.ask("GET", "/healthz").status
        except (OSError, http.client.HTTPException) as error:
            raise Fault("wrong", f"gone after {after}: {error}") from None
        if status != 200:
            raise Fault("wrong", f"/healthz says {status} after {after}")

    def kill(self) -> None:
        """Kill it, and what it started."""
        self.call.kill()
        self.call.wait()

    def end(self, *, allowed: str = "") -> Outcome:
        """End it as an operator does; raise a Fault where it breaks down or says what it should not."""
        self.call.kill(signal.SIGTERM)
        done = self.call.wait(WAIT)
        if done.code is None:
            raise Fault("hang", "it does not end")
        if done.crash and not (allowed and allowed in done.crash):
            raise Fault("traceback", done.crash)
        if done.code != 0:
            raise Fault("wrong", f"exit code {done.code}: {done.err[-200:]}")
        return done


@contextlib.contextmanager
def serving(folder: Path, *arguments: str, before: Callable[[], object] = lambda: None) -> Iterator[Service]:
    """Serve while a block runs; the service ends well, or a Fault is raised."""
    service = Service(folder, *arguments, before=before)
    try:
        yield service
        service.check_alive("the trial")
    except BaseException:
        service.kill()
        raise
    service.end()


def crowd(number: int, work: Callable[[int], None]) -> None:
    """Do some work in many threads at once; raise the first Fault of any."""
    faults: list[Fault] = []

    def one(place: int) -> None:
        try:
            work(place)
        except Fault as fault:
            faults.append(fault)
        except (OSError, http.client.HTTPException):
            pass  # the service was ended under it

    threads = [threading.Thread(target=one, args=(place,)) for place in range(number)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if faults:
        raise faults[0]


def _die_with_parent() -> None:
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_DIES_WITH_ITS_PARENT, signal.SIGKILL)


def _free_port() -> int:
    """Find a port outside the range from which the system gives ports to whoever asks for any."""
    while True:
        with socket.socket() as found, contextlib.suppress(OSError):
            found.bind(("127.0.0.1", port := random.SystemRandom().randint(20_000, 32_000)))
            return port
