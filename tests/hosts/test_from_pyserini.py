"""The lines of docs/from-pyserini.md, theirs and ours, beside each other: where Pyserini and Java 21 are.

Rows that need the network or a model are not run: prebuilt indexes, topics, judgements, vectors, two fields.
"""

import json
import os
import re
import shlex
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from host_material import QRELS, QUERIES, TEXTS

import rankhouse as rh

pytestmark = [
    pytest.mark.outside,
    pytest.mark.skipif(
        find_spec("pyserini") is None, reason="Pyserini is not installed: pip install pyserini"
    ),
]

PAGE = Path(__file__).parents[2] / "docs" / "from-pyserini.md"
ROWS = {
    name: (re.findall("`([^`]+)`", theirs), re.findall("`([^`]+)`", ours))
    for name, theirs, ours in re.findall(
        r"^\| ([^|]+) \| (.+?) \| (.+) \|$", PAGE.read_text(encoding="utf-8"), re.MULTILINE
    )
}
BEGIN = """
import jnius_config, os, runpy, sys
add = jnius_config.add_options
if os.environ.get("WITHOUT_VECTORS"):  # a Java that lacks the module, with which Lucene is faster only
    jnius_config.add_options = lambda *options: add(*(one for one in options if "incubator" not in one))
"""
SEARCH = """
import json
from pyserini.search.lucene import LuceneSearcher

queries, qids = json.loads(sys.argv[1])
searcher = {open}
answers = {{}}
for name, line in {lines!r}:
    if line:
        exec(line)
    found = [searcher.search(query, k=10) for query in queries]
    answers[name] = [[(hit.docid, hit.score) for hit in hits] for hits in found]
    if "rm3" in name.lower():
        searcher.unset_rm3()
together = {many}
answers["many"] = [[(hit.docid, hit.score) for hit in together[qid]] for qid in qids]
exec({one!r})
answers["one"] = [{hit}]
answers["text"] = {text}
print(json.dumps(answers))
"""


def python(code, *arguments, folder):
    done = subprocess.run(
        [sys.executable, "-c", BEGIN + code, *arguments],
        cwd=folder, capture_output=True, text=True, check=False,
        env={"OPENAI_API_KEY": "unused"} | os.environ,  # Pyserini wants one to be imported
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def shell(line, folder):
    """Run a line of theirs,  python -m pyserini.x ... , or of ours,  rankhouse ... ."""
    words = shlex.split(line)
    if words[0] == "rankhouse":
        return python("runpy.run_module('rankhouse', run_name='__main__')", *words[1:], folder=folder)
    return python(
        "module = sys.argv.pop(1); runpy.run_module(module, run_name='__main__', alter_sys=True)",
        *words[2:], folder=folder,
    )  # fmt: skip


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """A folder each for their lines and for ours, with the same documents, questions and judgements."""
    folders = []
    for name in ("theirs", "ours"):
        folder = tmp_path_factory.mktemp(name)
        (folder / "DIR").mkdir()
        lines = [json.dumps({"id": i, "contents": text}) + "\n" for i, text in TEXTS.items()]
        (folder / "DIR" / "notes.jsonl").write_text("".join(lines))
        (folder / "t.tsv").write_text("".join(f"{i}\t{text}\n" for i, text in QUERIES.items()))
        rh.write_qrels(QRELS, folder / "qrels.txt")
        folders.append(folder)
    for folder, lines in zip(folders, ROWS["index"], strict=True):
        shell(lines[0], folder)
    return folders


def same(theirs, ours):
    """Whether rankings have the same documents, but for the order of equal scores, and the same scores."""
    for found, ranking in zip(theirs, ours, strict=True):
        own = ranking.to_dict()
        assert {doc_id for doc_id, _ in found} == own.keys()
        assert [score for _, score in found] == pytest.approx([own[doc_id] for doc_id, _ in found], abs=2e-4)


def test_searches_give_the_same_documents_and_scores(both):
    theirs, ours = both
    names = ("BM25's parameters", "query likelihood")
    lines = [(name, ROWS[name][0][0]) for name in names]
    lines += [("RM3 over BM25", f"{ROWS[names[0]][0][0]}; {ROWS['RM3'][0][0]}"), ("BM25 again", lines[0][1])]
    code = SEARCH.format(
        open=ROWS["open"][0][0], lines=lines, many=ROWS["many queries"][0][0], one=ROWS["one question"][0][0],
        hit=", ".join(ROWS["a hit"][0]), text=ROWS["a document"][0][0],
    )  # fmt: skip
    asked = json.dumps([list(QUERIES.values()), list(QUERIES)])
    answers = json.loads(python(code, asked, folder=theirs).splitlines()[-1])
    index = rh.Index.open(ours / "i")
    for (name, _), row in zip(lines, (*names, "RM3", names[0]), strict=True):
        system = ROWS[row][1][0].strip('"')
        run = (rh.system(system) % 10).run(QUERIES, index)
        same(answers[name], [run[query_id] for query_id in QUERIES])
    run = index.retrieve(QUERIES, "bm25", k=1000)
    same(answers["many"], [run[query_id] for query_id in QUERIES])
    names = {"index": index}
    exec(ROWS["one question"][1][0], names)
    hit = [eval(line, names) for line in ROWS["a hit"][1]]
    assert answers["one"][0] in TEXTS
    assert answers["one"][1] == pytest.approx(hit[1], abs=2e-4)
    assert answers["text"] == eval(ROWS["a document"][1][0], names) == TEXTS["d1"]


def test_the_shell_gives_the_same_runs(both):
    runs = []
    for side, folder in enumerate(both):
        shell(ROWS["search from a shell"][side][0], folder)
        runs.append(rh.read_run(folder / "a.run"))
    same([list(runs[0][q].to_dict().items()) for q in QUERIES], [runs[1][q] for q in QUERIES])
    for side, folder in enumerate(both):
        rh.write_run(runs[1], folder / "a.run")
        rh.write_run(rh.Index.open(both[1] / "i").retrieve(QUERIES, "ql"), folder / "b.run")
        shell(ROWS["fusion of runs"][side][0], folder)
    fused = [rh.read_run(folder / "c.run") for folder in both]
    same([list(fused[0][q].to_dict().items()) for q in QUERIES], [fused[1][q] for q in QUERIES])
