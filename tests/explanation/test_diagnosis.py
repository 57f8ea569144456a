"""Axioms counted over runs: shares, intervals, faults, the command."""

import json
import math

import numpy as np
import pytest
from click.testing import CliRunner

from rankhouse.cli.commands.axioms import command as axioms_command
from rankhouse.cli.main import cli
from rankhouse.core.errors import BadData, DuplicateId, WrongUse
from rankhouse.core.nouns import Document, Query
from rankhouse.core.run import Run
from rankhouse.explanation.axioms import AXIOMS
from rankhouse.explanation.diagnosis import DiagnosisOptions, diagnose, write
from rankhouse.index.index import Index
from rankhouse.index.lexical.build import BuildOptions, build
from rankhouse.index.lexical.search import LexicalOptions, retrieve
from rankhouse.io.trec import write_run


@pytest.fixture(scope="module")
def collection(tmp_path_factory):
    """Texts whose words are as frequent as in real ones (Zipf), of lengths as uneven, and 20 queries."""
    random = np.random.default_rng(7)
    words = np.array([f"w{rank}" for rank in range(2000)])
    chances = 1 / np.arange(3, 2003)
    chances /= chances.sum()
    sizes = np.clip(random.lognormal(4.0, 0.6, 400), 8, 600).astype(int)
    documents = [
        Document(f"d{i}", " ".join(random.choice(words, size, p=chances))) for i, size in enumerate(sizes)
    ]
    folder = tmp_path_factory.mktemp("axioms") / "index"
    build(documents, folder, BuildOptions(analyzer="whitespace", workers=1))
    queries = [
        Query(f"q{i}", " ".join(random.choice(words[5:80], 2 + i % 3, replace=False))) for i in range(20)
    ]
    index = Index.open(folder)
    return index, queries, retrieve(index, queries, LexicalOptions(k=50, threads=1))


def with_scores(run, score):
    """Return the run's documents with the scores that a function gives for (query, document, rank)."""
    return Run.of([(q, d, score(q, d, i)) for q in run for i, d in enumerate(run[q].doc_ids)])


def test_bm25_obeys_the_axioms_of_counts_and_lengths_that_it_was_built_for(collection):
    index, queries, run = collection
    found = diagnose({"BM25": run}, queries, index)
    for axiom in ("TFC1", "LNC1", "TF-LNC", "LB1"):
        count = found.of(axiom)[0]
        assert count.pairs > 300
        assert count.share.low > 0.9, axiom
        assert count.verdict == 1


def test_random_order_obeys_half_of_everything(collection):
    index, queries, run = collection
    random = np.random.default_rng(3)
    shuffled = with_scores(run, lambda *_: float(random.integers(1_000_000)))
    found = diagnose({"random": shuffled}, queries, index)
    assert all(abs(c.share.mean - 0.5) < 0.1 for c in found.counts if c.pairs > 1000)
    assert sum(count.verdict != 0 for count in found.counts) <= 2


def test_reversed_order_obeys_what_is_left(collection):
    index, queries, run = collection
    back = with_scores(run, lambda q, d, rank: float(rank))
    found = diagnose({"run": run, "reversed": back}, queries, index)
    for axiom in found.axioms:
        one, other = found.of(axiom)
        assert one.pairs == other.pairs
        if one.pairs:
            assert math.isclose(one.share.mean + other.share.mean, 1)
            if not math.isnan(one.share.low):  # the same draws
                assert math.isclose(one.share.low, 1 - other.share.high, abs_tol=1e-12)


def test_equal_scores_count_half(collection):
    index, queries, run = collection
    found = diagnose({"one score": with_scores(run, lambda *_: 1.0)}, queries, index)
    assert all(count.share.mean == 0.5 for count in found.counts if count.pairs)
    assert all(count.verdict == 0 for count in found.counts)
    assert any("equal scores" in note for note in found.notes)


def test_a_planted_ranker_obeys_the_axiom_it_was_planted_for(collection):
    """The score is the number of the query's words, over nothing: TFC1 always, length never."""
    index, queries, run = collection
    texts = {query.id: query.text.split() for query in queries}

    def count(query_id, doc_id, _):
        words = index.documents[doc_id].text.split()
        return float(sum(words.count(word) for word in texts[query_id]))

    found = diagnose({"count": with_scores(run, count)}, queries, index)
    assert found.of("TFC1")[0].share == (1.0, 1.0, 1.0)
    assert found.of("LNC1")[0].share.mean == 0.5  # all of them tied


@pytest.mark.slow
def test_the_same_seed_gives_the_same_numbers_and_another_only_other_intervals(collection):
    index, queries, run = collection
    one, again, other = (
        diagnose({"BM25": run}, queries, index, DiagnosisOptions(seed=seed)) for seed in (1, 1, 2)
    )
    assert one.to_dict() == again.to_dict()
    assert one.of("PROX2")[0].share.mean == other.of("PROX2")[0].share.mean
    assert one.of("PROX2")[0].share != other.of("PROX2")[0].share


def test_intervals_respect_that_the_pairs_of_a_query_belong_together(collection):
    """Each query's documents three times over are not three times the evidence."""
    index, queries, run = collection
    few = diagnose({"BM25": run.top(10)}, queries, index).of("PROX2")[0]
    share, n = few.share, few.pairs
    binomial = 1.96 * math.sqrt(share.mean * (1 - share.mean) / n)
    many = diagnose({"BM25": run}, queries, index).of("PROX2")[0]
    assert many.pairs > 10 * n
    # With independent pairs the interval would shrink by the root of the factor; queries stay 20.
    assert (many.share.high - many.share.low) / 2 > 1.5 * binomial * math.sqrt(n / many.pairs)


def test_a_pair_of_one_query_has_no_interval(tmp_path):
    texts = "ship ship sand sand", "ship sand sand sand"
    build([Document(str(i), t) for i, t in enumerate(texts)], tmp_path / "i", BuildOptions(workers=1))
    index, queries = Index.open(tmp_path / "i"), [Query("q", "ship")]
    count = diagnose({"run": Run.of([("q", "0", 2), ("q", "1", 1)])}, queries, index).of("TFC1")[0]
    assert (count.pairs, count.queries, count.share.mean) == (1, 1, 1.0)
    assert math.isnan(count.share.low)
    assert count.verdict == 0


@pytest.mark.parametrize("n", [4, 5])
def test_few_queries_have_no_interval(tmp_path, n):
    build(
        [Document("0", "ship ship sand"), Document("1", "ship sand sand")],
        tmp_path / "i",
        BuildOptions(workers=1),
    )
    index, queries = Index.open(tmp_path / "i"), [Query(f"q{place}", "ship") for place in range(n)]
    run = Run.of([(query.id, doc_id, score) for query in queries for doc_id, score in (("0", 2), ("1", 1))])
    count = diagnose({"run": run}, queries, index).of("TFC1")[0]
    assert (count.queries, count.share.mean) == (n, 1.0)
    assert math.isnan(count.share.low) == (n < 5)
    assert count.verdict == int(n >= 5)


@pytest.mark.slow
def test_blocks_of_pairs_make_no_difference(collection, monkeypatch):
    index, queries, run = collection
    whole = diagnose({"BM25": run}, queries, index).to_dict()
    monkeypatch.setattr("rankhouse.explanation.diagnosis._PAIRS_AT_ONCE", 100)
    assert diagnose({"BM25": run}, queries, index).to_dict() == whole


def test_runs_over_other_documents_are_said_to_be_so(collection):
    index, queries, run = collection
    found = diagnose({"whole": run, "top": run.top(20)}, queries, index)
    assert any("not the same in all runs" in note for note in found.notes)
    assert "pairs: top" in found.table.columns


def test_word_vectors_bring_the_axioms_of_meaning(collection, tmp_path):
    index, queries, run = collection
    assert not any(AXIOMS[name].needs_vectors for name in diagnose({"BM25": run}, queries, index).axioms)
    path = tmp_path / "vectors.txt"
    random = np.random.default_rng(0)
    path.write_text("".join(f"w{i} {' '.join(map(str, random.normal(size=8)))}\n" for i in range(1500)))
    found = diagnose({"BM25": run}, queries, index, DiagnosisOptions(vectors=path))
    assert found.axioms == tuple(AXIOMS)
    assert found.of("STMC1")[0].pairs > 0


@pytest.mark.slow
def test_a_ranker_lends_its_word_vectors(collection, tmp_path):
    pytest.importorskip("torch")
    from rankhouse.models import bundle
    from rankhouse.models.knrm import KNRMDesign

    index, queries, run = collection
    texts = [document.text for document in index.documents.stream()]
    model = KNRMDesign(width=8, min_count=1).fresh(texts)
    (tmp_path / "trained").mkdir()
    bundle.save(model, tmp_path / "trained" / "ranker")
    words, table = model.reader.vocabulary.words, model.embedding.weight.detach().numpy()[2:]
    rows = (f"{word} {' '.join(map(repr, row.tolist()))}\n" for word, row in zip(words, table, strict=True))
    (tmp_path / "vectors.txt").write_text("".join(rows))
    by_ranker, by_file = (
        diagnose({"BM25": run}, queries, index, DiagnosisOptions(vectors=tmp_path / name)).to_dict()
        for name in ("trained", "vectors.txt")
    )
    assert by_ranker == by_file


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"depth": 1}, "2 to 1,000"),
        ({"depth": 2000}, "2 to 1,000"),
        ({"tolerance": 1.0}, "below 1"),
        ({"draws": 0}, "2000"),
    ],
)
def test_options_that_count_nothing_are_refused(options, said):
    with pytest.raises(WrongUse, match=said):
        DiagnosisOptions(**options)


def test_faulty_runs_are_refused_with_what_to_do(collection):
    index, queries, run = collection
    with pytest.raises(WrongUse, match="no run"):
        diagnose({}, queries, index)
    with pytest.raises(BadData, match='1 of the run.s 20 queries have no text .*: "q19"; give the queries'):
        diagnose({"run": run}, queries[:-1], index)
    with pytest.raises(DuplicateId, match="q0"):
        diagnose({"run": run}, [*queries, queries[0]], index)
    with pytest.raises(BadData, match='no document "elsewhere"'):
        diagnose({"run": Run.of([("q0", "elsewhere", 1.0)])}, queries, index)
    with pytest.raises(BadData, match="two documents"):
        diagnose({"run": run.top(1)}, queries, index)


@pytest.mark.slow
def test_pages_and_charts_have_the_same_bytes_for_the_same_numbers(collection, tmp_path):
    pytest.importorskip("matplotlib")
    index, queries, run = collection
    found = diagnose({"BM25": run, "<b>top</b>": run.top(20)}, queries, index)
    for name in ("one.html", "one.svg", "one.png"):
        write(found, tmp_path / name)
        write(found, tmp_path / f"again-{name}")
        assert (tmp_path / name).read_bytes() == (tmp_path / f"again-{name}").read_bytes()
    page = (tmp_path / "one.html").read_text()
    assert "&lt;b&gt;top" in page
    assert "<b>top" not in page
    assert all(axiom in page for axiom in found.axioms)
    with pytest.raises(WrongUse, match="html"):
        write(found, tmp_path / "one.pdf")


def test_the_command_counts_what_the_call_counts(collection, tmp_path):
    index, queries, run = collection
    write_run(run, tmp_path / "bm25.run", "t")
    (tmp_path / "q.tsv").write_text("".join(f"{q.id}\t{q.text}\n" for q in queries))
    words = [
        "--run",
        str(tmp_path / "bm25.run"),
        "--queries",
        str(tmp_path / "q.tsv"),
        "--index",
        str(index.path),
    ]
    done = CliRunner().invoke(axioms_command, [*words, "--json"])
    assert done.exit_code == 0, done.output
    shown = json.loads(done.stdout)
    assert shown == json.loads(json.dumps(diagnose({"bm25": run}, queries, index).to_dict()))
    table = CliRunner().invoke(axioms_command, words)
    assert "TFC1" in table.stdout
    assert "were left out" in table.stderr
    wrong = CliRunner().invoke(cli, ["axioms", *words, "--out", str(tmp_path / "x.txt")])
    assert isinstance(wrong.exception, WrongUse)
