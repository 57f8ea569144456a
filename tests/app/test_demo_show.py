"""The demo runs as a whole, keeps its files, and says what to type next."""

import json

import pytest

from rankhouse.app.demo import show
from rankhouse.core.errors import OutputFailed
from rankhouse.core.trec import read_qrels, read_run
from rankhouse.evaluate.measures import evaluate
from rankhouse.index.catalogue import Index


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    """One whole demo, its folder and what it printed."""
    out = tmp_path_factory.mktemp("demo") / "demo"
    with pytest.MonkeyPatch.context() as patch:
        said, results = [], []
        patch.setattr(show.console, "say", said.append)
        patch.setattr(show.console.results, "print", lambda *parts, **_: results.append(parts))
        show.demo(out)
    return out, "\n".join(said), results


def test_the_demo_leaves_an_index_runs_judgements_questions_and_a_report(ran):
    out, _, _ = ran
    assert len(Index.open(out / "index")) > 6_000
    assert {path.name for path in out.iterdir()} == {
        "index",
        "questions.jsonl",
        "judgements.txt",
        "report.html",
        *(f"{name}.run" for name in show.SYSTEMS),
    }


def test_its_table_says_what_its_files_evaluate_to(ran):
    out, _, results = ran
    table = next(parts[0] for parts in results if parts and hasattr(parts[0], "columns"))
    shown = [cell.replace("[bold]", "").split("[")[0].split()[0] for cell in table.columns[1].cells]
    qrels = read_qrels(out / "judgements.txt")
    means = [
        evaluate(read_run(out / f"{name}.run"), qrels, "nDCG@10").mean("nDCG@10") for name in show.SYSTEMS
    ]
    assert shown == [f"{mean:.4f}" for mean in means]


def test_three_questions_are_answered_with_titles_and_highlighted_words(ran):
    _, _, results = ran
    texts = [parts[0] for parts in results if parts and hasattr(parts[0], "spans")]
    questions = [text for text in texts if text.plain.endswith("?")]
    assert len(questions) == 3
    assert any(span.style == "bold yellow" for text in texts for span in text.spans)


def test_it_says_what_to_type_next(ran):
    out, said, _ = ran
    assert "what to type next" in said
    assert f"rankhouse search --index {out / 'index'}" in said
    assert "report.html" in said


def test_judgements_about_other_pythons_are_left_out_and_counted(ran):
    out, said, _ = ran
    documents = Index.open(out / "index").documents
    kept = read_qrels(out / "judgements.txt")
    assert all(doc_id in documents for judged in kept.values() for doc_id in judged)
    everything = read_qrels(show.JUDGEMENTS)
    absent = sum(map(len, everything.values())) - sum(map(len, kept.values()))
    assert absent == 0 or f"{absent} more are about names" in said


def test_a_second_demo_replaces_the_first_and_speaks_json(ran, capsys):
    out, _, _ = ran
    before = (out / "bm25.run").read_bytes()
    show.demo(out, as_json=True)
    found = json.loads(capsys.readouterr().out)
    assert found["documents"] == len(Index.open(out / "index"))
    assert {cell["system"] for cell in found["cells"]} == set(show.SYSTEMS)
    assert (out / "bm25.run").read_bytes() == before


def test_a_folder_that_cannot_be_made_is_an_error_that_names_it(tmp_path):
    (tmp_path / "file").write_text("in the way", encoding="utf-8")
    with pytest.raises(OutputFailed, match="file"):
        show.demo(tmp_path / "file" / "demo")
