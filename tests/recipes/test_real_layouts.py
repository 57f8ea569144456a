"""The recipes of NanoBEIR and MTEB on made-up collections, laid out and named as the real ones are.

The folders are those that ``hf download`` makes of the hub's repositories, the caches those of ir_datasets.
"""

import gzip
import json
import os
import re
import subprocess
import sys
import tomllib
import tracemalloc
import zipfile
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")
ir_datasets = pytest.importorskip("ir_datasets")
pa = pytest.importorskip("pyarrow")
from pyarrow import parquet  # noqa: E402

import rankhouse as rh  # noqa: E402

ROOT = Path(__file__).parents[2]
RECIPES, BERT = ROOT / "recipes", ROOT / "tests" / "golden" / "bert"
TEXTS = (
    "A lock lifts ships between two levels of water.",
    "Pilots board ships and steer them into the harbour.",
    "Ships carried grain; prices rose when the harvest was poor.",
    "High water comes twice a day.",
)
IDS = {
    "arguana": [f"test-environment-aeghhgwpe-{side}0{n}a" for n in (1, 2) for side in ("pro", "con")],
    "climate-fever": ["Habitat_destruction", "Kilauea_-LRB-volcano-RRB-", "Añasco", "2,4-D"],
    "dbpedia-entity": ["<dbpedia:Animalia_(book)>", "<dbpedia:Õ>", "<dbpedia:C++>", "<dbpedia:AC/DC>"],
    "touche": [f"c67482ba-2019-04-18T13:32:05Z-0000{n}-000" for n in range(4)],
    "trec-covid": ["ug7v899j", "02tnwd4m", "ejv2xln0", "2b73a28n"],
    "": ["4983", "5836", "7912", "18670"],
}
"""As each collection's own documents are called; "" stands for the others."""
METADATA = {
    "scidocs": {"authors": ["144911687"], "year": 2007, "cited_by": ["4983"], "references": []},
    "trec-covid": {
        "url": "https://doi.org/1",
        "pubmed_id": "11",
        "query": "ships",
        "narrative": "About ships.",
    },
}
"""Fields of documents and queries in BEIR's own archives."""


def collection(name):
    """Documents, queries and judgements; ArguAna's queries are documents of its own."""
    ids = next(value for key, value in IDS.items() if key in name or not key)
    docs = [
        {"_id": i, "title": f"Note {n}", "text": text}
        for n, (i, text) in enumerate(zip(ids, TEXTS, strict=True))
    ]
    asked = [
        {"_id": ids[0] if name == "arguana" else "1", "text": TEXTS[0]},
        {"_id": "PLAIN-2", "text": "who steers ships"},
    ]
    return (
        docs,
        [*asked, {"_id": "unjudged", "text": "a query of another split"}],
        [
            {"query-id": asked[0]["_id"], "corpus-id": ids[2], "score": 1},
            {"query-id": "PLAIN-2", "corpus-id": ids[1], "score": 2},
        ],
    )


def lines(rows):
    return "".join(json.dumps(row) + "\n" for row in rows)


def nano(folder, name):
    """zeta-alpha-ai/Nano...: one split, no titles, no grades."""
    docs, asked, judged = collection(name)
    tables = {
        "corpus": [{"_id": one["_id"], "text": one["text"]} for one in docs],
        "queries": asked[:2],
        "qrels": [{key: row[key] for key in ("query-id", "corpus-id")} for row in judged],
    }
    for part, rows in tables.items():
        (folder / part).mkdir(parents=True)
        parquet.write_table(pa.Table.from_pylist(rows), folder / part / "train-00000-of-00001.parquet")


def mteb_lines(folder, name):
    """mteb/fiqa and its like: JSON lines, of judgements, too; a split for training beside the test."""
    docs, asked, judged = collection(name)
    (folder / "qrels").mkdir(parents=True)
    (folder / "corpus.jsonl").write_text(lines(docs))
    (folder / "queries.jsonl").write_text(lines(asked))
    (folder / "qrels" / "test.jsonl").write_text(lines(judged))
    (folder / "qrels" / "train.jsonl").write_text(lines([{**judged[0], "query-id": "unjudged"}]))


def mteb_tables(folder, name):
    """mteb/HotpotQA_test_top_250_only_w_correct-v2 and its like: shards of Parquet, judgements in data/."""
    docs, asked, judged = collection(name)
    parts = {"corpus/corpus": docs, "queries/queries": asked, "data/test": judged}
    for part, rows in parts.items():
        (folder / part).parent.mkdir(parents=True)
        for shard in range(2):
            path = folder / f"{part}-0000{shard}-of-00002.parquet"
            parquet.write_table(pa.Table.from_pylist(rows[shard::2]), path)


def cached(home, name):
    """Files that ir_datasets keeps of nano-beir/NAME and beir/NAME once it was downloaded."""
    family, _, rest = name.partition("/")
    docs, asked, judged = collection(rest)
    if family == "nano-beir":
        tables = {"corpus": docs, "queries": asked[:2], "qrels": judged}
        (home / name).mkdir(parents=True)
        for part, rows in tables.items():
            parquet.write_table(pa.Table.from_pylist(rows), home / name / f"{part}.parquet")
        return
    inner = rest.partition("/")[0]
    about = {"metadata": METADATA.get(inner, {})}
    (home / family / inner).mkdir(parents=True)
    table = "query-id\tcorpus-id\tscore\n" + "".join(
        "\t".join(map(str, row.values())) + "\n" for row in judged
    )
    with zipfile.ZipFile(home / family / inner / "source.zip", "w") as archive:
        archive.writestr(f"{inner}/corpus.jsonl", lines([one | about for one in docs]))
        archive.writestr(f"{inner}/queries.jsonl", lines([one | about for one in asked]))
        archive.writestr(f"{inner}/qrels/test.tsv", table)


@pytest.mark.parametrize("layout", [nano, mteb_lines, mteb_tables])
def test_a_hubs_folder_is_read_as_it_is(layout, tmp_path):
    layout(tmp_path / "set", "dbpedia-entity")
    docs, asked, judged = collection("dbpedia-entity")
    found = {one.id: one.text for one in rh.read_documents(tmp_path / "set")}
    assert found == {one["_id"]: one["text"] for one in docs}
    assert {one.id: one.text for one in rh.read_queries(tmp_path / "set")} == {
        one["_id"]: one["text"] for one in asked[:2]
    }
    assert {q: dict(grades) for q, grades in rh.read_qrels(tmp_path / "set").items()} == {
        row["query-id"]: {row["corpus-id"]: 1 if layout is nano else row["score"]} for row in judged
    }


def test_faults_of_such_files_are_named(tmp_path):
    def written(name, rows):
        parquet.write_table(pa.Table.from_pylist(rows), tmp_path / name)
        return tmp_path / name

    with pytest.raises(rh.RankhouseError, match=r'a\.parquet, line 1: the record has no "id" \(or "_id"\)'):
        list(rh.read_documents(written("a.parquet", [{"text": "ships"}])))
    with pytest.raises(rh.RankhouseError, match=r'b\.parquet, line 2: the "_id" must be a string'):
        list(rh.read_documents(written("b.parquet", [{"_id": "1", "text": "a"}, {"_id": None, "text": "b"}])))
    with pytest.raises(rh.RankhouseError, match='the judgement has no column "corpus-id"; it has query-id'):
        rh.read_qrels(written("c.parquet", [{"query-id": "1"}]))
    with pytest.raises(rh.RankhouseError, match='the grade "0.5" is no whole number'):
        rh.read_qrels(written("d.parquet", [{"query-id": "1", "corpus-id": "2", "score": 0.5}]))
    assert rh.read_qrels(written("e.parquet", [{"query-id": "1", "corpus-id": "2", "score": 2.0}])) == {
        "1": {"2": 2}
    }
    whole = (tmp_path / "e.parquet").read_bytes()
    (tmp_path / "f.parquet").write_bytes(whole[:-9])
    for read in (rh.read_qrels, rh.read_queries, lambda path: list(rh.read_documents(path))):
        with pytest.raises(rh.RankhouseError, match=r"f\.parquet.*is no whole Parquet file"):
            read(tmp_path / "f.parquet")
        with pytest.raises(rh.RankhouseError, match=r"g\.parquet: there is no such file"):
            read(tmp_path / "g.parquet")
    (tmp_path / "h.jsonl").write_text('{"query-id": "1", "corpus-id": "2"}\n{"query-id": "1"}\n')
    with pytest.raises(rh.RankhouseError, match=r'h\.jsonl, line 2: the judgement has no column "corpus-id"'):
        rh.read_qrels(tmp_path / "h.jsonl")


@pytest.mark.parametrize("judged", [None, True, 1.5, ["1"], "", "a b"])
def test_ids_of_judgements_are_texts_or_whole_numbers(judged, tmp_path):
    row = {"query-id": judged, "corpus-id": 2}
    parquet.write_table(pa.Table.from_pylist([row]), tmp_path / "a.parquet")
    (tmp_path / "a.jsonl").write_text("\n" + json.dumps(row))
    (tmp_path / "b.jsonl").write_text("\n" + json.dumps(row | {"query-id": 1}))
    for name in ("a.parquet", "a.jsonl"):
        with pytest.raises(
            rh.RankhouseError, match="must be a string or a whole number|is empty or has white"
        ):
            rh.read_qrels(tmp_path / name)
    assert rh.read_qrels(tmp_path / "b.jsonl") == {"1": {"2": 1}}


def test_a_grade_by_another_name_is_not_taken_for_1(tmp_path):
    for name in ("relevance", "importance"):
        rows = [{"query-id": "1", "corpus-id": "2", name: 0}]
        parquet.write_table(pa.Table.from_pylist(rows), tmp_path / f"{name}.parquet")
    assert rh.read_qrels(tmp_path / "relevance.parquet") == {"1": {"2": 0}}
    with pytest.raises(rh.RankhouseError, match='no column "relevance"; it has query-id, corpus-id, import'):
        rh.read_qrels(tmp_path / "importance.parquet")


def test_shards_hold_a_query_once_and_hidden_files_nothing(tmp_path):
    mteb_tables(tmp_path / "set", "fiqa")
    for part in ("corpus", "queries"):
        (tmp_path / "set" / part / "._copy-00000-of-00001.parquet").write_bytes(b"\0\5\26\7")
    assert len(list(rh.read_documents(tmp_path / "set"))) == 4
    assert len(rh.read_queries(tmp_path / "set")) == 2
    again = [{"_id": "PLAIN-2", "text": "other words"}]
    parquet.write_table(pa.Table.from_pylist(again), tmp_path / "set" / "queries" / "queries-00003.parquet")
    with pytest.raises(rh.RankhouseError, match='query "PLAIN-2" is given twice'):
        rh.read_queries(tmp_path / "set")


def test_columns_that_python_cannot_hold(tmp_path):
    def written(name, **columns):
        table = pa.table({"id": ["1"], "text": ["ships sail"]} | columns)
        parquet.write_table(table, tmp_path / name)
        return tmp_path / name

    times = pa.array([1_234_567_890_123_456_789], pa.timestamp("ns", "UTC"))
    index = rh.Index.build(written("a.parquet", when=times), tmp_path / "i")
    assert index.retrieve([("q", "ships")], "bm25").to_dict()["q"].keys() == {"1"}
    offsets, raw = pa.py_buffer(b"\0\0\0\0\2\0\0\0"), pa.py_buffer(b"\xff\xfe")
    halves = pa.Array.from_buffers(pa.string(), 1, [None, offsets, raw])
    late = pa.array([2**30], pa.date32())
    for path in (written("b.parquet", text=halves), written("c.parquet", day=late)):
        with pytest.raises(rh.RankhouseError, match="what cannot be read .* behind row 0"):
            list(rh.read_documents(path))
    (tmp_path / "d.parquet.gz").write_bytes(gzip.compress((tmp_path / "a.parquet").read_bytes()))
    with pytest.raises(rh.RankhouseError, match="not read out of a compression"):
        list(rh.read_documents(tmp_path / "d.parquet.gz"))


def test_memory_does_not_grow_with_row_groups(tmp_path):
    """What Arrow holds of a group of rows, while its first are read, is far less than the group."""
    letters = np.random.default_rng(0).bytes(15_000_000).hex()
    texts = [letters[place : place + 1000] for place in range(0, len(letters), 1000)]
    table = pa.table({"id": list(map(str, range(len(texts)))), "text": texts})
    parquet.write_table(table, tmp_path / "a.parquet", use_dictionary=False)
    del table
    tracemalloc.start()  # Arrow reads by Python's file, so that what it reads are Python's bytes
    rows = rh.read_documents(tmp_path / "a.parquet")
    next(rows)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 10_000_000
    rows.close()


def changed(rankers):
    """Say that a recipe's checkpoints are tiny ones with random weights."""
    encoder = BERT / "tiny_bert"
    values = {
        "data.biencoder": str(encoder),
        "steps.encoded.ranker": f'biencoder("@biencoder", tokenizer="{BERT}")',
        "steps.dense.model": f'dense("biencoder(\\"@biencoder\\", tokenizer=\\"{BERT}\\")")',
    }
    for step, entry in rankers.items():
        values[f"data.{entry}"] = str(BERT / "tiny_bert_seqcls2")
        values[f"steps.{step}.ranker"] = f'crossencoder("@{entry}", tokenizer="{BERT}")'
    return [word for key, value in values.items() for word in ("--set", f"{key}={json.dumps(value)}")]


def carried_out(recipe, home, *arguments):
    """Run a recipe in a program of its own, since ir_datasets keeps the home with which it was imported."""
    return subprocess.run(
        [sys.executable, "-m", "rankhouse", "run", RECIPES / recipe, *arguments, "--json", "--out", "o"],
        cwd=home.parent, env=os.environ | {"IR_DATASETS_HOME": str(home), "HF_HUB_OFFLINE": "1"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip


def loop_of(recipe):
    return tomllib.loads((RECIPES / recipe).read_text())["loop"]["set"]


def folder_of(recipe, name):
    entry = tomllib.loads((RECIPES / recipe).read_text())["data"][name]
    return (entry if isinstance(entry, str) else entry["path"]).removeprefix("@root/")


def tables_of(done):
    assert done.returncode == 0, done.stderr
    return {
        table["name"]: {
            cell["system"]: cell["mean"] for cell in table["cells"] if cell["measure"] == "nDCG@10"
        }
        for table in json.loads(done.stdout)["tables"]
    }


def only(names):
    return [word for name in names for word in ("--only", name)]


@pytest.mark.slow
def test_nanobeir_runs_on_the_hubs_folders_and_on_what_ir_datasets_keeps(tmp_path):
    assert len(loop_of("nanobeir.toml")) == 13
    names = ["arguana", "climate-fever", "dbpedia-entity"]
    for name in names[:2]:
        nano(tmp_path / "sets" / folder_of("nanobeir.toml", name), name)
    cached(tmp_path / "home", f"nano-beir/{names[2]}")
    rankers = changed({"reranked": "crossencoder"})
    asked = ("--set", "data.root=sets", *only(names), *rankers)
    tables = tables_of(carried_out("nanobeir.toml", tmp_path / "home", *asked))
    assert list(tables) == [*names, "Mean of the collections"]
    assert all(0 < values["BM25"] <= 1 for values in tables.values())
    mean = sum(tables[name]["BM25"] for name in names) / 3
    assert tables["Mean of the collections"]["BM25"] == pytest.approx(mean)


@pytest.mark.slow
def test_mteb_reranking_runs_on_the_hubs_folders_and_on_what_ir_datasets_keeps(tmp_path):
    all_names = loop_of("mteb-reranking.toml")
    assert len(all_names) == 10
    data = tomllib.loads((RECIPES / "mteb-reranking.toml").read_text())["data"]
    hard = next(name for name in all_names if "hard" in name)
    names = [name for name in all_names if name in ("arguana", "scidocs", hard)]
    for name in names:
        if name == "scidocs":
            cached(tmp_path / "home", data[name]["otherwise"].removeprefix("ir_datasets:"))
        else:
            layout = mteb_tables if name == hard else mteb_lines
            layout(tmp_path / "sets" / folder_of("mteb-reranking.toml", name), name)
    rankers = changed({"minilm_reranked": "minilm", "ettin_reranked": "ettin"})
    asked = ("--set", "data.root=sets", *only(names), *rankers)
    tables = tables_of(carried_out("mteb-reranking.toml", tmp_path / "home", *asked))
    assert list(tables) == [*names, "Mean of the tasks"]
    assert all(0 <= value <= 1 for values in tables.values() for value in values.values())
    [first] = (tmp_path / "o" / "work").glob("dense.set=arguana*/dense.run")
    own = collection("arguana")[1][0]["_id"]
    assert own not in rh.read_run(first)[own].doc_ids  # of ArguAna, the query's own document is left out


def test_a_collection_that_ir_datasets_does_not_keep_is_not_fetched_unasked(tmp_path):
    cached(tmp_path / "home", "nano-beir/scifact")
    (tmp_path / "sets").mkdir()
    one = ("--set", "data.root=sets", "--only", "nq")
    done = carried_out("nanobeir.toml", tmp_path / "home", *one)
    assert done.returncode == 0, done.stderr
    assert "index set=nq: data absent" in done.stderr


@pytest.mark.parametrize("recipe", sorted(RECIPES.glob("*.toml")), ids=lambda path: path.stem)
def test_ir_datasets_knows_every_collection_that_a_recipe_names(recipe):
    for name in re.findall(r'"ir_datasets:([^"]+)"', recipe.read_text()):
        found = ir_datasets.load(name)
        assert found.has_docs() or found.has_queries() or found.has_qrels()
