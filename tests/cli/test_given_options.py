"""No option is ignored in silence: it is taken, refused, or said not to be needed."""

import json
from pathlib import Path

import click
import pytest

from rankhouse.cli.options import FileCommand, command_line
from rankhouse.core.errors import WrongUse
from rankhouse.core.nouns import Document, Query
from rankhouse.core.qrels import from_grade
from rankhouse.systems.names import own_entries
from rankhouse.systems.short_forms import first_stage
from rankhouse.systems.system import Dense
from rankhouse.training.teaching import TrainingData, TrainOptions, settings_of

SEARCH = ("search", "--index", "my.index")
MANY = (*SEARCH, "--queries", "queries.tsv", "--out", "o.run")
TRAIN = ("train", "--ranker", "knrm(width=4, min_count=1)", "--index", "my.index", "--queries", "queries.tsv")
TRAIN = (*TRAIN, "--qrels", "qrels.txt", "--run", "bm25.run", "--out", "t")
RUNS = ("bm25.run", "ql.run", "--out", "f.run")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            (*SEARCH, "--query", "sea", "--tag", "x"),
            "--tag would change nothing here: of use only with --queries",
        ),
        ((*SEARCH, "--query", "sea", "--own", "same"), "--own would change"),
        ((*SEARCH, "--query", "sea", "--out", "x.run"), "--out would change"),
        ((*MANY, "--fusion", "rrf"), "--fusion would change"),
        (("export", "my.index", "--out", "o"), "write  rankhouse export --index my.index --out FILE"),
        ((*MANY, "--precision", "fp64"), "--precision would change nothing here: bm25 computes"),
        ((*MANY, "--device", "gpu"), "--device would change"),
        ((*MANY, "--model", "dense(x)", "--feedback", "rm3"), "--feedback would change"),
        (("index", "corpus.jsonl", "--out", "my.index", "--append", "--analyzer", "tweet"), "with english"),
        (("evaluate", "--qrels", "qrels.txt", "bm25.run", "--test", "t"), "--test would change"),
        (("index", "--out", "my.index", "--upgrade", "--cluster", "ray"), "--cluster would change"),
        (("index", "--out", "my.index", "--delete", "qrels.txt", "--shard", "1/2"), "--shard would change"),
        (("evaluate", "--qrels", "qrels.txt", "bm25.run", "--correction", "holm"), "--correction would"),
        (
            ("evaluate", "--qrels", "qrels.txt", "bm25.run", "--baseline", "ql.run", "--seed", "3"),
            "only --test randomization",
        ),
        (
            ("evaluate", "--qrels", "qrels.txt", "bm25.run", "--seed", "3"),
            "--seed would change nothing here: it is for --baseline, which is not given",
        ),
        (
            ("evaluate", "--qrels", "qrels.txt", "bm25.run", "--chart-kind", "difficulty"),
            "it is for --chart, which is",
        ),
        (
            (*MANY, "--partial"),
            "--partial would change nothing here: it is for --cluster, which is not given",
        ),
        (("fuse", *RUNS, "--step", "0.1"), "--step would change"),
        (("fuse", *RUNS, "--measure", "AP"), "--measure would change"),
        (("fuse", *RUNS, "--tune", "qrels.txt", "--depths", "5"), "--depths would change"),
        (("fuse", *RUNS, "--tune", "qrels.txt", "--method", "best", "--refine"), "--refine would change"),
        (("fuse", *RUNS, "--tune", "qrels.txt", "--method", "depth", "--depths", "nan"), "--depths nan"),
        (("fuse", *RUNS, "--tune", "qrels.txt", "--method", "depth", "--depths", "1.5"), "--depths 1.5"),
        (("fuse", *RUNS, "--tune", "qrels.txt", "--step", "nan"), "no finite number"),
        (("folds", "--queries", "queries.tsv", "--given", "g", "--seed", "1", "--out", "o"), "--seed would"),
        (("select", "--qrels", "qrels.txt", "--side", "train", "--out", "o"), "--side would change"),
        (("select", "--qrels", "qrels.txt", "--field", "x", "--out", "o"), "--field would change"),
        (("select", "--qrels", "qrels.txt", "--seed", "1", "--out", "o"), "--seed would change"),
        (("concat", "--kind", "qrels", "qrels.txt", "--tag", "x", "--out", "o"), "--tag would change"),
        (("pairs", "p.jsonl", "--relevant-from", "2"), "--relevant-from would change"),
        ((*TRAIN, "--depth", "5"), "--depth would change"),
        ((*TRAIN, "--set", "seed=5", "--seed", "4"), "seed was given twice, as 4 and by --set seed=5"),
        ((*TRAIN, "--set", "epochs=5", "--epochs", "4"), "epochs was given twice"),
        ((*TRAIN, "--set", "batch=5", "--set", "batch=6"), "batch was given twice"),
        ((*TRAIN, "--set", "rates=" + "[" * 1000), "nested too deeply"),
        ((*TRAIN, "--set", "seed=x"), "seed"),
        ((*TRAIN, "--split", "word(3)"), "word"),  # refused although nothing validates: the ranker keeps it
        ((*TRAIN, "--pool", "top(x=2)"), "top"),
        (("pretrain", "corpus.jsonl", "--init", "x", "--size", "mini", "--out", "o"), "--size would change"),
        (("pretrain", "corpus.jsonl", "--vocabulary", "x", "--rate", "inf", "--out", "o"), "no finite"),
        ((*MANY, "-k", "9" * 20), "is not in the range"),
        (("index", "corpus.jsonl", "--out", "x", "--segment-tokens", "4000000000"), "is not in the range"),
        ((*TRAIN, "--seed", "9" * 20), "is not in the range"),
    ],
)
def test_what_would_be_ignored_is_refused(files, run, words, said):
    del files
    done = run(*words)
    assert done.returncode == 2, done.stderr
    assert said in done.stderr


def test_a_file_of_questions_that_stands_as_the_question_is_named(files, run):
    """Its name was searched for without a word."""
    del files
    done = run("search", "my.index", "queries.tsv")
    assert '"queries.tsv" is searched for as a question' in done.stderr
    assert "as a question" not in run("search", "my.index", "sea").stderr


def test_a_ranker_that_is_almost_the_default_is_guessed(files, run):
    del files
    done = run(*SEARCH, "--query", "sea", "--system", "bm25 >> defualt")
    assert '"defualt" is no folder (did you mean "default"?)' in done.stderr


def test_a_device_that_is_the_processor_is_taken(files, run):
    assert run(*MANY, "--device", "cpu", "--precision", "auto").returncode == 0
    assert (files / "o.run").exists()


def test_the_seed_of_a_setting_is_taken(files, run):
    done = run(*TRAIN, "--set", "seed=5", "--set", "epochs=1", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads((files / "t" / "settings.json").read_text())["seed"] == 5


def test_more_documents_than_there_are_is_all_of_them(files, run):
    assert run(*MANY, "-k", "2147483647", "--feedback", "rm3(docs=4000000000000)").returncode == 0


def test_a_grade_that_means_relevant(files, run):
    (files / "graded.txt").write_text("q1 0 d1 1\nq1 0 d3 2\nq2 0 d2 2\n")
    words = [("graded.txt" if word == "qrels.txt" else word) for word in TRAIN]
    valid = ("--valid-queries", "queries.tsv", "--valid-qrels", "graded.txt", "--valid-run", "bm25.run")
    done = run(*words, *valid, "--relevant-from", "2", "--set", "overlap=allow", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["measure"] == "RR(rel=2)@10"
    for measure in ("AP(rel=3)", "nDCG@10"):
        asked = TrainOptions(settings={"measure": measure})
        assert settings_of("knrm", TrainingData(relevant_from=2), asked).measure == measure
    done = run("paired-wins", "bm25.run", "ql.run", "--qrels", "graded.txt", "--relevant-from", "3", "--json")
    assert from_grade({"q": {"a": 1, "b": 2}}, 2) == {"q": {"a": 0, "b": 1}}


@pytest.mark.parametrize("text", ["Red kettle", "holds a litre", "Red kettle holds a litre", "red kettle"])
def test_an_own_entry_is_known_by_title_text_or_both(text):
    documents = {"1": Document("1", "holds a litre", "Red kettle")}
    found = own_entries("same", [Query("1", text)], documents)
    assert found == ({"1"} if text != "red kettle" else set())


def test_own_entries_are_counted(files, run):
    (files / "own.jsonl").write_text(
        '{"id": "d3", "text": "A lock lifts ships between two levels of water."}\n'
    )
    done = run(*SEARCH, "--queries", "own.jsonl", "--out", "o.run", "--own", "same")
    assert "1 of 1 queries are entries themselves" in done.stderr
    assert " Q0 d3 " not in (files / "o.run").read_text()


def test_corpora_that_share_ids(files, run):
    (files / "more.jsonl").write_text(
        '{"id": "d3", "text": "A lock lifts ships between two levels of water."}\n'
        '{"id": "e", "text": "new"}\n'
    )
    (files / "other.jsonl").write_text('{"id": "d3", "text": "quite another"}\n')
    both = ("index", "corpus.jsonl", "more.jsonl", "--out", "i")
    done = run(*both)
    assert done.returncode == 1
    assert "--duplicates same" in done.stderr
    assert "--prefix-ids" in done.stderr
    done = run(*both, "--duplicates", "same")
    assert done.returncode == 0, done.stderr
    assert "skipped: 1 document whose id was given before" in done.stderr
    done = run("index", "other.jsonl", "--append", "--out", "i", "--duplicates", "same")
    assert done.returncode == 1
    assert "with another text" in done.stderr
    done = run("index", "other.jsonl", "more.jsonl", "--out", "j", "--duplicates", "first", "--json")
    assert json.loads(done.stdout)["documents"] == 2
    assert json.loads(done.stdout)["repeated"] == 1
    done = run("search", "--index", "j", "--query", "another", "--json")
    assert [row["id"] for row in json.loads(done.stdout)] == ["d3"]


def test_documents_that_an_index_holds_are_passed_over(files, run):
    done = run("index", "corpus.jsonl", "--append", "--out", "my.index", "--duplicates", "same")
    assert done.returncode == 1
    assert "no documents" in done.stderr


def test_ids_behind_a_prefix(files, run):
    (files / "more.jsonl").write_text('{"id": "d3", "text": "quite another"}\n')
    done = run("index", "corpus.jsonl", "late=more.jsonl", "--prefix-ids", "--out", "i")
    assert done.returncode == 0, done.stderr
    for words, name in (("another", "late:d3"), ("lock", "corpus:d3")):
        found = json.loads(run("search", "--index", "i", "--query", words, "--json").stdout)
        assert [row["id"] for row in found] == [name]
    done = run("index", "corpus.jsonl", "corpus=more.jsonl", "--prefix-ids", "--out", "k")
    assert done.returncode == 2
    assert 'two corpora are named "corpus"' in done.stderr


@pytest.mark.parametrize(
    ("text", "means"),
    [
        ('dense(biencoder("DIR"), name="zero")', Dense('biencoder("DIR")', "zero")),
        ('dense(some/folder, name="zero")', Dense("some/folder", "zero")),
        (
            'dense(biencoder("D,R", max_length=9), vectors="sq8", name="b")',
            Dense('biencoder("D,R", max_length=9)', "b", "sq8"),
        ),
        ("dense(DIR)", Dense("DIR")),
        ("dense('DIR', 'n')", Dense("DIR", "n")),
    ],
)
def test_dense_vectors_have_names(text, means):
    assert first_stage(text) == means


def test_a_name_of_vectors_is_a_text():
    with pytest.raises(WrongUse, match="name=5, but it takes a text"):
        first_stage('dense(biencoder("DIR"), name=5)')
    with pytest.raises(WrongUse, match="is no first stage, but a whole system; give it as  --system"):
        first_stage("dense(a) + dense(b)")


LABEL = ("label", "--queries", "queries.tsv", "--index", "my.index", "--run", "bm25.run")


@pytest.mark.parametrize(
    ("words", "option"),
    [
        ((*SEARCH, "--queries", "queries.tsv", "--out", "queries.tsv"), "--queries"),
        (("fuse", "bm25.run", "ql.run", "--out", "./bm25.run"), "runs"),
        (("evaluate", "--qrels", "qrels.txt", "bm25.run", "--per-query", "qrels.txt"), "--qrels"),
        ((*LABEL, "--rule", 'judged("qrels.txt")', "--out", "qrels.txt"), "--rule"),
    ],
)
def test_no_output_is_written_over_an_input(files, run, words, option):
    before = Path(words[-1]).read_bytes()
    code, _, told = run(*words)
    assert code == 2
    assert f"is read by {option}; it would be lost" in told
    assert Path(words[-1]).read_bytes() == before


def test_a_tag_may_be_the_name_of_the_file(files, run):
    words = (*SEARCH, "--queries", "queries.tsv", "--tag", "again.run", "--out", "again.run")
    assert [run(*words)[0] for _ in range(2)] == [0, 0]
    assert Path("again.run").read_text().split()[5] == "again.run"


def test_a_command_is_written_down_as_typed_within_a_recipe_too():
    written = []
    command = FileCommand(
        "train", callback=lambda **_: written.append(command_line()), params=[click.Option(["--name"])]
    )
    command.main(["--name", "a b"], prog_name="rankhouse train", standalone_mode=False)
    assert written == ["rankhouse train --name 'a b'"]
