"""Reranking by comparisons: planted preferences are recovered, and nothing else moves."""

import random

import numpy as np
import pytest

from rankhouse.core.errors import BadData, RankhouseWarning, WrongUse
from rankhouse.core.nouns import Document, Passage, Query
from rankhouse.core.run import Run
from rankhouse.ranking.pairwise import AGGREGATES, PairwisePlan, comparisons, rerank_pairwise
from rankhouse.ranking.rerank import Report


class Strengths:
    """The planted ranker: passages have strengths; the first of two is preferred a little too much."""

    def __init__(self, favour=0.3):
        self.favour, self.asked = favour, []

    def preferences(self, query, passages):
        self.asked.append((query.id, [passage.text for passage in passages]))
        own = np.array([float(passage.text.split()[-1]) for passage in passages])
        p = 1 / (1 + np.exp(-(own[:, None] - own[None, :] + self.favour)))
        np.fill_diagonal(p, 0)
        return p.astype(np.float32)


class Last:
    """Chooses the passage whose last word is the largest number."""

    scale = "score"

    def score(self, pairs):
        return np.array([float(pair.passage.text.split()[-1]) for pair in pairs], np.float32)


def world(n=8, seed=0):
    strengths = random.Random(seed).sample(range(n), n)
    documents = {f"d{i}": Document(f"d{i}", f"ship {s / 4}") for i, s in enumerate(strengths)}
    run = Run.of({"q": {d: float(n - i) for i, d in enumerate(documents)}})
    return documents, run, sorted(documents, key=lambda d: -float(documents[d].text.split()[-1]))


@pytest.mark.parametrize("aggregate", AGGREGATES)
def test_the_stronger_documents_come_first_whatever_their_order(aggregate):
    documents, run, best = world()
    plan = PairwisePlan(aggregate=aggregate)
    done = rerank_pairwise(Strengths(), run, [Query("q", "ships")], documents, plan)
    assert list(done["q"].doc_ids) == best
    turned = Run.of({"q": {d: float(i) for i, d in enumerate(documents)}})
    again = rerank_pairwise(Strengths(), turned, [Query("q", "ships")], documents, plan)
    assert again == done


def test_both_orders_count_as_the_paper_says():
    p = np.array([[0, 0.9, 0.6], [0.3, 0, 0.2], [0.5, 0.7, 0]])
    np.testing.assert_allclose(
        AGGREGATES["sym-sum"](p), [0.9 + 0.6 + 0.7 + 0.5, 0.3 + 0.2 + 0.1 + 0.3, 0.5 + 0.7 + 0.4 + 0.8]
    )
    np.testing.assert_allclose(AGGREGATES["sum"](p), [1.5, 0.5, 1.2])


def test_only_the_first_few_are_compared_and_the_rest_keeps_its_place():
    documents, run, _ = world(8)
    documents["d2"] = Document("d2", "  ")
    ranker, report, told = Strengths(), Report(), []
    with pytest.warns(RankhouseWarning, match="documents without text"):
        done = rerank_pairwise(
            ranker,
            run,
            [Query("q", "ships")],
            documents,
            PairwisePlan(depth=5),
            report,
            lambda *at: told.append(at),
        )
    assert len(ranker.asked[0][1]) == 4
    assert done["q"].doc_ids[4:] == ("d5", "d6", "d7", "d2")
    assert set(done["q"].doc_ids[:4]) == {"d0", "d1", "d3", "d4"}
    assert (np.diff(done["q"].scores) < 0).all()
    assert (report.queries, report.documents, report.passages, report.tail) == (1, 4, 12, 3)
    assert comparisons(run, 5) == 20
    assert told == [(12, 20)]
    dropped = rerank_pairwise(
        ranker,
        Run.of({"q": {"d0": 2.0, "d1": 1.0, "d3": 0.5}}),
        [Query("q", "s")],
        documents,
        PairwisePlan(depth=2, tail="drop"),
    )
    assert set(dropped["q"].doc_ids) == {"d0", "d1"}


def test_few_documents_are_no_trouble():
    documents, _, _ = world()
    run = Run.of({"q": {"d0": 1.0}})
    queries = [Query("q", "ships")]
    assert rerank_pairwise(Strengths(), run, queries, documents)["q"].doc_ids == ("d0",)
    assert rerank_pairwise(Strengths(), run, queries, documents, PairwisePlan(depth=0)) == run
    with pytest.raises(BadData, match="q"):
        rerank_pairwise(Strengths(), run, [Query("other", "x")], documents, PairwisePlan())


def test_the_passage_that_the_chooser_puts_first_speaks_for_a_document():
    documents = {
        "a": Document("a", "one 1, two 5, three 2"),
        "b": Document("b", "one 3"),
        "c": Document("c", "one 4, two 0"),
    }
    run = Run.of({"q": {"a": 3.0, "b": 2.0, "c": 1.0}})

    def split(document):
        return [Passage(document.id, i, text.strip()) for i, text in enumerate(document.text.split(","))]

    ranker = Strengths()
    done = rerank_pairwise(
        ranker, run, [Query("q", "s")], documents, PairwisePlan(split=split, chooser=Last())
    )
    assert ranker.asked == [("q", ["two 5", "one 3", "one 4"])]
    assert done["q"].doc_ids == ("a", "c", "b")
    with pytest.raises(WrongUse, match="name the ranker that chooses"):
        PairwisePlan(split=split)
    with pytest.raises(WrongUse, match="sum, sym-sum"):
        PairwisePlan(aggregate="max")
