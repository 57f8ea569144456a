"""Run: sorted once, ties as trec_eval breaks them, immutable."""

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankhouse.core.errors import BadData, WrongUse
from rankhouse.core.nouns import Ranking
from rankhouse.core.run import Run

ids = st.text("abcXYZ019-é\U0001f600", min_size=1, max_size=4)
scores = st.one_of(st.sampled_from([0.0, 1.0, -1.5]), st.floats(-(2.0**100), 2.0**100, width=32))
rankings = st.dictionaries(ids, st.dictionaries(ids, scores, max_size=8), max_size=5)


def rows_of(rankings):
    return [(q, d, s) for q, docs in rankings.items() for d, s in docs.items()]


def expected(docs):
    return sorted(docs.items(), key=lambda item: (item[1], item[0].encode()), reverse=True)


@settings(max_examples=200)
@given(rankings)
def test_orders_by_score_then_by_id_descending(data):
    run = Run.from_rankings(data)
    assert list(run) == list(data)
    for query_id, docs in data.items():
        ranking = run[query_id]
        assert list(zip(ranking.doc_ids, ranking.scores.tolist(), strict=True)) == expected(docs)


@settings(max_examples=100)
@given(rankings, st.randoms())
def test_rows_may_come_in_any_order(data, random):
    rows = rows_of(data)
    random.shuffle(rows)
    shuffled = Run.of(rows)
    assert shuffled == Run.from_rankings({q: docs for q, docs in data.items() if docs})


@settings(max_examples=100)
@given(rankings, st.integers(0, 9))
def test_top_keeps_the_head_of_every_ranking(data, k):
    run = Run.from_rankings(data)
    top = run.top(k)
    assert list(top) == list(run)
    for query_id in run:
        assert top[query_id].doc_ids == run[query_id].doc_ids[:k]
        assert np.array_equal(top[query_id].scores, run[query_id].scores[:k])


@settings(max_examples=100)
@given(rankings, st.lists(ids, max_size=4))
def test_restrict_keeps_known_queries_in_the_order_asked(data, wanted):
    run = Run.from_rankings(data)
    kept = run.restrict(wanted)
    assert list(kept) == [q for q in dict.fromkeys(wanted) if q in data]
    assert all(kept[q].doc_ids == run[q].doc_ids for q in kept)


def test_a_ranking_goes_in_as_it_came_out():
    run = Run.of([("q", "a", 1), ("q", "b", 2), ("p", "a", 3)])
    assert Run.from_rankings(run) == run
    assert run["q"] == Ranking(("b", "a"), pytest.approx([2, 1]))


def test_scores_and_mapping_cannot_be_changed():
    run = Run.of([("q", "a", 1)])
    with pytest.raises(ValueError, match="read-only"):
        run["q"].scores[0] = 5
    with pytest.raises(TypeError):
        run["q"] = run["q"]
    with pytest.raises(TypeError, match="unhashable"):
        hash(run)


def test_equality_looks_at_scores_and_documents():
    one = Run.of([("q", "a", 1), ("q", "b", 2)])
    assert one == Run.of([("q", "b", 2), ("q", "a", 1)])
    assert one != Run.of([("q", "b", 2), ("q", "a", 1.5)])
    assert one != Run.of([("q", "c", 2), ("q", "a", 1)])
    assert one != Run.of([("p", "b", 2), ("p", "a", 1)])
    assert one != {"q": one["q"]}


def test_infinite_scores_are_ordered_and_nan_is_refused_by_name():
    run = Run.of([("q", "a", float("-inf")), ("q", "b", float("inf"))])
    assert run["q"].doc_ids == ("b", "a")
    with pytest.raises(BadData, match=r'"d7" for query "q3"'):
        Run.of([("q1", "d1", 1.0), ("q3", "d7", float("nan"))])


def test_finite_scores_that_32_bits_make_infinite_and_equal_are_refused():
    """Their order was lost, with numpy's words about a cast."""
    ways = (
        lambda score: Run.of([("q", "a", 1.0), ("q", "b", score)]),
        lambda score: Run.of({"q": {"a": 1.0, "b": score}}),
        lambda score: Run.from_rankings({"q": Ranking(("a", "b"), np.array([score, 1.0]))}),
        lambda score: Run.from_columns(["q"], [["a", "b"]], [np.array([1.0, score])]),
    )
    for way in ways:
        for score in (1e300, -1e39, 3.5e38):
            with pytest.raises(BadData, match=r"the score .* is beyond 3\.4e\+38, the largest of 32 bits"):
                way(score)
        assert len(way(3.4e38)["q"].doc_ids) == 2
    with pytest.raises(BadData, match="a score is beyond"):
        ways[1](10**400)


def test_a_document_twice_is_refused_by_name():
    with pytest.raises(BadData, match=r'query "q2" holds document "x" twice'):
        Run.of([("q1", "x", 1), ("q2", "x", 1), ("q2", "y", 2), ("q2", "x", 3)])
    with pytest.raises(BadData, match=r'query "q" is given twice'):
        Run.from_columns(["q", "q"], [["a"], ["b"]], [np.ones(1, np.float32)] * 2)


def test_columns_of_different_lengths_are_refused():
    with pytest.raises(WrongUse, match="2 query ids, 1 lists"):
        Run.from_columns(["q", "p"], [["a"]], [np.ones(1, np.float32)])
    with pytest.raises(WrongUse, match="1 documents but 2 scores"):
        Run.from_columns(["q"], [["a"]], [np.ones(2, np.float32)])
    with pytest.raises(WrongUse, match="top"):
        Run.of([]).top(-1)


def test_an_empty_run_and_an_empty_ranking_are_fine():
    assert len(Run.of([])) == 0
    run = Run.from_columns(["q"], [[]], [np.empty(0, np.float32)])
    assert run["q"].doc_ids == ()
    assert run.top(5)["q"].scores.shape == (0,)


def test_a_million_rows_take_less_than_twenty_megabytes():
    queries, depth = 100, 10_000
    names = [f"document-{i:05d}" for i in range(depth)]
    values = np.linspace(1, 0, depth, dtype=np.float32)
    run = Run.from_columns([str(q) for q in range(queries)], [names] * queries, [values] * queries)
    assert run.rows == 1_000_000
    assert run.nbytes < 12_000_000
    assert "1,000,000 rows" in repr(run)


@pytest.mark.parametrize(
    ("rankings", "complaint"),
    [
        ({1: {"a": 1.0}}, "the query id 1 is of type int"),
        ({"q": {"a": 1.0, None: 2.0}}, "the document id None is no string"),
        ({"q": Ranking((7,), np.ones(1, np.float32))}, "the document id 7 is no string"),
        ({"q": {"a": 1.0, "b": None}}, "the score None is not a number"),
        ({"q": {"a": "1.0"}}, "the score '1.0' is not a number"),
        ({"q": [("a", 1.0)]}, "is no mapping of document ids to numbers"),
    ],
)
def test_ids_that_are_no_strings_and_scores_that_are_no_numbers_are_refused(rankings, complaint):
    for build in (Run.of, Run.from_rankings):
        with pytest.raises(BadData, match=complaint):
            build(rankings)
    assert Run.from_rankings({"q": {"a": np.float32(1), "b": 2, "c": True}}).rows == 3


@pytest.mark.parametrize(("query", "document"), [("query_id", "doc_id"), ("qid", "docno")])
def test_a_data_frame_goes_in_as_it_came_out(query, document):
    pytest.importorskip("pandas")
    run = Run.of({"q1": {"a": 1.0, "b": 3.0}, "q2": {"a": 0.5}})
    frame = run.to_frame().rename(columns={"query_id": query, "doc_id": document})
    assert Run.of(frame) == run
    with pytest.raises(WrongUse, match='no column "doc_id" or "docno"; its columns are'):
        Run.of(frame.drop(columns=document))


def test_rows_of_ir_measures_go_in():
    ir_measures = pytest.importorskip("ir_measures")
    run = Run.of({"q1": {"a": 1.0, "b": 3.0}})
    rows = [ir_measures.ScoredDoc("q1", "a", 1.0), ir_measures.ScoredDoc("q1", "b", 3.0)]
    assert Run.of(rows) == run


def test_a_ranking_is_a_sequence_of_hits():
    ranking = Run.of({"q": {"a": 1.0, "b": 3.0, "c": 2.0}})["q"]
    assert len(ranking) == 3
    assert [(hit.rank, hit.doc_id, hit.score) for hit in ranking] == [
        (1, "b", 3.0),
        (2, "c", 2.0),
        (3, "a", 1.0),
    ]
    assert ranking[0] == ranking[-3]
    assert ranking[0].title == ranking[0].text == ""
    assert [hit.rank for hit in ranking[1:]] == [2, 3]
    assert ranking[1:].doc_ids == ("c", "a")
    assert pickle.loads(pickle.dumps(ranking)) == ranking
    assert list(ranking.to_frame().columns) == ["rank", "doc_id", "score"]
    assert str(ranking[:1]) == "  1  b  3.0000"
    assert "<td" in ranking._repr_html_()


def test_a_run_is_cut_by_a_slice_and_says_which_queries_it_has():
    run = Run.of({"q1": {"a": 1.0}, "q2": {"b": 1.0}, "q3": {}})
    assert list(run[:2]) == ["q1", "q2"]
    assert run.get("q4") is None
    assert "q2" in run
    assert 0 not in run
    with pytest.raises(
        KeyError, match=r"run\[0\]: the run has no such query; its ids: q1, q2, q3, which are strings"
    ):
        run[0]


def test_a_long_ranking_shows_its_beginning():
    ranking = Run.of([("q", f"d{n}", -n) for n in range(1000)])["q"]
    assert repr(ranking).splitlines()[-2:] == [" 20  d19  -19.0000", "... and 980 more"]
    assert len(str(ranking).splitlines()) == 1000
