"""Documents of a request get the scores of ``rankhouse rerank``, and none of them can fail the others."""

import random
import sys
from itertools import pairwise

import numpy as np
import pytest

from rankhouse.core.notation import make
from rankhouse.core.nouns import Document, Query
from rankhouse.core.run import Run
from rankhouse.ranking.pool import POOLS
from rankhouse.ranking.rerank import Plan, rerank
from rankhouse.serve.engine import documents
from rankhouse.serve.engine.choice import asked_split
from rankhouse.serve.engine.documents import DocumentRequest, ReadingPlan
from rankhouse.serve.engine.served import open_served
from rankhouse.serve.errors import Invalid, TooLarge
from rankhouse.systems.rankers import ComputeOptions, open_ranker
from rankhouse.text.split import SPLITTERS

KINDS = ("crossencoder", "biencoder", "monot5", "tk")


def plan(split="", pool="", **more):
    return ReadingPlan(
        make(split or "sentences(3, 2)", SPLITTERS, "splitter"), make(pool or "max", POOLS, "pool"), **more
    )


def scores_of(served, query, texts, reading):
    request = DocumentRequest(served, query, texts, reading)
    return request.scores(request.future.result(120))


@pytest.mark.quick("*tk", "sentences*")
@pytest.mark.filterwarnings("ignore:.*adds log probabilities")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("split", "pool"),
    [
        ("whole", "max"),
        ("sentences(3, 2)", "max"),
        ("words(20)", "top(2)"),
        ("windows(20, 10, limit=3)", "mean"),
        ("sentences(3, 2)", "first"),
        ("words(20)", "weighted(1.0, 0.5)"),
    ],
)
def test_scores_and_order_are_those_of_reranking(tiny, served, kind, split, pool):
    rng = random.Random(5)
    texts = [tiny.long_text(rng, rng.randint(1, 15)) for _ in range(20)]
    reading = plan(split, pool)
    query = tiny.text(rng, 5)
    scores = scores_of(served(kind), query, texts, reading)
    offline = open_ranker(tiny.tiny_model(kind, tiny.folder), ComputeOptions("fp32", "cpu", 1))
    documents = {str(i): Document(str(i), text) for i, text in enumerate(texts)}
    first = Run.of({"q": {str(i): 1.0 / (i + 1) for i in range(len(texts))}})
    expected = rerank(
        offline, first, [Query("q", query)], documents, Plan(split=reading.split, pool=reading.pool)
    )
    assert [str(place) for place in scores.order] == list(expected["q"].doc_ids)
    assert np.array_equal(scores.raw[scores.order], expected["q"].scores)
    assert scores.tokens > 0
    assert (np.diff(scores.relevance[scores.order]) <= 0).all()


POISON = ["", "  \n\t ", "\u3000", "storm " * 200_000, "x" * 300_000, "\x00\x01", "grain\ud800prices"]


@pytest.mark.quick("tk", "biencoder")
@pytest.mark.parametrize("kind", KINDS)
def test_a_poisoned_document_fails_nobody(tiny, served, kind):
    rng = random.Random(6)
    good = [tiny.long_text(rng, 5) for _ in range(5)]
    texts = [*good[:3], *POISON, *good[3:]]
    scores = scores_of(served(kind), "storm harbour", texts, plan())
    alone = scores_of(served(kind), "storm harbour", good, plan())
    assert scores.raw[[0, 1, 2, -2, -1]].tolist() == alone.raw.tolist()
    assert sorted(scores.order) == list(range(len(texts)))
    assert scores.order[-3:] == ([3, 4, 5] if kind == "tk" else [4, 5, 9])
    if kind != "tk":
        assert "documents[9]" in " ".join(scores.warnings)
    assert any(text.startswith("without text") and "documents[3]" in text for text in scores.warnings)
    assert np.isfinite(scores.raw).all()


def test_nothing_but_poison_has_an_answer_too(served):
    scores = scores_of(served("crossencoder"), "storm", ["", " "], plan())
    assert (scores.order, scores.raw.tolist(), scores.relevance.tolist()) == ([0, 1], [0.0, 0.0], [0.0, 0.0])


def test_what_the_model_could_not_read_is_said(served):
    scores = scores_of(served("crossencoder"), "storm", ["harbour.", "grain " * 300], plan("whole"))
    assert scores.warnings[0].startswith("passages beyond the 64 tokens")
    assert scores.warnings[0].endswith(": documents[1]")


@pytest.mark.parametrize("kind", KINDS)
def test_a_bound_on_tokens_cuts_documents_and_says_so(served, kind):
    text = "storm harbour grain prices week. " * 50
    scores = scores_of(served(kind), "storm", [text, "harbour"], plan("whole", most_tokens=7))
    assert "cut to 7 tokens (max_tokens_per_doc): documents[0]" in scores.warnings
    end = served(kind).end_of_tokens(text, 7)
    assert served(kind).end_of_tokens(text[:end], 6) < end == served(kind).end_of_tokens(text[:end], 7)
    cut = scores_of(served(kind), "storm", [text[:end], "harbour"], plan("whole"))
    assert scores.raw.tolist() == cut.raw.tolist()


def test_a_bound_on_passages_reads_the_first(served):
    text = "Storm here. Harbour there. Grain now. Prices then."
    one = served("crossencoder")
    bound = scores_of(one, "storm", [text], plan("sentences(1, 1)", most_passages=2))
    assert bound.raw.tolist() == scores_of(one, "storm", [text[:26]], plan("sentences(1, 1)")).raw.tolist()


@pytest.mark.parametrize("kind", KINDS)
def test_spans_are_the_best_passages_in_the_text_as_given(tiny, served, kind):
    rng = random.Random(8)
    text = "  \U0001f600 " + tiny.long_text(rng, 12) + "\n\n" + tiny.long_text(rng, 1) * 3
    one = served(kind)
    scores = scores_of(one, "storm", [text, "grain."], plan("sentences(2, 1)"))
    spans = scores.spans(0)
    assert [span.score for span in spans] == sorted((span.score for span in spans), reverse=True)
    assert spans[0].score == scores.relevance[0]
    for start, end, score in spans:
        assert not any(other.start < end and start < other.end for other in spans if other.start != start)
        alone = scores_of(one, "storm", [text[start:end]], plan("whole"))
        assert alone.relevance[0] == pytest.approx(score, rel=1e-6)
    assert len(scores.spans(0, most=2)) == 2
    assert scores.spans(0, threshold=spans[0].score + 1) == []


def lines_of(work):
    """Return what a call gives and how many lines of Python it executes."""
    count = 0

    def traced(frame, event, argument):
        nonlocal count
        count += event == "line"
        return traced

    before = sys.gettrace()
    sys.settrace(traced)
    try:
        made = work()
    finally:
        sys.settrace(before)
    return made, count


@pytest.mark.slow
def test_spans_of_a_very_long_document_are_found_at_once(served):
    text = "Storm here. " * 20_000
    scores = scores_of(served("tk"), "storm", [text], plan("sentences(1, 1)"))
    spans, lines = lines_of(lambda: scores.spans(0))
    assert len(spans) == 20_000
    assert lines < 100 * len(spans)
    places = sorted((span.start, span.end) for span in spans)
    assert all(before[1] <= after[0] for before, after in pairwise(places))


@pytest.mark.parametrize("split", ["windows(1000, 1, limit=None)", "sentences(100, 1)"])
def test_a_split_that_holds_a_text_over_and_over_is_refused(split):
    with pytest.raises(Invalid, match="in more than 64 passages; choose a stride of at least (2|16)"):
        asked_split(split)
    for fine in ("windows(150, 75)", "windows(1000, 1)", "words(1)", "whole", "sentences(64, 1)"):
        asked_split(fine)


def test_passages_of_a_request_have_an_end(served, monkeypatch):
    monkeypatch.setattr(documents, "MOST_PASSAGES", 100)
    for texts in (["Storm. "] * 101, ["Storm. " * 101], ["Storm. " * 60, "Storm. " * 60]):
        with pytest.raises(TooLarge, match="more than 100 passages"):
            scores_of(served("tk"), "storm", texts, plan("sentences(1, 1)"))
    assert scores_of(served("tk"), "storm", ["Storm. " * 100], plan("sentences(1, 1)")).tokens


def test_ties_of_probability_are_ordered_by_the_raw_score(served, monkeypatch):
    one = served("crossencoder")
    work = one._pairs
    steps = iter([40.0, 60.0, 50.0])
    by_length = {}

    def far_up(batch):
        return np.array([by_length.setdefault(n, next(steps)) for n in batch.lengths.tolist()], np.float32)

    monkeypatch.setattr(one, "_pairs", type(work)(work.encode, far_up))
    scores = scores_of(one, "storm", ["a", "grain grain grain", "grain " * 9], plan("whole"))
    assert len(set(scores.raw.tolist())) == 3
    assert scores.relevance.tolist() == [1.0, 1.0, 1.0]
    assert scores.order == np.argsort(-scores.raw).tolist()


def test_a_calibrated_ranker_orders_as_before_and_its_relevance_is_the_fitted_probability(tiny, tmp_path):
    compute, spec = ComputeOptions("fp32", "cpu", 1), tiny.tiny_model("crossencoder", tiny.folder)
    plain = open_ranker(spec, compute)
    plain.calibration = 'platt(0.25, -3.5, of="logit")'
    plain.save(tmp_path / "fitted")
    served = [open_served(name, one, compute) for name, one in (("a", spec), ("b", str(tmp_path / "fitted")))]
    rng = random.Random(5)
    texts = [tiny.text(rng) for _ in range(12)]
    try:
        before, after = (scores_of(one, "storm harbour", texts, plan()) for one in served)
    finally:
        for one in served:
            one.close()
    np.testing.assert_array_equal(after.raw, before.raw)
    assert after.order == before.order
    expected = 1 / (1 + np.exp(-(0.25 * before.raw.astype(float) - 3.5)))
    np.testing.assert_allclose(after.relevance, expected, rtol=1e-6)
