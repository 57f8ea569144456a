"""rankhouse explain: one document, two, a ranking, a move; and what it refuses."""

import json
import re
import subprocess
import sys

import pytest

from rankhouse.io.trec import read_run

QUESTION = "pilots steer ships"
LEXICAL = ["explain", "--index", "my.index", "--query", QUESTION]
BY_ID = ["explain", "--index", "my.index", "--query", "q1", "--queries", "queries.tsv"]
CPU = ["--precision", "fp32", "--device", "cpu", "--threads", "1"]


@pytest.fixture
def reranked(files, run, bert):
    """The small world with a run that a tiny cross-encoder ordered, two deep; gives its notation."""
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    (files / "more.jsonl").write_text(
        '{"id": "d5", "text": "Ships and pilots."}\n{"id": "d6", "text": "Pilots!"}\n'
    )
    assert run("index", "more.jsonl", "--out", "my.index", "--append").returncode == 0
    found = run("search", "--index", "my.index", "--queries", "queries.tsv", "--out", "bm25.run")
    assert found.returncode == 0, found.stderr
    ranker = f"crossencoder({str(bert('BertForSequenceClassification', num_labels=2))!r})"
    asked = ["rerank", "--run", "bm25.run", "--queries", "queries.tsv", "--index", "my.index", "--depth", 2]
    done = run(*asked, "--ranker", ranker, *CPU, "--out", "new.run")
    assert done.returncode == 0, done.stderr
    return ranker


def test_one_document_is_explained_and_the_parts_are_the_score(files, run):
    done = run(*LEXICAL, "--doc", "d1", "--json")
    told = json.loads(done.stdout)
    assert {"query", "document", "score", "method", "exact", "unit", "parts", "gap", "cost"} <= told.keys()
    assert sum(part["value"] for part in told["parts"]) + told["gap"] == pytest.approx(
        told["score"], abs=1e-9
    )
    assert told["score"] == pytest.approx(read_run("bm25.run").to_dict()["q1"]["d1"], abs=1e-6)
    shown = run(*LEXICAL, "--doc", "d1")
    assert shown.returncode == 0
    assert told["sentence"] in shown.stdout
    assert "d1 has rank 1 of 2 in bm25" in shown.stdout
    assert re.search(r"steer⁺", shown.stdout)
    assert "\x1b" not in shown.stdout


def test_two_documents_differ_by_their_parts_and_swapped_by_minus_them(files, run):
    there = json.loads(run(*LEXICAL, "--doc", "d1", "--against", "d3", "--json").stdout)
    back = json.loads(run(*LEXICAL, "--doc", "d3", "--against", "d1", "--json").stdout)
    assert there["against"] == "d3"
    assert there["score"] == -back["score"] > 0
    assert {p["name"]: p["value"] for p in there["parts"]} == {p["name"]: -p["value"] for p in back["parts"]}
    assert "d1 is" in run(*LEXICAL, "--doc", "d1", "--against", "d3").stdout


def test_a_ranking_is_told_step_by_step_with_or_without_its_run(files, run):
    told = json.loads(run(*LEXICAL, "--top", 5, "--json").stdout)
    assert [one["document"] for one in told["documents"]] == list(read_run("bm25.run")["q1"].doc_ids)
    assert [one["rank"] for one in told["documents"]] == [1, 2]
    assert told["steps"][0]["score"] == pytest.approx(
        told["documents"][0]["score"] - told["documents"][1]["score"]
    )
    by_run = json.loads(run(*BY_ID, "--run", "bm25.run", "--top", 5, "--json").stdout)
    assert by_run["documents"][0]["parts"] == told["documents"][0]["parts"]
    assert "above the next" in run(*LEXICAL, "--top", 5).stdout


def test_a_move_between_two_runs_names_who_changed_places(reranked, run, files):
    (files / "new.run").write_text("q1 Q0 d3 1 2.0 t\nq1 Q0 d1 2 1.0 t\n")
    done = run(*BY_ID, "--run", "bm25.run", "--before", "new.run", "--doc", "d1", "--json")
    told = json.loads(done.stdout)
    assert (told["before"]["rank"], told["after"]["rank"]) == (2, 1)
    assert told["overtook"] == ["d3"]
    assert told["now"]["against"] == "d3"
    assert told["then"]["score"] == -1.0
    assert (
        "rank 2 of 2 in new.run"
        in run(*BY_ID, "--run", "bm25.run", "--before", "new.run", "--doc", "d1").stdout
    )


def test_pages_and_markdown_are_written(files, run, outline_of):
    page = run(*LEXICAL, "--doc", "d1", "--against", "d3", "--out", "why.html")
    assert (page.returncode, page.stdout) == (0, "")
    assert "Why d1 stands above d3" in "".join(outline_of((files / "why.html").read_text("utf-8")).text)
    assert run(*LEXICAL, "--doc", "d1", "--out", "why.md").returncode == 0
    assert (files / "why.md").read_text("utf-8").startswith("d1 scores")
    assert run(*LEXICAL, "--doc", "d1", "--out", "why.pdf").returncode == 2


def test_fused_models_name_what_each_adds(files, run):
    told = json.loads(run(*LEXICAL, "--model", "bm25", "--model", "ql", "--doc", "d1", "--json").stdout)
    assert [part["name"] for part in told["parts"]] == ["bm25", "ql"]
    assert all(part["why"]["parts"] for part in told["parts"])
    assert abs(told["gap"]) < 1e-6


def test_a_rerankers_run_is_explained_and_what_it_did_not_read_is_told(reranked, run):
    asked = [*BY_ID, "--ranker", reranked, *CPU, "--run", "new.run"]
    first, *_, last = read_run("new.run")["q1"].doc_ids
    told = json.loads(run(*asked, "--doc", first, "--json").stdout)
    assert told["score"] == pytest.approx(read_run("new.run").to_dict()["q1"][first], abs=1e-5)
    assert abs(told["gap"]) <= 1e-5 * max(1, abs(told["score"]))
    below = json.loads(run(*asked, "--doc", last, "--json").stdout)
    assert any("placeholder" in note for note in below["notes"])
    assert below["cost"] == 0
    both = run(*asked, "--doc", first, "--against", last)
    assert both.returncode == 0, both.stderr
    assert "placeholder" in both.stdout


def test_nothing_is_said_to_turn_round_what_was_not_read(reranked, run):
    read, *_, third, last = read_run("new.run")["q1"].doc_ids
    asked = [*BY_ID, "--ranker", reranked, *CPU, "--run", "new.run", "--against", last, "--json"]
    for first in (read, third):
        told = json.loads(run(*asked, "--doc", first).stdout)
        assert told["score"] > 0
        assert told["second"]["method"] == "placeholder"
        assert "counterfactual" not in told


def test_a_ranker_reads_its_first_stage_or_is_joined_with_it(reranked, run):
    asked = [*BY_ID, "--ranker", reranked, *CPU, "--first-stage", "bm25.run", "--depth", 2]
    told = json.loads(run(*asked, "--top", 4, "--json").stdout)
    assert [one["document"] for one in told["documents"]] == list(read_run("new.run")["q1"].doc_ids)[:4]
    joined = [
        *LEXICAL,
        "--model",
        "bm25",
        "--ranker",
        reranked,
        *CPU,
        "--fusion",
        "linear",
        "--weights",
        "0.5,0.5",
    ]
    both = json.loads(run(*joined, "--doc", "d1", "--json").stdout)
    assert [part["name"] for part in both["parts"]] == [
        "bm25",
        reranked.replace("'", '"'),
    ]  # as a system prints


def test_the_run_of_another_ranker_is_refused_with_both_fingerprints(reranked, run, files):
    tag = (files / "new.run").read_text().split()[5]
    family, mark = tag.rsplit("-", 1)
    assert family == "crossencoder"
    asked = [*BY_ID, "--ranker", reranked, *CPU, "--doc", "d1"]
    text = (files / "new.run").read_text()
    (files / "other.run").write_text(text.replace(tag, "crossencoder-00000000"))
    other = run(*asked, "--run", "other.run")
    assert other.returncode == 2
    assert "00000000" in other.stderr
    assert mark in other.stderr
    (files / "plain.run").write_text(text.replace(tag, "mine"))
    assert run(*asked, "--run", "plain.run").returncode == 0  # its numbers are the ranker's
    first = run(*asked, "--run", "bm25.run")
    assert first.returncode == 2
    assert "--first-stage" in first.stderr
    assert mark in first.stderr


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--doc", "D1"], 'did you mean "d1"?'),
        (["--doc", "nothing-like-it"], "which has 4"),
        (["--doc", "d1", "--against", "d1"], "compared with itself"),
        (["--doc", "d1", "--against", ""], "--against is empty"),
        (["--doc", "d1", "--top", "3"], "either --doc ID"),
        ([], "either --doc ID"),
        (["--doc", "d1", "--run", "bm25.run"], "--queries FILE"),
        (["--doc", "d1", "--depth", "3"], "--depth would change nothing"),
        (["--doc", "d1", "--fusion", "rrf"], "--fusion would change nothing"),
        (["--doc", "d1", "--model", "bm26"], 'did you mean "bm25"?'),
        (["--doc", "d1", "--weights", "a,b", "--model", "bm25", "--model", "ql"], "--weights a,b"),
        (["--top", "3", "--against", "d1"], "--against would change nothing"),
    ],
)
def test_what_cannot_be_asked_is_refused(files, run, given, said):
    done = run(*LEXICAL, *given)
    assert done.returncode == 2
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_ids_that_are_in_no_run_or_file_are_refused(files, run):
    unknown = run(
        "explain", "--index", "my.index", "--query", "q9", "--queries", "queries.tsv", "--doc", "d1"
    )
    assert 'no query "q9"' in unknown.stderr
    outside = run(*BY_ID, "--run", "bm25.run", "--doc", "d2")
    assert 'no document "d2" in bm25.run for query q1' in outside.stderr
    (files / "few.run").write_text("q2 Q0 d2 1 1.0 t\n")
    assert 'no query "q1" in few.run' in run(*BY_ID, "--run", "few.run", "--doc", "d1").stderr
    assert "another system made the run" in run(*BY_ID, "--run", "ql.run", "--doc", "d1").stderr
    empty = run("explain", "--index", "my.index", "--query", "  ", "--doc", "d1")
    assert (empty.returncode, "no text" in empty.stderr) == (2, True)


def test_ties_a_document_without_words_and_control_characters(files, run):
    (files / "odd.jsonl").write_text(
        '{"id": "a", "text": "ships sail"}\n{"id": "b", "text": "ships sail"}\n'
        '{"id": "c", "text": "ships \\u001b[31mred"}\n'
    )
    assert run("index", "odd.jsonl", "--out", "odd.index").returncode == 0
    asked = ["explain", "--index", "odd.index", "--query", "ships"]
    tied = run(*asked, "--doc", "a", "--against", "b")
    assert tied.returncode == 0, tied.stderr
    assert "\x1b" not in run(*asked, "--doc", "c").stdout
    nothing = run(*LEXICAL, "--doc", "d4")  # stop words only
    assert nothing.returncode == 0
    assert "d4 scores 0" in nothing.stdout
    none = run("explain", "--index", "odd.index", "--query", "zzz", "--top", 3)
    assert "no document" in none.stdout


@pytest.mark.slow
def test_a_very_long_document_is_explained_in_bounded_output(files, run):
    (files / "long.jsonl").write_text(
        json.dumps({"id": "long", "text": "harbour pilots steer ships. " * 25_000})
    )
    assert run("index", "long.jsonl", "--out", "long.index").returncode == 0
    done = run("explain", "--index", "long.index", "--query", QUESTION, "--doc", "long", "--out", "long.html")
    assert done.returncode == 0, done.stderr
    assert (files / "long.html").stat().st_size < 3_000_000
    assert "more words" in (files / "long.html").read_text("utf-8")


def test_first_stages_and_their_fusion_are_explained_without_torch(files):
    asked = [*LEXICAL[1:], "--doc", "d1", "--model", "bm25", "--model", "ql"]
    code = (
        "import sys; from rankhouse.cli.commands.explain import command\n"
        f"command.main({asked!r}, standalone_mode=False)\n"
        "sys.exit('torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=files, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-500:]
    assert "d1 scores" in done.stdout


def test_vectors_are_explained_by_their_passage_and_fused_with_words(files, run, bert):
    pytest.importorskip("torch")
    encoder = f"biencoder({str(bert('BertModel'))!r})"
    assert run("encode", "--index", "my.index", "--ranker", encoder, *CPU).returncode == 0
    dense = [*LEXICAL, "--model", f"dense({encoder!r})", *CPU]
    done = run(*dense, "--doc", "d1", "--against", "d3", "--json")
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert sum(part["value"] for part in told["parts"]) + told["gap"] == pytest.approx(told["score"])
    coarse = run(*dense, "--doc", "d1", "--unit", "word", "--passes", "4", "--json")
    assert coarse.returncode == 0, coarse.stderr
    fine = run(*dense, "--doc", "d1", "--unit", "word", "--json")
    assert json.loads(coarse.stdout)["cost"] < json.loads(fine.stdout)["cost"]
    both = json.loads(run(*dense, "--model", "bm25", "--fusion", "rrf", "--doc", "d1", "--json").stdout)
    assert len(both["parts"]) == 2
    assert abs(both["gap"]) < 1e-6


@pytest.mark.parametrize("asked", [["--model", "bm25"], ["--system", "bm25 % 10"]])
def test_options_of_rankers_are_refused_where_none_reads(files, run, asked):
    done = run(*LEXICAL, "--doc", "d1", *asked, "--unit", "word")
    assert done.returncode == 2
    assert "--unit would change nothing here: no ranker and no encoder reads a text" in done.stderr


def test_several_indexes_and_shards_are_explained_as_one(files, run):
    (files / "more.jsonl").write_text(
        '{"id": "d8", "text": "Pilots and ships."}\n{"id": "d9", "text": "Gulls."}\n'
    )
    for number in (1, 2):
        assert (
            run("index", "more.jsonl", "--out", f"shards/{number}", "--shard", f"{number}/2").returncode == 0
        )
    assert run("index", "more.jsonl", "--out", "other.index").returncode == 0
    assert run("merge", "shards", "--out", "whole.index").returncode == 0
    asked = ["--query", QUESTION, "--doc", "d8", "--json"]
    both = json.loads(run("explain", "--index", "my.index", "--index", "other.index", *asked).stdout)
    found = run("search", "--index", "my.index", "--index", "other.index", "--query", QUESTION, "--json")
    scores = {hit["id"]: hit["score"] for hit in json.loads(found.stdout)}
    assert both["score"] == pytest.approx(scores["d8"], abs=1e-6)
    assert (
        run("explain", "--index", "shards", *asked).stdout
        == run("explain", "--index", "whole.index", *asked).stdout
    )


def test_one_index_is_refused_where_several_are_named(files, run):
    """Of two, the last was exported; of a folder of shards, "has no manifest.json" was said."""
    twice = run("export", "--index", "my.index", "--index", "other.index", "--out", "x.ciff")
    assert twice.returncode == 2
    assert "--index is given 2 times; export takes one" in twice.stderr
    assert run("index", "corpus.jsonl", "--out", "shards/1", "--shard", "1/2").returncode == 0
    shards = run("export", "--index", "shards", "--out", "x.ciff")
    assert "shards: holds shards, and an index of one piece is needed" in shards.stderr
    assert "rankhouse merge shards --out INDEX" in shards.stderr


def test_index_and_question_may_stand_without_their_options(files, run):
    short = run("explain", "my.index", QUESTION, "--top", 2)
    assert short.returncode == 0, short.stderr
    assert short.stdout == run(*LEXICAL, "--top", 2).stdout
    long = run("explain", "my.index", "ships " * 80, "--top", 2)  # longer than the name of a file may be
    assert long.returncode == 0, long.stderr
    for words, said in (
        (["my.index"], "no question is asked:  rankhouse explain INDEX"),
        ([], "no index is named:  rankhouse explain INDEX"),
        (["my.index", "a", "b"], "write  rankhouse explain INDEX"),
    ):
        refused = run("explain", *words, "--top", 2)
        assert refused.returncode == 2
        assert said in refused.stderr


def test_the_order_names_documents_by_their_titles(files, run):
    (files / "titled.jsonl").write_text(
        '{"id": "d9", "title": "Harbour rules", "text": "pilots steer ships"}\n'
    )
    assert run("index", "titled.jsonl", "--out", "titled.index").returncode == 0
    shown = run("explain", "titled.index", QUESTION, "--top", 1)
    assert "Harbour rules" in shown.stdout
