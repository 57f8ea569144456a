"""Stages: runs and passages add up to the number of the pipeline, each with the explanation below it."""

import math
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankhouse.core.errors import BadData, RankhouseWarning, WrongUse
from rankhouse.core.notation import make
from rankhouse.core.nouns import Document, Query
from rankhouse.core.run import Run
from rankhouse.explanation import stages
from rankhouse.explanation.answer import Explanation, Part
from rankhouse.explanation.contrast import contrast
from rankhouse.explanation.methods import ExplainOptions
from rankhouse.explanation.placeholder import placeholder
from rankhouse.explanation.stages import MOST_PARTS, explain_fused, explain_reranked
from rankhouse.ranking.fuse import FUSIONS, linear
from rankhouse.ranking.pool import POOLS
from rankhouse.ranking.rerank import Plan, rerank
from rankhouse.text.split import Whole, Windows
from rankhouse.training.tuning import mean_of

QUERY = Query("q1", "who steers ships?")
METHODS = [
    *(f"linear({n!r}, missing={m!r})" for n in ("raw", "min-max", "z-score") for m in ("min", "zero")),
    "rrf",
    "rrf(k=0.5)",
    "combsum",
    "combmnz('raw')",
    "combmnz",
]


def explanation(score=1.5):
    return Explanation(QUERY, "a", score, "term weights", True, "bm25", (Part("ship", score),))


def random_runs(rng, n):
    ids = [f"d{i}" for i in range(30)]
    return {
        f"run {k}": Run.of({"q1": {d: rng.uniform(-5, 20) for d in rng.sample(ids, rng.randrange(5, 25))}})
        for k in range(n)
    }


# --- fusion ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", METHODS)
def test_runs_add_up_to_the_number_of_the_fusion(method):
    rng = random.Random(5)
    for n in (2, 3, 4):
        runs = random_runs(rng, n)
        weights = rng.choice([None, [rng.uniform(0, 2) for _ in runs], [0.0, *[1.0] * (n - 1)]])
        fused = make(method, FUSIONS, "fusion")(list(runs.values()), weights)
        for doc_id, score in fused.to_dict()["q1"].items():
            answer = explain_fused(method, runs, QUERY, doc_id, weights)
            assert answer.score == score
            assert abs(answer.gap) <= 1e-5 * max(1, abs(score))
            assert [part.name for part in answer.parts] == [*runs]


def test_the_mean_of_runs_passes_over_runs_without_the_query():
    runs = random_runs(random.Random(1), 3) | {"mute": Run.of({"other": {"d0": 1.0}})}
    for doc_id, score in mean_of(runs.values()).to_dict()["q1"].items():
        answer = explain_fused("mean", runs, QUERY, doc_id)
        assert answer.score == pytest.approx(score, rel=1e-6)
        assert abs(answer.gap) <= 1e-5 * max(1, abs(score))
        assert answer.parts[3].value == 0


def test_each_run_has_its_line_and_the_explanation_below_it():
    runs = {"bm25": Run.of({"q1": {"a": 3.0, "b": 2.0}}), "dense": Run.of({"q1": {"b": 0.5, "c": 0.25}})}
    whys = {"bm25": explanation(3.0)}
    first = explain_fused('linear("raw")', runs, QUERY, "a", [0.5, 2.0], whys)
    assert first.parts == (
        Part("bm25", 1.5, "rank 1, score 3: 3 x weight 0.5", first.parts[0].facts, why=whys["bm25"]),
        Part("dense", 0.5, "does not have the document; counts as its lowest, 0.25", first.parts[1].facts),
    )
    assert first.parts[0].facts == {"weight": 0.5, "value": 3.0, "rank": 1, "score": 3.0}
    votes = explain_fused("combmnz('raw')", runs, QUERY, "b").parts
    assert [(part.value, part.facts["votes"]) for part in votes] == [(4.0, 2), (1.0, 2)]
    ranks = explain_fused("rrf", runs, QUERY, "a").parts
    assert [part.value for part in ranks] == [1 / 61, 0]
    assert ranks[1].note.endswith("adds nothing")


def test_documents_of_a_fusion_are_contrasted_run_by_run():
    runs = random_runs(random.Random(2), 3)
    best, *_, worst = linear()(list(runs.values()))["q1"].doc_ids
    answers = [explain_fused("linear", runs, QUERY, doc_id) for doc_id in (best, worst)]
    told = contrast(*answers)
    assert {part.name for part in told.parts} == {*runs}
    assert told.gap == pytest.approx(0, abs=1e-5)


@pytest.mark.parametrize("method", ["greedy", "best"])
def test_what_is_no_sum_is_refused(method):
    with pytest.raises(WrongUse, match="not a known fusion that is a sum over runs"):
        explain_fused(method, random_runs(random.Random(3), 2), QUERY, "d1")


def test_a_document_that_the_fusion_lacks_is_refused():
    runs = {"one": Run.of({"q1": {"a": 1.0, "b": 2.0}}), "two": Run.of({"q1": {"b": 1.0}})}
    with pytest.raises(WrongUse, match='"z" is not in the fusion'):
        explain_fused("rrf", runs, QUERY, "z")
    with pytest.raises(WrongUse, match="a run lacks it"):
        explain_fused('linear(missing="drop")', runs, QUERY, "a")
    with pytest.raises(WrongUse, match="not in the fusion"):
        explain_fused("rrf", runs, QUERY._replace(id="q9"), "a")


# --- passages -------------------------------------------------------------------------------------------


class CountedWords:
    """Planted: each word has a weight; a passage scores the sum, as a logit."""

    scale = "logit"
    weights = {"ship": 1.0, "sail": 0.5, "not": -2.0}  # noqa: RUF012 - a constant

    def score(self, pairs):
        return np.array(
            [sum(self.weights.get(w, 0.01) for w in pair.passage.text.split()) for pair in pairs], np.float32
        )


RANKER, WINDOWS = CountedWords(), Windows(4, 4)
POOLINGS = [
    "first",
    "max",
    "sum",
    "mean",
    "top(2)",
    "weighted(1.0, 0.5, 0.25)",
    'mean(scale="probability")',
    'sum(scale="probability")',
    'max(scale="probability")',
]


def random_document(rng, longest=40):
    words = rng.choices(["ship", "sail", "not", "sea"], k=rng.randrange(1, longest))
    return Document(f"d{rng.random()}", " ".join(words))


def pool_of(text):
    return make(text, POOLS, "pool")


def adds_up(parts, value):
    assert math.fsum(part.value for part in parts) == pytest.approx(value, abs=1e-5 * max(1, abs(value)))
    for part in parts:
        if part.parts:
            adds_up(part.parts, part.value)


@pytest.mark.parametrize("pooling", POOLINGS)
def test_passages_add_up_to_the_number_of_the_reranked_run(pooling):
    rng, pool = random.Random(11), pool_of(pooling)
    documents = {d.id: d for d in (random_document(rng) for _ in range(30))}
    first = Run.of({"q1": {doc_id: float(i) for i, doc_id in enumerate(documents)}})
    run = rerank(RANKER, first, [QUERY], documents, Plan(WINDOWS, pool)).to_dict()["q1"]
    for doc_id, score in run.items():
        answer = explain_reranked(RANKER, QUERY, documents[doc_id], WINDOWS, pool)
        assert answer.score == score
        adds_up(answer.parts, answer.score)
        assert all(part.why is not None for part in answer.parts[:3])


def test_the_passage_that_won_is_named_and_explained():
    document = Document("d", "not a good one ship and ship and sail on the sea")
    answer = explain_reranked(RANKER, QUERY, document, WINDOWS, pool_of("max"))
    (part,) = answer.parts
    assert (part.name, part.note) == ("best passage", "passage 2, score 2.02")
    assert part.why.doc_id == "d"
    assert part.why.score == answer.score
    assert "Passage 2 of 3 speaks for d." in answer.notes
    (text,) = answer.texts
    assert (text.index, text.name, text.value) == (1, "passage 2", answer.score)
    (grid,) = answer.grids
    assert (grid.rows, grid.columns) == (("passage 2",), ("score", "adds"))
    values = {p.name: p.value for p in part.parts}
    assert values["word: ship"] == values["word: ship (2nd)"] == pytest.approx(1)


def test_equal_passages_are_said_and_the_earliest_speaks():
    answer = explain_reranked(
        RANKER, QUERY, Document("d", "sea sea sea sea ship a b c ship a b c"), WINDOWS, pool_of("max")
    )
    assert answer.texts[0].index == 1
    assert any("2 passages of d have this score" in note for note in answer.notes)


def test_shares_are_those_of_the_pool():
    document = Document("d", "sea a b c ship a b c sail a b c")
    scores = [0.04, 1.03, 0.53]
    for pooling, by_hand in [
        ("mean", [1.03 / 3, 0.53 / 3, 0.04 / 3]),
        ("top(2)", [1.03 / 2, 0.53 / 2]),
        ("weighted(1.0, 0.5)", [1.03, 0.53 / 2]),
        ("sum", sorted(scores, reverse=True)),
    ]:
        answer = explain_reranked(RANKER, QUERY, document, WINDOWS, pool_of(pooling))
        assert [part.value for part in answer.parts] == pytest.approx(by_hand, abs=1e-6)
        assert [part.name for part in answer.parts] == ["best passage", "2nd passage", "3rd passage"][
            : len(by_hand)
        ]


def test_a_pool_on_another_scale_keeps_the_rankers_unit_for_the_words():
    document = Document("d", "sea a b c ship a b c")
    answer = explain_reranked(RANKER, QUERY, document, WINDOWS, pool_of('mean(scale="probability")'))
    assert (answer.unit, answer.parts[0].why.unit) == ("probability", "logit")
    assert answer.parts[0].value == pytest.approx(1 / (1 + math.exp(-1.03)) / 2)
    assert answer.parts[0].parts == ()


def test_what_a_passages_method_leaves_unexplained_is_a_part_and_finer_parts_are_weighed():
    tree = (Part("ship", 1.0, parts=(Part("kernel 1", 0.75), Part("kernel 2", 0.25))), Part("sea", -0.5))
    why = Explanation(QUERY, "d", 2.0, "integrated gradients", False, "logit", tree)
    complete = stages._complete(why)
    assert complete[2].value == 1.5
    weighed = stages._times(complete, 0.5)
    adds_up(weighed, 1.0)
    assert [part.value for part in weighed[0].parts] == [0.375, 0.125]
    without_gap = Explanation(QUERY, "d", 0.5, "kernel shares", True, "logit", tree)
    assert stages._complete(without_gap) == tree


def test_documents_of_several_passages_are_contrasted_by_merit():
    rng = random.Random(4)
    first, second = (
        explain_reranked(RANKER, QUERY, random_document(rng), WINDOWS, pool_of("top(2)")) for _ in range(2)
    )
    told = contrast(first, second)
    assert {part.name for part in told.parts} <= {"best passage", "2nd passage"}
    adds_up(told.parts, told.score)


def test_a_document_that_is_not_split_is_its_one_passage():
    answer = explain_reranked(RANKER, QUERY, Document("d", "ship and sail"), Whole(), pool_of("max"))
    assert answer.method == "word removal"
    assert {part.name for part in answer.parts} >= {"word: ship", "word: sail"}


def test_a_long_document_is_explained_in_bounded_passes_and_says_so():
    document = Document("d", "sea " * 100_000)
    options = ExplainOptions(passes=16)
    answer = explain_reranked(
        RANKER, QUERY, document, Windows(150, 150, None), pool_of("sum"), options, most=2
    )
    assert answer.cost <= 2 * 16
    assert len(answer.parts) == MOST_PARTS + 1
    assert answer.parts[-1].name == "other passages"
    assert any("2 of the 667 passages of d that count were looked into" in note for note in answer.notes)
    assert abs(answer.gap) <= 1e-5 * answer.score


def test_words_that_the_splitter_drops_are_counted():
    document = Document("d", "sea " * 1000)
    answer = explain_reranked(RANKER, QUERY, document, Windows(10, 10, limit=2), pool_of("max"))
    assert any(note.startswith("980 words of d are in no passage (windows(10, 10") for note in answer.notes)


@pytest.mark.parametrize("text", ["", "  \n"])
def test_a_document_without_text_is_refused(text):
    with pytest.raises(BadData, match='"d" has no text'):
        explain_reranked(RANKER, QUERY, Document("d", text), WINDOWS, pool_of("max"))


@given(st.lists(st.floats(-20, 20, width=32), min_size=1, max_size=12), st.sampled_from(POOLINGS))
def test_shares_sum_to_the_pooled_score(scores, pooling):
    pool = pool_of(pooling)
    factors, added = pool.shares(scores, "logit")
    assert math.fsum(added) == pytest.approx(pool(scores, "logit"), rel=1e-12, abs=1e-12)
    assert ((factors == 0) <= (added == 0)).all()


# --- placeholders ---------------------------------------------------------------------------------------


@pytest.fixture
def reranked():
    documents = {f"d{i}": Document(f"d{i}", "ship " * (i + 1) if i != 2 else "") for i in range(8)}
    first = Run.of({"q1": {f"d{i}": 8.0 - i for i in range(8)}, "q2": {"d2": 2.0}})
    queries = [QUERY, Query("q2", "sails")]
    with pytest.warns(RankhouseWarning, match="without text"):
        run = rerank(RANKER, first, queries, documents, Plan(depth=5))
    return run, first, documents


def test_numbers_that_are_no_scores_are_told_from_scores(reranked):
    run, first, documents = reranked
    lost = {"d2", "d5", "d6", "d7"}
    for doc_id in documents:
        from_run = placeholder(run, "q1", doc_id)
        assert bool(from_run) == (doc_id in lost)
        known = placeholder(run, "q1", doc_id, first, 5, documents[doc_id])
        assert bool(known) == (doc_id in lost)
        if doc_id in lost:
            assert "not read by this ranker; its number is a placeholder" in known
            assert ("has no text" if doc_id == "d2" else "below the depth of 5") in known


def test_a_query_without_anything_to_rerank_has_first_stage_numbers(reranked):
    run, first, _ = reranked
    assert "No document was reranked for query q2" in placeholder(run, "q2", "d2", first, 5)


def test_a_document_that_is_not_in_the_run_is_refused(reranked):
    run, _, _ = reranked
    with pytest.raises(WrongUse, match='"d9" is not in the run for query "q1"; it holds 8 others'):
        placeholder(run, "q1", "d9")
    with pytest.raises(WrongUse, match="does not have this query"):
        placeholder(run, "q9", "d1")
