"""rankhouse label as a person uses it."""

import json

import pytest

from rankhouse.cli import main as cli
from rankhouse.io.trec import read_run
from rankhouse.text.words import BLINGFIRE


@pytest.fixture(autouse=True)
def listed(monkeypatch):
    monkeypatch.setitem(cli.COMMANDS, "label", ("label", "Say which pairs are relevant, by a rule."))


@pytest.fixture
def label(run, files):
    def call(rule, *options):
        return run(
            "label", "--rule", rule, "--queries", "queries.tsv", "--index", "my.index", "--run", "bm25.run",
            *options,
        )  # fmt: skip

    return call


def pairs(path):
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def test_judged_pairs_are_written_with_their_texts(label, files):
    done = label('judged("qrels.txt")', "--out", "pairs.jsonl", "--negatives", "all")
    assert done.returncode == 0, done.stderr
    written = pairs(files / "pairs.jsonl")
    relevant = [(w["query_id"], w["doc_id"]) for w in written if w["label"] == 1]
    assert relevant == [("q1", "d1"), ("q2", "d2")]
    assert written[0]["query"] == "pilots steer ships"
    assert written[0]["text"].startswith("Pilots Pilots board ships")
    assert len(written) == read_run(files / "bm25.run").rows
    assert "queries left without any" in done.stdout
    assert "2 relevant pairs and" in done.stderr


def test_json_tells_everything_and_the_page_is_written(label, files):
    pytest.importorskip("matplotlib")
    rule = 'judged("qrels.txt") & ranked("bm25.run", 1)'
    done = label(rule, "--out", "pairs.jsonl.gz", "--json", "--report", "page.html")
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert (said["queries"], said["relevant"], said["out"]) == (2, 2, "pairs.jsonl.gz")
    assert said["rule"] == "judged('qrels.txt') & ranked('bm25.run', 1)"
    assert said["agreement"]["positives"] == {"q1": 1, "q2": 1}
    assert "Labels in pairs.jsonl.gz" in (files / "page.html").read_text("utf-8")


@pytest.fixture
def teacher(files):
    """A small KNRM bundle: its weights are as drawn, its scores as good as any to label by."""
    torch = pytest.importorskip("torch")
    pytest.importorskip(BLINGFIRE)
    from rankhouse.models import bundle
    from rankhouse.models.knrm import KNRMDesign

    torch.set_num_threads(1)
    texts = [json.loads(line)["text"] for line in (files / "corpus.jsonl").read_text().splitlines()]
    bundle.save(KNRMDesign(width=8, min_count=1, words="blingfire").fresh(texts, seed=1), files / "teacher")


@pytest.mark.usefixtures("teacher")
def test_a_teacher_scores_only_what_the_judge_affirms_and_its_cache_is_used(label, files):
    rule = 'judged("qrels.txt") & taught("teacher", threshold=-1e9, scale="score")'
    done = label(rule, "--out", "pairs.jsonl", "--cache", "scores", "--threads", "1", "--json")
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert (said["asked"], said["relevant"]) == (2, 2)
    assert {w["label"]: "score" in w for w in pairs(files / "pairs.jsonl")} == {1: True, 0: False}
    again = label(rule.replace("-1e9", "1e9"), "--out", "none.jsonl", "--cache", "scores", "--threads", "1")
    assert again.returncode == 0
    assert "the teacher says yes to none of the 2 pairs it read" in again.stderr


@pytest.mark.usefixtures("teacher")
def test_a_teacher_is_kept_off_test_queries(label, files):
    (files / "test.tsv").write_text("t1\tHIGH water!\n")
    (files / "test.qrels").write_text("t1 0 d2 1\n")
    rule = 'judged("qrels.txt") & taught("teacher", threshold=-1e9, scale="score")'
    options = ("--out", "p", "--threads", "1", "--test-queries", "test.tsv", "--test-qrels", "test.qrels")
    refused = label(rule, *options)
    assert refused.returncode == 2
    assert "1 of the queries to be labelled are test queries (q2)" in refused.stderr
    assert not (files / "p").exists()
    allowed = label(rule, *options, "--allow-test")
    assert allowed.returncode == 0
    assert "training and test data overlap" in allowed.stderr
    judged = label('judged("qrels.txt")', *options, "--json")
    shared = json.loads(judged.stdout)["overlap"]
    assert shared["queries"] == [["q2", "t1"]]
    assert shared["pairs"] == [["q2", "t1", "d2"]]


def test_passages_cut_already_and_their_truth_are_used(label, files):
    (files / "passages.jsonl").write_text(
        '{"doc_id": "d1", "index": 0, "text": "pilots board"}\n'
        '{"doc_id": "d1", "index": 1, "text": "pilots steer"}\n'
    )
    (files / "truth.txt").write_text("q1 0 d1#1 1\n")
    done = label(
        'judged("qrels.txt")', "--out", "p", "--passages", "passages.jsonl", "--truth", "truth.txt", "--json"
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    first = json.loads(done.stdout)["agreement"]["confusions"][0]
    assert (first["first"], first["second"], first["precision"], first["recall"]) == (
        "truth",
        "judge",
        1 / 3,
        1.0,
    )


def test_judgements_of_documents_are_no_truth_of_passages(label, files):
    refused = label('judged("qrels.txt")', "--out", "p", "--truth", "qrels.txt")
    assert refused.returncode == 2
    assert "--truth qrels.txt: judges documents" in refused.stderr
    assert '#0" for the first passage' in refused.stderr
    assert not (files / "p").exists()


@pytest.mark.parametrize(
    ("rule", "options", "code", "said"),
    [
        ('jugded("qrels.txt")', (), 2, 'did you mean "judged"?'),
        ('judged("qrels.txt") &', (), 2, "(character 22)"),
        ('judged("none.txt")', (), 1, "there is no such file"),
        ('judged("foreign.txt")', (), 1, "judges none of the run's 2 queries"),
        ('judged("qrels.txt")', ("--negatives", "some"), 2, "choose from: all, none, random"),
        ('judged("qrels.txt")', ("--split", "words"), 0, "written to p"),
        ('judged("qrels.txt")', ("--split", "words", "--passages", "x"), 2, "either --split or --passages"),
        ('judged("qrels.txt")', ("--negative-rule", "ranked()"), 2, "accepted: ranked(run, k)"),
    ],
)
def test_wrong_input_is_explained(label, files, rule, options, code, said):
    (files / "foreign.txt").write_text("x 0 d1 1\n")
    done = label(rule, "--out", "p", *options)
    assert done.returncode == code
    assert said in done.stderr
    assert (files / "p").exists() == (code == 0)


def test_scores_are_written_with_their_scale(label, files):
    done = label('ranked("bm25.run", 1)', "--scores", "--negatives", "none", "--out", "soft.jsonl", "--json")
    assert done.returncode == 0, done.stderr
    written, first = pairs(files / "soft.jsonl"), read_run(files / "bm25.run")
    assert json.loads(done.stdout)["scored"] == len(written) == first.rows
    for one in written:
        ranking = first[one["query_id"]]
        assert one["scale"] == "score"
        assert one["score"] == ranking.scores[ranking.doc_ids.index(one["doc_id"])]
    refused = label('ranked("bm25.run", 1)', "--join", "ranks", "--out", "soft.jsonl")
    assert refused.returncode == 2
    assert "no scores are joined without --scores" in refused.stderr
