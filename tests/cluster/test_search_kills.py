"""Search over shards that actors of a real cluster hold, while replicas, a node and a shard are killed."""

import contextlib
import http.client
import importlib.util
import json
import os
import random
import runpy
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from rankhouse.core.nouns import Document, Pair, Passage, Query
from rankhouse.index.index import Index
from rankhouse.index.lexical.build import BuildOptions, build
from rankhouse.index.sharded.sharded_index import ShardedIndex
from rankhouse.io.trec import write_run
from rankhouse.systems.execution import with_snippets
from rankhouse.systems.short_forms import short_form

NEEDED = ("ray", "starlette", "uvicorn", "httptools", "prometheus_client", "jinja2")
if not all(map(importlib.util.find_spec, NEEDED)):
    pytest.skip("needs the extras cluster and serve", allow_module_level=True)

WORDS = ["ships", "harbour", "water", "pilots", "tide", "lock", "canal", "grain", "price", "night"]
QUESTIONS = ["ships in the harbour", "price of grain", "pilots lock", "night tide water", "canal"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A collection whole, and in three parts."""
    folder, rng = tmp_path_factory.mktemp("parted"), random.Random(7)
    documents = [Document(f"d{i}", " ".join(rng.choices(WORDS, k=rng.randint(1, 12)))) for i in range(240)]
    build(documents, folder / "whole", BuildOptions(workers=1))
    for number in range(3):
        some = documents[number * 80 : number * 80 + 80]
        build(some, folder / "parts" / f"{number}" / "index", BuildOptions(workers=1))
    (folder / "queries.tsv").write_text("".join(f"q{i}\t{text}\n" for i, text in enumerate(QUESTIONS)))
    return folder


class Service:
    """``rankhouse serve`` in a process of its own."""

    def __init__(self, cluster, folder, *arguments):
        self.log = folder / "serve.log"
        words = [sys.executable, "-m", "rankhouse.cli.main", "serve", "--port", "0"]
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                [*words, "--cluster", cluster.address, *arguments],
                cwd=folder, stdout=log, stderr=log, env=cluster.environment,
            )  # fmt: skip
        self.port = self._port()

    def _port(self):
        until = time.monotonic() + 300
        while time.monotonic() < until and self.process.poll() is None:
            if "http://" in (text := self.log.read_text()):
                return int(text.partition("http://")[2].partition("/")[0].rpartition(":")[2])
            time.sleep(0.05)
        raise AssertionError(self.log.read_text())

    def search(self, question, **more):
        """Ask a question: status and answer."""
        return self.post("/search", {"query": question, "k": 20, **more})

    def post(self, path, body):
        """Ask something: status and answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=300)
        try:
            connection.request("POST", path, json.dumps(body), {"content-type": "application/json"})
            response = connection.getresponse()
            return response.status, json.loads(response.read())
        finally:
            connection.close()

    def stop(self):
        """End it as a supervisor does: its exit code."""
        self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(300)
        finally:
            self.process.kill()


@pytest.fixture(scope="module")
def service(cluster, folder):
    service = Service(cluster, folder, "news=parts", "--replicas", "2")
    yield service
    assert service.stop() == 0, service.log.read_text()
    until = time.monotonic() + 300
    while holders(cluster, folder / "parts"):
        assert time.monotonic() < until, "actors outlive their service"
        time.sleep(0.1)


@pytest.fixture(scope="module")
def crossencoder(tmp_path_factory):
    pytest.importorskip("torch")
    tools = runpy.run_path(Path(__file__).parents[1] / "serve" / "tiny_models.py")
    return tools["tiny_model"]("crossencoder", tmp_path_factory.mktemp("models"))


def holders(cluster, mapped):
    """Return the actors of a cluster that have a file of such a name mapped: a part's, or torch's."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            parent = int((process / "stat").read_text().rpartition(")")[2].split()[1])
            if parent in cluster.raylets and str(mapped) in (process / "maps").read_text():
                found.append(int(process.name))
    return found


def both_holders(cluster, mapped):
    """Wait until both replicas are there: their processes."""
    until = time.monotonic() + 300
    while len(pids := holders(cluster, mapped)) < 2:
        assert time.monotonic() < until, f"{len(pids)} replicas of {mapped}"
        time.sleep(0.1)
    return pids


def kill(pids):
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def expected(index, question, **options):
    """Return what an index answers here: (id, score, snippet) of each hit."""
    run = short_form(**({"models": ("bm25",)} | options)).rank(Query("q", question), index)
    hits = with_snippets(index, question, type(run)(run.doc_ids[:20], run.scores[:20])).hits
    return [(hit.doc_id, hit.score, hit.text) for hit in hits]


def told(answer):
    return [(hit["id"], hit["score"], hit["snippet"]) for hit in answer["hits"]]


def search(cluster, folder, name, *arguments):
    """Call ``rankhouse search`` for all queries."""
    words = ["search", "--index", name, "--queries", "queries.tsv", "--out", f"{name}.run", *arguments]
    return subprocess.run(
        [sys.executable, "-m", "rankhouse.cli.main", *words],
        cwd=folder, env=cluster.environment, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip


def test_the_command_writes_the_run_of_one_index(cluster, folder):
    models = ["--model", "bm25", "--model", 'ql(form="indri")', "--feedback", "rm3"]
    for name, where in (("whole", []), ("parts", ["--cluster", cluster.address])):
        done = search(cluster, folder, name, *models, *where)
        assert done.returncode == 0, done.stderr
    assert (folder / "whole.run").read_bytes() == (folder / "parts.run").read_bytes()
    index = Index.open(folder / "whole")
    run = short_form(("bm25",), "rm3").rank(Query("q1", QUESTIONS[1]), index)
    assert run.doc_ids[0] in (folder / "parts.run").read_text()


def test_the_command_names_a_damaged_part_or_does_without_it(cluster, folder):
    shutil.copytree(folder / "parts", folder / "damaged")
    next((folder / "damaged" / "2").rglob("lists.bin")).write_bytes(b"")
    refused = search(cluster, folder, "damaged", "--cluster", cluster.address)
    assert refused.returncode == 1
    assert f"the shard {folder}/damaged/2/index does not answer" in refused.stderr
    assert "lists.bin" in refused.stderr
    assert "Traceback" not in refused.stderr
    done = search(cluster, folder, "damaged", "--cluster", cluster.address, "--partial", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["missing_parts"] == [f"{folder}/damaged/2/index"]
    assert "partial result: no answer from" in done.stderr
    others = ShardedIndex.open([folder / "parts" / "0", folder / "parts" / "1"])
    asked = [Query(f"q{i}", text) for i, text in enumerate(QUESTIONS)]
    write_run(short_form(("bm25",)).run(asked, others), folder / "others.run")
    assert (folder / "damaged.run").read_bytes() == (folder / "others.run").read_bytes()


def test_the_service_answers_as_one_index(service, folder):
    whole = Index.open(folder / "whole")
    for question in QUESTIONS:
        status, answer = service.search(question, system="bm25")
        assert status == 200
        assert told(answer) == expected(whole, question)
        assert answer["degraded"] == ""
        _, answer = service.search(question, models=["ql"], feedback="rm3(docs=5)")
        assert told(answer) == expected(whole, question, models=("ql",), feedback="rm3(docs=5)")


@pytest.mark.kill
@pytest.mark.parametrize("what", ["replicas", "node"])
def test_nobody_notices_that_replicas_die(service, cluster, folder, what):
    whole = Index.open(folder / "whole")
    right = {question: expected(whole, question) for question in QUESTIONS}
    answers, over = [], threading.Event()

    def ask(seed):
        rng = random.Random(seed)
        while not over.is_set():
            question = rng.choice(QUESTIONS)
            answers.append((question, *service.search(question, system="bm25")))

    askers = [threading.Thread(target=ask, args=(seed,)) for seed in range(4)]
    for asker in askers:
        asker.start()
    try:
        if what == "node":
            time.sleep(0.5)
            cluster.kill("node")
        for part in range(3) if what == "replicas" else ():
            kill(random.sample(both_holders(cluster, folder / "parts" / str(part)), 1))
            time.sleep(0.3)
        _wait_for(answers, 20)
    finally:
        over.set()
        for asker in askers:
            asker.join(300)
    for question, status, answer in answers:
        assert status == 200, answer
        assert told(answer) == right[question]
        assert answer["degraded"] == ""


@pytest.mark.kill
def test_a_dead_part_is_named_or_left_out_and_comes_back(service, cluster, folder):
    part, away = folder / "parts" / "1", folder / "away"
    pids = both_holders(cluster, part)
    part.rename(away)
    kill(pids)
    status, answer = service.search(QUESTIONS[0], system="bm25")
    assert status == 503
    assert str(part) in answer["message"]
    assert "does not answer" in answer["message"]
    status, answer = service.search(QUESTIONS[0], system="bm25", partial=True)
    assert status == 200
    assert str(part) in answer["degraded"]
    others = ShardedIndex.open([folder / "parts" / "0", folder / "parts" / "2"])
    assert told(answer) == expected(others, QUESTIONS[0])
    away.rename(part)
    until = time.monotonic() + 300
    while service.search(QUESTIONS[0], system="bm25")[0] != 200:
        assert time.monotonic() < until
        time.sleep(0.2)
    status, answer = service.search(QUESTIONS[0], system="bm25", partial=True)
    assert answer["degraded"] == ""
    assert told(answer) == expected(Index.open(folder / "whole"), QUESTIONS[0])


@pytest.mark.kill
def test_rankers_on_a_cluster_lose_no_admitted_request(cluster, tmp_path, crossencoder):
    import rankhouse as rh

    compute = ["--precision", "fp32", "--device", "cpu", "--threads", "1"]
    service = Service(cluster, tmp_path, "--ranker", f"ce={crossencoder}", "--replicas", "2", *compute)
    ranker, rng = rh.open_ranker(crossencoder, precision="fp32", device="cpu", threads=1), random.Random(5)
    texts = [" ".join(rng.choices(WORDS, k=rng.randint(1, 30))) for _ in range(60)]
    right = {}
    for question in QUESTIONS:
        pairs = [Pair(Query("q", question), Passage("d", 0, text)) for text in texts]
        right[question] = dict(zip(texts, ranker.score(pairs).tolist(), strict=True))
    answers, over = [], threading.Event()

    def ask(seed):
        rng = random.Random(seed)
        while not over.is_set():
            question, some = rng.choice(QUESTIONS), rng.sample(texts, 20)
            body = {"query": question, "texts": some, "raw_scores": True}
            answers.append((question, some, *service.post("/rerank", body)))

    askers = [threading.Thread(target=ask, args=(seed,)) for seed in range(4)]
    for asker in askers:
        asker.start()
    try:
        _wait_for(answers, 8)
        kill(random.sample(both_holders(cluster, "libtorch_cpu"), 1))
        _wait_for(answers, 20)
    finally:
        over.set()
        for asker in askers:
            asker.join(300)
        code = service.stop()
    assert code == 0, service.log.read_text()
    for question, some, status, answer in answers:
        assert status == 200, answer
        assert {some[row["index"]]: row["score"] for row in answer} == {t: right[question][t] for t in some}


def _wait_for(answers, count, seconds=300):
    """Wait until there are so many answers more."""
    wanted, until = len(answers) + count, time.monotonic() + seconds
    while len(answers) < wanted:
        assert time.monotonic() < until, f"{len(answers)} answers of {wanted}"
        time.sleep(0.05)
