"""encode keeps what rankers make of documents; rerank uses it and comes to the same scores."""

import json
import shutil
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

import torch

from rankhouse.core.errors import RankhouseWarning
from rankhouse.core.nouns import Pair, Passage, Query, StoredPair, StoredPassage
from rankhouse.index.index import Index
from rankhouse.io.corpora import read_queries
from rankhouse.io.trec import read_run
from rankhouse.models import bundle
from rankhouse.models.knrm import ConvKNRMDesign, KNRMDesign
from rankhouse.models.tk import TKDesign
from rankhouse.systems.rankers import ComputeOptions, open_ranker
from rankhouse.systems.reranking import RerankOptions, open_precomputed, rerank_with

TEXTS = [
    "Pilots board ships and steer them into the harbour.",
    "The moon pulls the sea; harbours see high water twice a day. Ships wait for the water, or they do not.",
    "A lock lifts ships between two levels of water. It has two gates. One is open while one is closed.",
    "the of and",
    "Grain prices rose when the harvest was poor, and ships carried grain from far away into the harbour.",
]
CPU = ["--precision", "fp32", "--device", "cpu", "--threads", "1"]
ASKED = ["rerank", "--run", "bm25.run", "--queries", "queries.tsv", "--json", *CPU]


def small(design, folder):
    """A model whose weights are of about the size that training gives."""
    model = design(min_count=1, width=16).fresh(TEXTS)
    torch.manual_seed(0)
    with torch.no_grad():
        model.weight.weight.uniform_(-0.5, 1)
    bundle.save(model, folder)


def tk(folder, seed=0, **more):
    """A TK with weights of about the size that training gives."""
    model = TKDesign(min_count=1, width=16, heads=4, attention_width=8, feed_forward=24, **more).fresh(TEXTS)
    torch.manual_seed(seed)
    with torch.no_grad():
        for weight in model.head.parameters():
            weight.uniform_(-0.5, 1)
    bundle.save(model, folder)
    return folder


@pytest.fixture
def world(files, run):
    """An index of a few documents, one of them blank, a run over all of them, and a TK."""
    lines = [{"id": f"d{i}", "text": text} for i, text in enumerate([*TEXTS, " "])]
    (files / "corpus.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert run("index", "corpus.jsonl", "--out", "kept.index").returncode == 0
    rows = [
        f"{q} Q0 d{d} {d + 1} {9 - d} t\n" for q in ("q1", "q2") for d in range(6)
    ]  # whatever they share with the query
    (files / "bm25.run").write_text("".join(rows))
    tk(files / "tk")
    return files


def rerank(run, *options, code=0):
    done = run(*ASKED, "--index", "kept.index", "--out", "out.run", *options)
    assert done.returncode == code, done.stderr
    return (json.loads(done.stdout), read_run(Path("out.run"))) if not code else done.stderr


def gap(one, other):
    """Largest difference of scores relative to their spread; the order of documents may differ."""
    largest = 0.0
    for query_id in one:
        a, b = (dict(zip(r[query_id].doc_ids, r[query_id].scores, strict=True)) for r in (one, other))
        spread = max(a.values()) - min(a.values())
        largest = max(largest, max(abs(a[d] - b[d]) for d in a) / spread)
    return largest


@pytest.mark.parametrize(("dtype", "allowed"), [("float32", 1e-5), ("float16", 2e-3), ("int8", 3e-2)])
def test_kept_words_give_the_plain_scores(world, run, dtype, allowed):
    said, plain = rerank(run, "--ranker", "tk")
    assert said["stored"] == 0
    made = run("encode", "--index", "kept.index", "--ranker", "tk", "--dtype", dtype, "--json", *CPU)
    assert made.returncode == 0, made.stderr
    facts = json.loads(made.stdout)
    assert (facts["documents"], facts["passages"], facts["without_text"]) == (6, 5, 1)
    said, kept = rerank(run, "--ranker", "tk")
    assert said["stored"] == 10
    assert said["passages"] == 10
    assert said["without_text"] == 2
    assert gap(plain, kept) < allowed
    assert plain != kept or dtype == "float32"
    refused, again = rerank(run, "--ranker", "tk", "--no-stored")
    assert refused["stored"] == 0
    assert again == plain


@pytest.mark.parametrize(
    ("design", "given", "dtype", "allowed"),
    [(KNRMDesign, [], "uint16", 0), (ConvKNRMDesign, ["--dtype", "int8"], "int8", 3e-2)],
)
def test_words_of_knrm_and_n_grams_are_kept(world, run, design, given, dtype, allowed):
    small(design, world / "ranker")
    _, plain = rerank(run, "--ranker", "ranker")
    made = run("encode", "--index", "kept.index", "--ranker", "ranker", "--json", *given, *CPU)
    assert json.loads(made.stdout)["dtype"] == dtype
    said, kept = rerank(run, "--ranker", "ranker", "--stored")
    assert said["stored"] == said["passages"] == 10
    assert gap(plain, kept) <= allowed


def test_documents_added_later_are_read_as_texts_until_they_are_encoded(world, run):
    assert (
        run("encode", "--index", "kept.index", "--ranker", "tk", "--dtype", "float32", *CPU).returncode == 0
    )
    (world / "more.jsonl").write_text('{"id": "d9", "text": "Harbour pilots know the water."}\n')
    assert run("index", "more.jsonl", "--out", "kept.index", "--append").returncode == 0
    with (world / "bm25.run").open("a") as stream:
        stream.write("q1 Q0 d9 7 1 t\nq2 Q0 d9 7 1 t\n")
    said, mixed = rerank(run, "--ranker", "tk")
    assert (said["stored"], said["passages"]) == (10, 12)
    _, plain = rerank(run, "--ranker", "tk", "--no-stored")
    assert gap(plain, mixed) < 1e-5
    made = run("encode", "--index", "kept.index", "--ranker", "tk", "--dtype", "float32", "--json", *CPU)
    assert json.loads(made.stdout)["documents"] == 7
    said, all_kept = rerank(run, "--ranker", "tk")
    assert said["stored"] == 12
    assert gap(plain, all_kept) < 1e-5


def test_vectors_of_other_weights_are_never_used(world, run):
    assert run("encode", "--index", "kept.index", "--ranker", "tk", *CPU).returncode == 0
    tk(world / "other", seed=1)
    said, new = rerank(run, "--ranker", "other")
    assert said["stored"] == 0
    assert new == rerank(run, "--ranker", "other", "--no-stored")[1]
    stderr = rerank(run, "--ranker", "other", "--stored", code=2)
    assert "keeps nothing that this ranker can use" in stderr
    assert "vectors (float16, split whole)" in stderr


def test_vectors_of_another_index_are_refused(world, run):
    assert run("encode", "--index", "kept.index", "--ranker", "tk", *CPU).returncode == 0
    changed = (world / "corpus.jsonl").read_text().replace("Pilots", "Captains")
    (world / "changed.jsonl").write_text(changed)
    assert run("index", "changed.jsonl", "--out", "changed.index").returncode == 0
    shutil.copytree(world / "kept.index" / "kept", world / "changed.index" / "kept")
    done = run(*ASKED, "--index", "changed.index", "--ranker", "tk", "--out", "x.run")
    assert done.returncode == 1
    assert "made from other documents" in done.stderr
    plain = run(*ASKED, "--index", "changed.index", "--ranker", "tk", "--out", "x.run", "--no-stored")
    assert plain.returncode == 0


def test_the_split_and_pool_they_were_made_with_are_taken(world, run):
    cut = ["--split", "windows(6, 3, limit=100)", "--pool", "mean"]
    _, plain = rerank(run, "--ranker", "tk", *cut)
    assert run(
        "encode", "--index", "kept.index", "--ranker", "tk", "--dtype", "float32", *cut, *CPU
    ).returncode == 0  # fmt: skip
    said, kept = rerank(run, "--ranker", "tk")
    assert said["stored"] == said["passages"] > 12
    assert gap(plain, kept) < 1e-5
    said, first = rerank(run, "--ranker", "tk", "--pool", "first")
    assert said["stored"] == said["passages"] == 10
    assert gap(rerank(run, "--ranker", "tk", *cut[:2], "--pool", "first", "--no-stored")[1], first) < 1e-5
    said, _ = rerank(run, "--ranker", "tk", "--split", "whole")  # these were cut otherwise
    assert said["stored"] == 0


def test_a_cache_keeps_the_scores_of_kept_vectors_apart(world, run):
    _, plain = rerank(run, "--ranker", "tk", "--cache", "scores")
    assert run("encode", "--index", "kept.index", "--ranker", "tk", "--dtype", "int8", *CPU).returncode == 0
    said, kept = rerank(run, "--ranker", "tk", "--cache", "scores")
    assert (said["cached"], said["stored"]) == (0, 10)
    assert kept != plain
    said, again = rerank(run, "--ranker", "tk", "--cache", "scores")
    assert (said["cached"], said["stored"]) == (10, 0)
    assert again == kept


def test_words_that_did_not_fit_are_said_when_encoding_and_reranking(world, run):
    tk(world / "short", passage_length=5)
    made = run("encode", "--index", "kept.index", "--ranker", "short", *CPU)
    assert "4 of 5 passages did not fit" in made.stderr
    assert "bytes a document" in made.stderr
    done = run(*ASKED[: -len(CPU) - 1], *CPU, "--index", "kept.index", "--ranker", "short", "--out", "s.run")
    assert "8 of 10 passages did not fit into 35 tokens" in done.stderr
    assert "10 of them by kept vectors (float16, split whole)" in done.stderr


def test_a_tk_in_windows_scores_by_kept_vectors(world, run):
    tk(world / "windows", windows=(2, 4), passage_length=20)
    _, plain = rerank(run, "--ranker", "windows")
    made = run("encode", "--index", "kept.index", "--ranker", "windows", "--dtype", "float32", *CPU)
    assert made.returncode == 0, made.stderr
    said, kept = rerank(run, "--ranker", "windows", "--stored")
    assert said["stored"] == 10
    assert gap(plain, kept) < 1e-5


def test_what_cannot_be_kept_is_explained(world, run, bert):
    small(KNRMDesign, world / "knrm")
    encoder = bert("BertModel")
    bi, cross = f"biencoder({str(encoder)!r})", "crossencoder"
    for options, said in [
        (["--ranker", "tk", "--tokens"], f"{cross} and monot5 do"),
        (["--ranker", "knrm", "--dtype", "int8"], "knrm stores ids, as uint16"),
        (["--ranker", "tk", "--vectors", "flat"], "bi-encoder"),
        (["--ranker", bi, "--dtype", "int8"], "float32 or float16"),
        (["--ranker", bi, "--tokens"], "reads no kept token ids"),
        (["--ranker", "tk", "--split", "sentence"], "sentences"),
    ]:
        done = run("encode", "--index", "kept.index", *options, *CPU[2:])
        assert done.returncode == 2, done.stderr
        assert said in done.stderr


@pytest.mark.slow
def test_kept_token_ids_give_the_same_scores_to_the_bit(world, run, bert):
    cross = bert("BertForSequenceClassification", num_labels=2)
    ranker = ["--ranker", f"crossencoder({str(cross)!r})"]
    _, plain = rerank(run, *ranker)
    made = run("encode", "--index", "kept.index", *ranker, "--tokens", "--json", *CPU[2:])
    assert made.returncode == 0, made.stderr
    assert json.loads(made.stdout)["dtype"] == "uint16"
    said, kept = rerank(run, *ranker)
    assert said["stored"] == 10
    assert kept == plain
    (world / "more.jsonl").write_text(json.dumps({"id": "d9", "text": "Harbour pilots. " * 80}) + "\n")
    assert run("index", "more.jsonl", "--out", "kept.index", "--append").returncode == 0
    with (world / "bm25.run").open("a") as stream:
        stream.write("q1 Q0 d9 7 1 t\n")
    said, mixed = rerank(run, *ranker)
    assert (said["stored"], said["passages"]) == (10, 11)
    told, read = rerank(run, *ranker, "--no-stored")
    assert mixed == read
    assert said["truncated"] == told["truncated"] > 0
    assert run("encode", "--index", "kept.index", *ranker, "--tokens", *CPU[2:]).returncode == 0
    said, all_kept = rerank(run, *ranker)
    assert (said["stored"], said["truncated"]) == (11, told["truncated"])  # cut to the model's length too
    assert all_kept == mixed


def test_models_with_one_tokenizer_share_its_ids(world, run, bert):
    one = bert("BertForSequenceClassification", num_labels=2)
    other = bert("BertForSequenceClassification", num_labels=1)
    assert run(
        "encode", "--index", "kept.index", "--ranker", f"crossencoder({str(one)!r})", "--tokens", *CPU[2:]
    ).returncode == 0  # fmt: skip
    said, kept = rerank(run, "--ranker", f"crossencoder({str(other)!r})")
    assert said["stored"] == 10
    assert kept == rerank(run, "--ranker", f"crossencoder({str(other)!r})", "--no-stored")[1]


def test_texts_of_kept_documents_are_not_read(world, run, monkeypatch):
    assert run("encode", "--index", "kept.index", "--ranker", "tk", *CPU).returncode == 0
    index = Index.open(world / "kept.index")
    ranker = open_ranker(str(world / "tk"), ComputeOptions("fp32", "cpu", 1))
    queries, first = read_queries("queries.tsv")[:2], read_run(Path("bm25.run"))
    with pytest.warns(RankhouseWarning, match="without text"):
        plain = rerank_with(ranker, first, queries, index, RerankOptions(stored=False)).run
    scorer = open_precomputed(index, ranker)
    assert scorer.passages("d1") == [StoredPassage("d1", 0, 1)]
    assert scorer.passages("d5") == []
    with pytest.raises(KeyError):
        scorer.passages("unknown")
    monkeypatch.delattr(type(index.documents), "__getitem__")  # reading a text fails
    with pytest.warns(RankhouseWarning, match="without text"):
        result = rerank_with(ranker, first, queries, index, RerankOptions())
    assert (result.stored.scored, result.report.unknown) == (10, 0)
    assert gap(plain, result.run) < 2e-3


def test_opening_what_is_stored_leaves_the_ranker_as_it_is(world, run, bert):
    cross = f"crossencoder({str(bert('BertForSequenceClassification', num_labels=2))!r})"
    assert run("encode", "--index", "kept.index", "--ranker", cross, "--tokens", *CPU[2:]).returncode == 0
    ranker = open_ranker(cross, ComputeOptions("fp32", "cpu", 1))
    pair = Pair(Query("q", "harbour"), Passage("d1", 0, "Another text than the index has."))
    before, state = ranker.score([pair]), dict(vars(ranker.model.pair_reader))
    scorer = open_precomputed(Index.open(world / "kept.index"), ranker)
    assert ranker.score([pair]) == before
    assert vars(ranker.model.pair_reader) == state
    assert scorer.score([StoredPair(pair.query, scorer.passages("d1")[0])]) != before


def test_the_doctor_checks_what_is_kept(world, run, bert):
    pytest.importorskip("faiss")
    bi = f"biencoder({str(bert('BertModel'))!r})"
    index = ["--index", "kept.index"]
    assert run("encode", *index, "--ranker", bi, "--vectors", "hnsw(m=4)", *CPU).returncode == 0
    assert run("encode", *index, "--ranker", "tk", *CPU).returncode == 0
    sound = run("doctor", "kept.index")
    assert sound.returncode == 0, sound.stdout
    assert "vectors default, hnsw: recall@10 1.0000 of exact search" in sound.stdout
    assert "5 passages of 6 of 6 documents" in sound.stdout
    (world / "more.jsonl").write_text('{"id": "d9", "text": "Harbour pilots know the water."}\n')
    assert run("index", "more.jsonl", "--out", "kept.index", "--append").returncode == 0
    [folder] = (world / "kept.index" / "kept").iterdir()
    (folder / "rows.bin").write_bytes(bytes((folder / "rows.bin").stat().st_size))
    ill = run("doctor", "kept.index")
    assert ill.returncode == 1
    assert "the index now has 7" in ill.stdout
    assert "rows.bin: was changed" in ill.stdout
