"""The doctor says what the readers would stop at, all of it."""

import json


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
