"""The same run file, byte for byte, however a rerank was cut: cache, alone, halves of the queries."""

import shutil
from pathlib import Path

import pytest

import rankhouse as rh

BERT = Path(__file__).parents[1] / "golden" / "bert"
T5 = Path(__file__).parents[1] / "golden" / "monot5"
WORDS = [
    "ships",
    "harbour",
    "water",
    "pilots",
    "tide",
    "lock",
    "canal",
    "grain",
    "price",
    "night",
    "coast",
    "lamp",
    "rope",
    "song",
    "moon",
    "sea",
]


def text(number, length):
    return " ".join(WORDS[(number * 7 + i * i * 3 + i) % len(WORDS)] for i in range(length))


@pytest.fixture
def world(tmp_path, monkeypatch):
    """Sixty documents of many lengths, twelve queries, a first stage."""
    monkeypatch.chdir(tmp_path)
    documents = [rh.Document(f"d{i:02}", text(i, 3 + (i * 5) % 61)) for i in range(60)]
    index = rh.Index.build(documents, "my.index", workers=1)
    queries = {f"q{i:02}": text(i + 90, 1 + i % 5) for i in range(12)}
    Path("queries.tsv").write_text("".join(f"{q}\t{words}\n" for q, words in queries.items()))
    run = index.retrieve(queries, k=25)
    rh.write_run(run, "first.run")
    return index, queries, run


SLOW = ["tk", "crossencoder fp32", "monot5 fp32"]


@pytest.fixture(
    params=["knrm", "crossencoder bf16", *(pytest.param(r, marks=pytest.mark.slow) for r in SLOW)]
)
def ranker(request, world, tmp_path):
    """The notation of a ranker, and the precision it computes in."""
    index, queries, run = world
    family, _, precision = request.param.partition(" ")
    if family in ("knrm", "tk"):
        design = {"knrm": "knrm(width=8, min_count=1)", "tk": "tk(width=8, heads=2, min_count=1)"}[family]
        qrels = {q: {run[q].doc_ids[0]: 1, run[q].doc_ids[-1]: 0} for q in queries}
        rh.train(design, index, out="trained", queries=queries, qrels=qrels, settings={"overlap": "allow"})
        return "trained", "fp32"
    source = BERT / "tiny_bert_seqcls2" if family == "crossencoder" else T5 / "tiny_t5_v1_0"
    extra = BERT / "vocab.txt" if family == "crossencoder" else T5 / "spiece.model"
    shutil.copytree(source, tmp_path / "checkpoint")
    shutil.copy(extra, tmp_path / "checkpoint")
    return f'{family}("checkpoint")', precision


@pytest.mark.quick("knrm")
@pytest.mark.filterwarnings("ignore::rankhouse.core.errors.RankhouseWarning")
def test_a_rerank_gives_the_same_bytes_however_it_is_cut(world, ranker, run):
    _, queries, first = world
    spec, precision = ranker
    usual = ("--queries", "queries.tsv", "--index", "my.index", "--ranker", spec, "--precision", precision)
    usual = (*usual, "--device", "cpu", "--threads", "1", "--split", "words(16)")

    def rerank(out, *more, of="first.run"):
        done = run("rerank", "--run", of, *usual, "--out", out, *more)
        assert done.returncode == 0, done.stderr
        return Path(out).read_bytes()

    whole = rerank("whole.run")
    assert rerank("alone.run", "--alone") == whole
    some = sorted(queries)[::3]
    rh.write_run(first.restrict(some), "some.run")
    rerank("partly.run", "--cache", "scores", of="some.run")  # what a killed rerank would have kept
    assert rerank("continued.run", "--cache", "scores") == whole
    halves = b""
    for number, part in enumerate((list(queries)[:5], list(queries)[5:])):
        rh.write_run(first.restrict(part), f"part{number}.run")
        halves += rerank(f"half{number}.run", of=f"part{number}.run")
    assert halves == whole
