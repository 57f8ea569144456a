"""Validation on several collections at once: each with its own documents and queries, and the mean of all."""

import json
import signal
import subprocess
import sys
from statistics import fmean

import numpy as np
import pytest

import rankhouse as rh
from rankhouse.ranking.rerank import Plan
from rankhouse.training.validation import Validation, Validator, validation_sets

pytestmark = pytest.mark.filterwarnings("ignore::rankhouse.core.errors.RankhouseWarning")
DESIGN = "knrm(min_count=1, width=8)"
SETTINGS = {"rate": 0.01, "rates": {}, "batch": 8, "epochs": 2, "measure": "nDCG@10"}
SIZES = {"few": 2, "many": 5}


def notes(name, queries):
    """Documents, queries and judgements of which one note answers each question."""
    texts = {
        f"d{q}{i}": f"{name}{q} word{i} " + "harbour " * (i == 2) for q in range(queries) for i in range(4)
    }
    asked = {f"q{q}": f"{name}{q} harbour" for q in range(queries)}
    return texts, asked, {f"q{q}": {f"d{q}2": 2, f"d{q}0": 1} for q in range(queries)}


@pytest.fixture
def sets(tmp_path, monkeypatch):
    """Two folders in BEIR's layout, whose ids are the same."""
    monkeypatch.chdir(tmp_path)
    for name, queries in SIZES.items():
        texts, asked, qrels = notes(name, queries)
        (tmp_path / name / "qrels").mkdir(parents=True)
        for file, rows in (("corpus", texts), ("queries", asked | {"unjudged": "harbour"})):
            lines = [json.dumps({"_id": one, "text": text}) + "\n" for one, text in rows.items()]
            (tmp_path / name / f"{file}.jsonl").write_text("".join(lines))
        rows = [f"{q}\t{d}\t{grade}\n" for q, row in qrels.items() for d, grade in row.items()]
        (tmp_path / name / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n" + "".join(rows))
    return tmp_path


def learn(out, **validation):
    texts, queries, qrels = notes("other", 6)
    index = rh.Index.open("i") if (out.parent / "i").exists() else rh.Index.build(texts, "i")
    run = index.retrieve(queries, k=4)
    given = {"queries": queries, "qrels": qrels, "run": run, "settings": SETTINGS}
    return rh.train(DESIGN, index, out=out, **given, **validation)


class Longest:
    """Prefers long texts, whatever the question."""

    fingerprint, scale = "longest", "score"

    def score(self, pairs):
        return np.array([len(pair.passage.text) for pair in pairs], np.float32)


def test_the_value_is_the_mean_of_the_sets_each_with_its_own_bm25(sets):
    given = validation_sets(["few", "other=many"], sets / "made", depth=3)
    plan = Plan(depth=3)
    validation = Validation(given.run, given.queries, given.qrels, given.documents, plan, given.sets)
    validator = Validator(validation, "nDCG@10")
    value, kept = validator(Longest())
    first, last = {}, {}
    for name, folder in (("few", "few"), ("other", "many")):
        index = rh.Index.build(f"{folder}/corpus.jsonl", f"{folder}.index")
        queries, qrels = rh.read_queries(folder), rh.read_qrels(folder)
        run = index.retrieve(queries, k=3)
        reranked = rh.rerank(Longest(), run, queries, index)
        first[name], last[name] = (rh.evaluate(one, qrels).mean("nDCG@10") for one in (run, reranked))
        for query in queries:
            wanted = tuple(f"{name}:{doc_id}" for doc_id in reranked[query.id].doc_ids)
            assert kept[f"{name}:{query.id}"].doc_ids == wanted
    assert len(kept) == sum(SIZES.values())
    assert validator.by_set(kept) == pytest.approx(last)
    assert value == pytest.approx(fmean(last.values()))
    assert validator.first_stage == pytest.approx(fmean(first.values()))
    assert value != pytest.approx(rh.evaluate(kept, given.qrels).mean("nDCG@10"))


@pytest.mark.slow
def test_each_set_is_in_the_log_of_a_training(sets):
    learn(sets / "out", validation_sets=["few", sets / "many"], depth=3)
    log = [json.loads(line) for line in (sets / "out" / "log.jsonl").read_text().splitlines()]
    validations = [line for line in log if "value" in line]
    assert all(set(line["sets"]) == set(SIZES) for line in validations)
    assert all(line["value"] == pytest.approx(fmean(line["sets"].values())) for line in validations)
    outcome = json.loads((sets / "out" / "outcome.json").read_text())
    assert outcome["best"] == max(line["value"] for line in validations)
    assert (sets / "out" / "report.html").exists()


@pytest.mark.slow
def test_given_again_a_finished_training_is_known_and_other_sets_are_refused(sets):
    learn(sets / "out", validation_sets=["few", "many"])
    before = (sets / "out" / "log.jsonl").read_bytes()
    learn(sets / "out", validation_sets=["few", "many"])
    assert (sets / "out" / "log.jsonl").read_bytes() == before
    with pytest.raises(rh.RankhouseError, match="holds another training"):
        learn(sets / "out", validation_sets="few")


@pytest.mark.slow
def test_a_set_is_named_by_its_id_in_ir_datasets(sets):
    ir_datasets = pytest.importorskip("ir_datasets", reason="ir_datasets is not installed")
    texts, asked, qrels = notes("nano", 3)
    files = {
        "docs_tsv": "".join(f"{i}\t{text}\n" for i, text in texts.items()),
        "queries_tsv": "".join(f"{i}\t{text}\n" for i, text in asked.items()),
        "qrels_trec": "".join(f"{q} 0 {d} {g}\n" for q, row in qrels.items() for d, g in row.items()),
    }
    for name, content in files.items():
        (sets / name).write_text(content)
    made = ir_datasets.create_dataset(**{name: str(sets / name) for name in files})
    ir_datasets.registry._registered["nano-made-up/notes"] = made
    learn(sets / "out", validation_sets=["ir_datasets:nano-made-up/notes", "beir=few"])
    log = [json.loads(line) for line in (sets / "out" / "log.jsonl").read_text().splitlines()]
    assert {name for line in log for name in line.get("sets", ())} == {"nano-made-up-notes", "beir"}


def test_the_command_refuses_other_validation_beside_a_set(sets, run):
    rh.Index.build({"d": "harbour"}, "i")
    command = ["train", "--ranker", DESIGN, "--index", "i", "--queries", "q", "--qrels", "q", "--out", "out"]
    done = run(*command, "--valid-set", "few", "--valid-run", sets / "few" / "corpus.jsonl")
    assert done.returncode == 2
    assert "--valid-set brings its own queries, judgements and run" in done.stderr


def test_sets_of_one_name_and_validation_beside_them_are_refused(sets):
    with pytest.raises(rh.RankhouseError, match='two corpora are named "few"'):
        learn(sets / "out", validation_sets=["few", "./few"])
    with pytest.raises(rh.RankhouseError, match='"few:2": the name of a set has no colon'):
        learn(sets / "out", validation_sets=["few", "few:2=many"])
    with pytest.raises(rh.RankhouseError, match="both say what to validate on"):
        learn(
            sets / "out", validation_sets="few", validation=({"q": "x"}, {"q": {"d": 1}}, {"q": {"d": 1.0}})
        )


@pytest.mark.kill
def test_what_a_killed_training_indexed_is_removed_by_the_next_one(sets, run, monkeypatch):
    (sets / "scratch").mkdir()
    monkeypatch.setenv("TMPDIR", str(sets / "scratch"))
    texts, queries, qrels = notes("other", 6)
    index = rh.Index.build(texts, "i")
    rh.write_run(index.retrieve(queries, k=4), "r.run")
    rows = [f"{q} 0 {d} {grade}\n" for q, row in qrels.items() for d, grade in row.items()]
    (sets / "j.qrels").write_text("".join(rows))
    (sets / "q.tsv").write_text("".join(f"{q}\t{text}\n" for q, text in queries.items()))
    command = ["train", "--ranker", DESIGN, "--index", "i", "--queries", "q.tsv", "--qrels", "j.qrels"]
    command += ["--run", "r.run", "--set", "epochs=1", "--valid-set", "few", "--out", "out"]
    killed = subprocess.run(
        [sys.executable, "-c", _KILLED, *command], capture_output=True, text=True, check=False
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    assert run(*command).returncode == 0
    assert not list(sets.glob(".*"))
    assert not list((sets / "scratch").iterdir())


_KILLED = """
import os, signal, sys
from rankhouse.cli.main import main
from rankhouse.training import validation
validation.retrieve = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
main()
"""


def test_the_name_of_a_set_leads_nowhere(sets):
    given = validation_sets(["..=few"], sets / "made" / "here", depth=3)
    assert given.sets == [".."]
    assert [entry.name for entry in (sets / "made").iterdir()] == ["here"]


def test_a_set_whose_queries_have_no_judgements_is_named(sets):
    (sets / "few" / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nsome\td00\t1\n")
    with pytest.raises(
        rh.RankhouseError, match='^few: none of the set\'s queries is judged; .* of: "few:some"'
    ):
        validation_sets(["many", "few"], sets / "made", depth=3)


def test_judgements_of_other_documents_are_said(sets):
    (sets / "few" / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq0\t7\t1\n")
    given = validation_sets(["many", "few"], sets / "made", depth=3)
    validation = Validation(given.run, given.queries, given.qrels, given.documents, Plan(), given.sets)
    remark = Validator(validation, "nDCG@10").remark
    assert "none of the documents of the run is in the judgements" in remark
    assert 'in the judgements "few:7"' in remark
