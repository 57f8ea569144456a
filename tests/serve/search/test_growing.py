"""An index that grows or is encoded again while it is served: the next question sees it, none fails."""

import json
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from rankhouse.api.index import Index
from rankhouse.core.nouns import Document, Query
from rankhouse.index.lexical.build import BuildOptions
from rankhouse.index.lexical.ciff import build_from_ciff, write_index
from rankhouse.index.precomputed.read import PrecomputedScorer
from rankhouse.io.trec import read_run
from rankhouse.serve.engine.waiting import ENDLESS
from rankhouse.serve.errors import UnknownName
from rankhouse.serve.search import answer, catalogue
from rankhouse.serve.search.answer import reading_time, search
from rankhouse.serve.search.catalogue import Catalogue, ReadingTime
from rankhouse.serve.search.ranking import ServedExecution, rank
from rankhouse.serve.search.shapes import SearchBody


@pytest.fixture
def own(service, world, tmp_path):
    """A service of an index of one's own, which can be changed."""
    shutil.copytree(world.index, tmp_path / "my.index")
    service.catalogue = Catalogue({"harbour": tmp_path / "my.index"}, service.catalogue.rankers)
    return service


def ask(service, query, system):
    """Ids of an answer, and what it warns of."""
    found = search(service.catalogue, SearchBody(query=query, system=system, k=100))
    return [hit.doc_id for hit in found.hits], found.warnings


@pytest.mark.slow
def test_every_system_answers_while_documents_are_added_by_command(own, world, tmp_path):
    """Questions come without a pause while another process appends five times."""
    faults, answers, stop = [], [], threading.Event()

    def asking(system):
        while not stop.is_set():
            try:
                answers.append(ask(own, "tugs tow ships", system))
            except Exception as error:  # noqa: BLE001 - whatever it is, it is told
                faults.append(error)

    threads = [threading.Thread(target=asking, args=(s,)) for s in ("bm25", "hybrid", "cross", "bm25+rm3")]
    for thread in threads:
        thread.start()
    for number in range(5):
        (tmp_path / "more.jsonl").write_text(json.dumps({"id": f"new{number}", "text": "Tugs tow ships."}))
        done = subprocess.run(
            [sys.executable, "-m", "rankhouse", "index", "more.jsonl", "--append", "--out", "my.index",
             "--workers", "1"], cwd=tmp_path, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert f"new{number}" in ask(own, "tugs", "bm25")[0]
    stop.set()
    for thread in threads:
        thread.join()
    assert not faults
    assert len(answers) > 10


def test_vectors_of_the_index_before_it_grew_are_searched_with_a_warning(own, world, tmp_path, command):
    before, _ = ask(own, "high water", "dense")
    Index.open(tmp_path / "my.index").append([{"id": "new", "text": "High water again."}], workers=1)
    after, warnings = ask(own, "high water", "dense")
    assert after == before
    assert "1 documents were added to harbour after it was encoded" in warnings[0]
    assert "new" in ask(own, "high water", "hybrid")[0]
    command(
        "encode", "--index", "my.index", "--ranker", world.specs["bi"], "--split", "words(20)", *world.cpu
    )
    after, warnings = ask(own, "high water", "dense")
    assert "new" in after
    assert warnings == ()


def test_an_index_that_is_gone_or_broken_goes_on_as_it_was(own, tmp_path):
    before, _ = ask(own, "pilots", "bm25")
    (tmp_path / "my.index" / "manifest.json").write_text("{}")
    after, warnings = ask(own, "pilots", "bm25")
    assert after == before
    assert "changed and cannot be opened" in warnings[0]
    shutil.rmtree(tmp_path / "my.index")
    assert ask(own, "pilots", "bm25")[0] == before
    Index.build([{"id": "other", "text": "other pilots"}], tmp_path / "my.index", workers=1)
    assert ask(own, "pilots", "bm25") == (["other"], ())


def test_what_could_not_be_opened_for_a_moment_is_tried_again(own, tmp_path, monkeypatch):
    monkeypatch.setattr(catalogue, "_PAUSE", 0.0)
    Index.open(tmp_path / "my.index").append([{"id": "new", "text": "Tugs tow ships."}], workers=1)
    with monkeypatch.context() as patch:
        patch.setattr(catalogue.IndexView, "open", lambda *_: Path("absent").read_bytes())
        found, warnings = ask(own, "tugs", "bm25")
    assert "new" not in found
    assert "cannot be opened" in warnings[0]
    assert ask(own, "tugs", "bm25") == (["new"], ())


def test_an_encoder_without_vectors_reads_documents_and_gets_its_systems_once_it_has_them(
    own, world, tmp_path, command
):
    shutil.rmtree(tmp_path / "my.index" / "vectors")
    assert "dense" not in own.catalogue.systems()
    assert "bi" in own.catalogue.systems()
    readers = [name for name, one in own.catalogue.systems().items() if one.ranker]
    assert own.catalogue.system().name == readers[0]
    with pytest.raises(UnknownName):
        ask(own, "high water", "dense")
    command("encode", "--index", "my.index", "--ranker", world.specs["bi"], *world.cpu)
    assert "dense" in own.catalogue.systems()
    assert "bi" not in own.catalogue.systems()
    assert ask(own, "high water", "dense")[0]


@pytest.mark.quick("tk*")
@pytest.mark.parametrize(("ranker", "kept"), [("tk", ()), ("cross", ("--tokens", "--split", "words(15)"))])
def test_what_the_index_stores_for_a_ranker_is_used_as_rerank_uses_it(
    own, world, tmp_path, command, busy, ranker, kept
):
    cpu = world.cpu[2:] if "--tokens" in kept else world.cpu
    command("encode", "--index", "my.index", "--ranker", world.specs[ranker], *kept, *cpu)
    command("search", "--index", "my.index", "--queries", world.folder / "queries.tsv", "--out", "bm25.run")
    options = ("--depth", 100, "--stored", "--out", "read.run", *world.cpu)
    command("rerank", "--run", "bm25.run", "--queries", world.folder / "queries.tsv", "--index", "my.index",
            "--ranker", world.specs[ranker], *options)  # fmt: skip
    view = own.catalogue.view()
    scorer = view.stored(own.catalogue.ranker(ranker), "")
    assert isinstance(scorer, PrecomputedScorer)
    run = read_run(tmp_path / "read.run")
    for query in world.queries:
        answer = search(own.catalogue, SearchBody(query=query.text, system=ranker, k=1000))
        wanted = run[query.id].to_dict() if query.id in run else {}
        assert [(h.doc_id, h.score) for h in answer.hits] == list(wanted.items())
    assert scorer.scored > 10
    work = ServedExecution(own.catalogue, view, Query("query", "high water"), ENDLESS)
    plan = work.plan(own.catalogue.system(ranker).system.stage)
    assert str(plan.split) == ("words(15)" if kept else "whole")
    with busy(own.catalogue.ranker(ranker)):
        answer = search(own.catalogue, SearchBody(query="high water", system=ranker, deadline_s=0.1))
    assert answer.degraded.startswith(f"{ranker} did not answer in time")


@pytest.mark.parametrize("what", ["vectors", "impacts", "kept"])
def test_what_is_made_beside_an_open_index_opens_it_again(own, tmp_path, what):
    before = own.catalogue.view("harbour")
    assert own.catalogue.view("harbour") is before
    made = tmp_path / "my.index" / what / "more"
    made.mkdir(parents=True)
    (made / "manifest.json").write_text("{}")
    assert own.catalogue.view("harbour") is not before


def test_a_ranker_that_was_trained_here_is_no_default(world, rankers):
    """After a restart, assistants and clients were answered by whatever had been trained last."""
    readers = [name for name, ranker in rankers.items() if not ranker.is_encoder]
    first = {name: rankers[name] for name in [readers[-1], *rankers]}
    encoder = next(name for name, ranker in rankers.items() if ranker.is_encoder)
    indexes = {"harbour": world.index}
    assert Catalogue(indexes, first).system().name == f"hybrid>>{readers[-1]}"
    assert Catalogue(indexes, first, given=[encoder]).system().name.startswith("hybrid")
    assert Catalogue(indexes, {readers[0]: rankers[readers[0]]}, given=()).system().name == "bm25"


def test_a_ranker_that_is_given_is_the_default_where_it_is_quick(world, rankers):
    """People waited for a slow ranker at every question, or never met the one they gave."""
    served = Catalogue({"harbour": world.index}, {name: rankers[name] for name in ("cross", "bi")})
    view = served.view()
    reading = served.reading(served.systems(view))
    assert reading.name == "hybrid>>cross"
    assert str(reading.system).startswith(str(served.systems()["hybrid"].system))
    measured = reading_time(served, view, reading, most=600)
    assert 0 < measured.seconds < 600
    for time, name in (
        (measured, "hybrid>>cross"),
        (reading_time(served, view, reading, most=1e-9), "hybrid"),
        (reading_time(served, view, reading, most=0), "hybrid"),
        (ReadingTime("cross", 0.5, 0.5), "hybrid>>cross"),
        (ReadingTime("cross", 0.51, 0.5), "hybrid"),
    ):
        served.reading_times["harbour"] = time
        assert served.default(view).name == served.system(None, view).name == name
        assert ("by default" in time.sentence) == (name != "hybrid")
        assert search(served, SearchBody(query="pilots steer ships")).system == name
        asked = SearchBody(query="pilots steer ships", system="cross")
        assert search(served, asked).system == "cross", "what is asked for is what answers"
    only_words = Catalogue({"harbour": world.index}, {"cross": rankers["cross"]})
    assert only_words.default(only_words.view()).name == "cross"


@pytest.mark.parametrize("name", ["bi", "dense", "hybrid"])
def test_an_encoder_reads_no_documents_whatever_its_name(world, rankers, name):
    """A folder called "dense" was measured as if it read documents, and answered in place of the hybrid."""
    served = Catalogue({"harbour": world.index}, {name: rankers["bi"]})
    assert served.reading(served.systems()) is None
    assert served.default(served.view()).name == "hybrid"


@pytest.mark.parametrize(("enough", "asked"), [(0.0, 1), (600.0, 3)])
def test_a_slow_ranker_is_asked_once(world, rankers, monkeypatch, enough, asked):
    """The service is not ready before that; three questions at 40 seconds each were too many."""
    served, questions = Catalogue({"harbour": world.index}, {"cross": rankers["cross"]}), []

    def counted(*given, **named):
        questions.append(given[-1].text)
        return rank(*given, **named)

    monkeypatch.setattr(answer, "_ENOUGH", enough)
    monkeypatch.setattr(answer, "rank", counted)
    view = served.view()
    assert reading_time(served, view, served.reading(served.systems(view)), most=600).is_quick
    assert len(questions) == len(set(questions)) == asked


def test_a_ranker_that_cannot_read_an_index_is_no_default(world, rankers, tmp_path):
    """An index of another engine's terms has no texts; its ranker would have failed at every question."""
    write_index(Index.open(world.index), tmp_path / "terms.ciff")
    build_from_ciff(tmp_path / "terms.ciff", tmp_path / "terms", BuildOptions(workers=1))
    served = Catalogue({"terms": tmp_path / "terms"}, {"cross": rankers["cross"]})
    view = served.view()
    time = reading_time(served, view, served.reading(served.systems(view)), most=600)
    assert not time.is_quick
    assert time.sentence.startswith("cross ranks only when it is chosen: ")
    assert "texts" in time.sentence


def test_a_folder_of_books_and_notes_counts_their_lengths_in_full(tmp_path):
    """A book that has every word somewhere came before the note that is about the question."""
    book = [f"harbour {n} pilot {n} ship {n} grain of the old town and its people" for n in range(2000)]
    texts = {"book": " ".join(book), "note": "The pilot boards the ship outside the harbour."}
    texts |= {f"other{n}": f"Grain prices of week {n} rose." for n in range(20)}
    Index.build([Document(*text) for text in texts.items()], tmp_path / "mixed")
    Index.build([Document(name, text[:60]) for name, text in texts.items()], tmp_path / "even")
    indexes = {"mixed": tmp_path / "mixed", "even": tmp_path / "even"}
    folder, other = Catalogue(indexes, of_folder=True), Catalogue(indexes)
    question = SearchBody(query="pilot ship harbour", k=1)
    assert [search(one, question).hits[0].doc_id for one in (other, folder)] == ["book", "note"]
    in_full, usual = 'bm25(k1=2, b=1, query="content")', 'bm25(query="content")'
    assert str(folder.system("bm25", "mixed").system) == in_full
    assert str(folder.system("bm25", "even").system) == usual
    assert str(other.system("bm25").system) == "bm25"


def test_bm25_is_the_same_in_an_expression_as_by_its_name(tmp_path):
    Index.build(
        [Document("a", "How do I moor?"), Document("b", "Ships moor here again.")], tmp_path / "index"
    )
    folder = Catalogue({"index": tmp_path / "index"}, of_folder=True)
    words = 'bm25(query="content")'
    assert str(folder.system("bm25 + 0.5 * ql").system) == f"{words} + 0.5 * ql"
    assert str(folder.system("rrf(bm25 % 10, ql)").system) == f"rrf({words} % 10, ql)"
    assert folder.system("bm25(k1=0.9, b=0.4)").system.given == "bm25(k1=0.9, b=0.4)"
    own = SearchBody(query="q", models=["bm25", "bm25(b=0.75)"]).own()
    assert str(folder.system(None, None, own).system).startswith(f"linear({words}, bm25(b=0.75), ")
    by_name, in_expression, *others = (
        [(hit.doc_id, hit.score) for hit in search(folder, SearchBody(query="how do I moor", **asked)).hits]
        for asked in ({"system": "bm25"}, {"system": "(bm25) % 5"}, {"models": ["bm25"]})
    )
    assert others == [by_name] == [in_expression]
    assert by_name[0][1] == pytest.approx(by_name[1][1]), "how, do and I count for nothing"
