"""Documents, a ranker and the command line's own runs, beside which each host is compared."""

import json
import sys
from pathlib import Path

import pytest

from rankhouse.api.index import Index
from rankhouse.io.trec import read_run, write_run

sys.path.insert(0, str(Path(__file__).parent))  # host_material, for the tests beside it

from host_material import QUERIES, TEXTS, TITLES


@pytest.fixture(autouse=True)
def lazy_imports(monkeypatch):
    """Nothing that a test imports asks a network for anything."""
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.setenv("HAYSTACK_TELEMETRY_ENABLED", "False")


@pytest.fixture
def in_fp32(monkeypatch):
    """As other libraries do, score in fp32 where the processor would take bf16, here and in commands."""
    machine = pytest.importorskip("rankhouse.nn.machine")
    if machine.has_bf16():
        monkeypatch.setattr(machine, "has_bf16", lambda: False)
        monkeypatch.setenv("RANKHOUSE_CPU", "avx2")


@pytest.fixture
def folder(tmp_path, monkeypatch, bert):
    """A folder with notes.jsonl, queries.jsonl, notes.index and ranker, in which the test runs."""
    monkeypatch.chdir(tmp_path)
    documents = [{"id": i, "text": text, "title": TITLES.get(i, "")} for i, text in TEXTS.items()]
    (tmp_path / "notes.jsonl").write_text("\n".join(map(json.dumps, documents)))
    (tmp_path / "queries.jsonl").write_text(
        "\n".join(json.dumps({"id": i, "text": text}) for i, text in QUERIES.items())
    )
    Index.build(documents, "notes.index")
    (tmp_path / "ranker").symlink_to(bert("BertForSequenceClassification", num_labels=2))
    return tmp_path


@pytest.fixture
def searched(folder, run):
    """From an expression to the run that ``rankhouse search`` writes of it."""

    def search(system, k=None):
        cut = () if k is None else ("-k", k)
        done = run(
            "search", "--index", "notes.index", "--queries", "queries.jsonl", "--system", system,
            "--out", "cli.run", *cut,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return read_run("cli.run")

    return search


@pytest.fixture
def reranked(folder, run):
    """From a run to what ``rankhouse rerank`` makes of it."""

    def rerank(first, *options):
        write_run(first, "first.run")
        done = run(
            "rerank", "--index", "notes.index", "--queries", "queries.jsonl", "--run", "first.run",
            "--ranker", "ranker", "--out", "reranked.run", *options,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return read_run("reranked.run")

    return rerank


@pytest.fixture
def old_host(monkeypatch):
    """Import an adapter where the host that is installed says that it is older than it is."""

    def import_with(name, found):
        from rankhouse.hosts import adapters

        module = f"rankhouse.hosts.{name}"
        monkeypatch.delitem(sys.modules, module, raising=False)
        monkeypatch.setattr(adapters, "version", lambda _: found)
        __import__(module)

    return import_with
