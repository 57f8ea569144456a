"""folds, select, concat: the small stations between the large ones."""

import json

import pytest

from rankhouse.io.corpora import read_queries
from rankhouse.io.pairs import LabelledPair, read_pairs, write_pairs
from rankhouse.io.trec import read_qrels, read_run


@pytest.fixture
def ten(tmp_path, run):
    """Ten queries, their judgements, a run, and pairs: three relevant ones for each."""
    ids = [f"q{n}" for n in range(10)]
    (tmp_path / "q.tsv").write_text("".join(f"{q}\twords of {q}\n" for q in ids))
    (tmp_path / "qrels.txt").write_text("".join(f"{q} 0 d{n} {n % 2}\n" for q in ids for n in range(4)))
    (tmp_path / "r.run").write_text(
        "".join(f"{q} Q0 d{n} {n + 1} {9 - n} mine\n" for q in ids for n in range(4))
    )
    pairs = [
        LabelledPair(q, f"words of {q}", f"d{n}", 0, f"text {n}", int(n < 3)) for q in ids for n in range(8)
    ]
    write_pairs(pairs, tmp_path / "p.jsonl.gz")
    assert run("folds", "--queries", "q.tsv", "--folds", 5, "--out", "f.json").returncode == 0
    return tmp_path


def sides(folder, run, side):
    found = []
    for fold in range(1, 6):
        done = run(
            *("select", "--queries", "q.tsv", "--folds", "f.json", "--fold", fold, "--side", side),
            *("--out", f"{side}{fold}.jsonl"),
        )
        assert done.returncode == 0, done.stderr
        found.append({query.id for query in read_queries(folder / f"{side}{fold}.jsonl")})
    return found


def test_every_query_is_tested_once_and_never_learned_from_in_its_fold(ten, run):
    test, valid, train, rest = (sides(ten, run, side) for side in ("test", "valid", "train", "rest"))
    assert sum(map(len, test)) == len(set().union(*test)) == 10
    for t, v, learned, others in zip(test, valid, train, rest, strict=True):
        assert not t & v
        assert not t & learned
        assert not v & learned
        assert others == v | learned
        assert len(t | v | learned) == 10


def test_tests_of_folds_come_together_again(ten, run):
    for fold in range(1, 6):
        run("subset", "--run", "r.run", "--folds", "f.json", "--fold", fold, "--out", f"{fold}.run")
    done = run("combine", *(f"{fold}.run" for fold in range(1, 6)), "--tag", "mine", "--out", "all.run")
    assert done.returncode == 0, done.stderr
    whole, joined = read_run(ten / "r.run"), read_run(ten / "all.run")
    assert {q: whole[q].doc_ids for q in whole} == {q: joined[q].doc_ids for q in joined}
    twice = run("combine", "1.run", "2.run", "1.run", "--out", "twice.run")
    assert twice.returncode == 1
    assert "is also in 1.run; folds share no query" in twice.stderr
    assert not (ten / "twice.run").exists()


def test_a_leaking_fold_file_is_refused(ten, run):
    (ten / "leak.json").write_text('{"folds": [["q1", "q2"], ["q2", "q3"]]}')
    for command in (
        ["select", "--run", "r.run", "--folds", "leak.json", "--fold", 1, "--out", "x.run"],
        ["folds", "--queries", "q.tsv", "--given", "leak.json", "--out", "x.json"],
    ):
        done = run(*command)
        assert done.returncode == 1
        assert "leak.json: 1 queries stand in more than one place" in done.stderr


def test_given_folds_are_checked_against_the_queries(ten, run):
    (ten / "some.json").write_text('{"folds": [["q0", "q1"], ["q2", "q3"]]}')
    done = run("folds", "--queries", "q.tsv", "--given", "some.json", "--out", "x.json")
    assert done.returncode == 1
    assert "6 queries are in no fold: q4" in done.stderr
    (ten / "more.json").write_text(
        json.dumps({"folds": [["q0", "q1", "q2", "q3", "q4", "other"], ["q5", "q6", "q7", "q8", "q9"]]})
    )
    done = run("folds", "--queries", "q.tsv", "--given", "more.json", "--out", "x.json", "--json")
    assert json.loads(done.stdout)["sizes"] == [5, 5]


def test_parts_share_nothing_and_miss_nothing(ten, run):
    found = []
    for part in ("1/3", "2/3", "3/3"):
        assert run("subset", "--qrels", "qrels.txt", "--part", part, "--out", "part.txt").returncode == 0
        found.append(set(read_qrels(ten / "part.txt")))
    assert sorted(map(len, found)) == [3, 3, 4]
    assert len(set().union(*found)) == 10
    done = run("subset", "--qrels", "qrels.txt", "--part", "4/3", "--out", "part.txt")
    assert done.returncode == 2
    assert "write I/N, like 1/3" in done.stderr


def test_samples_are_seeded_nested_and_balanced_where_asked(ten, run):
    def drawn(*more):
        done = run("subset", "--pairs", "p.jsonl.gz", *more, "--out", "s.jsonl.gz")
        assert done.returncode == 0, done.stderr
        return [(p.query_id, p.doc_id, p.label) for p in read_pairs(ten / "s.jsonl.gz")]

    ten_of, twenty = drawn("--sample", 10), drawn("--sample", 20)
    assert len(ten_of) == 10
    assert set(ten_of) < set(twenty)
    assert drawn("--sample", 10) == ten_of
    assert drawn("--sample", 10, "--seed", 1) != ten_of
    balanced = drawn("--sample", 20, "--balanced")
    assert [label for _, _, label in balanced].count(1) == 10
    whole = [(p.query_id, p.doc_id, p.label) for p in read_pairs(ten / "p.jsonl.gz")]
    assert balanced == [pair for pair in whole if pair in set(balanced)]
    for more, said in [
        (["--sample", 81], "there are only 80 pairs"),
        (["--sample", 80, "--balanced"], "only 30 pairs of label 1"),
        (["--sample", 21, "--balanced"], "cannot be shared alike by 2 labels"),
    ]:
        done = run("subset", "--pairs", "p.jsonl.gz", *more, "--out", "s.jsonl.gz")
        assert done.returncode == 2
        assert said in done.stderr


def test_ids_come_from_queries_or_a_list(ten, run):
    (ten / "ids.txt").write_text("q3\nq5\n\n")
    (ten / "ids.tsv").write_text("q3\tone\nq5\tother\n")
    for ids in ("ids.txt", "ids.tsv"):
        assert run("subset", "--run", "r.run", "--ids", ids, "--out", "s.run").returncode == 0
        assert list(read_run(ten / "s.run")) == ["q3", "q5"]
    assert (ten / "s.run").read_text().endswith("mine\n")
    (ten / "none.txt").write_text("q77\n")
    done = run("subset", "--run", "r.run", "--ids", "none.txt", "--out", "none.run")
    assert done.returncode == 1
    assert "none of the 10 queries was selected" in done.stderr
    assert not (ten / "none.run").exists()


def test_a_sample_of_queries_may_be_all_there_are(ten, run):
    done = run("subset", "--run", "r.run", "--sample", 11, "--or-all", "--out", "s.run", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["kept"] == 10
    assert list(read_run(ten / "s.run")) == list(read_run(ten / "r.run"))


def test_questions_asked_elsewhere_in_the_same_words_are_left_out(ten, run):
    (ten / "own.tsv").write_text("a\tWhat is a pilot?\nb\thow tall\nc\twhat IS: a pilot\n")
    (ten / "others.tsv").write_text("a\tsomething else\nz\tWhat is a pilot\n")
    asked = ("select", "--queries", "own.tsv", "--apart-from")
    done = run(*asked, "others.tsv", "--out", "apart.jsonl", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == {"out": "apart.jsonl", "kept": 1, "of": 3}
    assert [query.id for query in read_queries(ten / "apart.jsonl")] == ["b"]
    assert run(*asked, "own.tsv", "--out", "none.jsonl").returncode == 1


def test_wrong_use_is_explained(ten, run):
    for more, said in [
        (["--run", "r.run", "--apart-from", "q.tsv", "--out", "x"], "give --queries"),
        (["--out", "x"], "give one of --queries, --qrels, --run and --pairs"),
        (["--run", "r.run", "--fold", 1, "--out", "x"], "go together"),
        (["--run", "r.run", "--folds", "f.json", "--fold", 9, "--out", "x"], "has folds 1 to 5"),
        (["--run", "r.run", "--balanced", "--out", "x"], "--balanced says how"),
        (["--run", "r.run", "--sample", 11, "--out", "x"], "only 10 to draw from"),
        (["--run", "r.run", "--or-all", "--out", "x"], "--or-all says what --sample does"),
    ]:
        done = run("subset", *more)
        assert done.returncode == 2, said
        assert said in done.stderr
