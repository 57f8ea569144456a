"""The doctor says what the readers would stop at, all of it."""

import json
import platform
import shutil

import pytest


def faults_of(run, name):
    done = run("doctor", name, "--json")
    (found,) = json.loads(done.stdout)
    assert done.returncode == (1 if found["faults"] else 0)
    return found["kind"], found["faults"]


def test_broken_markup_is_named_with_its_lines(tmp_path, run):
    (tmp_path / "c.trec").write_text(
        "<DOC><DOCNO>1</DOCNO>a</DOC><DOC><DOCNO>2</DOCNO><TEXT>b</DOC>\nlost\n<DOC\n><DOCNO>3</DOCNO>\n"
        "<DOC><DOCNO>4</DOCNO>c</DOC>\n</DOC>\n"
    )
    kind, faults = faults_of(run, "c.trec")
    assert kind == "corpus"
    assert [fault.split(": ")[0] for fault in faults] == [
        "c.trec, line 2",
        "c.trec, line 3",
        "c.trec, line 6",
    ]
    (tmp_path / "t.trec").write_text("<top><num>1<title>a<top><num>2<title>b</top><num>3<title>c</top>")
    kind, faults = faults_of(run, "t.trec")
    assert kind == "queries"
    assert '"3 c" stands outside of every <top>' in faults[0]


def test_nested_json_empty_files_and_damaged_pairs_are_named(tmp_path, run):
    (tmp_path / "c.jsonl").write_text('{"id": "a", "text": "x", "m": ' + "[" * 1000 + "]" * 1000 + "}\n")
    assert "line 1: the JSON is nested" in faults_of(run, "c.jsonl")[1][0]
    (tmp_path / "queries.jsonl").write_text(
        '{"id": "a", "text": "x", "m": ' + "[" * 1000 + "]" * 1000 + "}\n"
    )
    assert "line 1: the JSON is nested" in faults_of(run, "queries.jsonl")[1][0]
    pair = {"query_id": "q", "query": "x", "doc_id": "d", "passage": 0, "text": "t", "label": 1}
    lines = [pair, pair | {"passage": -1}, pair | {"label": 0}, pair | {"label": 2, "passage": 4}]
    (tmp_path / "p.jsonl").write_text("\n".join(map(json.dumps, lines)))
    kind, faults = faults_of(run, "p.jsonl")
    assert kind == "pairs"
    assert "line 2: the passage -1" in faults[0]
    assert "line 3: the pair of line 1 again, but with the opposite label" in faults[1]
    assert "1 labels are neither 0 nor 1" in faults[2]
    (tmp_path / "good.jsonl").write_text(json.dumps(pair))
    assert faults_of(run, "good.jsonl") == ("pairs", [])


def test_an_index_for_other_engines_is_examined(tmp_path, run):
    (tmp_path / "c.jsonl").write_text(
        '{"id": "d1", "text": "ships and ships"}\n{"id": "d2", "text": "grain"}\n'
    )
    assert run("index", "c.jsonl", "--out", "i").returncode == 0
    for name in ("exported", "e.ciff", "e.ciff.gz"):
        assert run("export", "--index", "i", "--out", name).returncode == 0
        done = run("doctor", name)
        assert done.returncode == 0, done.stdout
        assert f"{name}: ciff, sound" in done.stdout
        assert "documents: 2" in done.stdout
        assert "terms: 3, 2 distinct" in done.stdout
    whole = (tmp_path / "e.ciff").read_bytes()
    (tmp_path / "e.ciff").write_bytes(whole[:-3])
    done = run("doctor", "e.ciff")
    assert done.returncode == 1
    assert "e.ciff: ciff, faulty" in done.stdout
    assert "ends" in done.stdout


def test_tables_of_parquet_are_told_apart(tmp_path, run):
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    for name, row, kind in (
        ("a.parquet", {"_id": "1", "text": "ships"}, "corpus"),
        ("queries.parquet", {"_id": "1", "text": "ships"}, "queries"),
        ("q.parquet", {"query-id": "1", "corpus-id": "2"}, "qrels"),
    ):
        parquet.write_table(pa.Table.from_pylist([row]), tmp_path / name)
        assert f"{name}: {kind}, sound" in run("doctor", name).stdout
    logs = tmp_path / "query-logs" / "2026"
    logs.mkdir(parents=True)
    shutil.copy(tmp_path / "a.parquet", logs)
    assert "corpus, sound" in run("doctor", str(logs / "a.parquet")).stdout
    (tmp_path / "test.jsonl").write_text('{"query-id": "1", "corpus-id": "2", "score": 1}\n')
    assert "test.jsonl: qrels, sound" in run("doctor", "test.jsonl").stdout


@pytest.mark.parametrize(
    ("name", "text", "kind"),
    [
        ("a.csv", "qid,docno,score\nq,a,1\n", "run"),
        ("b.csv", "query_id,doc_id,relevance\nq,a,1\n", "qrels"),
        ("c.tsv", "query-id\tcorpus-id\tscore\nq\ta\t1\n", "qrels"),
        ("d.tsv", "q\ta\t1\nq\tb\t2\n", "run"),
        ("e.json", '{"q": {"a": 0.5}}', "run"),
        ("f.json", '{"q": {"a": 1}}', "qrels"),
        ("g.jsonl", '{"qid": "q", "docid": "a", "rank": 1}\n', "run"),
        ("h.csv", "id,text\na,ships\n", "corpus"),
        ("j.jsonl", '{"query": "who?", "pos": ["a"], "neg": ["b"]}\n', "pairs"),
        ("k.jsonl", '{"anchor": "who?", "positive": "a", "negative": "b"}\n', "pairs"),
        ("l.tsv", "who?\tA helmsman.\tRain fell in 1969\n", "pairs"),
        ("m.tsv", "a b\tc d\te f\n", "pairs"),
        ("n.json", '{\n "q": {\n  "a": 0.5}}', "run"),
        ("p.csv", "qid,query\n1,who?\n", "queries"),
        ("q.jsonl", '{"qid": "1", "query": "who?"}\n', "queries"),
        ("o.csv", "q Q0 a 1 2.5 t\n", "run"),
        ("i.tsv", "who?\tA helmsman.\tRain falls.\n", "pairs"),
    ],
)
def test_files_of_other_programs_are_told_apart(tmp_path, run, name, text, kind):
    (tmp_path / name).write_text(text)
    done = run("doctor", name)
    assert f"{name}: {kind}, sound" in done.stdout


def test_an_index_in_a_folder_is_not_read_as_documents(tmp_path, run):
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.jsonl").write_text('{"id": "1", "text": "ships"}\n')
    assert run("index", "docs", "--out", "docs/index").returncode == 0
    done = run("doctor", "docs")
    assert "docs: corpus, sound" in done.stdout
    assert "documents: 1" in done.stdout
    assert "what lies in 1 index is not read: index" in done.stderr
    assert run("index", "docs", "--out", "again").returncode == 0


def test_an_installation_says_its_versions(run, monkeypatch):
    import numpy as np

    import rankhouse
    from rankhouse.cli.commands import doctor

    lines = [
        "click>=8",
        'torch>=2.6; extra == "neural"',
        'numpy>=2; platform_system != "Windows" and extra == "neural"',
        f'here>=1; platform_machine in "{platform.machine()} other" and extra == "neural"',
        'elsewhere>=1; platform_machine in "s390x other" and extra == "neural"',
        "no-such-package>=1; extra == 'stores'",
        'ruff; extra == "dev"',
        'rankhouse[neural]; extra == "all"',
    ]
    monkeypatch.setattr(doctor, "requires", lambda _: lines)

    def known(name):
        if name == "no-such-package":
            raise doctor.PackageNotFoundError(name)
        return {"torch": "2.9", "here": "7"}.get(name, np.__version__)

    monkeypatch.setattr(doctor, "version", known)
    shown = run("doctor").stdout
    assert f"rankhouse: {rankhouse.__version__}" in shown
    assert f"extra neural: torch 2.9, numpy {np.__version__}, here 7\n" in shown
    assert 'extra stores: no (no-such-package); pip install "rankhouse[stores]"' in shown
    assert "extra dev" not in shown

    def unknown(name):
        raise doctor.PackageNotFoundError(name)

    monkeypatch.setattr(doctor, "requires", unknown)  # run from its source
    assert "extra" not in run("doctor").stdout
