"""rh.explain: the thing or its notation, documents by id or as they are, results that show themselves."""

import copy
import json

import numpy as np
import pytest

import rankhouse as rh

DOCUMENTS = [
    {"id": "tides", "title": "Tides", "text": "The moon pulls the sea; harbours see high water daily."},
    {"id": "locks", "text": "A lock lifts ships between two levels of water."},
    {
        "id": "pilots",
        "title": "Harbour pilots",
        "text": "Pilots board ships and steer them into the harbour.",
    },
    {"id": "empty", "text": ""},
]
QUESTION = "who steers ships into a harbour"
QUERIES = {"q1": QUESTION}


class Ships:
    """A ranker from outside rankhouse: it counts one word."""

    scale, fingerprint = "score", "ships-1"

    def score(self, pairs):
        return np.array([pair.passage.text.lower().count("ships") for pair in pairs], np.float32)


@pytest.fixture
def index(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return rh.Index.build(DOCUMENTS, "my.index", workers=1)


def test_a_first_stage_says_why_and_the_answer_shows_itself(index, tmp_path, outline_of):
    why = rh.explain("bm25", QUESTION, "pilots", index=index, against="tides")
    assert why.score == pytest.approx(sum(part.value for part in why.parts), abs=1e-6)
    assert str(why).startswith(why.sentence())
    assert repr(why) == f"<ExplainResult: {why.sentence()}>"
    assert "<table" in why._repr_html_()
    assert why.to_markdown().startswith("pilots is")
    assert json.loads(json.dumps(why.to_dict()))["against"] == "tides"
    why.save("why.html")
    assert "Why pilots stands above tides" in "".join(
        outline_of((tmp_path / "why.html").read_text("utf-8")).text
    )
    with pytest.raises(rh.RankhouseError, match=r"\.html or \.md"):
        why.save("why.txt")


def test_an_expression_is_a_system_wherever_one_makes_sense(index):
    both = rh.system("bm25 + ql")
    told = rh.explain("bm25 + ql", QUESTION, "pilots", index=index)
    assert told.to_dict() == rh.explain(both, QUESTION, "pilots", index=index).to_dict()
    found = index.search(QUESTION, "bm25 + ql", k=2)
    assert (
        found.doc_ids == index.search(QUESTION, both, k=2).doc_ids == both.search(QUESTION, index, 2).doc_ids
    )
    fed = rh.system("bm25(feedback=rm3)").run(QUERIES, index).to_dict()
    for text in ("bm25(feedback=rm3)", 'bm25(feedback="rm3(docs=10)")'):
        assert index.retrieve(QUERIES, text).to_dict() == fed
    assert index.retrieve(QUERIES, "(bm25 + ql) % 1").to_dict() == (both % 1).run(QUERIES, index).to_dict()
    for call, said in [
        (lambda: rh.explain("bm25 + 0.5 * qll", QUESTION, "pilots", index=index), 'did you mean "ql"'),
        (lambda: index.search(QUESTION, "bm25 + 0.5 * qll"), 'did you mean "ql"'),
        (lambda: rh.explain(Ships(), QUESTION, "pilots", index=index, first_stage="bm25 + ql"), "rh.system"),
        (lambda: index.retrieve(QUERIES, ["bm25 + ql", "jm"]), r"rh\.system\('bm25 \+ ql'\)"),
        (lambda: index.retrieve(QUERIES, "bm25 + ql", feedback="rm3"), "bm25 \\+ ql  says what ranks"),
    ]:
        with pytest.raises(rh.RankhouseError, match=said):
            call()


def test_options_that_a_system_makes_idle_are_refused(index):
    options = {"feedback": "rm3", "fusion": "rrf", "split": "words(5)", "pool": "max", "depth": 1, "k": 5}
    options |= {"weights": [1, 2], "first_stage": "ql"}
    for system in (rh.system("bm25"), "bm25 % 10"):
        for name, value in options.items():
            with pytest.raises(rh.RankhouseError, match=f"{name}: the system  bm25.* says what ranks"):
                rh.explain(system, QUESTION, "pilots", index=index, **{name: value})


def test_a_ranking_and_a_move_are_told(index):
    run = index.retrieve(QUERIES)
    told = rh.explain("bm25", "q1", top=2, index=index, run=run, queries=QUERIES)
    assert [one.doc_id for one in told.answer.documents] == list(run["q1"].doc_ids[:2])
    assert (told.score, told.parts) == (told.answer.documents[0].score, ())
    before = {"q1": {"locks": 3.0, "tides": 2.0, "pilots": 1.0}}
    moved = rh.explain("bm25", "q1", "pilots", index=index, run=run, before=before, queries=QUERIES)
    assert moved.answer.overtook == ("locks", "tides")
    assert moved.sentence().startswith("pilots rose from rank 3 of 3 in the earlier run (score 1) to rank 1")
    assert moved.score > 0
    assert moved.parts == moved.answer.now.parts


def test_a_ranker_of_ones_own_is_explained_by_what_its_sentences_add(index):
    pytest.importorskip("torch")
    texts = ["Ships sail. Grain grows. Ships sink.", "Grain grows."]
    why = rh.explain(Ships(), "ships", texts)
    assert [one.doc_id for one in why.answer.documents] == ["0", "1"]
    one = rh.explain(Ships(), "ships", rh.Document("d", texts[0]))
    assert one.score == 2.0
    assert one.answer.ranker == "ships-1"
    by_index = rh.explain(Ships(), QUESTION, "locks", index=index, against="tides", first_stage="bm25")
    assert by_index.score == 1.0


def test_the_number_of_a_document_that_was_not_read_is_told_to_be_none(index):
    pytest.importorskip("torch")
    first = index.retrieve(QUERIES)
    reranked = rh.rerank(Ships(), first, QUERIES, index, depth=1)
    last = reranked["q1"].doc_ids[-1]
    for how in ({"run": reranked}, {"first_stage": first, "depth": 1}):
        told = rh.explain(Ships(), "q1", last, index=index, queries=QUERIES, **how)
        assert any("was not read by this ranker; its number is a placeholder" in n for n in told.answer.notes)
        assert told.answer.cost == 0
    with_empty = {"q1": {"locks": 2.0, "empty": 1.0}}
    ranked = rh.explain(Ships(), "q1", top=5, index=index, queries=QUERIES, first_stage=with_empty)
    assert any("has no text" in note for note in ranked.answer.documents[-1].notes)


def test_a_run_that_another_ranker_made_is_refused(index):
    pytest.importorskip("torch")
    run = {"q1": {"locks": 7.0, "tides": 2.0}}
    with pytest.raises(rh.RankhouseError, match=r"7 where Ships \(fingerprint ships-1\) gives 1"):
        rh.explain(Ships(), "q1", "locks", index=index, queries=QUERIES, run=run)


def test_what_is_not_there_is_named_with_the_nearest(index):
    for call, said in [
        (lambda: rh.explain("bm25", QUESTION, "pilot", index=index), 'did you mean "pilots"'),
        (lambda: rh.explain("bm25", "q2", "pilots", index=index, queries=QUERIES), 'no query "q2".*: q1'),
        (lambda: rh.explain("bm25", QUESTION, "pilots"), "needs an index"),
        (lambda: rh.explain("bm25", QUESTION, index=index), "no document is named"),
        (lambda: rh.explain("bm25", QUESTION, [], index=index), "empty"),
        (lambda: rh.explain("bm25", " ", "pilots", index=index), "no text"),
        (
            lambda: rh.explain(["bm25", "ql"], QUESTION, "pilots", index=index, weights=[1.0]),
            "1 weights for 2",
        ),
    ]:
        with pytest.raises(rh.RankhouseError, match=said):
            call()


def test_an_empty_text_and_a_very_long_one_are_explained_in_bounded_work(index):
    pytest.importorskip("torch")
    with pytest.raises(rh.RankhouseError, match="no text"):
        rh.explain(Ships(), "ships", rh.Document("d", " "))
    long = rh.Document("d", "Ships sail here now. " * 25_000)
    told = rh.explain(Ships(), "ships", long, passes=64)
    assert told.answer.cost <= 64
    assert told.score == 25_000
    assert copy.copy(told).score == told.score
