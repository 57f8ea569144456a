"""Clients that ask a server for reranking or a search, in a process of their own; prints one line of JSON.

    python benchmarks/serve_load.py --url http://127.0.0.1:8080/rerank --clients 8 --seconds 10 requests.jsonl

Every client keeps one connection open and sends its next request when the last is answered. After the seconds
nothing new is sent, and what is under way is waited for. A request that is answered 429 or 503 is sent again
after the time the server names, and its waiting counts; any other answer but 200 is an error.
With ``--probe`` it is one client that only looks, 50 times a second, and no file is needed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import cycle
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np


@dataclass
class Seen:
    """Observations of the clients.

    Attributes:
        seconds: How long each answered request took.
        documents: Documents in answered requests.
        refused: Requests that were sent again.
        errors: Everything else, counted by what it was.
    """

    seconds: list[float] = field(default_factory=list)
    documents: int = 0
    refused: int = 0
    errors: dict[str, int] = field(default_factory=dict)

    def fault(self, what: str) -> None:
        """Count a fault."""
        self.errors[what] = self.errors.get(what, 0) + 1


@dataclass
class Connection:
    """One kept-alive connection of HTTP/1.1."""

    host: str
    port: int
    path: str
    key: str = ""
    reader: asyncio.StreamReader | None = None
    writer: asyncio.StreamWriter | None = None

    async def ask(self, body: bytes | None) -> tuple[int, dict[str, str], bytes]:
        """Send a body, or look; give status, headers and the answer's body."""
        if self.reader is None or self.writer is None:
            self.reader, self.writer = await asyncio.open_connection(self.host, self.port)
        key = f"authorization: Bearer {self.key}\r\n" if self.key else ""
        sent = f"content-type: application/json\r\ncontent-length: {len(body or b'')}\r\n" if body else ""
        method = "POST" if body else "GET"
        head = f"{method} {self.path} HTTP/1.1\r\nhost: {self.host}:{self.port}\r\n{sent}{key}\r\n"
        self.writer.write(head.encode() + (body or b""))
        status = int((await self.reader.readuntil(b"\r\n")).split()[1])
        lines = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in lines if line)}
        answer = await self.reader.readexactly(int(headers["content-length"]))
        if headers.get("connection") == "close":
            self.close()
        return status, headers, answer

    def close(self) -> None:
        """Close the connection; the next request opens another."""
        if self.writer is not None:
            self.writer.close()
        self.reader = self.writer = None


async def client(link: Connection, bodies: Iterator[bytes], until: float, seen: Seen) -> None:
    """Ask until the time is over."""
    while time.perf_counter() < until:
        body, start = next(bodies), time.perf_counter()
        try:
            status, headers, answer = await link.ask(body)
            while status in (429, 503):
                seen.refused += 1
                await asyncio.sleep(float(headers.get("retry-after", 1)))
                status, headers, answer = await link.ask(body)
        except (OSError, asyncio.IncompleteReadError) as error:
            seen.fault(type(error).__name__)
            link.close()
            continue
        if status == 200:
            seen.seconds.append(time.perf_counter() - start)
            found = json.loads(answer)
            seen.documents += len(found["hits"] if "hits" in found else found["results"])
        else:
            seen.fault(str(status))
    link.close()


async def probe(link: Connection, until: float, seen: Seen) -> None:
    """Look again and again until the time is over."""
    while (start := time.perf_counter()) < until:
        status, _, _ = await link.ask(None)
        seen.seconds.append(time.perf_counter() - start)
        if status != 200:
            seen.fault(str(status))
        await asyncio.sleep(0.02)
    link.close()


async def load(url: str, key: str, clients: int, seconds: float, bodies: list[bytes]) -> dict[str, object]:
    """Ask with so many clients at once; give what a row of the table needs."""
    parts, stream, seen = urlsplit(url), cycle(bodies), Seen()
    start = time.perf_counter()
    links = [Connection(parts.hostname or "", parts.port or 80, parts.path, key) for _ in range(clients)]
    if bodies:
        await asyncio.gather(*(client(link, stream, start + seconds, seen) for link in links))
    else:
        await probe(links[0], start + seconds, seen)
    taken = time.perf_counter() - start
    p50, p99 = np.quantile(seen.seconds, [0.5, 0.99]) if seen.seconds else (np.nan, np.nan)
    return {
        "rate": seen.documents / taken,
        "requests": len(seen.seconds),
        "p50": float(p50),
        "p99": float(p99),
        "refused": seen.refused,
        "errors": seen.errors,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("requests", type=Path, nargs="?")
    parser.add_argument("--url", required=True)
    parser.add_argument("--key", default="")
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--probe", action="store_true")
    given = parser.parse_args()
    bodies = [] if given.probe else given.requests.read_bytes().splitlines()
    print(json.dumps(asyncio.run(load(given.url, given.key, given.clients, given.seconds, bodies))))


if __name__ == "__main__":
    main()
