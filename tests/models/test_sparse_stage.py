"""A sparse encoder as a first stage: its impacts beside an index, searched, fused, reranked and explained."""

import json
import subprocess
import sys

import numpy as np
import pytest

import rankhouse as rh
from rankhouse.core.errors import BadIndex, MissingInput, WrongUse
from rankhouse.jobs.encode import EncodeJob, EncodeWorker
from rankhouse.models.encoder_rankers import SparseRanker
from rankhouse.models.sparse import open_sparse
from rankhouse.models.text_ids import QueryTable
from rankhouse.systems.execution import Execution
from rankhouse.systems.explaining import Question, ask
from rankhouse.systems.rankers import source_of

from . import tiny
from .conftest import make_pairs
from .test_sparse import TEXTS, masked  # noqa: F401  # a fixture

library = pytest.importorskip("sentence_transformers", reason="the yardstick is not installed")
PAIRS = make_pairs(40)
QUERIES = {f"q{i}": pair.query.text for i, pair in enumerate(PAIRS[:20])}


@pytest.fixture(scope="module")
def world(masked, tmp_path_factory):  # noqa: F811
    """An index with the impacts of two encoders: one reads queries, one has a table for them."""
    root = tmp_path_factory.mktemp("stage")
    documents = [rh.Document(f"d{i:02}", pair.passage.text) for i, pair in enumerate(PAIRS)]
    index = rh.Index.build(documents, root / "index")
    for name, table in (("read", False), ("table", True)):
        folder = tiny.splade(masked("BertForMaskedLM"), root / name, table=table)
        job = EncodeJob(index=str(index.path), ranker=f'sparse("{folder}")', name=name)
        EncodeWorker(job, index).encode(lambda *_: None)
    return root


@pytest.mark.parametrize("name", ["read", "table"])
def test_a_search_gives_the_dot_products_of_all_documents(name, world):
    run = rh.system(f'sparse("{world / name}", name="{name}")').run(QUERIES, rh.Index.open(world / "index"))
    ranker = rh.open_ranker(
        f'sparse("{world / name}")'
    )  # at the precision of this machine, as it was encoded
    passages = ranker.passage_weights([pair.passage.text for pair in PAIRS]).toarray().astype(np.float64)
    asked = ranker.query_weights(list(QUERIES.values())).toarray().astype(np.float64)
    for query, row in zip(QUERIES, asked, strict=True):
        scores = (passages * row).sum(1).astype(np.float32)
        wanted = [place for place in np.argsort(-scores, kind="stable") if scores[place] > 0]
        assert run[query].doc_ids == tuple(f"d{place:02}" for place in wanted)
        np.testing.assert_allclose(run[query].scores, scores[wanted], rtol=1e-6)


def test_a_table_at_work_gives_the_weights_of_the_ranker(world, fp32):
    ranker = SparseRanker(open_sparse(str(world / "table"), max_length=20), fp32)
    table = QueryTable.of(ranker.query_files(), ranker.fingerprint)
    texts = [*TEXTS, "[SEP] storm [MASK]"]
    ours, theirs = table.query_weights(texts), ranker.query_weights(texts)
    np.testing.assert_array_equal(ours.toarray(), theirs.toarray())
    assert [table.word(i) for i in range(table.vocabulary)] == [
        ranker.word(i) for i in range(ranker.vocabulary)
    ]
    assert not SparseRanker(open_sparse(str(world / "read")), fp32).query_files()


@pytest.mark.slow
def test_it_is_fused_cut_and_read_by_rankers(world):
    stage = rh.system(f'sparse("{world / "table"}", name="table")')
    index = rh.Index.open(world / "index")
    hybrid = rh.system("bm25") + 0.5 * stage
    assert rh.system(str(hybrid)) == hybrid
    assert len(hybrid.run(QUERIES, index)["q0"].doc_ids) == len(PAIRS)
    assert len((stage % 3).run(QUERIES, index)["q0"].doc_ids) == 3
    again = (stage % 5 >> f'sparse("{world / "table"}")').run(QUERIES, index)
    for query in QUERIES:
        assert again[query].doc_ids == (stage % 5).run(QUERIES, index)[query].doc_ids


def test_its_explanation_is_the_sum_of_the_search(world):
    index = rh.Index.open(world / "index")
    for name in ("read", "table"):
        stage = rh.system(f'sparse("{world / name}", name="{name}")')
        ranking = stage.rank(QUERIES["q0"], index)
        told = stage.explain(QUERIES["q0"], ranking.doc_ids[0], index=index)
        assert told.answer.exact
        assert np.float32(told.score) == ranking.scores[0]
        assert sum(part.value for part in told.parts) == pytest.approx(told.score, rel=1e-6)


def test_an_encoder_is_known_by_its_content_and_others_are_refused(world, masked, tmp_path):  # noqa: F811
    index = rh.Index.open(world / "index")
    assert source_of(str(world / "table")) == source_of(f'sparse("{world / "table"}")')
    with pytest.raises(MissingInput, match="there are: read, table"):
        rh.system(f'sparse("{world / "table"}")').run(QUERIES, index)
    with pytest.raises(BadIndex, match="the queries would be by"):
        rh.system(f'sparse("{world / "read"}", name="table")').run(QUERIES, index)
    with pytest.raises(WrongUse, match="is written  sparse"):
        rh.system("sparse")
    parts = rh.Index.open_parts(world / "index", _other(tmp_path))
    with pytest.raises(MissingInput, match='other: has no impacts "table" of all its documents'):
        rh.system(f'sparse("{world / "table"}", name="table")').run(QUERIES, parts)


def _other(folder):
    return rh.Index.build([rh.Document("other", "a storm")], folder / "other").path


@pytest.mark.parametrize("name", ["read", "table"])
def test_several_indexes_are_searched_as_one(name, world, tmp_path):
    parts = []
    for number, some in enumerate((PAIRS[:25], PAIRS[25:])):
        documents = [rh.Document(f"d{25 * number + i:02}", pair.passage.text) for i, pair in enumerate(some)]
        parts.append(rh.Index.build(documents, tmp_path / f"part{number}"))
        job = EncodeJob(index=str(parts[-1].path), ranker=f'sparse("{world / name}")', name=name)
        EncodeWorker(job, parts[-1]).encode(lambda *_: None)
    stage = rh.system(f'sparse("{world / name}", name="{name}")')
    whole = rh.Index.open_parts(*(part.path for part in parts))
    found = stage.run(QUERIES, whole)
    expected = stage.run(QUERIES, rh.Index.open(world / "index"))
    for query in QUERIES:
        assert found[query].doc_ids == expected[query].doc_ids
        np.testing.assert_array_equal(found[query].scores, expected[query].scores)
    with pytest.raises(WrongUse, match="explain it with the shard that has the document"):
        ask(Execution(whole, [rh.Query("q", QUERIES["q0"])]), stage, Question(("d01",)))


@pytest.mark.slow
def test_documents_that_were_added_are_encoded_alone(world, tmp_path, masked):  # noqa: F811
    texts = [pair.passage.text for pair in PAIRS]
    index = rh.Index.build([rh.Document(str(i), text) for i, text in enumerate(texts[:30])], tmp_path / "i")
    spec = f'sparse("{world / "table"}")'
    index.encode(spec)
    index = index.append([rh.Document(str(i + 30), text) for i, text in enumerate(texts[30:])])
    with pytest.raises(BadIndex, match="only what was added will be encoded"):
        rh.system(spec).run(QUERIES, index)
    assert len(index.encode(spec)) == 40
    whole = rh.Index.build([rh.Document(str(i), text) for i, text in enumerate(texts)], tmp_path / "j")
    whole.encode(spec)
    assert rh.system(spec).run(QUERIES, index) == rh.system(spec).run(QUERIES, whole)


@pytest.mark.outside
def test_a_search_by_a_table_imports_no_torch(world):
    system = f'sparse("{world / "table"}", name="table")'
    code = (
        "import sys, rankhouse as rh\n"
        f"run = rh.system({system!r}).run({QUERIES!r}, {str(world / 'index')!r})\n"
        "unwanted = 'torch', 'transformers'\n"
        "print(len(run['q0'].doc_ids), [one for one in unwanted if one in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [str(len(PAIRS)), "[]"]


def test_a_store_ranks_by_pushed_weights_as_the_index_does(world, run, tmp_path):
    pytest.importorskip("qdrant_client", reason="extra dev")
    (tmp_path / "q.tsv").write_text("".join(f"{name}\t{text}\n" for name, text in QUERIES.items()))
    store, spec = f'qdrant("{tmp_path / "store"}", collection="c")', f'sparse("{world / "read"}")'
    pushed = run("push", "--index", world / "index", "--to", store, "--impacts", 'sparse("read")')
    assert pushed.returncode == 0, pushed.stderr
    asked = ("pull", "--from", store, "--queries", "q.tsv", "--out", "pulled.run")
    assert "holds weights of a sparse encoder" in run(*asked).stderr
    assert run(*asked, "--model", spec).returncode == 0
    own = rh.system(f'sparse("{world / "read"}", name="read")').run(QUERIES, rh.Index.open(world / "index"))
    pulled = rh.read_run(tmp_path / "pulled.run")
    for query in QUERIES:
        assert pulled[query].doc_ids == own[query].doc_ids
        np.testing.assert_allclose(pulled[query].scores, own[query].scores, rtol=2e-5)


def test_its_impacts_are_exported_for_other_engines(world, run):
    stage = f'sparse("{world / "table"}", name="table")'
    done = run(
        "export", "--index", world / "index", "--impacts", stage, "--scale", "1000", "--out", "out.ciff"
    )
    assert done.returncode == 0, done.stderr
    assert run("index", "--ciff", "out.ciff", "--analyzer", "whitespace", "--out", "other").returncode == 0
    ranker = rh.open_ranker(f'sparse("{world / "table"}")')
    weights = ranker.passage_weights([pair.passage.text for pair in PAIRS]).toarray().astype(np.float64)
    rounded = np.rint(weights * 1000)
    for number in np.argsort(-rounded.sum(axis=0))[:5]:
        hits = json.loads(run("search", "other", ranker.word(number), "--model", "impact", "--json").stdout)
        best = sorted(rounded[:, number], reverse=True)[: len(hits)]
        assert [hit["score"] for hit in hits] == pytest.approx(best, abs=1e-2)


@pytest.mark.parametrize("name", [pytest.param("read", marks=pytest.mark.slow), "table"])
def test_its_queries_are_exported_for_other_engines(name, world, run, tmp_path):
    asked = "export", "--index", world / "index", "--impacts", f'sparse("{world / name}", name="{name}")'
    (tmp_path / "queries.tsv").write_text(
        "".join(f"{q}\t{text}\n" for q, text in QUERIES.items()) + "none\t\n"
    )
    assert run(*asked, "--scale", 1000, "--out", "out.ciff.gz").returncode == 0
    done = run(*asked, "--scale", 1000, "--queries", "queries.tsv", "--out", "terms.tsv.gz")
    assert done.returncode == 0, done.stderr
    assert "left out: 1 query without text" in done.stderr
    whitespace = "--analyzer", "whitespace", "--out", "other"
    assert run("index", "--ciff", "out.ciff.gz", *whitespace).returncode == 0
    found = rh.Index.open("other").retrieve("terms.tsv.gz", "impact", k=5)
    exact = rh.system(asked[4]).run(QUERIES, rh.Index.open(world / "index"))
    for query in QUERIES:
        assert found[query].scores[:5] / 1e6 == pytest.approx(exact[query].scores[:5], rel=0.05)
        assert found[query].doc_ids[0] in exact[query].doc_ids[:3]
    done = run(*asked, "--scale", "1e-9", "--queries", "queries.tsv", "--out", "never.tsv")
    assert done.returncode == 2
    assert "every weight rounds to 0; give a larger one" in done.stderr
    assert not (tmp_path / "never.tsv").exists()


def test_impacts_are_exported_or_refused_in_words(world, run):
    asked = "export", "--index", world / "index"
    stage = f'sparse("{world / "table"}", name="table")'
    for more, said in (
        (["--scale", "5"], "it is for --impacts"),
        (["--queries", "q.tsv"], "it is for --impacts"),
        (["--impacts", "bm25"], "is no sparse encoder"),
        (["--impacts", ""], "expected a first stage"),
        (["--impacts", f'sparse("{world / "read"}", name="table")'], "was encoded by"),
        (["--impacts", stage, "--out", world / "index" / "manifest.json"], "lies in the index itself"),
        (["--impacts", stage, "--scale", "0"], "must be a positive number"),
        (["--impacts", stage, "--license", "mit"], "without a model card"),
        (["--impacts", f'sparse("{world / "table"}")'], "default"),
    ):
        done = run(*asked, *(() if "--out" in more else ("--out", "x.ciff")), *more)
        assert done.returncode in (1, 2)
        assert said in done.stderr
