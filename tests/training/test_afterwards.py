"""Depth and ensembles, settled on validation."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankhouse.core.errors import WrongUse
from rankhouse.core.nouns import Document, Query
from rankhouse.core.run import Run
from rankhouse.evaluation.measures import scorer
from rankhouse.ranking.rerank import Plan, rerank
from rankhouse.training.tuning import cut_at, greedy_ensemble, mean_of, tune_depth


class ByTable:
    """A ranker that looks scores up; scoring itself is not what is tested here."""

    def __init__(self, scores):
        self.scores = scores

    def score(self, pairs):
        return np.array([self.scores[p.query.id, p.passage.doc_id] for p in pairs], np.float32)


@given(st.integers(0, 12), st.integers(0, 2**16))
@settings(max_examples=60, deadline=None)
def test_cutting_a_deep_re_ranking_is_re_ranking_less_deep(depth, seed):
    rng = np.random.default_rng(seed)
    rows = [
        (f"q{q}", f"d{d}", float(rng.integers(-3, 4))) for q in range(3) for d in range(rng.integers(1, 9))
    ]
    scores = {(q, d): float(rng.integers(-3, 4)) for q, d, _ in rows}
    first, documents = Run.of(rows), {f"d{d}": Document(f"d{d}", "text") for d in range(9)}
    queries = [Query(q, "x") for q in first]
    deep = rerank(ByTable(scores), first, queries, documents)
    shallow = rerank(ByTable(scores), first, queries, documents, Plan(depth=depth))
    assert cut_at(deep, first, depth) == shallow


def test_the_best_depth_is_found_and_the_smallest_of_equal_ones():
    first = Run.of([("q", f"d{i}", 10.0 - i) for i in range(6)])
    reranked = Run.of([("q", "d5", 9.0), ("q", "d2", 8.0), *(("q", f"d{i}", 1.0 - i) for i in (0, 1, 3, 4))])
    found = tune_depth(reranked, first, {"q": {"d2": 1}}, [0, 1, 3, 4, 6], "RR")
    assert found.tried == pytest.approx({0: 1 / 3, 1: 1 / 3, 3: 1.0, 4: 1.0, 6: 1 / 2})
    assert (found.depth, found.value) == (3, 1.0)


def test_queries_that_were_not_re_ranked_keep_their_first_stage():
    first = Run.of([("q", "a", 2.0), ("q", "b", 1.0), ("r", "c", 1.0)])
    cut = cut_at(Run.of([("q", "b", 5.0), ("q", "a", 4.0)]), first, 2)
    assert cut["r"].doc_ids == ("c",)
    assert cut["q"].doc_ids == ("b", "a")


def test_no_depth_is_refused():
    run = Run.of([("q", "a", 1.0)])
    with pytest.raises(WrongUse, match="no depths"):
        tune_depth(run, run, {"q": {"a": 1}}, [])
    with pytest.raises(WrongUse, match="depth=-1"):
        cut_at(run, run, -1)


def runs_of(orders):
    return {name: Run.of([("q", d, float(s)) for d, s in scores.items()]) for name, scores in orders.items()}


def test_an_ensemble_keeps_only_runs_that_improve_it():
    runs = runs_of(
        {
            "good": {"a": 3, "b": 4, "c": 0},
            "helps": {"a": 4, "b": 0, "c": 5},
            "harms": {"a": -9, "b": 9, "c": 0},
        }
    )
    qrels = {"q": {"a": 1}}
    chosen = greedy_ensemble(runs, qrels, "RR")
    assert chosen.names == ("good", "helps")
    assert chosen.value == 1.0
    assert dict(chosen.alone) == pytest.approx({"good": 0.5, "helps": 0.5, "harms": 1 / 3})
    joined = mean_of([runs[name] for name in chosen.names])
    assert joined["q"].to_dict() == {"a": 3.5, "c": 2.5, "b": 2.0}


@given(st.integers(0, 2**16))
@settings(max_examples=30, deadline=None)
def test_an_ensemble_is_never_worse_than_its_best_run(seed):
    rng = np.random.default_rng(seed)
    runs = {
        f"r{i}": Run.of([(f"q{q}", f"d{d}", float(rng.random())) for q in range(4) for d in range(6)])
        for i in range(4)
    }
    qrels = {f"q{q}": {f"d{d}": int(rng.random() < 0.4) for d in range(6)} | {"d0": 1} for q in range(4)}
    chosen = greedy_ensemble(runs, qrels, "AP")
    value = scorer(qrels, "AP")(mean_of([runs[name] for name in chosen.names]))
    assert value == pytest.approx(chosen.value)
    assert chosen.value >= max(chosen.alone.values())
    assert list(chosen.alone.values()) == sorted(chosen.alone.values(), reverse=True)


def test_a_document_that_a_run_lacks_has_its_lowest_score():
    joined = mean_of([Run.of([("q", "a", 4.0), ("q", "b", 2.0)]), Run.of([("q", "a", 1.0), ("r", "c", 3.0)])])
    assert joined["q"].to_dict() == {"a": 2.5, "b": 1.5}
    assert joined["r"].doc_ids == ("c",)


def test_nothing_cannot_be_joined():
    with pytest.raises(WrongUse):
        mean_of([])
    with pytest.raises(WrongUse):
        greedy_ensemble({}, {"q": {"a": 1}})
