"""Reranking: every document is read, none is lost, none changes places without a reason."""

import subprocess
import sys
import tracemalloc
import warnings
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankhouse.core import progress
from rankhouse.core.errors import BadData, BadModel, DuplicateId, RankhouseWarning, WrongUse
from rankhouse.core.nouns import Document, Passage, Query, StoredPassage
from rankhouse.core.run import Run
from rankhouse.core.scores import one_each, with_room_below
from rankhouse.io.trec import read_run, write_run
from rankhouse.ranking.cache import CachedRanker
from rankhouse.ranking.pool import best, first, mean, top, total, weighted
from rankhouse.ranking.rerank import Candidate, Plan, Report, _scores, rerank


class Overlap:
    """The share of a passage's words that the query has."""

    fingerprint = "overlap"
    scale = "probability"

    def __init__(self):
        self.calls = []

    def score(self, pairs):
        self.calls.append(list(pairs))
        return np.array([self.one(q.text, p.text) for q, p in pairs], np.float32)

    @staticmethod
    def one(query, passage):
        words = passage.split()
        return sum(word in query.split() for word in words) / len(words)

    @property
    def asked(self):
        return [pair for call in self.calls for pair in call]


def every(n):
    """Passages of n words; a document without words has none."""

    def split(document):
        words = document.full_text.split()
        return [
            Passage(document.id, i, " ".join(words[s : s + n])) for i, s in enumerate(range(0, len(words), n))
        ]

    return split


DOCUMENTS = {
    d.id: d
    for d in [
        Document("a", "red fox in the snow"),
        Document("b", "red fox"),
        Document("c", "a dog and a cat and a red bird"),
        Document("d", "nothing of the kind"),
        Document("e", "", title="red fox red"),
        Document("f", " \n "),
        Document("g", "fox"),
    ]
}
QUERIES = [Query("1", "red fox"), Query("2", "dog cat")]
RUN = Run.from_rankings(
    {
        "1": {"a": 9.0, "b": 8.0, "c": 7.0, "d": 6.0, "e": 5.0, "f": 4.0, "g": 3.0},
        "2": {"c": 3.5, "d": 2.5, "zz": 1.5, "a": 0.5},
    }
)


def quietly(*arguments, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RankhouseWarning)
        return rerank(*arguments, **options)


def test_documents_are_ordered_by_what_the_ranker_says():
    run = quietly(Overlap(), RUN, QUERIES, DOCUMENTS)
    assert run["1"].doc_ids == ("g", "e", "b", "a", "c", "d", "f")
    assert run["1"].scores[:5].tolist() == pytest.approx([1, 1, 1, 2 / 5, 1 / 9])
    assert run["2"].doc_ids == ("c", "d", "a", "zz")
    assert list(run) == ["1", "2"]


def test_alone_queries_never_share_a_call_and_their_times_are_noted():
    ranker, report = Overlap(), Report()
    run = quietly(ranker, RUN, QUERIES, DOCUMENTS, Plan(alone=True), report=report)
    assert run == quietly(Overlap(), RUN, QUERIES, DOCUMENTS)
    assert [{pair.query.id for pair in call} for call in ranker.calls] == [{"1"}, {"2"}]
    assert set(report.times) == {"1", "2"}
    assert min(report.times.values()) > 0


def test_passages_are_scored_and_pooled():
    run = quietly(Overlap(), RUN, QUERIES, DOCUMENTS, Plan(split=every(2), pool=mean()))
    scores = run["1"].to_dict()
    assert scores["a"] == np.float32((1 + 0 + 0) / 3)
    assert scores["c"] == np.float32((0 + 0 + 0 + 0.5 + 0) / 5)
    run = quietly(Overlap(), RUN, QUERIES, DOCUMENTS, Plan(split=every(2), pool=best()))
    scores = run["1"].to_dict()
    assert (scores["a"], scores["c"], scores["d"]) == (1.0, 0.5, 0.0)


def test_first_reads_no_passage_but_the_first():
    ranker = Overlap()
    quietly(ranker, RUN, QUERIES, DOCUMENTS, Plan(split=every(2), pool=first()))
    assert {pair.passage.index for pair in ranker.asked} == {0}


def test_blank_passages_are_not_read():
    def with_blanks(document):
        return [
            Passage(document.id, 0, " "),
            Passage(document.id, 1, "red"),
            Passage(document.id, 2, ""),
            Passage(document.id, 3, "blue"),
        ]

    ranker = Overlap()
    run = Run.of([("1", "a", 1.0)])
    got = rerank(ranker, run, QUERIES[:1], DOCUMENTS, Plan(split=with_blanks, pool=mean()))
    assert [pair.passage.index for pair in ranker.asked] == [1, 3]
    assert got["1"].scores.tolist() == [0.5]


def test_below_the_depth_first_stage_order_stays():
    run = quietly(Overlap(), RUN, QUERIES, DOCUMENTS, Plan(depth=2))
    assert run["1"].doc_ids == ("b", "a", "c", "d", "e", "f", "g")
    assert (np.diff(run["1"].scores) < 0).all()
    run = quietly(Overlap(), RUN, QUERIES, DOCUMENTS, Plan(depth=2, tail="drop"))
    assert run["1"].doc_ids == ("b", "a")


def test_depth_0_changes_nothing():
    assert quietly(Overlap(), RUN, QUERIES, DOCUMENTS, Plan(depth=0)) == RUN


def test_documents_without_text_or_unknown_are_reported_and_kept_at_the_end():
    report = Report()
    with pytest.warns(RankhouseWarning) as seen:
        run = rerank(Overlap(), RUN, QUERIES, DOCUMENTS, Plan(depth=6), report=report)
    assert run["1"].doc_ids[-2:] == ("g", "f")
    assert run["2"].doc_ids[-1] == "zz"
    assert report == Report(
        queries=2,
        documents=8,
        passages=8,
        tail=1,
        unknown=1,
        without_text=1,
        unknown_ids=["zz"],
        without_text_ids=["f"],
    )
    said = sorted(str(warning.message) for warning in seen)
    assert said == [
        '1 rows of the run name documents that are not in the store, kept at the end unscored: "zz"',
        '1 rows of the run name documents without text, kept at the end unscored: "f"',
    ]


def test_documents_without_text_stay_when_the_tail_is_dropped():
    run = quietly(Overlap(), RUN, QUERIES, DOCUMENTS, Plan(depth=6, tail="drop"))
    assert set(run["1"].doc_ids) == set("abcdef")
    assert run["1"].doc_ids[-1] == "f"


def test_a_run_of_another_index_is_named_as_such_and_stays_as_it_was():
    with pytest.warns(RankhouseWarning, match=r'11 rows .*"a", "b", "c", "d", "e" \.\.\.; is this the index'):
        run = rerank(Overlap(), RUN, QUERIES, {})
    assert run == RUN


def test_a_query_without_text_stops_before_any_work():
    ranker = Overlap()
    with pytest.raises(BadData, match=r'1 of the run\'s 2 queries have no text among .*: "2"; give'):
        rerank(ranker, RUN, QUERIES[:1], DOCUMENTS)
    with pytest.raises(BadData, match='"2"'):
        rerank(ranker, RUN, [QUERIES[0], Query("2", "  ")], DOCUMENTS)
    assert ranker.calls == []


def test_a_query_given_twice_is_refused():
    with pytest.raises(DuplicateId, match='query "1" is given twice'):
        rerank(Overlap(), RUN, [*QUERIES, Query("1", "another")], DOCUMENTS)


def test_queries_the_run_does_not_have_are_reported():
    report = Report()
    run = Run.of([("1", "a", 2.0), ("1", "b", 1.0)])
    with pytest.warns(RankhouseWarning, match='2 of 3 queries are not in the run.*"2", "3"'):
        rerank(Overlap(), run, [*QUERIES, Query("3", "x")], DOCUMENTS, report=report)
    assert report.queries_not_in_run == ["2", "3"]


def test_a_query_without_documents_stays_without():
    run = Run.from_rankings({"1": {}, "2": {"c": 1.0}})
    got = rerank(Overlap(), run, QUERIES, DOCUMENTS)
    assert got["1"].doc_ids == ()
    assert got["2"].doc_ids == ("c",)
    assert len(rerank(Overlap(), Run.of([]), QUERIES, DOCUMENTS)) == 0


def test_a_score_that_is_not_a_number_is_refused_by_name():
    class Broken(Overlap):
        def score(self, pairs):
            return np.array([np.nan if p.doc_id == "c" else 1.0 for _, p in pairs], np.float32)

    with pytest.raises(BadModel, match=r'passage 0 of document "c" for query "1" is not a number \(2 of 9'):
        quietly(Broken(), RUN, QUERIES, DOCUMENTS)


def test_infinities_of_both_signs_cannot_be_added():
    class Torn(Overlap):
        def score(self, pairs):
            return np.array([np.inf if p.index else -np.inf for _, p in pairs], np.float32)

    with pytest.raises(BadModel, match='document "a" for query "1" cannot be pooled by sum'):
        quietly(Torn(), RUN, QUERIES, DOCUMENTS, Plan(split=every(2), pool=total()))


def test_a_ranker_that_miscounts_is_refused():
    class Short(Overlap):
        def score(self, pairs):
            return np.zeros(1, np.float32)

    with pytest.raises(BadModel, match="asked for 9 scores"):
        quietly(Short(), RUN, QUERIES, DOCUMENTS)


@pytest.mark.parametrize("options", [{"depth": -1}, {"tail": "hide"}, {"chunk": 0}, {"characters": 0}])
def test_a_wrong_plan_is_refused(options):
    with pytest.raises(WrongUse, match=next(iter(options))):
        Plan(**options)


def test_a_pool_on_a_scale_out_of_reach_stops_before_any_work():
    ranker = Overlap()
    ranker.scale = "similarity"
    with pytest.raises(WrongUse, match='needs a ranker whose scores are logits.*"similarity"'):
        rerank(ranker, RUN, QUERIES, DOCUMENTS, Plan(pool=mean(scale="probability")))
    assert ranker.calls == []


def test_adding_log_probabilities_is_warned_of():
    ranker = Overlap()
    ranker.scale = "logprob"
    run = Run.of([("1", "a", 2.0)])
    for pool in (total(), weighted(1.0, 0.5)):
        with pytest.warns(RankhouseWarning, match="the fewer passages a document has, the better"):
            rerank(ranker, run, QUERIES[:1], DOCUMENTS, Plan(pool=pool))
    rerank(ranker, run, QUERIES[:1], DOCUMENTS, Plan(pool=total(scale="logprob")))


def test_equal_scores_are_ordered_as_in_every_run():
    documents = {i: Document(i, "same words") for i in "xaqm"}
    run = Run.of([("1", d, s) for d, s in zip("xaqm", (4, 3, 2, 1), strict=True)])
    assert rerank(Overlap(), run, QUERIES[:1], documents)["1"].doc_ids == ("x", "q", "m", "a")


def test_the_size_of_chunks_changes_nothing_but_their_size():
    plans = [
        Plan(split=every(2), pool=top(2), chunk=c, characters=n) for c, n in [(1, 9**9), (3, 9**9), (9999, 1)]
    ]
    expected = quietly(Overlap(), RUN, QUERIES, DOCUMENTS, Plan(split=every(2), pool=top(2)))
    for plan in plans:
        ranker = Overlap()
        assert quietly(ranker, RUN, QUERIES, DOCUMENTS, plan) == expected
        assert max(map(len, ranker.calls)) <= plan.chunk
    ranker = Overlap()
    quietly(ranker, RUN, QUERIES, DOCUMENTS)
    assert len(ranker.calls) == 1  # two queries share a chunk


def test_progress_counts_every_document_once():
    told = []
    quietly(Overlap(), RUN, QUERIES, DOCUMENTS, Plan(chunk=2), progress=lambda *now: told.append(now))
    assert told[-1] == (11, 11)
    assert told == sorted(told)
    assert len(told) > 3


def test_the_cache_answers_the_second_time(tmp_path):
    reports = [Report(), Report()]
    with CachedRanker(Overlap(), tmp_path) as ranker:
        runs = [quietly(ranker, RUN, QUERIES, DOCUMENTS, report=report) for report in reports]
    assert runs[0] == runs[1] == quietly(Overlap(), RUN, QUERIES, DOCUMENTS)
    assert [report.cached for report in reports] == [0, 9]
    assert [report.passages for report in reports] == [9, 9]


def test_a_stopped_ranking_has_kept_what_it_did(tmp_path):
    class Stops(Overlap):
        def score(self, pairs):
            if sum(map(len, self.calls)) >= 4:
                raise KeyboardInterrupt
            return super().score(pairs)

    report = Report()
    with CachedRanker(Stops(), tmp_path) as ranker, pytest.raises(KeyboardInterrupt):
        quietly(ranker, RUN, QUERIES, DOCUMENTS, Plan(chunk=2), report=report)
    assert report.passages == 4
    inner, report = Overlap(), Report()
    with CachedRanker(inner, tmp_path) as ranker:
        quietly(ranker, RUN, QUERIES, DOCUMENTS, Plan(chunk=2), report=report)
    assert report.cached == 4
    assert len(inner.asked) == 5


# --- room below the lowest score ---

any_float = st.floats(width=32, allow_nan=False)
nasty = st.sampled_from(
    [
        0.0,
        -0.0,
        1e-45,
        -1e-45,
        1.1754944e-38,
        -1.1754944e-38,
        3.4028235e38,
        -3.4028235e38,
        np.inf,
        -np.inf,
        1.0,
    ]
)


@given(st.lists(any_float | nasty, min_size=1, max_size=30), st.integers(0, 400))
@settings(max_examples=400)
def test_what_is_put_below_lies_strictly_below_in_order_and_moves_no_one(values, n):
    given = np.array(values, np.float32)
    out = with_room_below(given, n)
    assert out.dtype == np.float32
    assert out.shape == (len(values) + n,)
    head, tail = out[: len(values)], out[len(values) :]
    if n:
        assert np.isfinite(tail).all()
        assert (np.diff(np.concatenate([[head.min()], tail])) < 0).all()
        assert (np.abs(tail) >= np.finfo(np.float32).tiny).all()  # nobody's processor takes them for zero
    assert np.array_equal(given[:, None] < given[None, :], head[:, None] < head[None, :])


@given(st.lists(st.floats(-(2.0**100), 2.0**100, width=32), min_size=1, max_size=30), st.integers(0, 100))
def test_scores_with_room_below_are_not_touched(values, n):
    given = np.array(values, np.float32)
    assert np.array_equal(with_room_below(given, n)[: len(values)], given)


@given(
    st.lists(any_float, min_size=1, max_size=25),
    st.integers(0, 30),
    st.integers(0, 2**25 - 1),
    st.sampled_from(["keep", "drop"]),
)
@settings(max_examples=150, deadline=None)
def test_no_document_is_ever_lost_or_out_of_order(scores, depth, blank, tail):
    ids = [f"d{n:02}" for n in range(len(scores))]
    documents = {d: Document(d, "" if blank >> n & 1 else f"text {n}") for n, d in enumerate(ids)}
    first_stage = Run.of([("1", d, -float(n)) for n, d in enumerate(ids)])

    class Given:
        def score(self, pairs):
            return np.array([scores[int(p.doc_id[1:])] for _, p in pairs], np.float32)

    got = quietly(Given(), first_stage, QUERIES[:1], documents, Plan(depth=depth, tail=tail))["1"]
    head, below = ids[:depth], ids[depth:] if tail == "keep" else []
    scored = [d for d in head if documents[d].text]
    lost = [d for d in head if not documents[d].text]
    if not scored:
        assert list(got.doc_ids) == head + below
        return
    best_first = sorted(scored, reverse=True)
    best_first.sort(key=lambda d: -np.float32(scores[int(d[1:])]))
    assert list(got.doc_ids) == best_first + below + lost
    if below or lost:
        assert (np.diff(got.scores[len(scored) - 1 :]) < 0).all()


def test_the_order_survives_a_run_file(tmp_path):
    run = quietly(Overlap(), RUN, QUERIES, DOCUMENTS, Plan(depth=2))
    write_run(run, tmp_path / "run.txt")
    assert read_run(tmp_path / "run.txt") == run


# --- memory ---


class Library:
    """Makes a document when asked, so that only rerank itself can hold on to any."""

    def __init__(self, words):
        self.words = words

    def __getitem__(self, doc_id):
        return Document(doc_id, f"{doc_id} " * self.words)


class Length:
    def score(self, pairs):
        return np.array([len(p.text) for _, p in pairs], np.float32)


def peak(depth, words, queries=1):
    run = Run.of([(str(q), f"doc{n}", -float(n)) for q in range(queries) for n in range(depth)])
    asked = [Query(str(q), "x") for q in range(queries)]
    plan = Plan(depth=depth, split=every(50), characters=100_000)
    tracemalloc.start()
    rerank(Length(), run, asked, Library(words), plan)
    used = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return used


@pytest.mark.slow
def test_memory_does_not_grow_with_the_text_that_is_read():
    # 20 MB of text pass through; the rows of the run itself are some 200 bytes each.
    few, many = peak(depth=50, words=1000), peak(depth=3000, words=1000)
    assert many - few < 3000 * 400
    assert many < 4_000_000


def test_reranking_never_enters_torch():
    code = "import sys, rankhouse.ranking.rerank; print('torch' in sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "False"


@pytest.mark.parametrize("given", [["a", "b"], np.full(2, 1e300), (1.0 for _ in range(2)), [{}, {}]])
def test_what_a_ranker_gives_that_is_no_score_is_refused(given):
    """1e300 was infinite for all, a tie; others ended in numpy's own words."""
    with pytest.raises(BadModel, match="cannot be 2 scores of 32 bits"):
        one_each(2, given)


def test_progress_goes_on_from_texts_to_what_is_stored():
    told, pairs = [], [Passage("a", 0, "x"), StoredPassage("b", 0, 0)]

    class Telling(Overlap):
        def score(self, pairs):
            told.extend([progress.share(0.5), progress.share(1.0)])
            return np.zeros(len(pairs), np.float32)

    ranker, query = Telling(), Query("q", "x")
    plan = Plan(stored=SimpleNamespace(score=ranker.score))
    with progress.part(0, 1, told.append):
        _scores(ranker, [Candidate(query, one.doc_id, [one]) for one in pairs], plan)
    assert [one for one in told if one is not None] == [0.25, 0.5, 0.75, 1.0]


def test_progress_moves_while_a_ranker_is_at_work_on_many_documents(tmp_path):
    told = []

    class Slow(Overlap):
        def score(self, pairs):
            for share in (0.25, 0.5, 1.0):
                progress.share(share)
                told.append(None)
            return super().score(pairs)

    plain, cached = Slow(), CachedRanker(Slow(), tmp_path / "cache", chunk=2)
    for ranker in (plain, cached):
        told.clear()
        quietly(ranker, RUN, QUERIES, DOCUMENTS, progress=lambda *now: told.append(now))
        done = [at for at, _ in filter(None, told)]
        assert done == sorted(done)
        assert len(set(done)) >= 4
        assert told[-1][0] == told[-1][1] == RUN.rows
    cached.close()
