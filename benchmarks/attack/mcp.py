"""The service as tools: hostile arguments, broken lines, crowds of calls, clients that leave."""

from __future__ import annotations

import itertools
import json
import os
import random
import select
import time
from collections.abc import Iterator
from pathlib import Path

from .calls import Call
from .served import WAIT, Fault, _die_with_parent, verdict_of
from .service import VALUES
from .verdicts import Trial

_HOSTILE, _BROKEN, _CROWDS, _LEAVING = 30, 20, 4, 10
_CALLS = 40  # of a trial with hostile arguments
_CROWD = 2_000
_HELLO = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
_TOOLS = ("search", "read_document", "explain", "nothing", "search\x00\x1b[31m")
_FIELDS = ("query", "k", "system", "index", "document", "start", "against", "service", "__class__", "self")
_SOUND = {"search": {"query": "harbour"}, "read_document": {"document": "d1-1"},
          "explain": {"query": "harbour", "document": "d1-1"}}  # fmt: skip
_LINES = (b"{broken", b"\xff\xfe", b"\x00", b"[]", b"null", b"42", b"{}", b"[" * 50_000, b"",
          b'{"jsonrpc":"2.0","id":1e999,"method":"ping"}', b'{"jsonrpc":"2.0","id":[1],"method":"ping"}',
          b'{"jsonrpc":"2.0","id":7,"result":{}}', b'{"jsonrpc":"2.0","method":"notifications/cancelled"}',
          b'{"jsonrpc":"2.0","id":8,"method":"initialize","params":{}}', b"x" * 300_000)  # fmt: skip


def trials(seed: int) -> Iterator[Trial]:
    """Return attacks, each on a process of its own."""
    rng = random.Random(seed)
    kinds = ((_HOSTILE, "hostile arguments", _hostile), (_BROKEN, "broken lines", _broken),
             (_CROWDS, "a crowd", _crowd), (_LEAVING, "a client that leaves", _leaving))  # fmt: skip
    for count, name, attack in kinds:
        for _ in range(count):
            number = rng.randrange(1 << 30)
            yield Trial(
                f"{name} {number}",
                lambda f, a=attack, n=number: verdict_of(lambda: a(Assistant(f), random.Random(n))),
            )


class Assistant:
    """A client of another make: lines of JSON over two pipes."""

    def __init__(self, folder: Path) -> None:
        theirs, self._to = os.pipe()
        self._from, ours = os.pipe()

        def plug() -> None:
            _die_with_parent()
            os.dup2(theirs, 0)
            os.dup2(ours, 1)
            for number in (theirs, ours, self._to, self._from):
                os.close(number)

        self._call = Call(["serve", "my.index", "--mcp"], folder, plug)
        os.close(theirs)
        os.close(ours)
        self._rest, self._numbers = b"", itertools.count(1_000)
        self.answers: dict[object, dict[str, object]] = {}
        self.send(json.dumps({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": _HELLO}).encode())
        self.send(b'{"jsonrpc":"2.0","method":"notifications/initialized"}')
        self.expect([0])

    def send(self, line: bytes) -> None:
        """Send a line, and read meanwhile, so that neither waits for the other."""
        content = line + b"\n"
        while content:
            readable, writable, _ = select.select([self._from], [self._to], [], WAIT)
            if not readable and not writable:
                raise Fault("hang", "it takes no line")
            if readable:
                self._read()
            if writable:
                content = content[os.write(self._to, content[:4096]) :]

    def call(self, tool: str, arguments: object) -> int:
        """Call a tool; returns the number of the call."""
        number = next(self._numbers)
        params = {"name": tool, "arguments": arguments}
        asked = {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": params}
        self.send(json.dumps(asked).encode())
        return number

    def expect(self, numbers: list[int]) -> None:
        """Wait until all of the calls are answered."""
        ends = time.monotonic() + WAIT
        while missing := [n for n in numbers if n not in self.answers]:
            if not select.select([self._from], [], [], max(0.0, ends - time.monotonic()))[0]:
                raise Fault("hang", f"{len(missing)} of {len(numbers)} calls are not answered")
            if not self._read():
                raise Fault("wrong", f"it ended early: {self._call.wait().err[-300:]}")

    def _read(self) -> bool:
        got = os.read(self._from, 1 << 16)
        *lines, self._rest = (self._rest + got).split(b"\n")
        for line in lines:
            try:
                answer = json.loads(line)
            except ValueError:
                raise Fault("wrong", f"no line of JSON: {line[:200]!r}") from None
            self.answers[answer.get("id")] = answer
        return bool(got)

    def leave(self, *, reads: bool = True) -> None:
        """Hang up, and judge how it ends."""
        if not reads:
            os.close(self._from)
        os.close(self._to)
        while reads and select.select([self._from], [], [], WAIT)[0] and self._read():
            pass
        done = self._call.wait(WAIT)
        if reads:
            os.close(self._from)
        if done.code is None:
            raise Fault("hang", "it does not end with its input")
        if done.crash:
            raise Fault("traceback", done.crash)
        if done.code != 0 and reads:
            raise Fault("wrong", f"exit code {done.code}: {done.err[-300:]}")


def _hostile(client: Assistant, rng: random.Random) -> None:
    asked = []
    for _ in range(_CALLS):
        tool = rng.choice(_TOOLS)
        arguments: object = dict(_SOUND.get(tool, {}))
        if isinstance(arguments, dict):
            arguments |= {rng.choice(_FIELDS): rng.choice(VALUES) for _ in range(rng.randint(0, 4))}
        if rng.random() < 0.1:
            arguments = rng.choice(VALUES)
        asked.append(client.call(tool, arguments))
    client.expect(asked)
    if odd := [n for n in asked if "-32603" in str(client.answers[n].get("error"))]:
        raise Fault("wrong", f"an internal error: {client.answers[odd[0]]}")
    _still_well(client)
    client.leave()


def _broken(client: Assistant, rng: random.Random) -> None:
    for _ in range(_CALLS):
        client.send(rng.choice(_LINES))
        if rng.random() < 0.3:
            client.expect([client.call("search", {"query": "ship"})])
    _still_well(client)
    client.leave()


def _crowd(client: Assistant, rng: random.Random) -> None:
    tools = [rng.choice(("search", "read_document", "explain")) for _ in range(_CROWD)]
    client.expect([client.call(tool, _SOUND[tool]) for tool in tools])
    _still_well(client)
    client.leave()


def _leaving(client: Assistant, rng: random.Random) -> None:
    for _ in range(rng.randrange(200)):
        client.call("search", {"query": "harbour"})
    if rng.random() < 0.5:
        os.write(client._to, b'{"jsonrpc":"2.0","id":9,"me')  # noqa: SLF001 - half a line
    client.leave(reads=rng.random() < 0.5)


def _still_well(client: Assistant) -> None:
    number = client.call("search", {"query": "harbour", "k": 3})
    client.expect([number])
    if '"d1-' not in json.dumps(client.answers[number]):
        raise Fault("wrong", f"afterwards a search answers {str(client.answers[number])[:300]}")
