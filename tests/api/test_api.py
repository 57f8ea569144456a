"""The public API: what ``import rankhouse as rh`` gives."""

import copy
import doctest
import importlib
import inspect
import pickle
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import rankhouse as rh

BERT = Path(__file__).parents[1] / "golden" / "bert"
DOCUMENTS = [
    {"id": "tides", "title": "Tides", "text": "The moon pulls the sea; harbours see high water daily."},
    {"_id": "locks", "text": "A lock lifts ships between two levels of water.", "year": 1902},
    rh.Document("pilots", "Pilots board ships and steer them into the harbour.", "Harbour pilots"),
]
QUERIES = {"q1": "who steers ships into a harbour", "q2": "high water"}
KNRM = "knrm(width=8, min_count=1)"
QRELS = {"q1": {"pilots": 1}, "q2": {"tides": 1, "locks": 0}}


@pytest.fixture
def index(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return rh.Index.build(DOCUMENTS, "my.index", workers=1)


@pytest.fixture
def checkpoint(tmp_path):
    folder = tmp_path / "checkpoint"
    shutil.copytree(BERT / "tiny_bert_seqcls2", folder)
    shutil.copy(BERT / "vocab.txt", folder)
    return folder


def test_names_are_listed_and_loaded_when_used():
    assert set(rh.__all__) == set(dir(rh))
    assert len(rh.__all__) <= 31
    for name in rh.__all__:
        assert getattr(rh, name) is not None
    with pytest.raises(AttributeError, match="did you mean open_ranker"):
        _ = rh.opne_ranker
    with pytest.raises(AttributeError, match="no attribute 'nothing_like_it'"):
        _ = rh.nothing_like_it


@pytest.mark.slow
def test_importing_loads_nothing_and_searching_needs_no_torch(tmp_path):
    code = f"""
import sys
before = set(sys.modules)
import rankhouse as rh
fresh = {{name for name in set(sys.modules) - before if name.startswith("rankhouse")}}
assert fresh == {{"rankhouse"}}, fresh
assert "numpy" not in sys.modules
index = rh.Index.build([rh.Document("d", "ships")], {str(tmp_path / "i")!r}, workers=1)
run = index.retrieve({{"q": "ships"}})
rh.evaluate(run, {{"q": {{"d": 1}}}})
rh.fuse([run, run])
heavy = {{"torch", "transformers", "matplotlib", "faiss", "pandas"}} & set(sys.modules)
assert not heavy, heavy
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_documents_come_from_files_mappings_and_iterables(index, tmp_path):
    assert [d.id for d in index.documents.stream()] == ["tides", "locks", "pilots"]
    assert index.documents["locks"].extra == {"year": 1902}
    (tmp_path / "corpus.jsonl").write_text('{"id": "a", "text": "one"}\n')
    (tmp_path / "more.tsv").write_text("b\ttwo\n")
    assert len(rh.Index.build("corpus.jsonl", "one.index", workers=1)) == 1
    both = rh.Index.build(["corpus.jsonl", tmp_path / "more.tsv"], "two.index", workers=1)
    assert list(both.documents) == ["a", "b"]
    assert len(both.append([rh.Document("c", "three")], workers=1)) == 3
    changed = both.append([rh.Document("c", "four")], update=True, workers=1)
    assert changed.documents["c"].text == "four"
    assert "c" not in changed.delete(["c"]).documents
    with pytest.raises(rh.RankhouseError, match="document ids"):
        changed.delete("a")
    with pytest.raises(rh.RankhouseError, match="document 1 is of type int"):
        rh.Index.build([rh.Document("a", "x"), 5], "no.index", workers=1)
    with pytest.raises(rh.RankhouseError, match='document 0 has no "id"'):
        rh.Index.build([{"text": "x"}], "no.index", workers=1)
    with pytest.raises(rh.RankhouseError, match="no documents"):
        rh.Index.build([], "no.index", workers=1)
    assert not (tmp_path / "no.index").exists()


def test_one_question_is_answered_with_a_ranking_that_shows_itself(index):
    result = index.search("who steers ships into a harbour?", k=2)
    assert isinstance(result.ranking, rh.Ranking)
    scores = result.ranking.scores
    assert result.ranking.doc_ids == result.doc_ids == ("pilots", "locks")
    assert scores.dtype == np.float32
    assert [hit.doc_id for hit in result] == ["pilots", "locks"]
    assert len(result) == 2
    assert result[0] == result.hits[0]
    assert result[-1].rank == 2
    assert result[1:][0] == result[1]
    assert str(result[1:]).startswith("  2  locks")
    with pytest.raises(IndexError):
        result[2]
    assert str(result).splitlines()[0].startswith("  1  Harbour pilots  pilots  ")
    assert "<mark>ships</mark>" in result._repr_html_()
    assert [hit.rank for hit in result.hits] == [1, 2]
    assert result.to_dict()["pilots"] == pytest.approx(float(scores[0]))
    assert list(result.to_frame()["doc_id"]) == ["pilots", "locks"]
    assert str(index.search("zebra")) == "nothing was found"


def test_what_is_shown_as_html_is_escaped(tmp_path):
    document = rh.Document("<b>", "<script>alert(1)</script> ship", "<i>")
    evil = rh.Index.build([document], tmp_path / "e", workers=1)
    html = evil.search("ship")._repr_html_() + evil.retrieve({"<q>": "ship"})._repr_html_()
    for tag in ("<script", "<i>", "<b><", "<q>"):
        assert tag not in html.replace("<b>&lt;", "")


def test_many_queries_give_a_run_that_converts(index, tmp_path):
    run = index.retrieve(QUERIES, ["bm25", "ql"], k=5)
    assert rh.Run.of(run.to_dict()) == run
    frame = run.to_frame()
    assert list(frame.columns) == ["query_id", "doc_id", "rank", "score"]
    assert len(frame) == run.rows
    assert "q1: pilots" in str(run)
    (tmp_path / "queries.tsv").write_text("".join(f"{q}\t{text}\n" for q, text in QUERIES.items()))
    assert index.retrieve("queries.tsv", ["bm25", "ql"], k=5) == run
    assert index.retrieve(list(QUERIES.items()), ["bm25", "ql"], k=5) == run
    with pytest.raises(rh.RankhouseError, match=r"one question is asked with index\.search"):
        index.retrieve("who steers ships?")


def test_runs_and_judgements_may_be_paths_or_mappings(index, tmp_path):
    run = index.retrieve(QUERIES)
    rh.write_run(run, "bm25.run")
    rh.write_qrels(QRELS, "qrels.txt")
    scores = rh.evaluate("bm25.run", tmp_path / "qrels.txt", "AP RR@10")
    assert scores.means == rh.evaluate(run.to_dict(), QRELS, "AP RR@10").means
    assert scores.means["AP"] == 1.0
    fused = rh.fuse(["bm25.run", run], "rrf")
    table = rh.compare({"BM25": run, "fused": fused}, "qrels.txt", "AP", baseline="BM25")
    assert table.cell("fused", "AP").paired_test is not None
    tuned = rh.fuse([run, fused], "linear", tune=QRELS, apply=[run, fused])
    assert set(tuned) == set(run)
    with pytest.raises(rh.RankhouseError, match="either weights or tune"):
        rh.fuse([run, run], weights=[1, 1], tune=QRELS)


class ByLength:
    """A ranker from outside rankhouse."""

    scale = "score"
    fingerprint = "by length"

    def score(self, pairs):
        return np.array([len(pair.passage.text) for pair in pairs], np.float32)


def test_a_ranker_of_ones_own_reranks(index):
    run = index.retrieve({"q": "ships water harbour"})
    better = rh.rerank(ByLength(), run, {"q": "ships water harbour"}, index, depth=10, cache="scores")
    assert better["q"].doc_ids[0] == "pilots"
    assert rh.rerank(ByLength(), run, {"q": "ships"}, "my.index", depth=1)["q"].doc_ids == run["q"].doc_ids


def test_a_checkpoint_is_opened_and_ranks_texts(index, checkpoint):
    ranker = rh.open_ranker(f'crossencoder("{checkpoint}")', precision="fp32", device="cpu")
    texts = ["Pilots board ships.", rh.Document("lock", "A lock lifts ships."), "Tides."]
    result = ranker.rank("who steers ships?", texts)
    assert sorted(result.doc_ids) == ["0", "2", "lock"]
    query = rh.Query("q", "who steers ships?")
    pairs = [rh.Pair(query, rh.Passage(hit.doc_id, 0, hit.text)) for hit in result.hits]
    assert np.array_equal(ranker.score(pairs), result.scores)
    assert ranker.rank("who steers ships?", texts, k=1).doc_ids == result.doc_ids[:1]
    with pytest.raises(rh.RankhouseError, match=r"give a list: \['a text'\]"):
        ranker.rank("who steers ships?", "a text")
    saved = ranker.save("bundle")
    again = rh.open_ranker(saved, precision="fp32", device="cpu")
    assert np.array_equal(again.score(pairs), result.scores)
    assert again.fingerprint == ranker.fingerprint
    run = index.retrieve(QUERIES)
    by_name = rh.rerank(f'crossencoder("{checkpoint}")', run, QUERIES, index, depth=2)
    assert by_name == rh.rerank(rh.open_ranker(f'crossencoder("{checkpoint}")'), run, QUERIES, index, depth=2)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::rankhouse.core.errors.RankhouseWarning")
def test_labels_are_made_and_learned_from(index, tmp_path):
    run = index.retrieve(QUERIES)
    rh.write_qrels(QRELS, "qrels.txt")
    made = rh.label("judged('qrels.txt')", run, QUERIES, index, out="pairs.jsonl", negatives="all")
    assert made.relevant == 2
    settings = {"epochs": 1, "seed": 3, "overlap": "allow"}
    ranker = rh.train(KNRM, index, out="knrm", pairs="pairs.jsonl", settings=settings)
    assert ranker.fingerprint == rh.open_ranker("knrm").fingerprint
    again = rh.train(
        KNRM, index, out="knrm2", queries=QUERIES, qrels=QRELS, run=run,
        validation=(QUERIES, QRELS, run), settings=settings,
    )  # fmt: skip
    assert len(again.score([rh.Pair(rh.Query("q", "ships"), rh.Passage("d", 0, "ships"))])) == 1
    with pytest.raises(rh.RankhouseError, match="pairs"):
        rh.train(KNRM, index, out="knrm3", pairs="pairs.jsonl", queries=QUERIES)


def test_no_package_has_the_name_of_a_public_one():
    """Importing it would put the package in the function's place."""
    packages = {path.name for path in Path(rh.__file__).parent.iterdir()}
    assert packages.isdisjoint({*rh.__all__, *(f"{name}.py" for name in rh.__all__)})


NAMES = [
    pytest.param(name, marks=pytest.mark.slow if name == "adapt" else ())
    for name in rh.__all__
    if name != "__version__"
]


@pytest.mark.parametrize("name", NAMES)
def test_every_public_name_is_documented_with_an_example_that_runs(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    home = importlib.import_module(f"rankhouse.{rh._HOMES[name]}")
    thing = home if name == "Qrels" else getattr(rh, name)  # an alias has no docstring of its own
    assert inspect.getdoc(thing)
    tests = doctest.DocTestFinder(recurse=False).find(thing, name, home, extraglobs={"rh": rh})
    examples = sum(len(test.examples) for test in tests)
    assert examples, f"rh.{name} has no example"
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE, verbose=False)
    for test in tests:
        assert runner.run(test).failed == 0


NOT_ARGUMENTS = (None, 5, 0.5, b"x", object(), {1: 2}, [None], [[]], {1, 2}, "a\0b")
RUN = {"q1": {"pilots": 2.0, "tides": 1.0}, "q2": {"tides": 1.0}}
CALLS = {
    "build documents": lambda index, x: rh.Index.build(x, "never.index", workers=1),
    "build path": lambda index, x: rh.Index.build(DOCUMENTS, x, workers=1),
    "build analyzer": lambda index, x: rh.Index.build(DOCUMENTS, "never.index", analyzer=x),
    "build workers": lambda index, x: rh.Index.build(DOCUMENTS, "never.index", workers=x),
    "open": lambda index, x: rh.Index.open(x),
    "append": lambda index, x: index.append(x, workers=1),
    "search query": lambda index, x: index.search(x),
    "search model": lambda index, x: index.search("ships", x),
    "search k": lambda index, x: index.search("ships", k=x),
    "retrieve queries": lambda index, x: index.retrieve(x),
    "retrieve feedback": lambda index, x: index.retrieve(QUERIES, feedback=x),
    "encode": lambda index, x: index.encode(x),
    "open_ranker": lambda index, x: rh.open_ranker(x),
    "rerank ranker": lambda index, x: rh.rerank(x, RUN, QUERIES, index),
    "rerank run": lambda index, x: rh.rerank(ByLength(), x, QUERIES, index),
    "rerank queries": lambda index, x: rh.rerank(ByLength(), RUN, x, index),
    "rerank index": lambda index, x: rh.rerank(ByLength(), RUN, QUERIES, x),
    "rerank depth": lambda index, x: rh.rerank(ByLength(), RUN, QUERIES, index, depth=x),
    "fuse runs": lambda index, x: rh.fuse(x),
    "fuse a run": lambda index, x: rh.fuse([RUN, x]),
    "fuse method": lambda index, x: rh.fuse([RUN, RUN], x),
    "evaluate run": lambda index, x: rh.evaluate(x, QRELS),
    "evaluate qrels": lambda index, x: rh.evaluate(RUN, x),
    "evaluate measures": lambda index, x: rh.evaluate(RUN, QRELS, x),
    "compare runs": lambda index, x: rh.compare(x, QRELS),
    "compare test": lambda index, x: rh.compare({"a": RUN, "b": RUN}, QRELS, baseline="a", test=x),
    "label rule": lambda index, x: rh.label(x, RUN, QUERIES, index, out="never.jsonl"),
    "label out": lambda index, x: rh.label("ranked('r.run', 1)", RUN, QUERIES, index, out=x),
    "train ranker": lambda index, x: rh.train(x, index, out="never", queries=QUERIES, qrels=QRELS),
    "train out": lambda index, x: rh.train(KNRM, index, out=x, queries=QUERIES, qrels=QRELS),
    "explain ranker": lambda index, x: rh.explain(x, "ships", "pilots", index=index),
    "explain query": lambda index, x: rh.explain("bm25", x, "pilots", index=index),
    "explain documents": lambda index, x: rh.explain("bm25", "ships", x, index=index),
    "explain texts": lambda index, x: rh.explain(ByLength(), "ships", x),
    "explain index": lambda index, x: rh.explain("bm25", "ships", "pilots", index=x),
    "explain against": lambda index, x: rh.explain("bm25", "ships", "pilots", index=index, against=x),
    "explain top": lambda index, x: rh.explain("bm25", "ships", top=x, index=index),
    "explain run": lambda index, x: rh.explain("bm25", "ships", "pilots", run=x, index=index),
    "train split": lambda index, x: rh.train(KNRM, index, out="never", queries=QUERIES, qrels=QRELS, split=x),
}  # fmt: skip
ACCEPTED = [
    ("explain run", None),
    ("explain query", "a\0b"),
    ("explain texts", "a\0b"),
    ("explain top", 5),
    ("search k", 5),
    ("rerank depth", 5),
    ("rerank depth", None),
    ("build workers", 5),
    ("search query", "a\0b"),
]


@pytest.mark.parametrize("call", CALLS)
def test_a_wrong_argument_is_explained_and_leaves_nothing_behind(call, index, tmp_path):
    rh.write_run(rh.Run.of(RUN), "r.run")
    before = sorted(path.name for path in tmp_path.rglob("*"))
    for wrong in NOT_ARGUMENTS:
        if (call, wrong) in ACCEPTED:
            continue
        with pytest.raises(rh.RankhouseError):
            CALLS[call](index, wrong)
    assert sorted(path.name for path in tmp_path.rglob("*")) == before


def test_values_are_of_the_kinds_that_annotations_name(index):
    with pytest.raises(rh.RankhouseError, match="build: overwrite='yes', but it takes True or False"):
        rh.Index.build(DOCUMENTS, "my.index", overwrite="yes", workers=1)
    with pytest.raises(rh.RankhouseError, match="rerank: tail='kept', but it takes 'keep' or 'drop'"):
        rh.rerank(ByLength(), RUN, QUERIES, index, tail="kept")
    with pytest.raises(rh.RankhouseError, match="compare: seed=True, but it takes a whole number"):
        rh.compare({"a": RUN}, QRELS, seed=True)
    assert len(index.search("ships", np.str_("bm25"), k=np.int64(1)).doc_ids) == 1


def test_what_would_be_lost_silently_is_refused(index):
    with pytest.raises(rh.RankhouseError, match='query id "q" is given twice'):
        index.retrieve([("q", "ships"), ("q", "tides")])
    with pytest.raises(rh.RankhouseError, match='documents, line 3: the id "a" was already given'):
        rh.Index.build([{"id": i, "text": "ships"} for i in "aba"], "twice.index")
    assert not Path("twice.index").exists()
    with pytest.raises(rh.RankhouseError, match=r"grade of \"pilots\" is 0.5, not a whole number"):
        rh.evaluate(RUN, {"q1": {"pilots": 0.5}})
    with pytest.raises(rh.RankhouseError, match="document id 1 is no string"):
        rh.evaluate({"q1": {1: 2.0}}, QRELS)
    with pytest.raises(rh.RankhouseError, match="validation has 2 parts"):
        rh.train(KNRM, index, out="never", queries=QUERIES, qrels=QRELS, validation=(QUERIES, QRELS))


@pytest.mark.parametrize("doc_id", ["\x1b[2Jd", "a\x85b", "d\ud800", "", "a b", "a\nb"])
def test_ids_of_python_objects_are_checked_as_those_of_files(doc_id, tmp_path):
    for document in ({"id": doc_id, "text": "x"}, rh.Document(doc_id, "x")):
        with pytest.raises(
            rh.RankhouseError, match="the id .*(control character|is empty or has white space)"
        ):
            rh.Index.build([document], tmp_path / "i", workers=1)
    assert not (tmp_path / "i").exists()


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"text": "x \ud800"}, "document \"d\" holds '\\\\ud800', half of a surrogate pair"),
        ({"text": "x", "title": "\udfff"}, "document \"d\" holds '\\\\udfff'"),
        ({"text": "x", "by": "\ud800"}, 'document "d" holds'),
        ({"text": "x", "by": object()}, 'document "d" has a field that cannot be stored'),
        ({"text": "x", "by": 10**30}, 'document "d" has a field that cannot be stored'),
    ],
)
def test_texts_of_python_objects_are_checked_as_those_of_files(fields, words, tmp_path):
    with pytest.raises(rh.RankhouseError, match=words):
        rh.Index.build([{"id": "d", **fields}], tmp_path / "i", workers=1)
    assert not (tmp_path / "i").exists()


def test_a_result_is_copied_whole_and_false_when_empty(index):
    result = index.search("ships harbour")
    for again in (pickle.loads(pickle.dumps(result)), copy.copy(result), copy.deepcopy(result)):
        assert again.hits == result.hits
        assert again.scores.dtype == np.float32
        assert str(again) == str(result)
    assert result
    assert not index.search("zebra")


def test_what_strangers_tried(index, tmp_path):
    (tmp_path / "corpus.tsv").write_text("a\tone\n")
    assert [document.id for document in rh.read_documents("corpus.tsv")] == ["a"]
    document = rh.Document("a", "b")
    assert pickle.loads(pickle.dumps(document)) == copy.deepcopy(document) == document
    for bad in ("q x", "", "q\u2028x"):
        with pytest.raises(rh.RankhouseError, match="white space"):
            rh.write_run(rh.Run.of({bad: {"a": 1.0}}), "x.run")
        with pytest.raises(rh.RankhouseError, match="white space"):
            rh.write_qrels({"q": {bad: 1}}, "x.qrels")
    assert not (tmp_path / "x.run").exists()
    assert index.search("ships") == index.search("ships")
    assert index.search("ships") != index.search("water")
    assert len({index.search("ships"), index.search("ships")}) == 1
    with pytest.raises(rh.RankhouseError, match='did you mean "bm25"'):
        index.search("ships", "BM25")
    shutil.rmtree(index.path)

    class Encoder:
        similarity, fingerprint = "dot", "x"

        def encode_passages(self, texts):
            return np.zeros((len(texts), 2), np.float32)

        def encode_queries(self, texts):
            return self.encode_passages(texts)

    with pytest.raises(rh.RankhouseError, match="no such index"):
        index.encode(Encoder())
    assert not index.path.exists()
