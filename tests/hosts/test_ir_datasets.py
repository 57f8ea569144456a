"""A collection of ir_datasets by its id, wherever documents, queries or judgements are named."""

import json
from pathlib import Path

import pytest

ir_datasets = pytest.importorskip("ir_datasets")

from host_material import QRELS, QUERIES, TEXTS  # noqa: E402
from ir_datasets.datasets.base import Dataset  # noqa: E402
from ir_datasets.formats import TrecQrels, TsvDocs, TsvQueries  # noqa: E402
from ir_datasets.util import LocalDownload  # noqa: E402

import rankhouse as rh  # noqa: E402
from rankhouse.io.trec import read_run  # noqa: E402

NAME = "ir_datasets:rankhouse-notes/test"


@pytest.fixture(scope="module", autouse=True)
def collection(tmp_path_factory):
    folder = tmp_path_factory.mktemp("collection")

    def local(name, rows):
        (folder / name).write_text("".join(rows))
        return LocalDownload(folder / name)

    docs = local("docs.tsv", (f"{i}\t{text}\n" for i, text in TEXTS.items()))
    queries = local("queries.tsv", (f"{i}\t{text}\n" for i, text in QUERIES.items()))
    qrels = local("qrels.txt", (f"{q} 0 {d} {g}\n" for q, gs in QRELS.items() for d, g in gs.items()))
    about = {"namespace": "notes", "lang": "en"}
    whole = Dataset(
        TsvDocs(docs, **about), TsvQueries(queries, **about), TrecQrels(qrels, {0: "no", 1: "yes"})
    )
    ir_datasets.registry.register(NAME.partition(":")[2], whole)


@pytest.fixture
def files(tmp_path, monkeypatch):
    """The same collection as files."""
    monkeypatch.chdir(tmp_path)
    Path("notes.jsonl").write_text(
        "\n".join(json.dumps({"id": i, "text": text}) for i, text in TEXTS.items())
    )
    Path("queries.tsv").write_text("".join(f"{i}\t{text}\n" for i, text in QUERIES.items()))
    rh.write_qrels(QRELS, "qrels.txt")


@pytest.mark.slow
def test_commands_take_ids_in_the_place_of_files(run, files):
    for name, corpus, queries, qrels in (
        ("files", "notes.jsonl", "queries.tsv", "qrels.txt"),
        ("ids", NAME, NAME, NAME),
    ):
        asked = ("--index", f"{name}.index", "--queries", queries)
        tested = ("--baseline", "files.run", "--queries", queries, "--report", f"{name}.html")
        calls = [
            ("index", corpus, "--out", f"{name}.index"),
            ("search", *asked, "--system", "bm25", "--out", f"{name}.run"),
            ("evaluate", f"{name}.run", "files.run", "--qrels", qrels, *tested),
            (
                "label",
                *asked,
                "--run",
                f"{name}.run",
                "--rule",
                f"judged({qrels!r})",
                "--out",
                f"{name}.jsonl",
            ),
            ("folds", "--queries", queries, "--qrels", qrels, "--folds", 3, "--out", f"{name}.json"),
            ("axioms", *asked, "--run", f"{name}.run"),
        ]
        for call in calls:
            done = run(*call)
            assert done.returncode == 0, f"{call}: {done.stderr}"
    assert Path("ids.run").read_text() == Path("files.run").read_text()
    assert Path("ids.jsonl").read_text() == Path("files.jsonl").read_text()
    assert Path("ids.json").read_text() == Path("files.json").read_text()


@pytest.mark.slow
def test_python_takes_ids_in_the_place_of_files(files):
    index = rh.Index.build(NAME, "notes.index")
    found = index.retrieve(NAME, "bm25")
    assert found == rh.Index.build("notes.jsonl", "other.index").retrieve("queries.tsv", "bm25")
    assert rh.evaluate(found, NAME).to_dict() == rh.evaluate(found, "qrels.txt").to_dict()
    assert rh.system("bm25 % 3").run(NAME, index) == found.top(3)
    assert [query.text for query in rh.read_queries(NAME)] == list(QUERIES.values())
    assert {q: dict(grades) for q, grades in rh.read_qrels(NAME).items()} == QRELS
    assert {one.id: one.text for one in rh.read_documents(NAME)} == TEXTS


@pytest.mark.slow
def test_python_takes_a_loaded_collection_and_its_records(files):
    whole = ir_datasets.load(NAME.partition(":")[2])
    expected = rh.Index.build(NAME, "notes.index").retrieve(NAME, "bm25")
    for number, documents in enumerate((whole, whole.docs_iter(), list(whole.docs_iter()))):
        index = rh.Index.build(documents, f"{number}.index")
        for queries in (whole, whole.queries_iter(), list(whole.queries_iter())):
            assert index.retrieve(queries, "bm25") == expected
    for qrels in (whole, whole.qrels_iter(), list(whole.qrels_iter())):
        assert rh.evaluate(expected, qrels).to_dict() == rh.evaluate(expected, NAME).to_dict()


def test_measures_are_texts_or_objects_of_ir_measures(files):
    from ir_measures import AP, RR, nDCG

    run = rh.Index.build(NAME, "notes.index").retrieve(NAME, "bm25")
    rh.write_run(run, "notes.run")
    expected = rh.evaluate(read_run("notes.run"), NAME, "AP nDCG@10 RR(rel=2)@10")
    assert rh.evaluate(run, NAME, [AP, nDCG @ 10, RR(rel=2) @ 10]).to_dict() == expected.to_dict()
    assert rh.evaluate(run, NAME, AP).to_dict() == {"AP": expected["AP"]}
    systems = {"a": run, "b": run.top(1)}
    by_text = rh.compare(systems, NAME, "AP nDCG@10", baseline="a")
    assert str(rh.compare(systems, NAME, [AP, nDCG @ 10], baseline="a")) == str(by_text)


def test_an_unknown_collection_is_named():
    with pytest.raises(rh.RankhouseError, match='knows no collection "no/such"'):
        rh.read_queries("ir_datasets:no/such")


@pytest.mark.parametrize("error", [ConnectionError, RuntimeError])
def test_a_collection_that_cannot_be_fetched_is_named(monkeypatch, error):
    def fail():
        raise error("no route to the host\nfor a while")

    whole = ir_datasets.load(NAME.partition(":")[2])
    for method in ("docs_iter", "queries_iter", "qrels_iter"):
        monkeypatch.setattr(type(whole), method, lambda _: fail(), raising=False)
    for read in (rh.read_queries, rh.read_qrels, lambda name: list(rh.read_documents(name))):
        with pytest.raises(
            rh.RankhouseError, match=rf"cannot fetch or read it \({error.__name__}: no route to"
        ) as told:
            read(NAME)
        assert "\n" not in str(told.value)


def test_what_a_collection_or_its_queries_lack_is_named():
    with pytest.raises(
        rh.RankhouseError, match='queries of "ir_datasets:.* have no "narr"; they have query_id'
    ):
        rh.read_queries(NAME, field="narr")
    with pytest.raises(rh.RankhouseError, match='"ir_datasets:clueweb09" has no queries'):
        rh.read_queries("ir_datasets:clueweb09")
