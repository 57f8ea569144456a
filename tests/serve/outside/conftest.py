"""The service as others meet it: `rankhouse serve` in a process of its own, with tiny rankers and a key."""

import http.client
import json
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

import pytest

pytest.importorskip("uvicorn")
pytest.importorskip("transformers")

ROOT = Path(__file__).parents[3]
BERT = ROOT / "tests" / "golden" / "bert"
KEY = "a-key-that-nobody-guesses"


class Reply(NamedTuple):
    """A response."""

    status: int
    headers: dict
    body: bytes

    @property
    def json(self):
        return json.loads(self.body)


class Process:
    """A running service."""

    def __init__(self, process, base, log):
        self.process, self.base, self.log = process, base, log
        self.port = urlsplit(base).port
        self.key = KEY

    def ask(self, method, path, content=None, *, key=KEY, timeout=300, headers=None):
        """Ask once, on a connection of its own."""
        body = content if content is None or isinstance(content, bytes) else json.dumps(content).encode()
        sent = {"content-type": "application/json"} if body is not None else {}
        if key:
            sent["authorization"] = f"Bearer {key}"
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            connection.request(method, path, body, {**sent, **(headers or {})})
            found = connection.getresponse()
            return Reply(found.status, {k.lower(): v for k, v in found.getheaders()}, found.read())
        finally:
            connection.close()

    def get(self, path, **more):
        return self.ask("GET", path, **more)

    def post(self, path, content, **more):
        return self.ask("POST", path, content, **more)

    def metric(self, name):
        """Sum of a metric over its labels."""
        said = self.get("/metrics").body.decode()
        found = re.findall(rf"^{name}(?:\{{[^}}]*\}})? (\S+)$", said, re.MULTILINE)
        return sum(map(float, found)) if found else None

    def end(self, sign=signal.SIGTERM, seconds=300):
        self.process.send_signal(sign)
        return self.process.wait(seconds)

    def said(self):
        return self.log.read_text()


@pytest.fixture(scope="session")
def tiny(tmp_path_factory):
    """Two tiny rankers with random weights: a cross-encoder and an encoder; gives their notations."""
    import torch
    import transformers
    from transformers.utils import logging

    logging.disable_progress_bar()
    made = {}
    for name, kind in (("tiny", "BertForSequenceClassification"), ("enc", "BertModel")):
        torch.manual_seed(7)
        folder = tmp_path_factory.mktemp(name)
        sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
        config = transformers.BertConfig(vocab_size=271, max_position_embeddings=64, num_labels=1, **sizes)
        network = getattr(transformers, kind)(config)
        with torch.no_grad():
            for weight in network.parameters():
                weight.add_(torch.randn_like(weight) * 0.2)
        network.save_pretrained(folder)
        tokenizer = transformers.BertTokenizerFast(str(BERT / "vocab.txt"), model_max_length=64)
        tokenizer.save_pretrained(folder)
        made[name] = f"{'crossencoder' if name == 'tiny' else 'biencoder'}({str(folder)!r})"
    return made


@pytest.fixture(scope="session")
def make_index():
    """Write an index of a hundred documents into a folder; gives its path."""
    import rankhouse as rh

    words = (BERT / "vocab.txt").read_text().split()[46:]

    def make(folder):
        rng = random.Random(5)
        texts = (" ".join(rng.choices(words, k=rng.randint(5, 120))) for _ in range(100))
        records = [{"id": f"d{i}", "title": f"About {i}", "text": text} for i, text in enumerate(texts)]
        rh.Index.build(records, folder / "little.index")
        return folder / "little.index"

    return make


@contextmanager
def _serving(folder, *arguments, key=True, threads=1, **environment):
    folder.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "rankhouse", "serve", *map(str, arguments), "--port", "0"]
    if key:
        keys = folder / "keys.txt"
        keys.write_text(f"me {KEY}\n")
        keys.chmod(0o600)
        command += ["--key-file", str(keys)]
    log = folder / "log.txt"
    settings = {**os.environ, "OMP_NUM_THREADS": str(threads), "COLUMNS": "200", **environment}
    with log.open("w") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out, env=settings)
    try:
        base = _address(process, log)
        yield Process(process, base, log)
    finally:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _address(process, log, seconds=300):
    """Wait until the service says where it is."""
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        if (found := re.search(r" at\s+(http://\S+?)/? ", log.read_text())) is not None:
            return found[1].rstrip("/")
        if process.poll() is not None:
            break
        time.sleep(0.05)
    raise AssertionError(f"the service did not begin ({process.poll()}):\n{log.read_text()}")


@pytest.fixture(scope="session")
def serving():
    """From a folder and arguments of `rankhouse serve` to the running service, inside a with-block."""
    return _serving


@pytest.fixture(scope="module")
def service(serving, tiny, tmp_path_factory):
    """A service with both tiny rankers, the cross-encoder first."""
    rankers = [part for name, spec in tiny.items() for part in ("--ranker", f"{name}={spec}")]
    with serving(tmp_path_factory.mktemp("service"), *rankers, "--max-body", 1) as running:
        yield running


@pytest.fixture
def in_threads():
    """Call functions at the same time; gives what they return, in order."""

    def call(*functions):
        found = [None] * len(functions)

        def keep(i, function):
            try:
                found[i] = function()
            except Exception as error:  # noqa: BLE001 - handed on
                found[i] = error

        threads = [threading.Thread(target=keep, args=pair) for pair in enumerate(functions)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return found

    return call
