"""Batches: the right shapes, the right negatives, the same for the same seed."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankhouse.core.errors import BadData, WrongUse
from rankhouse.core.nouns import Document, Query
from rankhouse.core.run import Run
from rankhouse.training.batches import Batches
from rankhouse.training.examples import from_judgements, from_pairs
from rankhouse.training.settings import Settings


def shape(kind, negatives="any", **more):
    return kind, Settings(negatives=negatives, **more)


def named(examples, groups):
    """Groups as lists of (query id, document id, label)."""
    lists = []
    for row in range(len(groups.query)):
        passages = examples.fetch(groups.item[row].tolist())
        lists.append(
            [
                (examples.queries[q].id, passage.doc_id, int(label))
                for q, passage, label in zip(groups.query[row], passages, groups.label[row], strict=True)
            ]
        )
    return lists


def everything(batches, epoch=0):
    return [group for groups in batches.epoch(epoch) for group in named(batches.examples, groups)]


@pytest.mark.parametrize("kind", ["points", "contrasts", "positives"])
def test_the_same_seed_and_epoch_give_the_same_lessons_and_others_do_not(toy, kind):
    batches = Batches(toy.examples, *shape(kind, batch=8, count=2, seed=3))
    again = Batches(toy.examples, *shape(kind, batch=8, count=2, seed=3))
    assert everything(batches, 1) == everything(again, 1)
    assert everything(batches, 1) != everything(batches, 2)
    assert everything(batches, 1) != everything(
        Batches(toy.examples, *shape(kind, batch=8, count=2, seed=4)), 1
    )


def test_contrasts_have_the_relevant_first_and_others_of_the_same_query(toy):
    batches = Batches(toy.examples, *shape("contrasts", batch=8, count=3))
    dealt = list(batches.epoch(0))
    assert [len(groups.query) for groups in dealt] == [8] * 11 + [2]
    assert batches.per_epoch == 12
    seen = Counter()
    for group in everything(batches):
        assert [label for _, _, label in group] == [1, 0, 0, 0]
        assert len({query for query, _, _ in group}) == 1
        assert len({document for _, document, _ in group}) == 4
        assert all(toy.qrels[query][document] == label for query, document, label in group)
        seen[group[0][:2]] += 1
    relevant = {(q.id, d) for q in toy.queries[:30] for d, grade in toy.qrels[q.id].items() if grade}
    assert set(seen) == relevant
    assert set(seen.values()) == {1}


def test_too_few_negatives_are_taken_more_than_once(toy):
    batches = Batches(toy.examples, *shape("contrasts", count=9))
    assert all(len(group) == 10 for group in everything(batches))


@pytest.mark.parametrize("negatives", ["any", "random"])
@pytest.mark.parametrize("kind", ["points", "contrasts", "positives"])
def test_far_more_negatives_than_there_are_are_refused(toy, kind, negatives):
    """A step held count texts for each relevant pair, whatever there was: 5.5 GB for 24 queries."""
    most = {"any": 7, "random": len(toy.documents) * 3 // 4}[negatives]
    with pytest.raises(WrongUse, match=f"count=99999: no query has more than {most} .* give count={most} or"):
        Batches(toy.examples, *shape(kind, negatives, count=99_999))


def test_points_with_negatives_drawn_are_balanced_in_every_batch(toy):
    batches = Batches(toy.examples, *shape("points", batch=16, count=1))
    for groups in batches.epoch(0):
        assert groups.label.shape[1] == 1
        assert groups.label.mean() == 0.5
    of_three = [groups.label.mean() for groups in Batches(toy.examples, *shape("points", count=3)).epoch(0)]
    assert set(of_three) == {0.25}


def test_points_as_they_are_come_once_each(toy):
    seen = everything(Batches(toy.examples, *shape("points", count=0, batch=7)))
    assert len(seen) == 300
    assert len({group[0][:2] for group in seen}) == 300
    assert sum(group[0][2] for group in seen) == 90


@pytest.mark.parametrize("count", [0, 1])
def test_a_batch_by_query_holds_one_query_in_chunks(toy, count):
    batches = Batches(toy.examples, *shape("points", count=count, by_query=4))
    dealt = [named(toy.examples, groups) for groups in batches.epoch(0)]
    assert all(len({group[0][0] for group in batch}) == 1 for batch in dealt)
    assert max(map(len, dealt)) == 4
    assert sum(map(len, dealt)) == (180 if count else 300)
    assert len(dealt) == (60 if count else 90) == batches.per_epoch


def test_negatives_of_the_run_are_within_their_ranks(toy):
    batches = Batches(toy.examples, *shape("contrasts", "run(start=2, stop=5)", count=1))
    groups = everything(batches)
    ranks = {q: {d: r for r, d in enumerate(toy.run[q].doc_ids)} for q in toy.run}
    assert groups
    for group in groups:
        query, document, _ = group[1]
        assert 2 <= ranks[query][document] < 5
        assert not toy.qrels[query][document]


def test_random_negatives_are_of_any_query_but_never_relevant(toy):
    groups = everything(Batches(toy.examples, *shape("contrasts", "random", count=4)))
    negatives = [(group[0][0], document) for group in groups for _, document, _ in group[1:]]
    assert all(not toy.qrels[query].get(document, 0) for query, document in negatives)
    assert len({document.split("d")[0] for _, document in negatives}) > 25
    assert np.mean([document.startswith(f"{query}d") for query, document in negatives]) < 0.2


def test_unjudged_documents_are_negatives_of_the_run_but_not_given_ones():
    documents = {d: Document(d, d) for d in "abc"}
    examples = from_judgements(
        [Query("q", "x")], {"q": {"a": 1, "b": 0}}, documents, Run.of([("q", "c", 2.0), ("q", "a", 1.0)])
    )
    for text, expected in (("given", {"b"}), ("run", {"c"}), ("any", {"b", "c"})):
        drawn = {
            group[1][1]
            for epoch in range(20)
            for group in everything(Batches(examples, *shape("contrasts", text)), epoch)
        }
        assert drawn == expected


@given(
    st.dictionaries(
        st.integers(0, 12), st.dictionaries(st.integers(0, 9), st.integers(0, 1), min_size=1), min_size=1
    ),
    st.integers(2, 6),
    st.integers(0, 3),
)
@settings(max_examples=80, deadline=None)
def test_no_positive_in_a_batch_is_relevant_to_another_of_its_queries(judged, batch, seed):
    qrels = {f"q{q}": {f"d{d}": grade for d, grade in own.items()} for q, own in judged.items()}
    relevant = {(q, d) for q, own in qrels.items() for d, grade in own.items() if grade}
    if not relevant:
        return
    documents = {f"d{d}": Document(f"d{d}", f"text {d}") for d in range(10)}
    examples = from_judgements([Query(q, f"about {q}") for q in qrels], qrels, documents)
    batches = Batches(examples, *shape("positives", count=0, batch=batch, seed=seed))
    seen = Counter()
    for groups in batches.epoch(0):
        batch_pairs = [group[0][:2] for group in named(examples, groups)]
        seen.update(batch_pairs)
        assert 2 <= len(batch_pairs) <= batch
        for query, _ in batch_pairs:
            assert sum((query, other) in relevant for _, other in batch_pairs) == 1
        assert len({query for query, _ in batch_pairs}) == len(batch_pairs)
    assert set(seen) <= relevant
    assert set(seen.values()) <= {1}


def test_transitive_positives_never_set_a_product_against_itself():
    """q0 and q1 share d1; q1 and q2 share d2: one product, though nobody judged (q0, d2)."""
    qrels = {"q0": {"d0": 1, "d1": 1}, "q1": {"d1": 1, "d2": 1}, "q2": {"d2": 1}, "q3": {"d3": 1}}
    documents = {f"d{d}": Document(f"d{d}", f"text {d}") for d in range(4)}
    examples = from_judgements([Query(q, f"about {q}") for q in qrels], qrels, documents)
    plain, transitive = (
        [
            {query for group in named(examples, groups) for query, *_ in group}
            for seed in range(20)
            for groups in Batches(
                examples, *shape("positives", count=0, batch=4, seed=seed, transitive=joined)
            ).epoch(0)
        ]
        for joined in (False, True)
    )
    assert any({"q0", "q2"} <= batch for batch in plain)
    assert transitive
    assert all(len(batch & {"q0", "q1", "q2"}) == 1 for batch in transitive)


def test_positives_all_come_where_they_do_not_clash(toy):
    seen = everything(Batches(toy.examples, *shape("positives", count=0, batch=8)))
    assert len({group[0][:2] for group in seen}) == len(seen) >= 88


def test_hard_negatives_stand_behind_their_positive(toy):
    groups = everything(Batches(toy.examples, *shape("positives", "given", count=2, batch=8)))
    assert all([label for _, _, label in group] == [1, 0, 0] for group in groups)


def test_blank_texts_are_left_out_when_read():
    documents = {"a": Document("a", "x"), "b": Document("b", "  "), "c": Document("c", "y")}
    queries = [Query("q", "x"), Query("r", " ")]
    qrels = {"q": {"a": 1, "b": 1, "c": 0}, "r": {"a": 1, "c": 0}}
    batches = Batches(from_judgements(queries, qrels, documents), *shape("contrasts", batch=9))
    texts = batches.read(next(batches.epoch(0)))
    assert [(p.query.id, p.passage.text) for p in texts.pairs] == [("q", "x"), ("q", "y")]
    assert texts.labels.tolist() == [[1.0, 0.0]]


def test_lessons_are_row_major(toy):
    batches = Batches(toy.examples, *shape("contrasts", batch=4, count=2))
    groups = next(batches.epoch(0))
    texts = batches.read(groups)
    assert texts.labels.shape == (4, 3)
    assert texts.labels.dtype == np.float32
    told = [label for group in named(toy.examples, groups) for _, _, label in group]
    assert texts.labels.ravel().tolist() == told
    assert [bool(toy.qrels[p.query.id][p.passage.doc_id]) for p in texts.pairs] == [bool(x) for x in told]


DOCUMENTS = {d: Document(d, d) for d in "ab"}


@pytest.mark.parametrize(
    ("judged", "kind", "negatives", "said"),
    [
        ({"a": 0, "b": 0}, "points", "any", "all 2 labels say not relevant"),
        ({"a": 1, "b": 1}, "points", "any", "all 2 labelled pairs are relevant"),
        ({"a": 1, "b": 1}, "contrasts", "given", "all 2 labelled pairs are relevant"),
        ({"a": 1, "b": 0}, "contrasts", "run", "finds no others"),
    ],
)
def test_labels_of_one_class_are_an_error(judged, kind, negatives, said):
    examples = from_judgements([Query("q", "x")], {"q": judged}, DOCUMENTS)
    with pytest.raises(BadData, match=said):
        Batches(examples, *shape(kind, negatives))


def test_classes_that_never_meet_in_a_query_are_an_error():
    examples = from_judgements([Query("q", "x"), Query("r", "y")], {"q": {"a": 1}, "r": {"b": 0}}, DOCUMENTS)
    with pytest.raises(BadData, match="no query has both"):
        Batches(examples, *shape("contrasts"))
    assert everything(Batches(examples, *shape("contrasts", "random")))


@pytest.mark.parametrize(
    ("kind", "more", "said"),
    [
        ("contrasts", {"count": 0}, "needs 1 negative"),
        ("points", {"count": 0, "negatives": "random"}, "say how many"),
        ("contrasts", {"by_query": 5}, "learned by query"),
    ],
)
def test_settings_that_make_no_sense_for_a_kind_are_refused(toy, kind, more, said):
    with pytest.raises(WrongUse, match=said):
        Batches(toy.examples, *shape(kind, **more))


def test_scores_without_labels_are_no_labels_to_train_on(tmp_path):
    (tmp_path / "a.csv").write_text("sentence1,sentence2,score\nq,a,0.75\nq,b,0.5\n")
    with pytest.raises(BadData, match="have scores and no labels; learn the scores, with  --loss margin-mse"):
        Batches(from_pairs(tmp_path / "a.csv"), *shape("points"))
